"""Formulas as terms, and plans made of them.

A term is an operator applied to terms and literals. Equal terms are one tensor of the plan, so a
formula is a graph rather than a tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from pitcheck.base.dtypes import DType
from pitcheck.plan.model import (
    Attribute,
    Axis,
    Group,
    Lineage,
    Number,
    Operator,
    Output,
    Plan,
    Shard,
    Tensor,
)

GIVEN = "given"
FLOAT: DType = "float32"
INT: DType = "int64"
BOOL: DType = "bool"


@dataclass(frozen=True)
class Term:
    """One operator with its operands, or a given tensor.

    ``shape`` and ``dtype`` are those of its only output that is used, number ``output`` of
    ``outputs``. A given tensor has its name in ``name``, and as an integer its ``bounds``.
    """

    kind: str
    inputs: tuple[Operand, ...]
    shape: tuple[int, ...]
    dtype: DType = FLOAT
    attributes: tuple[tuple[str, Attribute], ...] = ()
    output: int = 0
    outputs: int = 1
    name: str = ""
    bounds: tuple[int, int] | None = None

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.inputs, self.shape, self.attributes, self.output, self.name))

    def __hash__(self) -> int:
        return self._hash

    @property
    def terms(self) -> tuple[Term, ...]:
        """The operands that are terms."""
        return tuple(each for each in self.inputs if isinstance(each, Term))

    def attribute(self, name: str) -> Attribute:
        """Return the value of an attribute, None if it is absent."""
        return dict(self.attributes).get(name)


Operand = Term | Number


def op(
    kind: str,
    *inputs: Operand,
    shape: tuple[int, ...] | None = None,
    dtype: DType | None = None,
    **attributes: Attribute,
) -> Term:
    """Return a term whose shape and dtype are those of its first operand unless they are given."""
    first = next((each for each in inputs if isinstance(each, Term)), None)
    if shape is None:
        shape = first.shape if first is not None else ()
    if dtype is None:
        dtype = first.dtype if first is not None else FLOAT
    if kind in ("cast", "full_like"):
        attributes["dtype"] = dtype
    return Term(kind, inputs, shape, dtype, tuple(sorted(attributes.items())))


def given(
    name: str, *shape: int, dtype: DType = FLOAT, bounds: tuple[int, int] | None = None
) -> Term:
    """Return an input of the formula."""
    return Term(GIVEN, (), shape, dtype, name=name, bounds=bounds)


def number(value: float | str) -> Number:
    """Return a literal."""
    return Number(value)


def walk(root: Term) -> Iterator[Term]:
    """Yield every distinct term of a formula once, operands first."""
    seen: set[Term] = set()
    stack: list[tuple[Term, bool]] = [(root, False)]
    while stack:
        term, ready = stack.pop()
        if term in seen:
            continue
        if ready:
            seen.add(term)
            yield term
        else:
            stack.append((term, True))
            stack.extend((each, False) for each in reversed(term.terms))


def at(root: Term, place: Term, new: Term) -> Term:
    """Return the formula with one term exchanged for another, wherever it is read."""
    made: dict[Term, Term] = {}
    for term in walk(root):
        inputs = tuple(made[each] if isinstance(each, Term) else each for each in term.inputs)
        made[term] = new if term == place else replace(term, inputs=inputs)
    return made[root]


def plan_of(root: Term, inputs: Iterable[Term], ranks: int = 1) -> Plan:
    """Return the plan that computes a formula of ``inputs``; its output is called ``result``.

    With several ranks every input whose first dimension they divide arrives in equal parts along
    it, and is gathered.
    """
    names: dict[Term, str] = {}
    tensors: list[Tensor] = []
    operators: list[Operator] = []
    for term in inputs:
        names[term] = _given(term, ranks, tensors, operators)
    for place, term in enumerate(walk(root)):
        if term.kind == GIVEN:
            continue
        name = names[term] = "result" if term == root else f"t{place}"
        tensors.append(Tensor(name, term.shape, term.dtype))
        outputs = tuple(name if i == term.output else "" for i in range(term.outputs))
        inputs = tuple(names[e] if isinstance(e, Term) else e for e in term.inputs)
        operators.append(Operator(f"o{place}", term.kind, inputs, outputs, dict(term.attributes)))
    mesh = (Axis("r", ranks),) if ranks > 1 else ()
    if root.kind == GIVEN:
        tensors.append(Tensor("result", root.shape, root.dtype))
        operators.append(Operator("out", "identity", (names[root],), ("result",)))
    return Plan(mesh, tuple(tensors), tuple(operators), (Output("result", "result"),))


def _given(term: Term, ranks: int, tensors: list[Tensor], operators: list[Operator]) -> str:
    whole = Tensor(term.name, term.shape, term.dtype, "input", bounds=term.bounds)
    if ranks == 1 or not term.shape or term.shape[0] % ranks:
        tensors.append(whole)
        return term.name
    part = (term.shape[0] // ranks, *term.shape[1:])
    lineage = Lineage(term.name, (Shard(0, by=("r",)),))
    tensors.append(
        Tensor(term.name, part, term.dtype, "input", lineage=lineage, bounds=term.bounds)
    )
    name = f"{term.name}_whole"
    tensors.append(Tensor(name, term.shape, term.dtype))
    operators.append(
        Operator(
            f"gather_{term.name}",
            "all_gather",
            (term.name,),
            (name,),
            {"axis": 0},
            Group(axes=("r",)),
        )
    )
    return name
