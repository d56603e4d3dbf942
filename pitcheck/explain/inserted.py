"""Repairs that put something in: a reduction, a gather, a term or a factor that is missing, or another tensor as an operand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.explain.evidence import MOVES, SAME, Evidence
from pitcheck.explain.hypotheses import REDUCTIONS, Cause, constant_ratio, factor, groups_present
from pitcheck.explain.repairs import larger_group, other_extremum
from pitcheck.explain.rerun import Draft, Override, Read, Rerun, held_at
from pitcheck.explain.sites import Repair, Site, by_code, reference_steps
from pitcheck.ops.registry import BACKWARD
from pitcheck.plan.numbers import Literal
from pitcheck.stages.batch import Argument, Step
from pitcheck.stages.graph import Node, Source, sources_of
from pitcheck.stages.grids import Codes

MOST_OPERANDS = 24
"""Other tensors of an operand's form that are tried in its place."""
MOST_GIVEN = 8
"""Given tensors and numbers of the reference that are tried beside them."""
MOST_BETWEEN = 2000
"""Values among which what lies between two of them is looked for."""
SUMS = frozenset({"add", "sub", "accumulate", "all_reduce", "reduce_scatter", "reduce", "identity", "sum", "cast", "view", "reshape", "stack", "cat"})
ROOTS = frozenset({"sqrt", "rsqrt"})
COPIES = MOVES | {"cat", "full", "identity"}


def missing_reduction(site: Site) -> Iterator[Repair]:
    """A reduction over a group of what is a term of it. What holds parts of a reference's tensor is no term."""
    if site.evidence.is_true(site.value) and not _is_output(site):
        return
    for grouping in site.evidence.groupings:
        table = groups_present(site.evidence, site.value, grouping)
        if table is None:
            continue
        groups = by_code(np.sort(table, axis=1), site.rerun.graph.codes)
        codes = site.evidence.codes(site.value)
        for kind in ("sum", "avg", "max", "min"):
            result = site.rerun.one("all_reduce", {"reduction": kind}, [Read(site.value, groups[codes])], len(codes))
            overrides = [] if result is None else [Override(site.value, codes, result)]
            if not overrides or not site.changes(overrides):
                break
            if kind == "avg" and not _of_floats(site.evidence, site.value) and not _divides(site.evidence, site.value):
                continue
            yield _unreduced(site, kind, grouping.name), overrides


def _unreduced(site: Site, kind: str, over: str) -> Cause:
    name = site.called
    mend = f"an all-reduce({kind}) over {over} of {name!r} before it is used makes it right"
    if kind == "avg" and _divides(site.evidence, site.value):
        said = f"{name!r} is the count of one rank or micro-batch, by which its own sum is divided; the mean of such means over {over} is not the mean of all"
        return site.cause("PIT112", said, f"divide the sum of all by the count of all: {mend}")
    averaged = _averaged_root(site.evidence, site.value) if kind == "sum" else None
    if averaged is not None:
        operator = site.evidence.operator(averaged)
        said = f"operator {operator!r} takes the mean of the ranks' norms, where the norm over {over} is the root of the sum of their squares"
        return replace(site.cause("PIT111", said, f"sum {name!r}, the squares, over {over}, and take the root of that"), step=averaged)
    if kind == "sum" and of_norm(site.evidence, site.value):
        return site.cause("PIT113", f"the norm is taken over part of the parameters: {name!r} has the squares of one rank, not of all over {over}", mend)
    what = {"sum": "a term of a sum", "avg": "a term of a mean", "max": "the largest of one rank's elements", "min": "the smallest of one rank's elements"}[
        kind
    ]
    whole = {"sum": "sum", "avg": "mean", "max": "largest", "min": "smallest"}[kind]
    return site.cause("PIT104", f"{name!r} is {what} over {over}, and is used as if it were the {whole}", mend)


