"""The evident causes of a wrong value, each tested on numbers, cheapest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np

from pitcheck.claims.conjecture import Floats, lookup, varies
from pitcheck.explain import messages
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.evidence import MOVES, Evidence, Grouping
from pitcheck.graph.cuts import Box, Cut, uncovered
from pitcheck.graph.graph import Graph, Source
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import kinds_with, operator_kind
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Step, StepOperand

ADDITIONS = frozenset({"add", "sub"})
REDUCTIONS = frozenset({"all_reduce", "reduce_scatter", "reduce"})
MOST_MOVED = 32
"""So many values made of one by moving its elements are looked at."""
RATIO_TOLERANCE = 1e-9
RATIO_DENOMINATOR = 4096


def groups_present(evidence: Evidence, value: int, grouping: Grouping) -> Codes | None:
    """The groups whose members all have the value, if together they are all codes that have it;
    none for a constant, which is no term of anything.
    """
    if evidence.is_constant(value):
        return None
    rows = evidence.batch.rows[value]
    table = grouping.table[(rows[grouping.table] >= 0).all(axis=1)]
    codes = evidence.codes(value)
    if not len(table) or table.shape[1] < 2 or len(np.unique(table)) != len(codes):
        return None
    return table


def possible_times(evidence: Evidence, value: int, table: Codes) -> Iterator[int]:
    """How many times what is due the terms of a value over groups may add up to: once, or as often
    as there are terms, whose mean is due then.

    The mean of equal replicas is no mean, and what was summed already, over another group, is no
    term of one.
    """
    yield 1
    if any(operator_kind(step.kind).collective for step in evidence.writers.get(value, [])):
        return
    array, rows = evidence.array(value), evidence.batch.rows[value][table]
    # Pairs of different rows are few, also where groups are many; one that differs is enough.
    pairs = np.unique(
        np.stack([np.broadcast_to(rows[:, :1], rows.shape), rows], axis=-1).reshape(-1, 2), axis=0
    )
    if np.isfinite(array).all() and not all(
        _same(array[:, first], array[:, own]) for first, own in pairs if own != first
    ):
        yield table.shape[1]


def _same(a: Floats, b: Floats) -> bool:
    return np.array_equal(a, b) or close(a, b)


def distinct_groups(evidence: Evidence, value: int, table: Codes) -> Codes:
    """The rows of a value that the members of every group have, in order: of groups that have the
    same rows, of which thousands of ranks have many, one.
    """
    return np.unique(np.sort(evidence.batch.rows[value][table], axis=1), axis=0)


def forgotten_sum(
    evidence: Evidence, value: int, expected: tuple[Floats, Codes] | None
) -> Diagnosis | None:
    """Whether the value becomes right when it is summed over some group: a reduction is missing, or
    runs over another group.

    ``expected`` is what it should be at codes; without it the sum only has to be a part of some
    reference value.
    """
    reductions = evidence.reductions_of(value)
    if any(evidence.is_true(o) for step in reductions for o in step.outputs if o is not None):
        return None
    for grouping in evidence.groupings:
        table = groups_present(evidence, value, grouping)
        if table is None or (not reductions and reduced_anyway(evidence, value, table)):
            continue
        terms = evidence.array(value)[:, evidence.batch.rows[value][table]]
        total = terms.sum(axis=2)
        for times in possible_times(evidence, value, table):
            if expected is not None:
                wanted, codes = expected
                place = {int(c): i for i, c in enumerate(codes)}
                known = [
                    (g, place[int(row[0])]) for g, row in enumerate(table) if int(row[0]) in place
                ]
                right = bool(known) and all(
                    close(total[:, g] / times, wanted[:, i]) for g, i in known
                )
            else:
                # What is the same in every trial, such as flags that no element sets, is a part of
                # much by accident.
                right = varies(total) and evidence.part_of(total / times) is not None
            if right and reductions and times == 1:
                return otherwise_reduced(
                    evidence, value, grouping, reductions[0], table.reshape(-1)
                )
            if right and not reductions:
                return unreduced(evidence, value, replace(grouping, table=table, times=times))
    return None


def unreduced(evidence: Evidence, value: int, grouping: Grouping) -> Diagnosis:
    """The term of a sum or of a mean that should have been reduced, or reduced further
    than it is.
    """
    narrow = too_narrow(evidence, value, grouping)
    if narrow is not None:
        return narrow
    what = grouping.what
    facts = {
        "result": evidence.name(value),
        "what": f"a term of a {what}",
        "whole": f"the {what}",
        "over": grouping.name,
        "reduction": grouping.reduction,
    }
    return Diagnosis(messages.NOT_REDUCED, facts, grouping.table.reshape(-1))


def too_narrow(evidence: Evidence, value: int, grouping: Grouping) -> Diagnosis | None:
    """Whether the result of a reduction is a term of a sum over ``grouping`` because that reduction
    runs over part of the group that is due.

    That is said where its own group is none that the mesh has, or no fewer reductions of the plan
    run over the whole one (of values with as many dimensions); else the next reduction is missing.
    """
    for step in evidence.writers.get(value, []):
        own = _groups_of(evidence, step, value) if step.kind in REDUCTIONS else set()
        whole = _joined(own, grouping.table) if own else set()
        if not whole or whole == own or max(map(len, own)) < 2:
            continue
        # A value of some ranks alone has some of an axis' groups.
        groups_of = [
            ({tuple(sorted(row)) for row in g.table.tolist()}, g) for g in evidence.groupings
        ]
        named = any(own <= groups for groups, g in groups_of if g.axes)
        form = len(evidence.second.values[value].shape)
        others = [s for s in evidence.batch.steps if s.kind in REDUCTIONS and s.node != step.node]
        runs = [
            _groups_of(evidence, s, o)
            for s in others
            for o in s.outputs
            if o is not None and len(evidence.second.values[o].shape) == form
        ]
        over_whole, over_part = (
            sum(bool(groups & asked) for groups in runs) for asked in (whole, own)
        )
        if not named or over_whole >= max(over_part, 1):
            name = evidence.operator(step)
            ranks = str([code // evidence.second.coordinates.microbatches for code in min(whole)])
            over = next((g.name for groups, g in groups_of if whole <= groups), f"ranks {ranks}")
            facts = {
                "result": evidence.name(value),
                "what": grouping.what,
                "over": over,
                "operator": name,
            }
            return Diagnosis(
                messages.TOO_NARROW, facts, grouping.table.reshape(-1), step, value, reduced=True
            )
    return None


def _joined(groups: set[tuple[int, ...]], table: Codes) -> set[tuple[int, ...]]:
    """The groups that a second reduction over the rows of ``table`` makes of the first one's; none
    where a member would be in two.
    """
    group_of = {code: group for group in groups for code in group}
    found = {
        tuple(sorted({c for code in row for c in group_of.get(code, (code,))}))
        for row in table.tolist()
    }
    return found if sum(map(len, found)) == len({c for group in found for c in group}) else set()


def reduced_anyway(evidence: Evidence, value: int, table: Codes) -> bool:
    """Return True if a value, or what it is added to, is reduced over these groups already, or part
    of them.

    One reduction more would count terms several times.
    """
    group_of = {code: number for number, row in enumerate(table.tolist()) for code in row}
    sums = {
        o
        for step in evidence.readers.get(value, [])
        if step.kind in ADDITIONS
        for o in evidence.outputs(step)
    }
    for step in (
        step
        for each in _moved_on(evidence, [value, *sorted(sums)])
        for step in evidence.reductions_of(each)
    ):
        node = evidence.second.nodes[step.node]
        source = node.inputs[0]
        if step.kind in REDUCTIONS and isinstance(source, Source):
            rows = np.unique(
                source.at(np.flatnonzero(node.mask)).reshape(-1, max(source.members, 1)), axis=0
            ).tolist()
            if any(
                len({group_of.get(code, -1) for code in row}) == 1 for row in rows if len(row) > 1
            ):
                return True
    return False


def _moved_on(evidence: Evidence, values: Sequence[int]) -> list[int]:
    """The values, and what is made of them by moving elements and dividing by numbers: buckets of
    gradients, and averages.
    """
    found = list(dict.fromkeys(values))
    for value in found:
        readers = evidence.readers.get(value, [])
        moved = [
            o
            for step in readers
            if step.kind in MOVES
            or (step.kind in kinds_with(Trait.SCALES) and len(step.arguments) == 1)
            for o in evidence.outputs(step)
        ]
        found += [o for o in dict.fromkeys(moved) if o not in found][: MOST_MOVED - len(found)]
    return found


def otherwise_reduced(
    evidence: Evidence, value: int, grouping: Grouping, step: Step, codes: Codes | None = None
) -> Diagnosis:
    """What a reduction of terms does that should add them up over a group: it runs over another
    one, or does something else over this one.
    """
    kind = step.attributes.get("reduction", "sum")
    facts = {
        "term": evidence.name(value),
        "over": grouping.name,
        "operator": evidence.operator(step),
    }
    if kind != "sum" and _groups_of(evidence, step, value) == {
        tuple(sorted(row)) for row in grouping.table.tolist()
    }:
        return Diagnosis(
            messages.REDUCED_BY_OTHER_MEANS, {**facts, "reduction": kind}, codes, step, reduced=True
        )
    return Diagnosis(messages.REDUCED_OVER_OTHERS, facts, codes, step, reduced=True)


def _groups_of(evidence: Evidence, step: Step, value: int) -> set[tuple[int, ...]]:
    """The coordinates over which a reduction runs, group by group."""
    node = evidence.second.nodes[step.node]
    source = node.inputs[0] if node.inputs else None
    if not isinstance(source, Source) or source.table is None or source.table.ndim != 2:
        return set()
    return {tuple(sorted(row)) for row in source.at(evidence.codes(value)).tolist()}


def constant_ratio(
    evidence: Evidence, actual: Floats, wanted: Floats
) -> tuple[Fraction, str] | None:
    """(the factor, what of the plan has that size) where every element is the same multiple of what
    it should be.
    """
    actual, wanted = np.broadcast_arrays(actual, wanted)
    scale = np.abs(wanted).max(initial=0.0)
    solid = np.abs(wanted) > 1e-6 * scale
    if not solid.any() or scale == 0:
        return None
    ratios = actual[solid] / wanted[solid]
    middle = float(np.median(ratios))
    if (
        middle == 0
        or not np.isfinite(ratios).all()
        or (np.abs(ratios - middle) > 1e-6 * abs(middle)).any()
    ):
        return None
    ratio = Fraction(middle).limit_denominator(RATIO_DENOMINATOR)
    if ratio == 1 or abs(float(ratio) - middle) > RATIO_TOLERANCE * 100 * abs(middle):
        return None
    return ratio, factor(evidence, ratio)


def factor(evidence: Evidence, ratio: Fraction) -> str:
    """A factor as text, with everything of the plan that has that size: all axes, or else all
    products of two.
    """
    coordinates = evidence.second.coordinates
    sizes = {
        **{f"size of {name}": size for name, size in coordinates.sizes.items()},
        "number of micro-batches": coordinates.microbatches,
    }
    large = {name: size for name, size in sizes.items() if size > 1}
    names = [name for name, size in large.items() if ratio in (size, Fraction(1, size))]
    if not names:
        names = [
            f"{a} x {b}"
            for a, b in combinations(large, 2)
            if ratio in (large[a] * large[b], Fraction(1, large[a] * large[b]))
        ]
    return " = ".join([str(ratio), *(name if ratio > 1 else f"1 / {name}" for name in names)])


def members_of(evidence: Evidence, step: Step) -> int:
    """How many members the groups of a reduction have."""
    source = next(iter(evidence.second.nodes[step.node].inputs), None)
    return source.members if isinstance(source, Source) else 0


def repeated_reduction(evidence: Evidence, value: int) -> bool:
    """Whether the value comes out of an all-reduce whose input was already the same on all members:
    it is summed again.
    """
    for step in evidence.writers.get(value, []):
        if step.kind not in ("all_reduce", "reduce_scatter", "reduce"):
            continue
        for operand in step.inputs:
            rows = getattr(operand, "rows", None)
            if rows is not None and rows.ndim == 2 and (rows == rows[:, :1]).all():
                return True
    return False


def ratio_cause(evidence: Evidence, value: int, meaning: str, codes: Codes) -> Diagnosis:
    """A constant factor, which a reduction more or something else has brought."""
    if repeated_reduction(evidence, value):
        return Diagnosis(messages.REDUCED_AGAIN, {"meaning": meaning}, codes)
    return Diagnosis(messages.FACTOR, {"meaning": meaning}, codes)


def other_part(evidence: Evidence, value: int, cut: Cut, found: Cut) -> Diagnosis | None:
    """Whether the value holds other parts of the same reference value than it should."""
    if found.reference != cut.reference or found.scale != 1:
        return None
    wrong = [
        int(c)
        for c in evidence.codes(value)
        if cut.part_of[c] >= 0
        and found.parts[int(found.part_of[c])].box != cut.parts[int(cut.part_of[c])].box
    ]
    if not wrong:
        return None
    held = found.parts[int(found.part_of[wrong[0]])].box
    due = cut.parts[int(cut.part_of[wrong[0]])].box
    name = evidence.first.values[cut.reference].name
    facts = {"result": evidence.name(value), "held": spell(held), "right": name, "box": spell(due)}
    return Diagnosis(messages.HOLDS_OTHER_PART, facts, np.array(wrong, dtype=np.int64))


def missing_term(evidence: Evidence, actual: Floats, wanted: Floats) -> Diagnosis | None:
    """Whether the difference to what is due is itself a known tensor: a term that is missing, or
    stands twice.
    """
    for sign, of, of_reference in (
        (1.0, messages.MISSES_TERM, messages.MISSES_REFERENCE_TERM),
        (-1.0, messages.HAS_TERM_TOO_MUCH, messages.HAS_REFERENCE_TERM_TOO_MUCH),
    ):
        difference = sign * (wanted - actual)
        for value, step in (
            (o, s) for s in evidence.batch.steps for o in s.outputs if o is not None
        ):
            data = evidence.array(value)
            if (
                data.shape[2:] != difference.shape[2:]
                or evidence.second.values[value].kind != "field"
                or not varies(data)
            ):
                continue
            for row in range(data.shape[1]):
                if all(close(difference[:, i], data[:, row]) for i in range(difference.shape[1])):
                    return Diagnosis(
                        of, {"term": evidence.name(value), "writer": evidence.operator(step)}
                    )
        known = lookup(difference, evidence.index) if varies(difference) else None
        if known is not None:
            return Diagnosis(of_reference, {"term": evidence.first.values[known].name})
    return None


def duplicated_part(evidence: Evidence, value: int) -> Diagnosis | None:
    """Whether parts of a reference value are held nowhere although each coordinate holds some part:
    one coordinate computes another's part.
    """
    cut = evidence.cuts[value]
    shape = evidence.first.values[cut.reference].shape
    codes = evidence.codes(value)
    box = uncovered(cut, shape, cut.lattice.mask(codes))
    if box is None or _held_by_others(evidence, value, box):
        return None
    held: dict[int, list[int]] = {}
    for code in codes:
        held.setdefault(int(cut.part_of[code]), []).append(int(code))
    doubled = _doubled(held)
    name = evidence.first.values[cut.reference].name
    batches = evidence.microbatches_of(value, np.array(doubled))
    of = (
        messages.BATCH_DOUBLED
        if len(batches) > 1 and evidence.second.values[value].tensor.microbatched
        else messages.PART_DOUBLED
    )
    parts = list(dict.fromkeys(int(cut.part_of[c]) for c in doubled))
    said = " and ".join(
        f"{_places(evidence, value, [c for c in doubled if cut.part_of[c] == p])} "
        f"{spell(cut.parts[p].box)}"
        for p in parts[:2]
    )
    used = "used" if _elsewhere(evidence, value) else "computed"
    facts = {
        "box": spell(box),
        "right": name,
        "used": used,
        "doubled": f"{said}{' and others more' if len(parts) > 2 else ''}",
    }
    return Diagnosis(of, facts, np.array(doubled, dtype=np.int64))


def _held_by_others(evidence: Evidence, value: int, box: Box) -> bool:
    """Whether values that other operators of the same kind compute have a box of the same tensor: a
    program that unrolls its micro-batches runs one each.
    """
    cut, kinds = evidence.cuts[value], {step.kind for step in evidence.writers.get(value, [])}
    found: list[Box] = []
    for other, held in evidence.cuts.items():
        alike = (
            other != value
            and held.scale == 1
            and evidence.alike(held.reference) == evidence.alike(cut.reference)
        )
        if alike and kinds & {step.kind for step in evidence.writers.get(other, [])}:
            found += [
                held.parts[int(part)].box for part in np.unique(held.part_of[evidence.codes(other)])
            ]
    return _covered(box, found)


def _covered(box: Box, boxes: Sequence[Box]) -> bool:
    """Whether boxes together have all of a box of one interval per dimension."""
    edges = [
        sorted({a, b} | {e for other in boxes for i in other[dim] for e in i if a < e < b})
        for dim, ((a, b),) in enumerate(box)
    ]
    grid = np.zeros([len(own) - 1 for own in edges], dtype=np.bool_)
    for other in boxes:
        grid[
            np.ix_(
                *(
                    [any(a <= e < b for a, b in intervals) for e in own[:-1]]
                    for own, intervals in zip(edges, other, strict=True)
                )
            )
        ] = True
    return bool(grid.all())


def _doubled(held: dict[int, list[int]]) -> list[int]:
    """The codes that hold a part which more codes hold than others; all codes where every part is
    held as often.
    """
    most = max(len(v) for v in held.values())
    uneven = len({len(v) for v in held.values()}) > 1
    return [c for v in held.values() if len(v) == most or not uneven for c in v]


def _places(evidence: Evidence, value: int, codes: list[int]) -> str:
    where = np.array(codes)
    batches = evidence.microbatches_of(value, where)
    ranks = evidence.ranks_of(where)
    said = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
    many = len(ranks) * max(len(batches), 1) > 1
    return (
        said
        + (
            f", micro-batch{'es' if len(batches) > 1 else ''} {', '.join(map(str, batches))}"
            if batches
            else ""
        )
        + (" hold" if many else " holds")
    )


def _elsewhere(evidence: Evidence, value: int) -> bool:
    """Whether the value is computed at more coordinates than the outputs use."""
    written = np.zeros(evidence.second.codes, dtype=np.bool_)
    for writer in evidence.second.values[value].writers:
        written |= evidence.second.nodes[writer].mask
    return bool((written & (evidence.batch.rows[value] < 0)).any())


Held = Callable[[int], int | None]
"""The reference value that a parallel value holds parts of, None where that is not known."""


def other_operator(
    evidence: Evidence, step: Step, held: Held, due: Cut | None = None
) -> Diagnosis | None:
    """Whether the reference runs the same operator on the same tensors with another attribute or
    literal, or with one other tensor.

    Where it is known what is ``due``, the reference's operator has to compute that. What the
    reference runs just so somewhere is no other operator.
    """
    name = evidence.operator(step)
    others: list[tuple[bool, Diagnosis]] = []
    alike = list(_alike(evidence, step, held, due))
    if any(not different and not attributes for _, different, attributes in alike):
        return None
    for other, different, attributes in alike:
        if not different and attributes and operator_kind(step.kind).random:
            return _other_draw(evidence, step, name)
        if not different and attributes:
            said = ", ".join(
                f"{k} = {step.attributes.get(k)} where the reference has {other.attributes.get(k)}"
                for k in attributes
            )
            return Diagnosis(messages.REFERENCE_ATTRIBUTE, {"operator": name, "different": said})
        if len(different) == 1 and not attributes and len(step.inputs) > 1:
            # What is computed is rather the wrong tensor than a parameter.
            operand = step.inputs[different[0]]
            given = (
                isinstance(operand, Argument) and not evidence.second.values[operand.value].writers
            )
            others.append((given, _other_operand(evidence, step, other, different[0], name)))
    return min(others, key=lambda o: o[0])[1] if others else None


def _other_draw(evidence: Evidence, step: Step, name: str) -> Diagnosis:
    """Random numbers that are others than the reference's: over which axes ranks draw the same
    ones, and over which others.
    """
    (value, *_) = evidence.outputs(step)
    drawn = np.full(evidence.second.codes, -1, dtype=np.int64)
    places: dict[str, int] = {}
    for writer in evidence.writers[value]:
        drawn[evidence.second.nodes[writer.node].mask] = places.setdefault(
            repr(sorted(writer.attributes.items())), len(places)
        )
    single = [g for g in evidence.groupings if len(g.axes) == 1 and (drawn[g.table] >= 0).all()]
    alike = [g.name for g in single if (drawn[g.table] == drawn[g.table[:, :1]]).all()]
    other = [g.name for g in single if g.name not in alike]
    said = [
        f"{how} numbers on the ranks over {' and '.join(names)}"
        for how, names in (("the same", alike), ("other", other))
        if names
    ]
    mend = [f"other numbers over {' and '.join(alike)}"] if alike else []
    mend += [f"the same numbers over {' and '.join(other)}"] if other else []
    right = (
        ", ".join(mend) + ", so that every element has the reference's"
        if mend
        else "the numbers that the reference draws"
    )
    return Diagnosis(
        messages.OTHER_DRAW,
        {
            "operator": name,
            "kind": step.kind,
            "drawn": ", ".join(said) or "numbers",
            "right": right,
        },
    )


def same_operator(evidence: Evidence, step: Step, held: Held, due: Cut) -> bool:
    """Whether the reference computes what is due by the same operator from the same tensors."""
    return any(
        not different and not attributes
        for _, different, attributes in _alike(evidence, step, held, due)
    )


def _alike(
    evidence: Evidence, step: Step, held: Held, due: Cut | None
) -> Iterator[tuple[Step, list[int], list[str]]]:
    """(step, numbers of the operands that differ, names of the attributes that differ) of the
    reference's steps of the same kind.
    """
    unused = evidence.unused(step)
    own = [_reads(evidence, operand, held, unused) for operand in step.inputs]
    if None in own:
        return
    for other in evidence.run.stage.reference.steps:
        if other.kind != step.kind or len(other.inputs) != len(step.inputs):
            continue
        if due is not None and evidence.alike(due.reference) not in {
            evidence.alike(o) for o in other.outputs if o is not None
        }:
            continue
        theirs: list[object] = [
            evidence.alike(operand.value) if isinstance(operand, Argument) else operand
            for operand in other.inputs
        ]
        different = [
            i for i, (a, b) in enumerate(zip(own, theirs, strict=True)) if a not in (b, UNUSED)
        ]
        attributes = sorted(
            k
            for k in {*step.attributes, *other.attributes} - SIZES
            if step.attributes.get(k) != other.attributes.get(k)
        )
        # An attribute with its default is no other than one that is not said.
        yield (
            other,
            different,
            [] if not different and _same_results(evidence, step, other) else attributes,
        )


def _same_results(evidence: Evidence, step: Step, other: Step) -> bool:
    """Whether a step of the plan and one of the reference give the same numbers in this run."""
    codes = np.flatnonzero(evidence.second.nodes[step.node].mask)
    for own, theirs in zip(step.outputs, other.outputs, strict=False):
        if own is None or theirs is None or theirs not in evidence.run.evaluated.reference:
            return False
        wanted = np.asarray(evidence.run.evaluated.reference[theirs].data, dtype=np.float64)[0]
        found = evidence.at(own, codes)
        if (
            found is None
            or found.shape[2:] != wanted.shape[2:]
            or not _same(found, np.broadcast_to(wanted, found.shape))
        ):
            return False
    return True


def _other_operand(evidence: Evidence, step: Step, other: Step, place: int, name: str) -> Diagnosis:
    mine, theirs = step.inputs[place], other.inputs[place]
    if not isinstance(mine, Argument) and not isinstance(theirs, Argument):
        return Diagnosis(
            messages.REFERENCE_LITERAL, {"operator": name, "literal": mine, "right": theirs}
        )
    if not isinstance(mine, Argument) or not isinstance(theirs, Argument):
        read = _spelt(evidence.second, mine), _spelt(evidence.first, theirs)
        return Diagnosis(
            messages.REFERENCE_READS, {"operator": name, "read": read[0], "right": read[1]}
        )
    right = evidence.first.values[theirs.value].name
    facts = {
        "operator": name,
        "read": evidence.called(mine.value),
        "origin": evidence.origin(mine.value),
        "right": right,
    }
    lost = _passed_over(evidence, mine.value, theirs.value)
    if lost:
        return Diagnosis(messages.LAYERS_NOT_RUN, {**facts, "lost": ", ".join(map(repr, lost[:3]))})
    return Diagnosis(messages.READS_OTHER_THAN_REFERENCE, facts)


def _passed_over(evidence: Evidence, read: int, due: int) -> list[str]:
    """The reference's operators that have parameters between what is read and what is due, where
    the plan computes none of what is due.
    """
    start, parameters = (
        evidence.holds(read),
        {
            v
            for v in evidence.run.stage.reference.inputs
            if evidence.first.values[v].tensor.role == "parameter"
        },
    )
    wanted = evidence.alike(due)
    if start is None or any(
        evidence.alike(cut.reference) == wanted for cut in evidence.cuts.values()
    ):
        return []
    behind: dict[int, list[str]] = {start: []}
    for step in evidence.run.stage.reference.steps:
        sources = [argument.value for argument in step.arguments]
        known = max((behind[v] for v in sources if v in behind), key=len, default=None)
        for output in step.outputs:
            if output is not None and known is not None:
                behind[output] = [
                    *known,
                    *(
                        [evidence.first.nodes[step.node].operator]
                        if parameters & set(sources)
                        else []
                    ),
                ]
    return behind.get(due, [])


def _spelt(graph: Graph, operand: StepOperand) -> str:
    return (
        repr(graph.values[operand.value].name)
        if isinstance(operand, Argument)
        else f"the number {operand}"
    )


UNUSED = "unused"
SIZES = frozenset({"sizes", "position", "count", "start", "stop"})


def _reads(evidence: Evidence, operand: StepOperand, held: Held, unused: frozenset[int]) -> object:
    """The reference value that an operand holds parts of, or a literal; None where that is not
    known.
    """
    if isinstance(operand, tuple):
        return None
    if not isinstance(operand, Argument):
        return operand
    if operand.value in unused:
        return UNUSED
    reference = held(operand.value)
    return None if reference is None else evidence.alike(reference)


def spell(box: Sequence[Sequence[tuple[int, int]]]) -> str:
    """A box as text."""
    return "[" + ", ".join("+".join(f"{a}:{b}" for a, b in intervals) for intervals in box) + "]"


def close(a: Floats, b: Floats) -> bool:
    """Whether two arrays are equal up to rounding."""
    scale = max(float(np.abs(a).max(initial=0.0)), float(np.abs(b).max(initial=0.0)))
    return a.shape == b.shape and 0 < scale < np.inf and bool((np.abs(a - b) <= 1e-8 * scale).all())
