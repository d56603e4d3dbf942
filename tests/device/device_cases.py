"""Operators on residues, over any array module: every case of every operator, in every algebra.

What an algebra gives and records is brought to the host as *facts*, which are compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from ops.ops_law_cases import Case, all_cases

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import Chain, chains_of
from pitcheck.algebra.residues.free_functions import FreeAlgebra, WeightedFreeAlgebra
from pitcheck.algebra.residues.undefined import (
    UndefinedAlgebra,
    UndefinedFreeAlgebra,
    UndefinedWeightedAlgebra,
    UndefinedWeightedFreeAlgebra,
)
from pitcheck.algebra.residues.weights import WeightedAlgebra
from pitcheck.algebra.value import FINITE, NEGATIVE_INFINITY, Value
from pitcheck.errors import PitcheckError
from pitcheck.ops.registry import evaluate, operator_kind, operator_names
from pitcheck.prove.ties import TiesAlgebra, TiesWeightedAlgebra

TRIALS = (0, 1, 2)
SEED = 5
INSTANCES = 2
LINKED = chains_of(3)[0]
FREE = Chain((1000003, 999983), linked=False)
WEIGHTS = {size: ((size, 1, size),) for size in (2, 3, 4, 6)}
"""Weights along axes of these sizes, one for every place."""


SORTS = ("drawn", "zeros", "special")
"""The sorts of operands: drawn numbers, some of them 0, or some of them NaN or infinite."""


@dataclass(frozen=True)
class Kind:
    """A class of algebras, with what its instances are made of."""

    made: Callable[..., ResidueAlgebra]
    chain: Chain = LINKED
    weights: bool = False
    set: Mapping[str, Any] = field(default_factory=dict)

    def algebra(self, xp: Any) -> ResidueAlgebra:
        """Return an algebra over an array module."""
        first = (WEIGHTS,) if self.weights else ()
        algebra = self.made(*first, xp, self.chain, SEED, TRIALS)
        algebra.site = "parallel 1 op"
        for name, value in self.set.items():
            setattr(algebra, name, value)
        return algebra


HALF = {0: np.array([True, False, True]).reshape(3, 1)}
"""The first operand of a partial operation is undefined in two of three trials."""
UNDEFINED = {"free_order": True, "without_signs": frozenset(("infinity", "zero"))}

KINDS: Mapping[str, Kind] = {
    "residues": Kind(ResidueAlgebra),
    "weighted": Kind(WeightedAlgebra, weights=True),
    "free": Kind(FreeAlgebra, FREE),
    "weighted free": Kind(WeightedFreeAlgebra, FREE, True),
    "ties": Kind(TiesAlgebra),
    "weighted ties": Kind(TiesWeightedAlgebra, weights=True),
    "undefined": Kind(UndefinedAlgebra, set=UNDEFINED),
    "undefined operands": Kind(UndefinedAlgebra, set={"undefined": HALF}),
    "weighted undefined": Kind(UndefinedWeightedAlgebra, weights=True),
    "undefined free": Kind(UndefinedFreeAlgebra, FREE, set=UNDEFINED),
    "weighted undefined free": Kind(UndefinedWeightedFreeAlgebra, FREE, True, {"undefined": HALF}),
}


@cache
def cases() -> tuple[Case, ...]:
    """Return every case of every operator that has one."""
    return tuple(
        case
        for name in operator_names()
        if not name.endswith(".backward")
        for case in all_cases(operator_kind(name))
    )


def operands(algebra: ResidueAlgebra, case: Case, sort: str) -> list[Value]:
    """Return the operands of a case: drawn numbers, and the integers and booleans that it has.

    Some drawn numbers are 0, or NaN and infinite, if ``sort`` says so.
    """
    return [
        _given(algebra, operand, f"{case.operator.name}/{place}", sort)
        for place, operand in enumerate(case.inputs)
    ]


def _given(algebra: ResidueAlgebra, operand: Any, key: str, sort: str) -> Value:
    if operand.dtype != np.float64:
        return algebra.integers(np.asarray(operand)[None, None])
    if not operand.shape and not np.isfinite(operand):
        return algebra.constant(float(operand))
    value = algebra.fresh(key, operand.shape, INSTANCES, "square")
    generator = np.random.default_rng([SEED, len(key), *operand.shape])
    chosen = generator.integers(0, 8, (1, len(TRIALS), INSTANCES, *operand.shape))
    if sort == "zeros":
        kept = algebra.xp.asarray((chosen > 2).astype(np.int64))
        return replace(value, data=value.data * kept)
    if sort == "special":
        codes = np.where(chosen <= NEGATIVE_INFINITY, chosen, FINITE).astype(np.uint8)
        return replace(value, special=algebra.xp.asarray(codes))
    return value


def results(algebra: ResidueAlgebra, case: Case, sort: str) -> Iterator[Any]:
    """Yield the outputs of a case and of its derivative, or the message of an error."""
    name, inputs = case.operator.name, operands(algebra, case, sort)
    outputs = attempt(lambda: evaluate(algebra, name, inputs, case.attributes))
    yield outputs
    backward = f"{name}.backward"
    if isinstance(outputs, str) or backward not in operator_names():
        return
    gradients = [
        algebra.fresh(f"{name}/g{n}", algebra.shape(v), INSTANCES, "square")
        for n, v in enumerate(outputs)
        if v.kind == "field"
    ]
    if len(gradients) < len(outputs):
        return
    sizes = {"forward_inputs": len(inputs), "forward_outputs": len(outputs)}
    given = [*inputs, *outputs, *gradients]
    yield attempt(lambda: evaluate(algebra, backward, given, {**case.attributes, **sizes}))


def attempt(step: Callable[[], Any]) -> Any:
    """Return a result, or the class and message of an error of pitcheck's."""
    try:
        return step()
    except PitcheckError as error:
        return f"{type(error).__name__}: {error}"


def recorded(algebra: ResidueAlgebra) -> list[Any]:
    """Return what an algebra noted meanwhile."""
    noted = [algebra.void, algebra.decisions, algebra.choices, algebra.roots, algebra.guarded]
    more = ("signless_infinity", "decided", "hidden", "unsure", "squared_roots")
    return noted + [getattr(algebra, name, None) for name in more]


def facts(xp: Any, thing: Any) -> Any:
    """Return arrays as (dtype, shape, bytes), and what holds them as tuples."""
    if isinstance(thing, np.ndarray) or (hasattr(thing, "dtype") and hasattr(thing, "strides")):
        host = thing if isinstance(thing, np.ndarray) else to_host(xp, thing)
        return str(host.dtype), host.shape, host.tobytes()
    if is_dataclass(thing):
        return tuple(facts(xp, getattr(thing, each.name)) for each in fields(thing))
    if isinstance(thing, Sequence) and not isinstance(thing, str):
        return tuple(facts(xp, each) for each in thing)
    return thing


def facts_of(xp: Any, kind: Kind, case: Case, sort: str) -> Any:
    """Return all that an algebra gives and records of a case."""
    algebra = kind.algebra(xp)
    with np.errstate(all="ignore"):
        given = [facts(xp, each) for each in results(algebra, case, sort)]
    return given, facts(xp, recorded(algebra))