def _averaged_root(evidence: Evidence, value: int) -> Step | None:
    """The operator that takes the mean of roots of what ranks have of a value."""
    stack, seen = [(value, False)], {value}
    while stack:
        held, rooted = stack.pop()
        for step in evidence.readers.get(held, []):
            if rooted and step.kind in REDUCTIONS and step.attributes.get("reduction", "sum") == "avg":
                return step
            if step.kind in ROOTS or (step.kind in SUMS and step.kind not in REDUCTIONS):
                new = [o for o in evidence.outputs(step) if o not in seen]
                seen.update(new)
                stack.extend((o, rooted or step.kind in ROOTS) for o in new)
    return None


def _divides(evidence: Evidence, value: int) -> bool:
    """Whether a value does not depend on floating-point inputs and something is divided by it: a count."""
    stack, seen = [value], {value}
    while stack:
        held = stack.pop()
        for step in evidence.readers.get(held, []):
            if step.kind == "div" and isinstance(step.inputs[-1], Argument) and step.inputs[-1].value == held:
                return not _of_floats(evidence, value)
            if step.kind in MOVES or step.kind in ("clamp", "maximum", "cast"):
                new = [o for o in evidence.outputs(step) if o not in seen]
                seen.update(new)
                stack.extend(new)
    return False


def _of_floats(evidence: Evidence, value: int) -> bool:
    """Whether a value is computed from floating-point inputs."""
    stack, seen = [value], {value}
    while stack:
        held = stack.pop()
        info = evidence.second.values[held]
        if held in evidence.batch.inputs and info.kind == "field" and info.tensor.value is None:
            return True
        for step in evidence.writers.get(held, []):
            new = [v for v in evidence.inputs(step) if v not in seen]
            seen.update(new)
            stack.extend(new)
    return False


def of_norm(evidence: Evidence, value: int) -> bool:
    """Whether a number is a sum of squares of which a root is taken: part of the norm of several tensors."""
    if len(evidence.array(value).shape) > 3 or not any(
        step.kind in ("sum", "add", "square", "mul", "pow", "stack", "cat") for step in evidence.writers.get(value, [])
    ):
        return False
    stack, seen = [value], {value}
    while stack:
        for step in evidence.readers.get(stack.pop(), []):
            if step.kind in ROOTS or (step.kind == "pow" and Fraction(1, 2) in step.inputs):
                return all(evidence.array(v).shape[2:] in ((), (1,)) for v in evidence.inputs(step))
            if step.kind in SUMS or step.kind in MOVES:
                new = [
                    o
                    for o in evidence.outputs(step)
                    if o not in seen and evidence.array(o).size <= 64 * evidence.array(o).shape[0] * evidence.array(o).shape[1]
                ]
                seen.update(new)
                stack.extend(new)
    return False


def missing_gather(site: Site) -> Iterator[Repair]:
    """What a rank has of its own, where the parts of all ranks are due."""
    source = site.nodes[0].inputs[0] if site.nodes[0].inputs else None
    if site.kind not in COPIES or not isinstance(source, Source) or source.members or source.value not in site.evidence.run.evaluated.parallel:
        return
    shape, own = site.rerun.shape(site.value), site.rerun.shape(source.value)
    if shape is None or own is None or len(shape) != len(own) or not shape:
        return
    for grouping in site.evidence.groupings:
        groups, members = by_code(np.sort(grouping.table, axis=1), site.rerun.graph.codes), grouping.table.shape[1]
        if (groups[site.codes] < 0).any() or members < 2:
            continue
        axes = [axis for axis, (a, b) in enumerate(zip(own, shape, strict=True)) if b == a * members]
        drafts: list[tuple[str, dict[str, Any], str]] = [("all_gather", {"axis": axis}, f"all-gather along dimension {axis}") for axis in axes]
        if shape == own:
            whole = [axis for axis, size in enumerate(own) if size % members == 0]
            drafts += [("all_to_all", {"split_axis": a, "concat_axis": b}, f"all-to-all from dimension {a} to {b}") for a in whole for b in whole if a == b]
        for kind, attributes, what in drafts:
            overrides = _collected(site, kind, attributes, source.value, groups)
            if overrides is not None:
                given = site.evidence.called(source.value)
                said = f"operator {site.name!r} takes what the rank has of {given}, where parts of all ranks over {grouping.name} are due"
                yield site.cause("PIT107", said, f"an {what} over {grouping.name} in its place makes it right"), overrides


