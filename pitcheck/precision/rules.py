"""The precision rules.

Dtypes are compared along values that are proven to be equal. Only the first place at which the
parallel plan rounds more is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph, Node
from pitcheck.ops.registry import communication_of, has_trait
from pitcheck.ops.traits import Communication, Trait
from pitcheck.plan.model import Plan
from pitcheck.precision.side import BITS, Side, is_reduction
from pitcheck.precision.walks import Sum, Way, sum_of, way_to


@dataclass(frozen=True)
class Broken:
    """A broken rule: ``node`` of the parallel plan computes ``value`` in ``dtype``.

    The reference computes it in ``wanted``, as a part of its value ``reference``.
    """

    code: str
    node: int
    value: int
    dtype: str
    wanted: str
    reference: int
    name: str
    """The reference's name of ``reference``; the name under which it is kept, if it is."""


@dataclass
class Matches:
    """The values of the parallel plan that equal values of the reference.

    ``pairs`` maps a computed or given value to the reference's, both as first computed, before
    casts.
    """

    reference: Side
    parallel: Side
    pairs: dict[int, int] = field(default_factory=dict)
    given: set[int] = field(default_factory=set)
    outputs: list[tuple[int, int]] = field(default_factory=list)
    """The compared values in the forms that are compared: (value, reference value)."""
    kept: dict[int, int] = field(default_factory=dict)
    """Outputs, gradients and new values of the reference -> the fewest digits they have."""
    names: dict[int, str] = field(default_factory=dict)
    gradients: set[int] = field(default_factory=set)
    forms: dict[int, int] = field(default_factory=dict)
    """Values of the reference -> the fewest digits in which it has them."""

    def __post_init__(self) -> None:
        for value in filter(self.reference.is_float, range(len(self.reference.graph.values))):
            root = self.reference.root(value)
            self.forms[root] = min(
                self.forms.get(root, self.reference.bits(value)), self.reference.bits(value)
            )

    def enter(self, cut: Cut, given: bool = False, output: bool = False) -> None:
        """Note a cut: of an output, given, or in between.

        Terms of sums and scaled values are not matches.
        """
        if (
            cut.scale != 1
            or (cut.parts.terms > 1).any()
            or not self.parallel.is_float(cut.value)
            or not self.reference.is_float(cut.reference)
        ):
            return
        own = self.parallel.root(cut.value)
        self.pairs.setdefault(own, self.reference.root(cut.reference))
        if given:
            self.given.add(own)
        if output:
            self.outputs.append((cut.value, cut.reference))

    def keep(self, plan: Plan) -> None:
        """Note what the reference keeps."""
        outputs = {output.tensor for output in plan.outputs}
        for tensor in plan.tensors:
            if tensor.dtype in BITS and (
                tensor.gradient_of or tensor.updated or tensor.name in outputs
            ):
                root = self.reference.root(self.reference.graph.number[tensor.name])
                self.kept[root] = min(self.kept.get(root, BITS[tensor.dtype]), BITS[tensor.dtype])
                self.names.setdefault(root, tensor.name)
                if tensor.gradient_of:
                    self.gradients.add(root)


def in_one_dtype(plans: Iterable[Plan]) -> bool:
    """Return True if all floating-point tensors have one dtype, so that no rule can be broken."""
    return len({tensor.dtype for plan in plans for tensor in plan.tensors} & BITS.keys()) <= 1


def broken_rules(
    plan: Plan,
    first: Graph,
    second: Graph,
    given: Iterable[Cut],
    between: Iterable[Cut],
    outputs: Iterable[Cut],
) -> list[Broken]:
    """Return the broken rules, in the order of the parallel plan.

    ``plan`` is the reference; the cuts say which values are equal.
    """
    matches = Matches(Side(first), Side(second))
    for cut in given:
        matches.enter(cut, given=True)
    for cut in outputs:
        matches.enter(cut, output=True)
    for cut in between:
        matches.enter(cut)
    matches.keep(plan)
    computed = sorted(
        matches.pairs.keys() - matches.given, key=lambda value: (second.depth(value), value)
    )
    found = [broken for value in computed for broken in _broken_at(matches, value)]
    found += [
        broken
        for value, reference in matches.outputs
        for broken in _narrow_end(matches, value, reference)
    ]
    buffers = {broken.node for broken in found if broken.code == "PIT303"}
    return [broken for broken in found if broken.code == "PIT303" or broken.node not in buffers]


def _broken_at(matches: Matches, value: int) -> Iterator[Broken]:
    wanted = matches.pairs[value]
    if wanted in matches.gradients:
        buffers = _two_buffers(matches, value, wanted)
        if buffers is not None:
            yield buffers
            return
    own = way_to(matches.parallel, value, matches.pairs)
    inputs = {each: matches.pairs[each] for each in own.inputs}
    if wanted in inputs.values():
        yield from _narrow_copy(matches, own, wanted)
        return
    yield from _narrow_sum(matches, value, wanted) or _narrow_way(matches, own, wanted, inputs)


# --- sums


def _narrow_sum(matches: Matches, value: int, wanted: int) -> list[Broken]:
    """Return PIT301 if terms as wide as the reference's are added up in a narrower dtype."""
    own = sum_of(matches.parallel, value, lambda each: matches.pairs.get(each, wanted) != wanted)
    if not own.parts:
        return []
    stops = {matches.pairs[term] for term in own.terms if term in matches.pairs}
    theirs = sum_of(matches.reference, wanted, stops.__contains__)
    bits, least = _sum_bits(matches.parallel, own), _least(matches, theirs, wanted)
    if bits >= least or _term_bits(matches.parallel, own) < _term_bits(matches.reference, theirs):
        return []
    narrow = [part for part in own.parts if matches.parallel.bits(part) < least]
    first = min(narrow, key=matches.parallel.graph.depth)
    return [_broken(matches, "PIT301", first, least, wanted)]


