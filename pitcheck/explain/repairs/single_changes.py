"""Repairs that might make outputs right: one change at one operator each, with the cause that it
would show. Whether they do is tried, not guessed.

Every function here is one hypothesis: it yields changes of one operator, cheapest first, and says
nothing where the operator is of no concern to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from pitcheck.base.numbers import Literal, parse_number
from pitcheck.errors import PlanError
from pitcheck.explain import messages
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.evidence import MOVES
from pitcheck.explain.hypotheses import REDUCTIONS, SIZES, factor, repeated_reduction
from pitcheck.explain.rerun import Draft, Override, Read, Redo
from pitcheck.explain.site import Candidate, Site, by_code, reference_steps
from pitcheck.graph.graph import Node, Source, sources_of
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import BACKWARD, operator_kind
from pitcheck.stage.batch import Argument, StepOperand

COMBINED = {"sum": "sum", "avg": "mean", "max": "largest", "min": "smallest"}
MOST_LITERALS = 8
MOST_STEPS = 8
"""Steps of the reference of one kind that an operator is held against."""


def _as_given(site: Site, attributes: Mapping[str, Any], node: Node, codes: Codes) -> Draft:
    return site.as_given(node, codes, **attributes)


# --- what collectives do


def dropped_reduction(site: Site) -> Iterator[Candidate]:
    """A reduction of what was reduced already, left out."""
    if site.kind != "all_reduce":
        return

    def own(node: Node, codes: Codes) -> Draft | None:
        source = node.inputs[0]
        return ("identity", {}, [Read(source.value, codes)]) if isinstance(source, Source) else None

    overrides = site.redone(own)
    if overrides is not None:
        yield site.diagnosis(messages.REDUCED_ONCE_MORE), overrides


def other_reduction(site: Site) -> Iterator[Candidate]:
    """A sum for a mean, a mean for a sum, or one of them for something else."""
    yield from _reduced(site, ("sum", "avg"))


def other_extremum(site: Site) -> Iterator[Candidate]:
    """The largest or the smallest of terms."""
    yield from _reduced(site, ("max", "min"))


def _reduced(site: Site, kinds: Sequence[str]) -> Iterator[Candidate]:
    if site.kind not in REDUCTIONS:
        return
    own = site.attributes.get("reduction", "sum")
    for kind in kinds:
        overrides = (
            site.redone(partial(_as_given, site, {"reduction": kind})) if kind != own else None
        )
        if overrides is not None:
            if kind == "avg" and own == "sum" and repeated_reduction(site.evidence, site.value):
                yield site.diagnosis(messages.SUM_OF_EQUALS, over=_over_what(site)), overrides
                continue
            facts = {"own": COMBINED.get(own, own), "right": COMBINED[kind], "reduction": kind}
            yield (
                site.diagnosis(messages.OTHER_REDUCTION, over=_over_what(site), **facts),
                overrides,
            )


def _over_what(site: Site) -> str:
    """Over what a collective runs, where that has a name."""
    own = _own_members(site)
    for grouping in site.evidence.groupings:
        if own in [
            set(row)
            for row in grouping.table[(grouping.table == site.codes[0]).any(axis=1)].tolist()
        ]:
            return f" over {grouping.name}"
    return ""


def other_group(site: Site) -> Iterator[Candidate]:
    """Another group of as many members, or another order of its members."""
    yield from _grouped(site, lambda members, own: len(members) == len(own))


def smaller_group(site: Site) -> Iterator[Candidate]:
    """A group of another size that does not have all the members of its own: one more reduction
    over those that are missing says as much of a larger one.
    """
    yield from _grouped(site, lambda members, own: len(members) != len(own) and not own < members)


def larger_group(site: Site) -> Iterator[Candidate]:
    """A group that has its own members and more."""
    yield from _grouped(site, lambda members, own: own < members)


def _grouped(site: Site, chosen: Callable[[set[int], set[int]], bool]) -> Iterator[Candidate]:
    if not site.collective:
        return
    own = _own_members(site)
    source = site.nodes[0].inputs[0]
    members = source.members if isinstance(source, Source) else 0
    positions = "position" in operator_kind(site.kind).attributes
    for grouping in site.evidence.groupings:
        for table, how in (
            (np.sort(grouping.table, axis=1), ""),
            (np.sort(grouping.table, axis=1)[:, ::-1], " in reverse order"),
        ):
            if (
                table.shape[1] < 2
                or (how and (not members or site.kind in ("all_reduce", "reduce")))
                or (members and site.kind not in REDUCTIONS and table.shape[1] != members)
            ):
                continue
            groups = by_code(table, site.rerun.graph.codes)
            if not chosen(set(groups[site.codes[0]].tolist()), own):
                continue
            overrides = _over(site, groups, positions)
            if overrides is not None:
                if _same_members(site, groups):
                    right = _listed(groups[site.codes[0]], site)
                    yield (
                        site.diagnosis(
                            messages.OTHER_ORDER_OF_MEMBERS, order=_order(site), right=right
                        ),
                        overrides,
                    )
                else:
                    yield (
                        site.diagnosis(messages.OTHER_GROUP, over=f"{grouping.name}{how}"),
                        overrides,
                    )


def _over(site: Site, groups: Codes, positions: bool) -> list[Override] | None:
    """The results of a collective over other groups: by code its members in order."""
    place = (groups == np.arange(len(groups))[:, None]).argmax(axis=1)
    found: list[Override] = []
    for node in site.nodes:
        source, codes = (
            node.inputs[0],
            np.flatnonzero(node.mask & (site.evidence.batch.rows[site.value] >= 0)),
        )
        if not isinstance(source, Source) or (groups[codes] < 0).any():
            return None
        for own in np.unique(place[codes]) if positions else (0,):
            chosen = codes[place[codes] == own] if positions else codes
            attributes = {
                **site.rerun.attributes_of(node),
                **({"position": int(own)} if positions else {}),
            }
            result = site.rerun.one(
                node.kind, attributes, [Read(source.value, groups[chosen])], len(chosen)
            )
            if result is None:
                return None
            found.append(Override(site.value, chosen, result))
    return found if site.changes(found) else None


def _own_members(site: Site) -> set[int]:
    """The members of the group of the first coordinate where it runs."""
    operand = next(node for node in site.nodes if node.mask[site.codes[0]]).inputs[0]
    return {
        int(c)
        for source in sources_of(operand)
        for c in np.atleast_1d(source.at(site.codes[:1])[0])
    }


def _same_members(site: Site, groups: Codes) -> bool:
    return _own_members(site) == set(groups[site.codes[0]].tolist())


def _order(site: Site) -> str:
    source = site.nodes[0].inputs[0]
    return _listed(source.at(site.codes[:1])[0], site) if isinstance(source, Source) else ""


def _listed(codes: Codes, site: Site) -> str:
    return str([int(code) // site.rerun.graph.coordinates.microbatches for code in codes.tolist()])


def all_microbatches(site: Site) -> Iterator[Candidate]:
    """A sum over all micro-batches in the place of one over some."""
    count = site.rerun.graph.coordinates.microbatches
    if site.kind != "accumulate" or count < 2:
        return

    def all_of(node: Node, codes: Codes) -> Draft | None:
        source = node.inputs[0]
        if not isinstance(source, Source):
            return None
        members = (codes // count * count)[:, None] + np.arange(count)
        return node.kind, {}, [Read(source.value, members)]

    overrides = site.redone(all_of)
    if overrides is not None:
        yield site.diagnosis(messages.NOT_EVERY_MICROBATCH), overrides


# --- what other operators do


def dropped_factor(site: Site) -> Iterator[Candidate]:
    """No factor."""
    if site.kind in ("mul", "div") and any(
        _number(site, operand) is not None for operand in site.step.inputs
    ):
        for diagnosis, changes in dropped_operator(site):
            if site.derivatives:
                yield (
                    diagnosis,
                    [*changes, *(Redo(number, _gradient_as_it_is) for number in site.derivatives)],
                )
            yield diagnosis, changes


def _gradient_as_it_is(node: Node, codes: Codes) -> Draft | None:
    """The derivative of no operator: the gradient of its result."""
    source = node.inputs[-1]
    return (
        ("identity", {}, [Read(source.value, source.at(codes))])
        if isinstance(source, Source)
        else None
    )


def _number(site: Site, operand: StepOperand) -> Literal | str | None:
    """A number as an operand, or a tensor that is full of one."""
    if not isinstance(operand, (Argument, tuple)):
        return operand
    value = site.rerun.graph.values[operand.value] if isinstance(operand, Argument) else None
    return None if value is None or value.writers else value.tensor.value


def dropped_operator(site: Site) -> Iterator[Candidate]:
    """One operand passed on as it is."""
    if (
        site.collective
        or site.kind in MOVES
        or site.kind.endswith(BACKWARD)
        or len(site.step.outputs) != 1
    ):
        return
    for place, operand in enumerate(site.step.inputs):
        if not isinstance(operand, Argument):
            continue

        def only(node: Node, codes: Codes, place: int = place) -> Draft | None:
            given = site.rerun.reads(node, codes)[place]
            return (
                ("identity", {}, [given])
                if isinstance(given, Read) and given.codes.ndim == 1
                else None
            )

        overrides = site.redone(only)
        if overrides is None:
            continue
        others = [o for n, o in enumerate(site.step.inputs) if n != place]
        number = next((n for o in others if (n := _number(site, o)) is not None), None)
        if site.kind in ("mul", "div") and number is not None:
            yield _factor_too_much(site, number), overrides
        elif site.kind in ("add", "sub"):
            term = next(
                (site.evidence.name(o.value) for o in others if isinstance(o, Argument)), "a term"
            )
            yield site.diagnosis(messages.TERM_TOO_MUCH, term=term), overrides
        elif _several_write(site):
            yield site.diagnosis(messages.COMPUTED_OTHERWISE), overrides
        else:
            yield (
                site.diagnosis(
                    messages.OPERATOR_TOO_MUCH, kept=site.evidence.called(operand.value)
                ),
                overrides,
            )


def _several_write(site: Site) -> bool:
    """Whether other operators write the same tensor on other ranks or in other micro-batches."""
    graph = site.rerun.graph
    return len({graph.nodes[writer].operator for writer in graph.values[site.value].writers}) > 1


def _factor_too_much(site: Site, number: Literal | str) -> Diagnosis:
    """A factor with everything of the plan that has its size."""
    ratio = _ratio(number)
    meaning = (
        str(number)
        if ratio is None
        else factor(site.evidence, ratio if site.kind == "mul" else 1 / ratio)
    )
    return site.diagnosis(messages.FACTOR_TOO_MUCH, meaning=meaning, number=number)


def _ratio(number: Literal | str) -> Fraction | None:
    """Return a number as a ratio; None if it is a root, zero, infinite or a word."""
    try:
        exact = parse_number(number) if isinstance(number, (int, float, str)) else number
    except PlanError:
        return None
    return exact if isinstance(exact, Fraction) and exact else None


def foreign_literal(site: Site) -> Iterator[Candidate]:
    """A number that the reference's operators of that kind have, where theirs never is the
    operator's.
    """
    for place, operand, theirs in _literals(site):
        if theirs and operand not in theirs:
            yield from (
                (replace(found, kind=messages.LITERAL), changes)
                for found, changes in _with_literals(site, place, operand, theirs)
            )


def other_literal(site: Site) -> Iterator[Candidate]:
    """A number that other operators of that kind have, or a usual one."""
    for place, operand, theirs in _literals(site):
        own = [
            s.inputs[place]
            for s in site.rerun.steps.values()
            if s.kind == site.kind and len(s.inputs) == len(site.step.inputs)
        ]
        usual = (
            [Fraction(1), Fraction(operand) / 2, Fraction(operand) - 1, Fraction(0)]
            if isinstance(operand, (int, Fraction))
            else []
        )
        yield from _with_literals(
            site,
            place,
            operand,
            [*theirs, *(o for o in own if not isinstance(o, (Argument, tuple))), *usual],
        )


def _literals(site: Site) -> Iterator[tuple[int, Literal, list[Literal]]]:
    """(place of a number among the operands, the number, those that stand there in the reference's
    operators of that kind).
    """
    steps = reference_steps(site)
    for place, operand in enumerate(site.step.inputs):
        if not isinstance(operand, (Argument, tuple)):
            yield (
                place,
                operand,
                [o for step in steps if not isinstance(o := step.inputs[place], (Argument, tuple))],
            )


def _with_literals(
    site: Site, place: int, operand: Literal, others: Sequence[Literal]
) -> Iterator[Candidate]:
    for literal in islice(
        (other for other in dict.fromkeys(others) if other != operand), MOST_LITERALS
    ):

        def with_it(node: Node, codes: Codes, literal: Literal = literal) -> Draft:
            given = site.rerun.reads(node, codes)
            return (
                node.kind,
                site.rerun.attributes_of(node),
                [*given[:place], literal, *given[place + 1 :]],
            )

        overrides = site.redone(with_it)
        if overrides is not None:
            ratio = (
                Fraction(operand) / Fraction(literal)
                if isinstance(operand, (int, Fraction))
                and isinstance(literal, (int, Fraction))
                and literal
                else Fraction(1)
            )
            meaning = (
                factor(site.evidence, ratio if site.kind.startswith("mul") else 1 / ratio)
                if ratio and site.kind.removesuffix(BACKWARD) in ("mul", "div")
                else ""
            )
            if " = " in meaning:
                yield (
                    site.diagnosis(
                        messages.LITERAL_FACTOR, literal=operand, right=literal, meaning=meaning
                    ),
                    overrides,
                )
            else:
                yield site.diagnosis(messages.LITERAL, literal=operand, right=literal), overrides


def other_attribute(site: Site) -> Iterator[Candidate]:
    """Attributes that the reference's operators of that kind have, and other dimensions."""
    run = site.evidence.run
    own = site.attributes
    tried: list[dict[str, Any]] = []
    shaped = run.shaped.attributes[0]
    numbers = [n for n, step in enumerate(run.stage.reference.steps) if step.kind == site.kind]
    for number in numbers[: 4 * MOST_STEPS]:
        different = {k: v for k, v in shaped[number].items() if k not in SIZES and own.get(k) != v}
        if different and different not in tried and len(tried) < MOST_LITERALS:
            tried.append(different)
    tried.extend(
        {k: other}
        for k, v in own.items()
        if k in AXES and isinstance(v, int)
        for other in range(3)
        if other != v
    )
    tried.extend(
        {k: tuple(reversed(v))}
        for k, v in own.items()
        if k == "permutation" and isinstance(v, tuple)
    )
    for different in tried:
        overrides = site.redone(partial(_as_given, site, different))
        if overrides is not None:
            said = ", ".join(
                f"{k} = {own.get(k)} where it should be {v}" for k, v in different.items()
            )
            right = ", ".join(f"{k} = {v}" for k, v in different.items())
            of = messages.DRAW_ATTRIBUTE if operator_kind(site.kind).random else messages.ATTRIBUTE
            yield site.diagnosis(of, different=said, right=right), overrides