def _collected(site: Site, kind: str, attributes: dict[str, Any], value: int, groups: Codes) -> list[Override] | None:
    place = (groups == np.arange(len(groups))[:, None]).argmax(axis=1)
    found = []
    for own in np.unique(place[site.codes]) if kind == "all_to_all" else (None,):
        codes = site.codes if own is None else site.codes[place[site.codes] == own]
        more = {} if own is None else {"position": int(own)}
        result = site.rerun.one(kind, {**attributes, **more}, [Read(value, groups[codes])], len(codes))
        if result is None:
            return None
        found.append(Override(site.value, codes, result))
    return found if site.changes(found) else None


# --- other operands


def due_operand(site: Site) -> Iterator[Repair]:
    """The tensor that the reference's operator of that kind reads in an operand's place, where its other operands are those of the plan's."""
    evidence = site.evidence
    if site.kind in MOVES:  # the reference views and moves much, which says little
        return
    held = [_reference_of(evidence, operand) for operand in site.step.inputs]
    for place in range(len(held)):
        tried: set[int] = set()
        for step in reference_steps(site):
            theirs = [evidence.alike(o.value) if isinstance(o, Argument) else o for o in step.inputs]
            others = all(mine is None or mine == other for n, (mine, other) in enumerate(zip(held, theirs, strict=True)) if n != place)
            wanted = step.inputs[place]
            if others and isinstance(wanted, Argument) and theirs[place] != held[place] and theirs[place] not in tried:
                tried.add(theirs[place])  # type: ignore[arg-type]
                for value in _holding(evidence, theirs[place]):  # type: ignore[arg-type]
                    yield from _reading(site, place, value)


def near_operand(site: Site) -> Iterator[Repair]:
    """Any other tensor of the operand's form, the nearest in the program first."""
    rank = site.rerun.graph.rank
    for place, operand in enumerate(site.step.inputs):
        if not isinstance(operand, Argument) or site.evidence.is_constant(operand.value):
            continue
        form = site.rerun.graph.values[operand.value]
        alike = [
            value
            for value in range(len(site.rerun.graph.values))
            if value != operand.value
            and (v := site.rerun.graph.values[value]).shape == form.shape
            and v.kind == form.kind
            and v.tensor.microbatched == form.tensor.microbatched
        ]
        here = rank[site.numbers[0]]
        for value in sorted(alike, key=lambda v: abs(site.rerun.graph.depth(v) - here))[:MOST_OPERANDS]:
            yield from _reading(site, place, value)


def _reference_of(evidence: Evidence, operand: object) -> object:
    if not isinstance(operand, Argument):
        return operand
    held = evidence.holds(operand.value)
    return None if held is None else evidence.alike(held)


def _holding(evidence: Evidence, reference: int) -> list[int]:
    """The parallel values that hold parts of a reference value."""
    return [value for value, cut in evidence.cuts.items() if cut.scale == 1 and evidence.alike(cut.reference) == reference]


def _reading(site: Site, place: int, value: int) -> Iterator[Repair]:
    """The operator with another operand."""
    if value in _downstream(site.evidence, site.value):
        return

    def with_it(node: Node, codes: Codes) -> Draft | None:
        given = site.rerun.reads(node, codes)
        read = given[place]
        if not isinstance(read, Read):
            return None
        return node.kind, site.rerun.attributes_of(node), [*given[:place], Read(value, read.codes), *given[place + 1 :]]

    overrides = site.redone(with_it)
    operand = site.step.inputs[place]
    if overrides is not None and isinstance(operand, Argument):
        yield other_tensor(site, operand.value, value), overrides


