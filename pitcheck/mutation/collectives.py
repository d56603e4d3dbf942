"""Mutations of collectives: left out, repeated, put in, over other ranks, another reduction."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pitcheck.mutation.edits import MARK, Edit, followed, with_attribute
from pitcheck.mutation.facts import Facts
from pitcheck.ops.registry import collective_kinds, kinds_with, operator_kind
from pitcheck.ops.traits import Trait
from pitcheck.plan.model import Group, Operator, Table
from pitcheck.plan.schedule.run_order import PAIRED

Found = Iterator[tuple[str, Edit]]
REDUCING = frozenset(
    kind
    for kind in collective_kinds()
    if "reduction" in operator_kind(kind).attributes and not operator_kind(kind).gives_root
)
"""Collectives that reduce, with a result on every member."""
WHOLE = kinds_with(Trait.KEEPS_SIZES)
"""Collectives whose result has the sizes of one member's tensor."""
JOINING = kinds_with(Trait.CARRIES) & kinds_with(Trait.LEAVES_OTHER_AXES)
"""Collectives that join the members' tensors on every member."""
PLACED = collective_kinds() - WHOLE
"""Collectives for which the order of the members matters."""
REDUCTIONS = ("sum", "max", "min")


def dropped_reductions(facts: Facts, operator: Operator) -> Found:
    """Yield reductions left out: every rank goes on with its term."""
    if operator.kind in REDUCING & WHOLE:
        yield (
            "every rank keeps its own",
            lambda o: (replace(o, kind="identity", attributes={}, group=None),),
        )
    if operator.kind in REDUCING - WHOLE and operator.group is not None and operator.group.axes:
        over = tuple(axis.name for axis in facts.plan.mesh if axis.name in operator.group.axes)
        count = _members(facts, operator.group)
        part = {
            "axis": operator.attributes["axis"],
            "count": count,
            "position": Table(over, tuple(range(count))),
        }
        yield (
            "every rank takes its part of its own term",
            lambda o: (replace(o, kind="chunk", attributes=part, group=None),),
        )


def dropped_exchanges(facts: Facts, operator: Operator) -> Found:
    """Yield exchanges left out: every rank goes on with what it had."""
    if (
        operator.kind in kinds_with(Trait.CARRIES) - JOINING
        and operator.outputs
        and _shape(facts, operator.inputs[0]) == _shape(facts, operator.outputs[0])
    ):
        yield (
            "every rank keeps its own",
            lambda o: (replace(o, kind="identity", attributes={}, group=None),),
        )
    if operator.kind in JOINING and operator.group is not None:
        count = _members(facts, operator.group)
        again = {"axis": operator.attributes["axis"]}
        yield (
            "every rank takes its own part for all",
            lambda o: (
                replace(o, kind="cat", inputs=o.inputs * count, attributes=again, group=None),
            ),
        )


def repeated_reductions(facts: Facts, operator: Operator) -> Found:
    """Yield reductions of what is reduced already."""
    del facts
    if operator.kind in REDUCING & WHOLE and len(operator.outputs) == 1:
        yield (
            "twice",
            lambda o: followed(o, o.kind, group=o.group, attributes=dict(o.attributes)),
        )
    if operator.kind in REDUCING - WHOLE and isinstance(operator.inputs[0], str):
        yield "twice", _summed_before


def _summed_before(operator: Operator) -> tuple[Operator, ...]:
    source = f"{operator.inputs[0]}{MARK}"
    reduction = (
        {"reduction": operator.attributes["reduction"]}
        if "reduction" in operator.attributes
        else {}
    )
    before = replace(
        operator,
        id=f"{operator.id}{MARK}{MARK}",
        kind="all_reduce",
        outputs=(source,),
        attributes=reduction,
    )
    return before, replace(operator, inputs=(source,))


def inserted_reductions(facts: Facts, operator: Operator) -> Found:
    """Yield reductions where none belongs."""
    if operator.group is not None or operator.kind in PAIRED or not facts.one_real_result(operator):
        return
    for axis in facts.spread(operator):
        for reduction in ("sum", "avg"):
            yield f"all-reduce {reduction} over {axis}", _reduced_after(axis, reduction)