AXES = frozenset({"axis", "dim0", "dim1", "split_axis", "concat_axis"})


def own_microbatch(site: Site) -> Iterator[Candidate]:
    """An operand of another micro-batch: its own, or another given one."""
    count = site.rerun.graph.coordinates.microbatches
    if count < 2 or site.collective or site.kind == "accumulate":
        return
    for place, operand in enumerate(site.nodes[0].inputs):
        if (
            not isinstance(operand, Source)
            or operand.members
            or not site.rerun.graph.values[operand.value].tensor.microbatched
        ):
            continue
        read = operand.at(site.codes) % count
        several = site.rerun.graph.values[site.value].tensor.microbatched
        if (several and (read == site.codes % count).all()) or (
            not several and operand.read is None
        ):
            continue
        for other in (None,) if several else range(count):

            def of_it(
                node: Node, codes: Codes, place: int = place, other: int | None = other
            ) -> Draft | None:
                given = site.rerun.reads(node, codes)
                if not isinstance(given[place], Read):
                    return None
                value = given[place].value  # type: ignore[union-attr]
                own = codes if other is None else codes // count * count + other
                return (
                    node.kind,
                    site.rerun.attributes_of(node),
                    [*given[:place], Read(value, own), *given[place + 1 :]],
                )

            overrides = site.redone(of_it)
            if overrides is not None:
                right = "that of the same micro-batch" if other is None else f"micro-batch {other}"
                facts = {
                    "called": site.evidence.called(operand.value),
                    "batch": int(read[0]),
                    "right": right,
                }
                yield site.diagnosis(messages.READS_OTHER_MICROBATCH, **facts), overrides