def other_tensor(site: Site, read: int, due: int) -> Cause:
    """What it is to read one tensor where another is due: its version before, what a layer was to be applied to, or just another tensor."""
    return next(_other_tensor(site, read, due))


def _other_tensor(site: Site, read: int, due: int) -> Iterator[Cause]:
    """What it is, the most telling first."""
    evidence = site.evidence
    mine, right = evidence.called(read), evidence.called(due)
    between = _between(site.rerun, read, due) or []
    kinds = [kind for kind, _ in between]
    said, repair = f"operator {site.name!r} reads {mine} where {right} is due", f"read {right}"
    after = f"{repair}, after {between[-1][1]!r}" if between else repair
    if site.kind in ("add", "sub") and sum(isinstance(o, Argument) and o.value == read for o in site.step.inputs) > 1:
        yield site.cause("PIT108", f"operator {site.name!r} has the term {mine} twice, where {right} is due once", repair)
    if all(kind in COPIES or kind in REDUCTIONS for kind in kinds) and any(kind in REDUCTIONS for kind in kinds):
        yield site.cause("PIT104", f"{said}: it is a term that is not reduced yet", after)
    over = _summed_over(site.rerun, read, due)
    if over:
        yield site.cause(
            "PIT104", f"{said}: it is a term of that, of a sum over {over}", f"an all-reduce(sum) over {over} of {mine} before it is used makes it right"
        )
    if _partly_reduced(site.rerun, read, due):
        yield site.cause("PIT104", f"{said}: parts of it are terms that are not reduced yet", repair)
    if between and all(kind in SUMS for kind in kinds) and _of_gradients(site.rerun, read):
        yield site.cause("PIT116", f"{said}, a later version of it: it is read too early", after)
    if _versions(evidence, read, due):
        yield site.cause("PIT116", f"{said}, another version of the same buffer", repair)
    if any(_has_parameter(site.rerun, operator) for _, operator in between):
        yield site.cause("PIT115", f"{said}: {', '.join(repr(o) for _, o in between[:3])} are passed over", repair)
    yield site.cause("PIT103", said, repair)


def _summed_over(rerun: Rerun, read: int, due: int) -> str:
    """The name of the group over which one value adds up to the other; "" where it does not."""
    wanted, codes = rerun.held(due), rerun.codes(read)
    for grouping in rerun.evidence.groupings if wanted is not None and (wanted.rows[codes] >= 0).all() else ():
        table = groups_present(rerun.evidence, read, grouping)
        groups = None if table is None else by_code(np.sort(table, axis=1), rerun.graph.codes)
        total = None if groups is None else rerun.one("all_reduce", {}, [Read(read, groups[codes])], len(codes))
        if total is not None and wanted is not None:
            one, other = (rerun.numbers(value) for value in (total, rerun.algebra.gather(wanted.value, wanted.rows[codes])))
            if one.shape == other.shape and np.allclose(one, other, rtol=SAME, atol=SAME, equal_nan=True):
                return grouping.name
    return ""


def _partly_reduced(rerun: Rerun, read: int, due: int) -> bool:
    """Whether one value is put together of parts of the other, a sum of ranks, and of parts of its terms."""
    graph = rerun.graph
    terms = {s.value for w in graph.values[due].writers if graph.nodes[w].kind in REDUCTIONS for o in graph.nodes[w].inputs for s in sources_of(o)}
    stack, seen = [read], {read}
    while stack and len(seen) < MOST_BETWEEN:
        for writer in graph.values[stack.pop()].writers:
            if graph.nodes[writer].kind in COPIES:
                new = [s.value for o in graph.nodes[writer].inputs for s in sources_of(o) if s.value not in seen]
                seen.update(new)
                stack.extend(new)
    return due in seen and bool(terms & seen)


