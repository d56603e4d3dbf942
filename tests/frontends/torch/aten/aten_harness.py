"""An ATen overload run by PyTorch, and what its event is translated to, evaluated on the reals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.value import Value as Residues
from pitcheck.base.numbers import parse_number
from pitcheck.execution import meanings
from pitcheck.frontends.torch.aten.emitter import Translation, stored
from pitcheck.frontends.torch.aten.operators import translated
from pitcheck.frontends.torch.trace import Event, Ref, Value
from pitcheck.ops.registry import evaluate
from pitcheck.ops.term import exact
from pitcheck.plan.model import Number, Operator, Plan, Tensor
from pitcheck.plan.validate import validate

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Row:
    """An overload ("add.Tensor") and its arguments."""

    operator: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    case: str = ""

    @property
    def label(self) -> str:
        return f"{self.operator}-{self.case}" if self.case else self.operator


def overload(name: str) -> Any:
    """PyTorch's overload."""
    operator, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, operator), which)


class Recorded:
    """The event of a call, as a recorder writes it: all arguments in the schema's order."""

    def __init__(self, row: Row) -> None:
        called = overload(row.operator)
        torch.set_default_dtype(torch.float64)
        try:
            results = ORACLES.get(row.operator, called)(*row.arguments, **row.keywords)
        finally:
            torch.set_default_dtype(torch.float32)
        self._record(row.operator, called, row.arguments, row.keywords, results)

    @classmethod
    def of(
        cls,
        operator: str,
        called: Any,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        results: Any,
    ) -> Recorded:
        """Return the record of a call that has been made."""
        recorded = cls.__new__(cls)
        recorded._record(operator, called, arguments, keywords, results)
        return recorded

    def _record(
        self,
        operator: str,
        called: Any,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        results: Any,
    ) -> None:
        self.values: list[Value] = []
        self.tensors: list[torch.Tensor] = []
        given = dict(
            zip((a.name for a in called._schema.arguments), arguments, strict=False)
        ) | dict(keywords)
        said = tuple(
            self.argument(given.get(a.name, a.default_value)) for a in called._schema.arguments
        )
        self.results = list(flat(results))
        self.inputs = len(self.values)
        outputs = tuple(
            self.value(r) if isinstance(r, torch.Tensor) else None for r in self.results
        )
        self.event = Event(operator, said, outputs, source="model.py:3", module="layers.0")

    def value(self, tensor: torch.Tensor) -> int:
        self.values.append(Value(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")))  # type: ignore[arg-type]
        self.tensors.append(tensor)
        return len(self.values) - 1

    def argument(self, given: Any) -> Any:
        if isinstance(given, torch.Tensor):
            return Ref(self.value(given))
        if isinstance(given, torch.dtype):
            return str(given).removeprefix("torch.")
        if isinstance(given, (list, tuple)):
            return tuple(map(self.argument, given))
        return given if isinstance(given, (bool, int, float, str)) else None


def _rms_norm_backward(
    grad_out: torch.Tensor,
    x: torch.Tensor,
    shape: Any,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    mask: list[bool],
) -> Any:
    """By autograd, of the formula whose statistics are given."""
    leaves = [
        x.clone().requires_grad_(),
        (torch.ones(shape, dtype=x.dtype) if weight is None else weight).clone().requires_grad_(),
    ]
    over = tuple(range(x.ndim - len(shape), x.ndim))
    eps = (rstd**-2 - (x * x).mean(over, keepdim=True)).detach()
    gradients = torch.autograd.grad(
        leaves[0] * torch.rsqrt((leaves[0] ** 2).mean(over, keepdim=True) + eps) * leaves[1],
        leaves,
        grad_out,
    )
    return tuple(
        gradient if wanted else None for gradient, wanted in zip(gradients, mask, strict=True)
    )


ORACLES = {"_fused_rms_norm_backward.default": _rms_norm_backward}
"""Results of PyTorch for overloads that have no kernel for CPUs."""


def flat(results: Any) -> Any:
    """The results one after the other, those in lists too."""
    if isinstance(results, (list, tuple)):
        for result in results:
            yield from flat(result)
    else:
        yield results


def copied(things: Any) -> Any:
    """Arguments or results with copies of their tensors."""
    if isinstance(things, torch.Tensor):
        return things.detach().resolve_conj().clone()
    if isinstance(things, (list, tuple)):
        return tuple(map(copied, things))
    return (
        {name: copied(thing) for name, thing in things.items()}
        if isinstance(things, dict)
        else things
    )


def name_of(number: int) -> str:
    return f"v{number}"


def translation_of(event: Event, values: Sequence[Value]) -> Translation:
    """The translation with names that tell which tensor is which."""
    count = iter(range(1000))
    return translated(event, values, name_of, lambda hint, _: f"{hint}~{next(count)}")


def as_array(tensor: torch.Tensor) -> Array:
    """The elements as a plan has them: float64, int64, bool; complex ones as pairs."""
    tensor = tensor.detach().resolve_conj()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return (
        tensor.double().numpy()
        if tensor.is_floating_point()
        else tensor.numpy()
        if tensor.dtype == torch.bool
        else tensor.long().numpy()
    )


def _literal(operand: Number, kinds: set[str]) -> Array:
    """Whole numbers beside nothing but integers are integers."""
    number = parse_number(operand.value)
    if kinds and "f" not in kinds and isinstance(number, Fraction) and number.denominator == 1:
        return np.asarray(int(number))
    algebra = RealAlgebra(np, 1, (0,))
    return np.asarray(exact(algebra, number).value.data[0, 0, 0])


def by_algebra(
    kind: str, inputs: Sequence[Array], attributes: Any, wanted: list[bool]
) -> list[Any]:
    """One operator in the package's algebra of float64."""
    algebra = RealAlgebra(np, 1, (0,))
    values = [
        Residues("field", a[None, None, None])
        if a.dtype == np.float64
        else algebra.integers(a[None, None])
        for a in map(np.asarray, inputs)
    ]
    results = evaluate(
        algebra, kind, values, attributes, wanted if kind.endswith(".backward") else None
    )
    return [None if v is None else np.asarray(v.data[0, 0, 0]) for v in results]


def by_oracle(kind: str, inputs: Sequence[Array], attributes: Any, wanted: list[bool]) -> list[Any]:
    """One operator by the meanings written over PyTorch."""
    tensors = [torch.from_numpy(np.array(a)) for a in inputs]
    if kind.endswith(".backward"):
        results = meanings.backward(
            kind.removesuffix(".backward"), tensors, dict(attributes), wanted
        )
    else:
        results = meanings.forward(kind, tensors, dict(attributes))
    return [None if r is None else r.numpy() for r in results]


def evaluated(
    translation: Translation, known: dict[str, Array], said: Mapping[str, Value], run: Any
) -> dict[str, Array]:
    """Every tensor of a translation by name; each is checked to have the shape and the kind that
    are said of it.
    """
    for instance in translation.instances:
        assert (instance.source, instance.module, instance.microbatch) == (
            "model.py:3",
            "layers.0",
            None,
        )
        tensors = [known[o] for o in instance.inputs if isinstance(o, str)]
        kinds = {a.dtype.kind for a in tensors}
        inputs = [
            known[o] if isinstance(o, str) else _literal(o, kinds)
            for o in instance.inputs
            if isinstance(o, (str, Number))
        ]
        results = run(
            instance.kind, inputs, instance.attributes, [bool(name) for name in instance.outputs]
        )
        for name, result in zip(instance.outputs, results, strict=True):
            if name:
                assert name not in known
                assert result.shape == said[name].shape, (instance, result.shape, said[name])
                kind = (
                    "b" if said[name].dtype == "bool" else "i" if "int" in said[name].dtype else "f"
                )
                assert result.dtype.kind == kind, (instance, result.dtype, said[name])
                known[name] = result
    return known


def check(row: Row, run: Any) -> None:
    """PyTorch and the translation give the same; None of the results is an output that the
    translation leaves out.
    """
    check_recorded(Recorded(row), run)


def check_recorded(recorded: Recorded, run: Any) -> None:
    """As :func:`check`, for a call that has been made."""
    translation = translation_of(recorded.event, recorded.values)
    said = {**{name_of(i): stored(v) for i, v in enumerate(recorded.values)}, **translation.tensors}
    known = {name_of(i): as_array(t) for i, t in enumerate(recorded.tensors[: recorded.inputs])}
    assert validate(plan_of(translation, set(known), said)) == []
    known = evaluated(translation, known, said, run)
    for number in recorded.event.outputs:
        if number is not None and name_of(number) in known:
            theirs = as_array(recorded.tensors[number])
            assert known[name_of(number)].shape == theirs.shape
            if {instance.kind for instance in translation.instances} == {"uninitialised"}:
                continue
            np.testing.assert_allclose(known[name_of(number)], theirs, rtol=1e-10, atol=1e-10)
    outputs = [
        (i, number)
        for i, number in enumerate(recorded.event.outputs)
        if number is not None and recorded.tensors[number].numel()
    ]
    left_out = [i for i, number in outputs if name_of(number) not in known]
    assert left_out in LEFT_OUT.get(recorded.event.operator, ([],))


def plan_of(translation: Translation, given: set[str], said: Mapping[str, Value]) -> Plan:
    """A plan of nothing but a translation, whose inputs are those that it reads."""
    used = {
        name
        for i in translation.instances
        for name in (*i.inputs, *i.outputs)
        if isinstance(name, str) and name
    }
    tensors = tuple(
        Tensor(name, said[name].shape, said[name].dtype, "input" if name in given else "activation")
        for name in sorted(used)
    )  # type: ignore[arg-type]
    operators = tuple(
        Operator(
            str(place), i.kind, i.inputs, i.outputs, i.attributes, i.group, (), i.source, i.module
        )
        for place, i in enumerate(translation.instances)
    )
    return Plan((), tensors, operators, ())


LEFT_OUT = {
    "log_sigmoid_forward.default": ([1],),
    **{f"nll_loss{d}_forward.default": ([], [1]) for d in ("", "2d")},
}
"""Outputs that no operator makes: a buffer that only the derivative reads, and a count that nothing
reads where no mean is taken.
"""