def other_places(site: Site) -> Iterator[Candidate]:
    """Of attributes that say where a part begins: those of the ranks in order, and those one
    element earlier or later.
    """
    for name in ("position", "offset", "index", "start"):
        if (
            not all(
                isinstance(site.rerun.attributes_of(node).get(name), int) for node in site.nodes
            )
            or site.collective
        ):
            continue
        for table, said in _place_tables(site, name):

            def at(
                node: Node, codes: Codes, table: Codes = table, name: str = name
            ) -> Draft | None:
                own, place = site.rerun.attributes_of(node), int(table[codes[0]])
                moved = {name: place}
                if name == "start" and isinstance(own.get("stop"), int):
                    moved["stop"] = int(own["stop"]) - int(own["start"]) + place
                return site.as_given(node, codes, **moved) if place >= 0 else None

            overrides = site.redone(at, table)
            if overrides is not None:
                first = site.codes[0]
                was, due = _place_of(site, name, int(first)), int(table[first])
                if was == due:
                    first = next(
                        (c for c in site.codes if _place_of(site, name, int(c)) != table[c]), first
                    )
                    was, due = _place_of(site, name, int(first)), int(table[first])
                rank = int(first) // site.rerun.graph.coordinates.microbatches
                facts = {"attribute": name, "place": was, "rank": rank, "right": due, "why": said}
                yield site.diagnosis(messages.OTHER_PLACE, **facts), overrides