def _of_gradients(rerun: Rerun, value: int) -> bool:
    """Whether a value is what a backward pass adds up, or a sum over micro-batches of it."""
    graph = rerun.graph
    kinds = [graph.nodes[writer].kind for writer in graph.values[value].writers]
    if kinds and all(kind in SUMS for kind in kinds):
        sources = [o.value for w in graph.values[value].writers for o in graph.nodes[w].inputs if isinstance(o, Source)]
        kinds = [graph.nodes[writer].kind for source in sources for writer in graph.values[source].writers]
    return any(kind.endswith(BACKWARD) or kind == "accumulate" for kind in kinds)


def _versions(evidence: Evidence, one: int, other: int) -> bool:
    """Whether two values are computed in one place of a loop, or stand in the user's program under one name with another number."""
    names = [evidence.name(value) for value in (one, other)]
    stems = {name.partition("#")[0] for name in names}
    return (len(stems) == 1 and all("#" in name for name in names)) or any(other in rounds for rounds in evidence.rounds(one) if one in evidence.writers)


def _between(rerun: Rerun, read: int, due: int) -> list[tuple[str, str]] | None:
    """(kind, operator) of the operators through which one value becomes the other, in the order of the program; None where it does not."""
    graph = rerun.graph
    behind: dict[int, set[int]] = {}
    stack, seen = [due], {due}
    while stack and len(seen) < MOST_BETWEEN:
        value = stack.pop()
        for writer in graph.values[value].writers:
            for source in (s.value for operand in graph.nodes[writer].inputs for s in sources_of(operand)):
                behind.setdefault(source, set()).add(writer)
                if source not in seen and source != read:
                    seen.add(source)
                    stack.append(source)
    if read not in behind:
        return None
    passed: set[int] = set()
    values = [read]
    while values:
        for number in behind.get(values.pop(), set()) - passed:
            passed.add(number)
            values.extend(output for output in graph.nodes[number].outputs if output is not None)
    found = (graph.nodes[number] for number in sorted(passed, key=graph.rank.__getitem__))
    return list(dict.fromkeys((node.kind, node.operator) for node in found))


def _has_parameter(rerun: Rerun, operator: str) -> bool:
    graph = rerun.graph
    nodes = (node for node in graph.nodes if node.operator == operator)
    return any(graph.values[o.value].tensor.role == "parameter" for node in nodes for o in node.inputs if isinstance(o, Source))


def _downstream(evidence: Evidence, value: int) -> set[int]:
    """What is computed from a value."""
    stack, seen = [value], {value}
    while stack:
        for step in evidence.readers.get(stack.pop(), []):
            new = [o for o in evidence.outputs(step) if o not in seen]
            seen.update(new)
            stack.extend(new)
    return seen


# --- terms and factors


def due_term(site: Site) -> Iterator[Repair]:
    """What the reference adds to a result, takes away from it or multiplies it with, where nothing in the plan does."""
    evidence = site.evidence
    held = evidence.holds(site.value)
    if held is None:
        return
    own = evidence.alike(held)
    for step in evidence.run.stage.reference.steps:
        if step.kind not in JOINED or len(step.inputs) != 2 or own not in {evidence.alike(o.value) for o in step.arguments}:
            continue
        if any(_holding(evidence, evidence.alike(o)) for o in step.outputs if o is not None):
            continue
        for place, operand in enumerate(step.inputs):
            mine = step.inputs[1 - place]
            if isinstance(mine, Argument) and evidence.alike(mine.value) == own:
                for other in _holding(evidence, evidence.alike(operand.value)) if isinstance(operand, Argument) else [operand]:
                    yield from _with_term(site, other, step.kind, turned=place == 0)


JOINED = {
    "add": ("PIT108", "the term", "add"),
    "sub": ("PIT108", "the term (with a minus)", "take away"),
    "mul": ("PIT102", "the factor", "multiply by"),
    "div": ("PIT102", "the divisor", "divide by"),
}