def _reduced_after(axis: str, reduction: str) -> Edit:
    return lambda o: followed(
        o,
        "all_reduce",
        group=Group(axes=(axis,)),
        attributes={} if reduction == "sum" else {"reduction": reduction},
    )


def regrouped(facts: Facts, operator: Operator) -> Found:
    """Yield the collective over other ranks."""
    if operator.group is None:
        return
    for names in _other_axes(facts, operator):
        yield f"over {'+'.join(names)}", _over(Group(axes=names))
    lists = facts.groups(operator.group, operator)
    size = max(map(len, lists), default=0)
    if operator.kind in REDUCING & WHOLE and size > 2:
        yield (
            "over two halves",
            _over(
                Group(
                    ranks=tuple(
                        part for m in lists for part in (m[: len(m) // 2], m[len(m) // 2 :])
                    )
                )
            ),
        )
        yield (
            "the last rank left out",
            _over(Group(ranks=tuple(part for m in lists for part in (m[:-1], m[-1:])))),
        )
    if len(lists) > 1 and size > 1 and len(set(map(len, lists))) == 1:
        first, second, *others = lists
        crossed = ((*first[:-1], second[-1]), (*second[:-1], first[-1]), *others)
        yield "with a member of another group", _over(Group(ranks=crossed))


def _other_axes(facts: Facts, operator: Operator) -> Iterator[tuple[str, ...]]:
    if operator.group is None or not operator.group.axes:
        return
    mine, spread = set(operator.group.axes), facts.spread(operator)
    more = [(axis,) for axis in spread]
    fewer = [
        tuple(axis for axis in operator.group.axes if axis != left_out)
        for left_out in operator.group.axes
    ]
    wider = [
        tuple(a for a in facts.sizes if a in mine or a == axis)
        for axis in spread
        if axis not in mine
    ]
    count = _members(facts, operator.group)
    for names in dict.fromkeys((*more, *fewer, *wider)):
        fits = (operator.kind in WHOLE and not operator_kind(operator.kind).gives_root) or _members(
            facts, Group(axes=names)
        ) == count
        if names and set(names) != mine and fits:
            yield names


def members_moved(facts: Facts, operator: Operator) -> Found:
    """Yield the members of a group in another order, if the order says who gets which part."""
    if operator.group is None or operator.kind not in PLACED:
        return
    lists = facts.groups(operator.group, operator)
    if lists and max(map(len, lists)) > 1:
        yield "members in reverse", _over(Group(ranks=tuple(members[::-1] for members in lists)))
        if max(map(len, lists)) > 2:
            yield (
                "members one further",
                _over(Group(ranks=tuple((*members[1:], members[0]) for members in lists))),
            )


def _over(group: Group) -> Edit:
    return lambda o: (replace(o, group=group),)


def other_reductions(facts: Facts, operator: Operator) -> Found:
    """Yield another reduction, such as a sum instead of a maximum."""
    if operator.kind not in REDUCING or not facts.one_real_result(operator):
        return
    mine = operator.attributes.get("reduction", "sum")
    for other in REDUCTIONS:
        if mine != other and not (mine == "avg" and other == "sum"):
            yield f"{other} instead of {mine}", _reducing(other)


def averages(facts: Facts, operator: Operator) -> Found:
    """Yield an average instead of a sum, or the reverse."""
    if operator.kind in REDUCING and facts.one_real_result(operator):
        mine = operator.attributes.get("reduction", "sum")
        if mine in ("sum", "avg"):
            yield (
                f"{'avg' if mine == 'sum' else 'sum'} instead of {mine}",
                _reducing("avg" if mine == "sum" else "sum"),
            )


def _reducing(reduction: str) -> Edit:
    return lambda o: (with_attribute(o, "reduction", reduction),)


def _members(facts: Facts, group: Group) -> int:
    if group.ranks:
        return len(group.ranks[0])
    count = 1
    for axis in group.axes:
        count *= facts.sizes[axis]
    return count


def _shape(facts: Facts, operand: object) -> tuple[int, ...] | None:
    return facts.tensors[operand].shape if isinstance(operand, str) else None