def _place_of(site: Site, name: str, code: int) -> int:
    node = next(node for node in site.nodes if node.mask[code])
    return int(site.rerun.attributes_of(node)[name])


def _place_tables(site: Site, name: str) -> Iterator[tuple[Codes, str]]:
    """By code other places, with what is said of them."""
    own = np.full(site.rerun.graph.codes, -1, dtype=np.int64)
    for node in site.nodes:
        own[node.mask] = int(site.rerun.attributes_of(node)[name])
    step = int(np.diff(np.unique(own[site.codes])).min(initial=1 << 40))
    width = (
        [int(site.attributes["stop"]) - int(site.attributes["start"])]
        if name == "start" and isinstance(site.attributes.get("stop"), int)
        else []
    )
    widths = list(dict.fromkeys([*width, *([step] if step < 1 << 40 else []), 1]))
    for grouping in site.evidence.groupings:
        if grouping.axes:
            place = np.full(len(own), -1, dtype=np.int64)
            for row in np.sort(grouping.table, axis=1):
                place[row] = np.arange(len(row))
            for each in widths:
                yield (
                    np.where(place >= 0, place * each, -1),
                    f"the parts lie in the order of {grouping.name}",
                )
    for more in (-1, 1):
        yield np.where(own >= 0, own + more, -1), "one element off"
        yield np.where(own > 0, own + more, own), "one element off"