def _with_term(site: Site, other: Any, kind: str, turned: bool) -> Iterator[Repair]:
    """Its result joined with one tensor more, or a number."""
    codes = site.codes
    if isinstance(other, int) and (other in _downstream(site.evidence, site.value) or other == site.value):
        return
    given = [Read(site.value, codes), Read(other, codes) if isinstance(other, int) else other]
    result = site.rerun.one(kind, {}, given[::-1] if turned else given, len(codes))
    overrides = [] if result is None else [Override(site.value, codes, result)]
    if overrides and site.changes(overrides):
        code, what, verb = JOINED[kind]
        name = site.evidence.called(other) if isinstance(other, int) else str(other)
        if kind == "add" and of_norm(site.evidence, site.value):
            code = "PIT113"
        yield site.cause(code, f"{site.evidence.called(site.value)} is used without {what} {name}", f"{verb} {name} once"), overrides


def missing_term(site: Site) -> Iterator[Repair]:
    """A tensor that is to be added, taken away or multiplied with what is but passed on."""
    graph = site.rerun.graph
    copied = sum(number == site.value for number in graph.number.values()) > 1
    if site.kind != "identity" and not copied:
        return
    for value in fitting(site, site.value):
        for operator, turned in (("add", False), ("sub", False), ("sub", True), ("mul", False)):
            yield from _with_term(site, value, operator, turned)
    for kind, literal in _literals_of(site.evidence):
        yield from _with_term(site, literal, kind, turned=False)


def fitting(site: Site, value: int) -> list[int]:
    """Tensors that may have to be joined with one: those nearest to an operator in the program, and given ones that are called like its result."""
    graph = site.rerun.graph
    here, form, name = graph.rank[site.numbers[0]], graph.values[value], site.evidence.name(site.value)
    found = [v for v in range(len(graph.values)) if v != value and graph.values[v].kind == form.kind and _fits(graph.values[v].shape, form.shape)]
    near = sorted(found, key=lambda v: abs(graph.depth(v) - here))[:MOST_OPERANDS]
    given = (v for v in found if not graph.values[v].writers and graph.values[v].shape == form.shape)
    return list(dict.fromkeys([*near, *sorted(given, key=lambda v: -called_alike(graph.values[v].name, name))[:MOST_GIVEN]]))


def called_alike(one: str, other: str) -> int:
    """How much of two names is the same at their end."""
    return next((n for n, (a, b) in enumerate(zip(reversed(one), reversed(other), strict=False)) if a != b), min(len(one), len(other)))


def _literals_of(evidence: Evidence) -> list[tuple[str, Literal]]:
    """(kind, number) of what the reference adds or multiplies with."""
    steps = (step for step in evidence.run.stage.reference.steps if step.kind in JOINED and len(step.inputs) == 2)
    found = ((step.kind, operand) for step in steps for operand in step.inputs[1:] if not isinstance(operand, (Argument, tuple)))
    return list(dict.fromkeys(found))[:MOST_GIVEN]


def missing_term_of_operand(site: Site) -> Iterator[Repair]:
    """An operand that is but a copy, to which something is to be added, taken away or multiplied with, for this operator alone."""
    graph, tried = site.rerun.graph, set[int]()
    held_names = list(graph.number.values())
    for operand in (o for o in site.step.inputs if isinstance(o, Argument)):
        value = operand.value
        if value in tried or held_names.count(value) < 2:
            continue
        tried.add(value)
        codes = site.evidence.codes(value)
        later = _downstream(site.evidence, site.value)
        for other in (v for v in fitting(site, value) if v not in later):
            for kind in ("add", "sub", "mul"):
                joined = site.rerun.one(kind, {}, [Read(value, codes), Read(other, codes)], len(codes))
                overrides = None if joined is None else site.redone(site.as_given, known={value: held_at(joined, codes, graph.codes)})
                if overrides is not None:
                    code, what, verb = JOINED[kind]
                    name = site.evidence.called(other)
                    said = f"operator {site.name!r} reads {site.evidence.called(value)} without {what} {name}"
                    yield site.cause(code, said, f"{verb} {name} once"), overrides