def _least(matches: Matches, theirs: Sum, wanted: int) -> int:
    """Return the digits in which the reference adds up.

    If it does so within one operator, these are the digits in which it keeps the result.
    """
    if theirs.parts:
        return _sum_bits(matches.reference, theirs)
    return matches.kept.get(wanted, matches.reference.bits(wanted))


def _sum_bits(side: Side, total: Sum) -> int:
    return min(side.bits(part) for part in total.parts)


def _term_bits(side: Side, total: Sum) -> int:
    return min((side.bits(term) for term in total.terms), default=max(BITS.values()))


def _two_buffers(matches: Matches, value: int, wanted: int) -> Broken | None:
    """Return PIT303 if a gradient is accumulated in two buffers of different dtype.

    The reference must not do so itself.
    """
    own = sum_of(matches.parallel, value, _nowhere)
    pair = _different_buffers(matches.parallel, own)
    if (
        pair is None
        or _different_buffers(matches.reference, sum_of(matches.reference, wanted, _nowhere))
        is not None
    ):
        return None
    narrow, wide = sorted(pair, key=matches.parallel.bits)
    return _broken(matches, "PIT303", narrow, matches.parallel.bits(wide), wanted)


def _nowhere(_: int) -> bool:
    return False


def _different_buffers(side: Side, total: Sum) -> tuple[int, int] | None:
    """Return two values of different dtype in which different terms of a sum are accumulated."""
    buffers = [
        part for part in total.parts if any(_accumulates(node) for node in side.writers(part))
    ]
    if len({side.dtype(buffer) for buffer in buffers}) < 2:
        return None
    for one, other in combinations(sorted(buffers, key=side.graph.depth), 2):
        if (
            side.dtype(one) != side.dtype(other)
            and one not in total.under(other)
            and other not in total.under(one)
        ):
            return one, other
    return None


def _accumulates(node: Node) -> bool:
    """Return True if a node adds to what its own rank has: an operand, or a micro-batch."""
    return (
        has_trait(node.kind, Trait.ADDS_PLAINLY, node.attributes)
        and communication_of(node.kind) is Communication.NONE
    )


# --- everything else


def _narrow_way(matches: Matches, own: Way, wanted: int, inputs: Mapping[int, int]) -> list[Broken]:
    """Return PIT302 if values between matched ones are narrower than in the reference.

    The matched values themselves must not be. It is PIT301 if the narrow value is a reduction.
    """
    theirs = way_to(matches.reference, wanted, set(inputs.values()))
    least = min(matches.reference.bits(value) for value in theirs.values())
    side = matches.parallel
    narrow = [value for value in own.values() if side.bits(value) < least and side.rounds(value)]
    if not narrow:
        return []
    for each, other in inputs.items():
        if side.bits(each) < min(
            matches.reference.bits(other), theirs.inputs.get(other, matches.reference.bits(other))
        ):
            return []  # It was narrower before.
    first = min(narrow, key=lambda value: (side.graph.depth(value), value))
    if any(is_reduction(node) for node in side.writers(first)):
        return [_broken(matches, "PIT301", first, least, wanted)]
    reduced = _only_reduced(side, first, least)
    return [
        _broken(
            matches,
            "PIT302" if reduced is None else "PIT301",
            first if reduced is None else reduced,
            least,
            wanted,
        )
    ]


def _narrow_copy(matches: Matches, own: Way, wanted: int) -> list[Broken]:
    """Return PIT302 if a copy of a value is cast to a dtype in which the reference never has it.

    A copy is what another place has of the value, such as all of its rows.
    """
    side, least = matches.parallel, matches.forms[wanted]
    narrow = [
        value
        for value in own.values()
        if side.bits(value) < least and side.rounds(value) and side.is_moved(value)
    ]
    return (
        [
            _broken(
                matches,
                "PIT302",
                min(narrow, key=lambda value: (side.graph.depth(value), value)),
                least,
                wanted,
            )
        ]
        if narrow
        else []
    )


def _narrow_end(matches: Matches, value: int, reference: int) -> Iterator[Broken]:
    """Yield PIT302 for an output that is cast to a narrower dtype than in the reference."""
    side, wanted = matches.parallel, matches.reference.root(reference)
    least = int(min(matches.reference.kept_bits(reference), matches.reference.bits(wanted)))
    if side.bits(side.root(value)) >= least > side.kept_bits(value):
        first = next(each for each in reversed(side.chain(value)) if side.bits(each) < least)
        yield _broken(matches, "PIT302", first, least, wanted)


def _only_reduced(side: Side, value: int, least: float) -> int | None:
    """Return the first narrow reduction of a value, if nothing else is computed with the value."""
    uses = sorted(side.uses(value), key=lambda number: side.graph.rank[number])
    if not uses or not all(is_reduction(side.graph.nodes[number]) for number in uses):
        return None
    results = [
        output
        for number in uses
        for output in side.graph.nodes[number].outputs
        if output is not None and side.is_float(output)
    ]
    return next((result for result in results if side.bits(result) < least), None)


def _broken(matches: Matches, code: str, value: int, least: int, wanted: int) -> Broken:
    side = matches.parallel
    node = min(side.graph.values[value].writers, key=lambda number: side.graph.rank[number])
    dtype = next(dtype for dtype, bits in BITS.items() if bits == least)
    name = matches.names.get(wanted, matches.reference.graph.values[wanted].name)
    return Broken(code, node, value, side.dtype(value), dtype, wanted, name)
