"""One stage: both sides of a claim from the cuts on, and its proof at random points."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from math import log2, prod
from typing import Any

import numpy as np

from pitcheck.base.dtypes import INTEGERS
from pitcheck.base.numbers import parse_number
from pitcheck.certificate.arithmetic import Residues
from pitcheck.certificate.forms import Form
from pitcheck.certificate.modular import Array
from pitcheck.certificate.moves import Kind, Value, VoidError, limited
from pitcheck.certificate.relation import Part, judged, taken
from pitcheck.certificate.trace import Node, Nodes, Trace
from pitcheck.errors import PitcheckError, UnsupportedError
from pitcheck.ops.meanings.cast import kind_named
from pitcheck.ops.registry import evaluate
from pitcheck.ops.term import exact
from pitcheck.plan.model import Number, Tensor

MOST_DRAWS, MOST_VOID, LEAST_SAMPLES = 512, 64, 16
MOST_DRAWN = 1 << 26
"""The elements of all tensors together that one stage is given."""
_LEAST, _MOST = -1000, 1001
_REFUSED = {
    ":unwritten": "memory that nobody has written to",
    ":narrow": "integers of 8 or 16 bits that are computed, and wrap around",
}


class FalseClaimError(PitcheckError):
    """A claim of a certificate that does not hold."""


@dataclass(frozen=True)
class Claim:
    """Nodes whose sum must hold a part of a reference tensor; one node unless it is partial."""

    nodes: tuple[int, ...]
    part: Part


def constant(tensor: Tensor) -> Node | None:
    """Return the leaf of a tensor of known value, None for any other.

    Raises:
        UnsupportedError: its dtype does not have the value.
    """
    kind, value = kind_named(tensor.dtype), tensor.value
    if value is None:
        return None
    if kind == "bool":
        value = bool(value)
    if kind == "int" and int(value) not in _integers_of(tensor):
        raise UnsupportedError(f"{tensor.name!r} is {value}, which {tensor.dtype} does not have")
    return Node(":constant", {"value": value}, leaf=(repr(value), tensor.shape, kind))


def _integers_of(tensor: Tensor) -> range:
    """Return the integers that a dtype has."""
    least, most = INTEGERS[tensor.dtype]
    return range(least, most + 1)


def _drawn_from(tensor: Tensor) -> range:
    """Return the integers of which those of a tensor are drawn; there are none for other numbers.

    Raises:
        UnsupportedError: its dtype does not have all of them.
    """
    if kind_named(tensor.dtype) != "int":
        return range(0)
    known = _integers_of(tensor)
    bounds = tensor.bounds or (max(_LEAST, known.start), min(_MOST, known.stop))
    if not known.start <= bounds[0] < bounds[1] <= known.stop:
        raise UnsupportedError(f"{tensor.dtype} does not have all integers of {bounds}")
    return range(*bounds)


class Stage:
    """One target: what must be equal, and the computation of both sides from the cuts on."""

    def __init__(
        self, nodes: Nodes, reference: Trace, theirs: dict[str, Tensor], claims: list[Claim]
    ) -> None:
        self._nodes = nodes
        self._theirs = theirs
        self._claims = claims
        self._of = {name: reference.found.get((name, 0, 0)) for name in theirs}
        self._parallel = self._needed([n for c in claims for n in c.nodes], {})
        parts = [nodes.all[n].leaf for n in self._parallel if nodes.all[n].kind == ":part"]
        self._parts: list[Part] = parts
        target = claims[0].part.reference
        self._drawn = {self._node(part.reference): part.reference for part in parts}
        self._wanted = self._node(target)
        self._reference = self._needed([self._wanted], self._drawn)
        for node in self._reference:
            if nodes.all[node].kind == ":input":
                self._drawn.setdefault(node, nodes.all[node].leaf)
        if sum(prod(theirs[name].shape) for name in self._drawn.values()) > MOST_DRAWN:
            raise UnsupportedError(f"it depends on more than {MOST_DRAWN} elements")
        self._said = self._integers_said()
        self.key = self._canonical()

    def _node(self, name: str) -> int:
        """Return the node of a reference tensor."""
        if self._of[name] is None:
            tensor = self._theirs[name]
            self._of[name] = self._nodes.add(constant(tensor) or Node(":input", leaf=name))
        return self._of[name]  # type: ignore[return-value]

    def _needed(self, roots: list[int], stops: dict[int, str]) -> list[int]:
        """Return the nodes from which the roots are computed, in an order that depends on these."""
        found: dict[int, None] = {}
        entered: set[int] = set()
        stack = list(reversed(roots))
        while stack:
            node = stack[-1]
            if node in entered or node in stops:
                found[stack.pop()] = None
                continue
            entered.add(node)
            stack += [n for n in reversed([*self._nodes.all[node].read]) if n not in entered]
        return list(found)

    def _integers_said(self) -> list[int]:
        """Return the integers that stand in either computation, and those beside them."""
        said: set[object] = set()
        for node in map(self._nodes.all.__getitem__, {*self._parallel, *self._reference}):
            said.update(o.value for o in node.inputs if isinstance(o, Number))
            said.update(v for v in node.attributes.values() if isinstance(v, int))
        return sorted({n + more for n in said if isinstance(n, int) for more in (-1, 0, 1)})

    def _canonical(self) -> str:
        """Return a word that is equal only for stages that are the same but for names."""
        names: dict[object, int] = {}
        said: list[object] = []
        for side, stops in ((self._parallel, {}), (self._reference, self._drawn)):
            number = {node: place for place, node in enumerate(side)}
            for place in side:
                node = self._nodes.all[place]
                if place in stops:
                    said.append(("drawn", self._name(names, place)))
                    continue
                reads = [repr(o.value) if isinstance(o, Number) else number[o] for o in node.inputs]
                attributes = sorted((n, repr(v)) for n, v in node.attributes.items())
                leaf = self._leaf(names, node.leaf) if node.kind == ":part" else node.leaf
                said.append((node.kind, attributes, reads, leaf))
        number = {node: place for place, node in enumerate(self._parallel)}
        for claim in self._claims:
            part = claim.part.box, claim.part.scale
            said.append(([number[n] for n in claim.nodes], part))
        said.append(self._name(names, self._wanted))
        return sha256(repr(said).encode()).hexdigest()

    def _name(self, names: dict[object, int], node: int) -> object:
        """Return a reference node by the order in which it is named, with what is drawn for it."""
        tensor = self._theirs.get(self._drawn.get(node, ""))
        drawn = tensor and (tensor.shape, kind_named(tensor.dtype), _drawn_from(tensor))
        return names.setdefault(("node", node), len(names)), drawn

    def _leaf(self, names: dict[object, int], part: Part) -> object:
        reference = self._node(part.reference)
        sums = names.setdefault(("sum", reference, part.holder, part.group), len(names))
        owner = names.setdefault(("owner", reference, part.holder, part.owner), len(names))
        known = part.box, part.scale, part.term, part.terms
        return self._name(names, reference), known, sums, owner, part.owner < 0

    # --- draws

    def prove(
        self, generator: np.random.Generator, allowed: float, least: int
    ) -> tuple[float, int, bool]:
        """Return (error, draws, True if integers were drawn) of a stage that holds.

        Raises:
            FalseClaimError: it does not hold.
            UnsupportedError: it is not decided.
        """
        kinds = {kind_named(self._theirs[name].dtype) for name in self._drawn.values()}
        sampled = kinds != {"field"} and bool(kinds)
        error, draws, void = 1.0, 0, 0
        while draws < max(least, LEAST_SAMPLES if sampled else 1) or log2(error) > allowed:
            try:
                once = self._draw(Residues(generator), draws + void)
            except VoidError:
                void += 1
                if void > MOST_VOID:
                    raise UnsupportedError("it divides by 0 in every draw") from None
                continue
            draws += 1
            error = max(error * once, 2.0**-1000) if once < 0.5 else 1.0
            if draws > MOST_DRAWS or once >= 0.5:
                raise UnsupportedError("the bound on its error is vacuous")
        return error, draws, sampled

    def _draw(self, algebra: Residues, number: int) -> float:
        """Compare both sides at one point; return a bound on the chance that they agree falsely."""
        drawn = {
            node: _drawn(algebra, self._theirs[name], number, self._said)
            for node, name in self._drawn.items()
        }
        expected = self._run(algebra, self._reference, dict(drawn), None)[self._wanted]
        algebra.side = "parallel"
        leaves = _Leaves(algebra, {name: drawn[self._node(name)] for name in self._names()})
        found = self._run(algebra, self._parallel, {}, leaves)
        forms = []
        for claim in self._claims:
            actual = found[claim.nodes[0]]
            for node in claim.nodes[1:]:
                actual = algebra.add(actual, found[node])
            part = taken(algebra, expected, claim.part, leaves.free)
            forms.append(_compared(algebra, actual, part, judged(claim.part)))
        missing = [
            kind for kind, row in algebra.guards["parallel"] if not _held(algebra, kind, row)
        ]
        if missing:
            raise UnsupportedError(
                f"it has a {missing[0]} of what may be outside of its domain where the reference "
                f"has none"
            )
        return max(map(algebra.error, forms))

    def _names(self) -> set[str]:
        return {part.reference for part in self._parts}

    def _run(
        self, algebra: Residues, order: list[int], values: dict[int, Any], leaves: _Leaves | None
    ) -> dict[int, Value]:
        """Return the values of a side that are compared or known; others are dropped when used."""
        kept = {self._wanted, *values, *(n for claim in self._claims for n in claim.nodes)}
        steps = [place for place in order if place not in values]
        last = {n: place for place in steps for n in self._nodes.all[place].read}
        for place in steps:
            node = self._nodes.all[place]
            if node.kind == ":output":
                values[place] = values[node.inputs[0]][node.leaf]  # type: ignore[index]
            elif node.kind == ":part" and leaves is not None:
                values[place] = leaves.part(node.leaf)
            elif node.kind == ":stack":
                rows = [
                    algebra.reshape(v, (1, *v.shape)) for v in map(values.__getitem__, node.read)
                ]
                values[place] = rows[0] if len(rows) == 1 else algebra.concatenate(rows, 0)
            elif node.kind.startswith(":"):
                values[place] = _leaf(algebra, node)
            else:
                given = _operands(algebra, node, values)
                values[place] = evaluate(algebra, node.kind, given, node.attributes, node.leaf)
            for done in {*node.read} - kept:
                if last[done] == place:
                    del values[done]
        return values


def _held(algebra: Residues, kind: str, row: bytes) -> bool:
    """Return True if the reference needs the same number in the same domain, or a smaller one."""
    kinds = {"div": ("div", "log"), "sqrt": ("sqrt", "log"), "log": ("log",)}[kind]
    return any((own, row) in algebra.guards["reference"] for own in kinds)


class _Leaves:
    """The leaves of the parallel side: parts of drawn reference values, shares of sums, padding."""

    def __init__(self, algebra: Residues, whole: dict[str, Value]) -> None:
        self._algebra = algebra
        self._whole = whole
        self._shares: dict[tuple[object, ...], list[Value]] = {}

    def free(self, shape: tuple[int, ...]) -> Value:
        """Return numbers that nobody knows."""
        return self._algebra.fresh(shape)

    def part(self, part: Part) -> Value:
        """Return what a coordinate holds; equal parts are given once, since they are one node."""
        whole = self._whole[part.reference]
        free = any(start == -1 for own in part.box for start, _ in own)
        if whole.kind != "field" and (free or part.terms > 1):
            raise UnsupportedError("padding or terms of integers are not verified")
        if part.terms == 1:
            return taken(self._algebra, whole, part, self.free)
        key = part.reference, part.box, part.scale, part.terms, part.group, part.holder
        if key not in self._shares:
            last = taken(self._algebra, whole, part, self.free)
            shares = [self.free(last.shape) for _ in range(part.terms - 1)]
            for share in shares:
                last = self._algebra.subtract(last, share)
            self._shares[key] = [*shares, last]
        return self._shares[key][part.term]


def _drawn(algebra: Residues, tensor: Tensor, number: int, said: list[int]) -> Value:
    """Return a reference tensor at one draw: residues, or integers of several sorts in turn."""
    kind, generator, shape = kind_named(tensor.dtype), algebra.generator, tensor.shape
    limited(shape)
    if kind == "field":
        return algebra.fresh(shape)
    if kind == "bool":
        return algebra.exactly(np.asarray(generator.random(shape) < (0.5, 0.9, 0.1)[number % 3]))
    low, high = _drawn_from(tensor).start, _drawn_from(tensor).stop
    span = max(1, (high - low) >> (0, 0, 3, 1)[number % 4])
    start = int(generator.integers(low, max(low + 1, high - span + 1)))
    found = generator.integers(start, start + span, size=shape, dtype=np.int64)
    marks = [low, high - 1, *(n for n in said if low <= n < high)]
    marked = np.array(marks, dtype=np.int64)[generator.integers(0, len(marks), size=shape)]
    share = (0.2, 0.2, 0.2, 0.9)[number % 4]
    return algebra.exactly(np.where(generator.random(shape) < share, marked, found))


def _leaf(algebra: Residues, node: Node) -> Value:
    """Return a value that depends on nothing that is drawn."""
    if node.kind == ":shape":
        shape, kind = node.leaf
        return algebra.expand(algebra.constant(0, kind), shape)
    if node.kind != ":constant":
        raise UnsupportedError(f"it depends on {_REFUSED[node.kind]}")
    _, shape, kind = node.leaf
    return algebra.expand(_literal(algebra, node.attributes["value"], kind), shape)


def _literal(algebra: Residues, value: int | float | str, kind: Kind) -> Value:
    """Return a number, of a kind other than "field" only if it is whole."""
    number = parse_number(value)
    if kind != "field" and isinstance(number, Fraction) and number.denominator == 1:
        return algebra.constant(number, kind)
    found: Value = exact(algebra, number).value
    return found


def _operands(algebra: Residues, node: Node, values: dict[int, Any]) -> list[Value]:
    """Return what a step reads."""
    found = [o if isinstance(o, Number) else values[o] for o in node.inputs]
    kinds = {o.kind for o in found if isinstance(o, Value)}
    kind: Kind = "int" if kinds and "field" not in kinds else "field"
    return [o if isinstance(o, Value) else _literal(algebra, o.value, kind) for o in found]


def _compared(algebra: Residues, actual: Value, expected: Value, where: Array) -> Form:
    """Return the form of the difference of two values that agree.

    Logarithms are compared by their exponentials, too.

    Raises:
        FalseClaimError: they differ.
        UnsupportedError: they differ, and have functions, of which a law may make them equal.
    """
    if actual.shape != expected.shape or actual.kind != expected.kind:
        raise FalseClaimError(f"it has shape {actual.shape}, and not {expected.shape}")
    if any(v.hidden is not None or v.special is not None for v in (actual, expected)):
        raise UnsupportedError("it may be infinite, or no number")
    if _equal(actual, expected, where):
        return algebra.forms.added(actual.form, expected.form)
    logarithms = any(v.base is not None or v.terms for v in (actual, expected))
    if algebra.tables and logarithms and where.all():
        a, b = algebra.exp(actual), algebra.exp(expected)
        if _equal(a, b, where):
            return algebra.forms.added(a.form, b.form)
    if algebra.tables:
        raise UnsupportedError("it differs, unless by a law of functions that is not known here")
    raise FalseClaimError("both sides differ at a random point")


def _equal(a: Value, b: Value, where: Array) -> bool:
    return bool((np.asarray(a.data == b.data) | ~where).all())