def _fits(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a shape is broadcast to another."""
    return len(shape) <= len(whole) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(whole), strict=False))


def missing_factor(site: Site) -> Iterator[Repair]:
    """A factor by which every element is off: that of a known cut, or of the outputs."""
    # In a chain of linear operators a factor anywhere makes up for one behind it: it is named where it is seen.
    cut = site.evidence.cuts.get(site.value)
    seen = _is_output(site) or (cut is not None and cut.scale != 1)
    ratios = dict.fromkeys(_ratios(site)) if seen else {}
    for ratio in ratios:
        result = site.rerun.one("mul", {}, [Read(site.value, site.codes), 1 / ratio], len(site.codes))
        overrides = [] if result is None else [Override(site.value, site.codes, result)]
        if overrides and site.changes(overrides):
            meaning = factor(site.evidence, ratio)
            said = (
                f"every element is {meaning} times what it should be"
                if site.value in site.evidence.cuts or _is_output(site)
                else f"{site.called!r} is {meaning} times what it should be"
            )
            yield site.cause("PIT101", said, f"divide by {ratio} once, or drop what brought that factor"), overrides


def _is_output(site: Site) -> bool:
    return site.value in {c.target.cut.value for c in site.evidence.run.comparisons}


def _ratios(site: Site) -> Iterator[Fraction]:
    evidence = site.evidence
    cut = evidence.cuts.get(site.value)
    if cut is not None and cut.scale != 1:
        yield cut.scale
    for comparison in evidence.run.comparisons:
        found = constant_ratio(evidence, np.asarray(comparison.actual.data)[0], np.asarray(comparison.expected.data)[0])
        if found is not None:
            yield found[0]


def unreduced_part(site: Site) -> Iterator[Repair]:
    """A copy of what a rank has, or a part of it, where a copy or a part of the sum is due."""
    source = site.nodes[0].inputs[0] if site.nodes[0].inputs else None
    if site.kind not in COPIES or len(site.nodes[0].inputs) != 1 or not isinstance(source, Source) or source.members:
        return
    if site.evidence.is_true(source.value):  # what holds parts of a reference's tensor is no term
        return
    for grouping in site.evidence.groupings:
        table = groups_present(site.evidence, source.value, grouping)
        if table is None:
            continue
        groups, codes = by_code(np.sort(table, axis=1), site.rerun.graph.codes), site.evidence.codes(source.value)
        for kind in ("sum", "avg"):
            total = site.rerun.one("all_reduce", {"reduction": kind}, [Read(source.value, groups[codes])], len(codes))
            overrides = None if total is None else site.redone(site.as_given, known={source.value: held_at(total, codes, site.rerun.graph.codes)})
            if overrides is not None:
                name, what = site.evidence.called(source.value), "sum" if kind == "sum" else "mean"
                said = f"operator {site.name!r} copies what a rank has of {name}, a term of a {what} over {grouping.name}, where that {what} is due"
                yield site.cause("PIT104", said, f"a reduction({kind}) over {grouping.name} in its place makes it right"), overrides


DUE: tuple[Callable[[Site], Iterator[Repair]], ...] = (unreduced_part, missing_term, due_operand, due_term)
"""What the reference has there."""
MISSING: tuple[Callable[[Site], Iterator[Repair]], ...] = (missing_reduction, missing_gather, larger_group)
"""What is missing at an operator."""
FURTHER: tuple[Callable[[Site], Iterator[Repair]], ...] = (other_extremum, missing_term_of_operand, near_operand, missing_factor)
"""What is tried where nothing else makes the outputs right."""
