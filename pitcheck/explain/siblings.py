"""Operators that some ranks or micro-batches run in place of what the others run.

What a value is computed from where it is wrong is compared with what it is computed from where it
is right, operator by operator. Ranks that run the same record do the same thing, with an entry of a
table for each. Where another record writes the same tensor, something is meant to differ, or is by
mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.families import ADDITIONS
from pitcheck.explain.repairs.missing_operator import in_the_place_of
from pitcheck.graph.graph import Graph, Node, Operand, Source, sources_of
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Step

_DOES = (
    "operator {operator!r} ({kind}) writes {result!r} where on other ranks {other!r} "
    "({other_kind}) does"
)
_LET = "let all ranks run {other!r}"
_OTHER = ("- {operator!r} ({kind})", "+ {other!r} ({other_kind})")
WRITES_IN_PLACE_OF = {
    "PIT102": Kind("PIT102", _DOES, _LET, edits=_OTHER),
    "PIT104": Kind("PIT104", f"{_DOES}: what it gives is not reduced", _LET, edits=_OTHER),
    "PIT105": Kind("PIT105", f"{_DOES}: what it gives is reduced once more", _LET, edits=_OTHER),
    "PIT107": Kind("PIT107", f"{_DOES}: it has the rank's part alone", _LET, edits=_OTHER),
    "PIT108": Kind("PIT108", f"{_DOES}: the term {{term}} is missing", _LET, edits=_OTHER),
}
"""By code the mistake of an operator that writes a tensor in place of one of another kind."""
_WRITES = "operator {operator!r} ({kind}) writes {result!r}"
SIBLING_TERM_TWICE = Kind(
    "PIT108",
    f"{_WRITES} and has the term {{read}} twice, as operand {{place}}, too",
    "{right}",
    edits=("- {operator!r} has the term {own} twice", "+ {operator!r} has the term {others}"),
)
SIBLING_READS = {
    code: Kind(
        code,
        f"{_WRITES} and reads {{read}} as operand {{place}}",
        "{right}",
        edits=("- {operator!r} reads {own}", "+ {operator!r} reads {others}"),
    )
    for code in ("PIT102", "PIT103", "PIT106", "PIT108")
}
"""By code the mistake of another operand than on other ranks."""
SIBLING_ATTRIBUTES = {
    code: Kind(
        code,
        f"{_WRITES} with {{different}}",
        "do as {other!r} does",
        edits=("- {operator!r} ({kind}): {own}", "+ {operator!r} ({kind}): {others}"),
    )
    for code in ("PIT102", "PIT107", "PIT111")
}
"""By code the mistake of another attribute than on other ranks."""
SIBLING_OTHERWISE = {
    code: Kind(
        code,
        f"{_WRITES} otherwise than {{other!r}} on other ranks",
        "do as {other!r} does",
        edits=("- {operator!r} ({kind})", "+ {operator!r} ({kind}), as {other!r} on other ranks"),
    )
    for code in ("PIT106", "PIT109")
}
"""By code the mistake of doing the same otherwise than other ranks."""


MOST_PAIRS = 20_000
"""Pairs of coordinates that are compared at most."""
PLACES = frozenset({"position", "offset", "start", "stop", "sizes", "axis"})
"""Attributes that say which part is taken."""


@dataclass(frozen=True)
class Sibling:
    """An operator that writes ``value`` at ``codes``, where ``other`` does on other ranks."""

    step: Step
    node: Node
    other: Node
    value: int
    codes: Codes

    @property
    def reduces(self) -> bool:
        """True if either operator joins what several ranks or micro-batches have."""
        return bool(_members(self.node) or _members(self.other))


def first_sibling(evidence: Evidence, value: int, wrong: Codes, right: Codes) -> Sibling | None:
    """Return the first operator that runs where a value becomes wrong in place of another one.

    Of a value that is wrong everywhere, of two operators that write one tensor in turn, it is the
    one that does so at fewer coordinates.

    Args:
        wrong: the coordinates at which the value is wrong, shape (n,).
        right: those at which it is right, shape (m,).
    """
    graph = evidence.second
    if not len(wrong):
        return None
    start = int(wrong[0])
    pairs = (
        _pairs(evidence, value, start, _nearest(graph, start, right))
        if len(right)
        else odd_writers(graph, (step.node for step in evidence.batch.steps))
    )
    found = [
        (_alike(graph.nodes[mine], graph.nodes[other]), graph.rank[mine], mine, other, of)
        for of, mine, other in pairs
        if graph.nodes[mine].operator != graph.nodes[other].operator
    ]
    if not found:
        return None
    _, _, mine, other, of = min(found)
    step = next(s for s in evidence.batch.steps if s.node == mine)
    return Sibling(
        step,
        graph.nodes[mine],
        graph.nodes[other],
        of,
        _where(evidence, of, graph.nodes[mine], graph.nodes[other]),
    )


def _where(evidence: Evidence, value: int, mine: Node, other: Node) -> Codes:
    """Return where the record of ``mine`` does what that of ``other`` does nowhere, shape (codes,).

    All its coordinates if there are none.
    """
    nodes = [
        evidence.second.nodes[number]
        for number in dict.fromkeys(step.node for step in evidence.writers[value])
    ]
    own = [node for node in nodes if node.operator == mine.operator]
    theirs = [node for node in nodes if node.operator == other.operator]
    odd = [node for node in own if not any(_alike(node, one) for one in theirs)] or own
    codes: Codes = np.flatnonzero(
        np.logical_or.reduce([node.mask for node in odd]) & (evidence.batch.rows[value] >= 0)
    )
    return codes


def _nearest(graph: Graph, code: int, others: Codes) -> int:
    """Return the coordinate that differs from ``code`` along the fewest axes."""
    shape = graph.coordinates.shape
    own = np.array(np.unravel_index(code, shape))[:, None]
    apart = (np.array(np.unravel_index(others, shape)) != own).sum(axis=0)
    return int(others[int(apart.argmin())])


def _pairs(evidence: Evidence, value: int, mine: int, other: int) -> Iterator[tuple[int, int, int]]:
    """Yield what a value is computed from at two coordinates.

    Yields:
        A value, its writer at one coordinate, and its writer at the other.
    """
    graph = evidence.second
    steps = {step.node for step in evidence.batch.steps}
    waiting = [(value, mine, other)]
    seen: set[tuple[int, int, int]] = set()
    while waiting and len(seen) < MOST_PAIRS:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        of, a, b = place
        writers = [_writer(graph, steps, of, code) for code in (a, b)]
        if writers[0] is None or writers[1] is None:
            continue
        yield of, writers[0], writers[1]
        if graph.nodes[writers[0]].operator == graph.nodes[writers[1]].operator:
            waiting.extend(_operands(graph, writers[0], writers[1], a, b))


def odd_writers(graph: Graph, nodes: Iterable[int]) -> list[tuple[int, int, int]]:
    """Return the values that several records among ``nodes`` write.

    Those come first of which the records do other things.

    Returns:
        A value, a writer, and one that writes it at more coordinates.
    """
    writers: dict[int, dict[int, None]] = {}
    for number in nodes:
        for value in graph.nodes[number].outputs:
            if value is not None:
                writers.setdefault(value, {})[number] = None
    found = []
    for value, several in writers.items():
        if len({graph.nodes[n].operator for n in several}) < 2:
            continue
        sizes = {n: int(graph.nodes[n].mask.sum()) for n in several}
        for mine in several:
            more = [
                n
                for n in several
                if sizes[n] > sizes[mine] and graph.nodes[n].operator != graph.nodes[mine].operator
            ]
            same = next(
                (n for n in sorted(more) if _alike(graph.nodes[mine], graph.nodes[n])), None
            )
            likely = min(more, default=None) if same is None else same
            if likely is not None:
                found.append(
                    (same is not None, sizes[mine], graph.rank[mine], (value, mine, likely))
                )
    return [places for _, _, _, places in sorted(found)]


def _alike(mine: Node, other: Node) -> bool:
    """Return True if two nodes do the same thing."""
    if mine.kind != other.kind or mine.attributes != other.attributes:
        return False
    read, others = (
        [s for operand in node.inputs for s in sources_of(operand)] for node in (mine, other)
    )
    # Keys of a plan of thousands of ranks may be large: they are compared last.
    return [s.value for s in read] == [s.value for s in others] and all(
        a.read is b.read or a.key == b.key for a, b in zip(read, others, strict=True)
    )


def _writer(graph: Graph, steps: set[int], value: int, code: int) -> int | None:
    return next(
        (w for w in graph.values[value].writers if w in steps and graph.nodes[w].mask[code]), None
    )


def _operands(
    graph: Graph, mine: int, other: int, a: int, b: int
) -> Iterator[tuple[int, int, int]]:
    for one, two in zip(graph.nodes[mine].inputs, graph.nodes[other].inputs, strict=False):
        for first, second in zip(sources_of(one), sources_of(two), strict=False):
            if first.value == second.value:
                read = [
                    np.atleast_1d(s.at(np.array([code]))[0])
                    for s, code in ((first, a), (second, b))
                ]
                yield from (
                    (first.value, int(x), int(y))
                    for x, y in zip(*read, strict=False)
                    if x >= 0 and y >= 0
                )


def sibling_cause(evidence: Evidence, found: Sibling) -> Diagnosis:
    """Return what an operator does otherwise than the one that writes its tensor on other ranks."""
    node, other = found.node, found.other
    own = {
        "operator": node.operator,
        "kind": node.kind,
        "result": evidence.name(found.value),
        "other": other.operator,
        "other_kind": other.kind,
    }

    def diagnosis(of: Kind, **facts: object) -> Diagnosis:
        return Diagnosis(of, {**own, **facts}, found.codes, found.step, found.value)

    if node.kind != other.kind:
        code, term = in_the_place_of(evidence, node, other)
        return diagnosis(WRITES_IN_PLACE_OF[code], term=term)
    for place, (mine, theirs) in enumerate(zip(node.inputs, other.inputs, strict=False)):
        different = _other_operand(evidence, found, mine, theirs)
        if (
            different is not None
            and node.kind in ADDITIONS
            and _twice(node)
            and different.code == "PIT103"
        ):
            return diagnosis(SIBLING_TERM_TWICE, place=place, **different.facts)
        if different is not None:
            return diagnosis(SIBLING_READS[different.code], place=place, **different.facts)
    attributes = sorted(
        k
        for k in {*node.attributes, *other.attributes}
        if node.attributes.get(k) != other.attributes.get(k)
    )
    if attributes:
        attributes = [k for k in attributes if k != "position"] or attributes
        told = ", ".join(
            f"{k} = {node.attributes.get(k)} where {other.operator!r} has "
            f"{other.attributes.get(k)} on other ranks"
            for k in attributes
        )
        code = (
            "PIT107"
            if PLACES.issuperset(attributes)
            else "PIT111"
            if attributes == ["reduction"]
            else "PIT102"
        )
        sides = (
            ", ".join(f"{k} = {each.attributes.get(k)}" for k in attributes)
            for each in (node, other)
        )
        facts = dict(zip(("own", "others"), sides, strict=True))
        return diagnosis(SIBLING_ATTRIBUTES[code], different=told, **facts)
    return diagnosis(SIBLING_OTHERWISE["PIT106" if _members(node) else "PIT109"])


def _twice(node: Node) -> bool:
    """Return True if two operands are one tensor."""
    read = [o.value for o in node.inputs if isinstance(o, Source)]
    return len(set(read)) < len(read)


def _members(node: Node) -> int:
    return max(
        (source.members for operand in node.inputs for source in sources_of(operand)), default=0
    )


@dataclass(frozen=True)
class Told:
    """Another operand than on other ranks: the code, and what is read here and ``others`` read.

    ``read`` and ``right`` say what is wrong and what would mend it.
    """

    code: str
    read: str
    right: str
    own: str
    others: str

    @property
    def facts(self) -> dict[str, object]:
        """All but the code, for the words of a mistake."""
        return {"read": self.read, "right": self.right, "own": self.own, "others": self.others}


def _other_operand(
    evidence: Evidence, found: Sibling, mine: Operand, theirs: Operand
) -> Told | None:
    """Return what is read if an operand is another one than on other ranks; None if it is not."""
    name = found.other.operator
    if not isinstance(mine, Source) or not isinstance(theirs, Source):
        literal = not isinstance(mine, Source) and not isinstance(theirs, Source) and mine != theirs
        return (
            Told(
                "PIT102",
                f"{mine} where {name!r} has {theirs} on other ranks",
                f"use {theirs}",
                str(mine),
                str(theirs),
            )
            if literal
            else None
        )
    if mine.value != theirs.value:
        right = evidence.called(theirs.value)
        own = evidence.called(mine.value)
        return Told(
            "PIT103",
            f"{own} where {name!r} reads {right} on other ranks",
            f"read {right}",
            own,
            right,
        )
    if mine.key == theirs.key:
        return None
    return (
        _other_members(evidence, found, mine, theirs)
        if mine.members or theirs.members
        else _other_place(evidence, found, mine)
    )


def _other_members(evidence: Evidence, found: Sibling, mine: Source, theirs: Source) -> Told:
    count = evidence.second.coordinates.microbatches
    called = evidence.called(mine.value)
    read = mine.at(found.codes[:1]).reshape(-1)
    if len(np.unique(read // count)) == 1 and theirs.members != len(read):
        some = f"{called} of micro-batches {_listed((read % count).tolist())} alone"
        return Told(
            "PIT108",
            some,
            "add up the micro-batches that other ranks add up",
            some,
            f"{called} of the micro-batches that other ranks add up",
        )
    ranks = _listed(list(dict.fromkeys((read // count).tolist())))
    return Told(
        "PIT106",
        f"{called} of ranks {ranks}, in this order, on rank {int(found.codes[0]) // count}",
        f"let it run over the group that {found.other.operator!r} runs over",
        f"{called} of ranks {ranks}, in this order",
        f"{called} of the group that {found.other.operator!r} runs over",
    )


def _other_place(evidence: Evidence, found: Sibling, mine: Source) -> Told:
    count = evidence.second.coordinates.microbatches
    called = evidence.called(mine.value)
    read, own = (
        np.unique(mine.at(found.codes) % count).tolist(),
        np.unique(found.codes % count).tolist(),
    )
    if read != own:
        return Told(
            "PIT108",
            f"{called} of micro-batch {_listed(read)} in micro-batch {_listed(own)}",
            "let each micro-batch read what belongs to it",
            f"{called} of micro-batch {_listed(read)} in micro-batch {_listed(own)}",
            f"{called} of micro-batch {_listed(own)} in it",
        )
    return Told(
        "PIT103",
        f"{called} of another rank than on other ranks",
        f"read what {found.other.operator!r} reads",
        f"{called} of another rank",
        f"what {found.other.operator!r} reads",
    )


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
