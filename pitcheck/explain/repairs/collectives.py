"""Repairs of collectives: another reduction, group, root or order of calls, or none at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.families import REDUCTIONS, WHOLE_REDUCTIONS
from pitcheck.explain.ratios import constant_ratio, factor, repeated_reduction
from pitcheck.explain.rerun.changes import Draft, Override, Read, Redo
from pitcheck.explain.rerun.site import Candidate, Site, by_code, collected, groups_of_mesh
from pitcheck.graph.graph import Node, Source, Stacked, sources_of
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import operator_kind

REDUCED_ONCE_MORE = Kind(
    "PIT105",
    "operator {operator!r} reduces {result!r} once more than it should be{times}",
    "drop this reduction",
    edits=("- {operator!r} ({kind})",),
)
SUM_OF_EQUALS = Kind(
    "PIT105",
    "operator {operator!r} adds up{over} what is the same on all members already",
    "drop one of the reductions, or reduce with 'avg'",
    edits=(
        "- {operator!r} ({kind}){over}: sum",
        "+ {operator!r} ({kind}){over}: avg",
    ),
)
OTHER_REDUCTION = Kind(
    "PIT111",
    "operator {operator!r} takes the {own} of terms{over} where it should take their {right}",
    "reduce with {reduction!r}",
    ("reduction",),
    edits=(
        "- {operator!r} ({kind}){over}: {was}",
        "+ {operator!r} ({kind}){over}: {reduction}",
    ),
)
OTHER_GROUP = Kind(
    "PIT106",
    "operator {operator!r} ({kind}) runs over another group than it should",
    "let {operator!r} run over {over}",
    ("over",),
    edits=(
        "- {operator!r} ({kind}) over {group}",
        "+ {operator!r} ({kind}) over {over}",
    ),
)
OTHER_ORDER_OF_MEMBERS = Kind(
    "PIT107",
    "operator {operator!r} ({kind}) joins its members in the order {order}, where it should join "
    "them in the order {right}",
    "let the members of {operator!r} stand in that order",
    edits=(
        "- {operator!r} ({kind}): members {order}",
        "+ {operator!r} ({kind}): members {right}",
    ),
)
OTHER_ROOT = Kind(
    "PIT119",
    "operator {operator!r} ({kind}) sends what rank {root} has of {called}, where it should send "
    "what rank {right} has",
    "let place {place} of the group over {over} be the root of {operator!r}",
    ("over",),
    edits=(
        "- {operator!r} ({kind}) from rank {root}",
        "+ {operator!r} ({kind}) from rank {right}, place {place} of the group over {over}",
    ),
)
CROSSED_CALLS = Kind(
    "PIT116",
    "{operators} ({kind}) are called in another order on some ranks than on others: tensors of "
    "one meet the other's",
    "call them in one order on all ranks",
    edits=(
        "- {operators} ({kind}) in another order on some ranks",
        "+ {operators} ({kind}) in one order on every rank",
    ),
)
COMBINED = {"sum": "sum", "avg": "mean", "max": "largest", "min": "smallest"}
"""By reduction the word for its result."""


def dropped_reduction(site: Site) -> Iterator[Candidate]:
    """Leave out a reduction of what is reduced already."""
    if site.kind not in WHOLE_REDUCTIONS:
        return

    def own(node: Node, codes: Codes) -> Draft | None:
        source = node.inputs[0]
        return ("identity", {}, [Read(source.value, codes)]) if isinstance(source, Source) else None

    overrides = site.redone(own)
    if overrides is not None:
        yield site.diagnosis(REDUCED_ONCE_MORE, times=_times(site, overrides[0])), overrides


def _times(site: Site, once: Override) -> str:
    """Return as text the factor that one reduction too many makes; "" if it is not constant."""
    held = site.rerun.held(site.value)
    if held is None or held.value.kind != "field":
        return ""
    own = site.rerun.algebra.gather(held.value, held.rows[once.codes])
    ratio = constant_ratio(site.rerun.numbers(own), site.rerun.numbers(once.data))
    if ratio is None:
        return ""
    return f": it is {factor(site.evidence, ratio)} times what it should be"


def other_reduction(site: Site) -> Iterator[Candidate]:
    """Take a sum for a mean, a mean for a sum, or one of them for another reduction."""
    yield from _reduced(site, ("sum", "avg"))


def other_extremum(site: Site) -> Iterator[Candidate]:
    """Take the largest or the smallest of what the members hold."""
    yield from _reduced(site, ("max", "min"))


def _reduced(site: Site, kinds: Sequence[str]) -> Iterator[Candidate]:
    if site.kind not in REDUCTIONS:
        return
    own = site.attributes.get("reduction", "sum")
    for kind in kinds:
        overrides = site.redone(partial(site.as_given, reduction=kind)) if kind != own else None
        if overrides is not None:
            if kind == "avg" and own == "sum" and repeated_reduction(site.evidence, site.value):
                yield site.diagnosis(SUM_OF_EQUALS, over=_over_what(site)), overrides
                continue
            facts = {
                "own": COMBINED.get(own, own),
                "right": COMBINED[kind],
                "was": own,
                "reduction": kind,
            }
            yield (
                site.diagnosis(OTHER_REDUCTION, over=_over_what(site), **facts),
                overrides,
            )


def _over_what(site: Site) -> str:
    """Return " over" and the name of the group of a collective; "" if it has no name."""
    own = _own_members(site)
    for grouping in site.evidence.groupings:
        if own in [
            set(row)
            for row in grouping.table[(grouping.table == site.codes[0]).any(axis=1)].tolist()
        ]:
            return f" over {grouping.name}"
    return ""


def other_group(site: Site) -> Iterator[Candidate]:
    """Run over another group of as many members, or over the members in reverse order."""
    yield from _grouped(site, lambda members, own: len(members) == len(own))


def smaller_group(site: Site) -> Iterator[Candidate]:
    """Run over a group of another size that lacks some of the members.

    For a group with more members one more reduction says as much.
    """
    yield from _grouped(site, lambda members, own: len(members) != len(own) and not own < members)


def larger_group(site: Site) -> Iterator[Candidate]:
    """Run over a group that has the members and more."""
    yield from _grouped(site, lambda members, own: own < members)


def _grouped(site: Site, chosen: Callable[[set[int], set[int]], bool]) -> Iterator[Candidate]:
    if not site.collective:
        return
    own = _own_members(site)
    source = site.nodes[0].inputs[0]
    members = source.members if isinstance(source, Source) else 0
    for grouping in site.evidence.groupings:
        for table, how in (
            (np.sort(grouping.table, axis=1), ""),
            (np.sort(grouping.table, axis=1)[:, ::-1], " in reverse order"),
        ):
            if (
                table.shape[1] < 2
                or (how and (not members or site.kind in WHOLE_REDUCTIONS))
                or (members and site.kind not in REDUCTIONS and table.shape[1] != members)
            ):
                continue
            groups = by_code(table, site.rerun.graph.codes)
            if not chosen(set(groups[site.codes[0]].tolist()), own):
                continue
            overrides = (
                collected(site, site.kind, site.attributes, source.value, groups)
                if isinstance(source, Source)
                else None
            )
            if overrides is not None:
                if _same_members(site, groups):
                    right = _listed(groups[site.codes[0]], site)
                    yield (
                        site.diagnosis(OTHER_ORDER_OF_MEMBERS, order=_order(site), right=right),
                        overrides,
                    )
                else:
                    yield (
                        site.diagnosis(
                            OTHER_GROUP, over=f"{grouping.name}{how}", group=_own_group(site)
                        ),
                        overrides,
                    )


def _own_members(site: Site) -> set[int]:
    """Return the group of the first coordinate at which a collective runs."""
    operand = next(node for node in site.nodes if node.mask[site.codes[0]]).inputs[0]
    return {
        int(c)
        for source in sources_of(operand)
        for c in np.atleast_1d(source.at(site.codes[:1])[0])
    }


def _same_members(site: Site, groups: Codes) -> bool:
    return _own_members(site) == set(groups[site.codes[0]].tolist())


def _own_group(site: Site) -> str:
    """Return the group over which a collective runs, by its name or as ranks."""
    members = np.array(sorted(_own_members(site)), dtype=np.int64)
    return _over_what(site).removeprefix(" over ") or f"ranks {_listed(members, site)}"


def _order(site: Site) -> str:
    source = site.nodes[0].inputs[0]
    return _listed(source.at(site.codes[:1])[0], site) if isinstance(source, Source) else ""


def _listed(codes: Codes, site: Site) -> str:
    return str([int(code) // site.rerun.graph.coordinates.microbatches for code in codes.tolist()])


def other_root(site: Site) -> Iterator[Candidate]:
    """Let another member of the group be the root."""
    source = site.nodes[0].inputs[0] if site.nodes[0].inputs else None
    if not operator_kind(site.kind).reads_root or not isinstance(source, Source):
        return
    first = site.codes[:1]
    root = int(source.at(first).reshape(-1)[0])
    for over, groups in groups_of_mesh(site):
        if groups.shape[1] != source.members or root not in groups[first]:
            continue
        for place, right in enumerate(groups[first[0]].tolist()):
            sent = partial(_sent, site, groups[:, [place] * groups.shape[1]])
            overrides = None if right == root else site.redone(sent)
            if overrides is not None:
                per_rank = site.rerun.graph.coordinates.microbatches
                facts = {
                    "called": site.evidence.called(source.value),
                    "root": root // per_rank,
                    "right": right // per_rank,
                    "place": place,
                    "over": over,
                }
                yield site.diagnosis(OTHER_ROOT, **facts), overrides


def _sent(site: Site, roots: Codes, node: Node, codes: Codes) -> Draft | None:
    """Return what a node does if all members of its group read ``roots``, by coordinate."""
    source = node.inputs[0]
    if not isinstance(source, Source):
        return None
    return node.kind, site.rerun.attributes_of(node), [Read(source.value, roots[codes])]


def crossed_calls(site: Site) -> Iterator[Candidate]:
    """Run every collective on the tensor of its own record at all its members."""
    if not site.collective or not any(_stacked(node) for node in site.nodes):
        return
    graph = site.rerun.graph
    met = {source.value for node in site.nodes for source in _stacked(node)}
    crossed = [
        n
        for n in site.rerun.steps
        if graph.nodes[n].kind == site.kind
        and met & {source.value for source in _stacked(graph.nodes[n])}
    ]
    names = list(dict.fromkeys(graph.nodes[n].operator for n in crossed))
    if len(names) > 1:
        diagnosis = site.diagnosis(CROSSED_CALLS, operators=" and ".join(map(repr, names)))
        yield diagnosis, [Redo(number, _on_its_own) for number in crossed]


def _stacked(node: Node) -> tuple[Source, ...]:
    return next((operand.members for operand in node.inputs if isinstance(operand, Stacked)), ())


def _on_its_own(node: Node, codes: Codes) -> Draft | None:
    """Return the collective on the one tensor that it reads at its own coordinates.

    None if it reads several there.
    """
    members = np.stack([source.at(codes) for source in _stacked(node)], axis=1)
    own = {_stacked(node)[int(place)].value for place in (members == codes[:, None]).argmax(axis=1)}
    return (
        (node.kind, node.attributes, [Read(own.pop(), members)])
        if len(own) == 1 and (members == codes[:, None]).any(axis=1).all()
        else None
    )
