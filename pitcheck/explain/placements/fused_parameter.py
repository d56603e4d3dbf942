"""Shards of a fused parameter that the program takes apart otherwise than they lie.

Each shard is taken for a part of every piece, and is one stretch of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import SAME, Evidence
from pitcheck.explain.families import CUTS
from pitcheck.explain.rerun.changes import Override
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Codes
from pitcheck.stage.stage import Target

INTERLEAVED = Kind(
    "PIT117",
    "{result!r} is {pieces} fused tensors, cut in {shards} shards as one stretch; the program "
    "takes each shard apart as if it had a part of all {pieces}",
    "give each rank its part of every one of the {pieces}, or split the whole before it is cut",
    edits=(
        "- {result!r}: cut in {shards} shards as one stretch",
        "+ {result!r}: each of the {pieces} tensors cut in {shards} shards",
    ),
)


PIECES = (2, 3, 4)


def interleaved(
    rerun: Rerun, left: Sequence[int]
) -> tuple[Diagnosis, list[Override], list[int]] | None:
    """Find a fused parameter whose shards must have a part of every piece.

    Outputs of its form are compared as they then lie.

    Returns:
        The cause, the repair, the outputs that it makes right; None if there is no such parameter.
    """
    evidence = rerun.evidence
    for value, cut in evidence.specification.initial.items():
        dim = _split_dimension(evidence, value, cut)
        if dim is None or behind_what_is_right(
            rerun, value, left, partial(_of_form, evidence, cut)
        ):
            continue
        for pieces in _pieces(evidence, cut, dim):
            codes = evidence.codes(value)
            data = _shards(rerun, cut, dim, pieces, codes, cut.reference)
            if data is None or tuple(data.data.shape[3:]) != rerun.shape(value):
                continue
            own = [n for n in left if _alike(evidence, evidence.run.comparisons[n].target.cut, cut)]
            others = [n for n in left if n not in own]
            overrides = [
                Override(value, codes, data),
                *_states(rerun, own, others, value, cut, dim, pieces),
            ]
            # The nearest output is tried first, as nearly no parameter lies so.
            if not rerun.all_right(overrides, others):
                continue
            if all(
                right_where_it_lies(rerun, n, overrides, partial(_lie, rerun, dim, pieces))
                for n in own
            ):
                return _cause(evidence, value, cut, len(pieces)), overrides, list(left)
    return None


def behind_what_is_right(
    rerun: Rerun, value: int, left: Sequence[int], alike: Callable[[Target], bool]
) -> bool:
    """Return True if a right output that lies otherwise than a value is computed from it.

    Then the value lies as it must. ``alike`` tells the outputs that lie as the value does.
    """
    readers = {step.node for step in rerun.evidence.readers.get(value, [])}
    targets = (
        c.target
        for n, c in enumerate(rerun.evidence.run.comparisons)
        if n not in left and readers & rerun.behind(n)
    )
    return not all(map(alike, targets))


def _split_dimension(evidence: Evidence, value: int, cut: Cut) -> int | None:
    """Return the one dimension along which a parameter is cut in stretches, if there is one."""
    if (
        value not in evidence.batch.inputs
        or evidence.second.values[value].tensor.role != "parameter"
        or cut.group_of is not None
        or cut.scale != 1
    ):
        return None
    whole = evidence.first.values[cut.reference].shape
    parted = [
        dim
        for dim, size in enumerate(whole)
        if any(part.box[dim] != ((0, size),) for part in cut.parts)
    ]
    plain = all(
        len(part.box[dim]) == 1 and part.box[dim][0][0] >= 0 for part in cut.parts for dim in parted
    )
    return parted[0] if len(parted) == 1 and plain else None


def _pieces(evidence: Evidence, cut: Cut, dim: int) -> Iterator[tuple[int, ...]]:
    """Yield sizes that the pieces of a fused parameter may have along a dimension.

    These are sizes in which the reference splits a tensor, and equal ones.
    """
    run = evidence.run
    whole = np.asarray(run.evaluated.reference[cut.reference].data).shape[3 + dim]
    seen: dict[tuple[int, ...], None] = {}
    for step, attributes in zip(run.stage.reference.steps, run.shaped.attributes[0], strict=True):
        sizes = attributes.get("sizes")
        if (
            step.kind in CUTS
            and isinstance(sizes, tuple)
            and sum(sizes) == whole
            and len(sizes) > 1
        ):
            seen[tuple(int(size) for size in sizes)] = None
    for count in PIECES:
        if whole % count == 0:
            seen[(whole // count,) * count] = None
    yield from seen


def _shards(
    rerun: Rerun, cut: Cut, dim: int, pieces: Sequence[int], codes: Codes, reference: int
) -> Value | None:
    """Return what every rank holds if it has its part of every piece, one row per coordinate.

    None if the pieces cannot be cut so, or have other sizes in this run.
    """
    whole = rerun.evidence.run.evaluated.reference[reference]
    starts = sorted({part.box[dim][0][0] for part in cut.parts})
    if (
        any(size % len(starts) for size in pieces)
        or sum(pieces) != np.asarray(whole.data).shape[3 + dim]
    ):
        return None
    rows = []
    for code in codes:
        place = starts.index(cut.parts[int(cut.part_of[code])].box[dim][0][0])
        parts, begin = [], 0
        for size in pieces:
            width = size // len(starts)
            first = begin + place * width
            parts.append(
                np.take(np.asarray(whole.data), np.arange(first, first + width), axis=3 + dim)
            )
            begin += size
        rows.append(np.concatenate(parts, axis=3 + dim))
    return Value(whole.kind, np.concatenate(rows, axis=2))


def _alike(evidence: Evidence, own: Cut, cut: Cut) -> bool:
    """Return True if a tensor lies as a parameter does: its gradient, its update, or its state."""
    shapes = [
        evidence.first.values[reference].shape for reference in (own.reference, cut.reference)
    ]
    return shapes[0] == shapes[1] and {part.box for part in own.parts} == {
        part.box for part in cut.parts
    }


def _of_form(evidence: Evidence, cut: Cut, target: Target) -> bool:
    return _alike(evidence, target.cut, cut)


def _states(
    rerun: Rerun,
    own: Sequence[int],
    others: Sequence[int],
    value: int,
    cut: Cut,
    dim: int,
    pieces: Sequence[int],
) -> Iterator[Override]:
    """Yield what an optimizer is given of the parameter, laid out like it.

    Only outputs of the parameter's form are computed from it.
    """
    evidence = rerun.evidence

    def read(numbers: Sequence[int]) -> set[int]:
        nodes = frozenset[int]().union(*(rerun.behind(n) for n in numbers))
        return {
            source
            for step in evidence.batch.steps
            if step.node in nodes
            for source in evidence.inputs(step)
        }

    for state in sorted(read(own) - read(others)):
        lies = evidence.specification.initial.get(state)
        data = (
            _shards(rerun, lies, dim, pieces, evidence.codes(state), lies.reference)
            if lies is not None and state != value and _alike(evidence, lies, cut)
            else None
        )
        if data is not None:
            yield Override(state, evidence.codes(state), data)


def _lie(rerun: Rerun, dim: int, pieces: Sequence[int], cut: Cut, codes: Codes) -> Value | None:
    return _shards(rerun, cut, dim, pieces, codes, cut.reference)


def right_where_it_lies(
    rerun: Rerun,
    number: int,
    overrides: Sequence[Override],
    lie: Callable[[Cut, Codes], Value | None],
) -> bool:
    """Return True if an output of a parameter's form is right once it lies as the parameter does.

    ``lie`` gives what should be at coordinates in place of a cut.
    """
    target = rerun.evidence.run.comparisons[number].target
    changed = rerun.after(overrides, [number])
    held = (
        None if changed is None else changed.get(target.cut.value) or rerun.held(target.cut.value)
    )
    expected = lie(target.cut, target.codes)
    if held is None or expected is None or (held.rows[target.codes] < 0).any():
        return False
    actual = rerun.numbers(rerun.algebra.gather(held.value, held.rows[target.codes]))
    wanted = rerun.numbers(expected) * float(target.cut.scale)
    scale = float(np.abs(wanted).max(initial=0.0, where=np.isfinite(wanted)))
    return actual.shape == wanted.shape and np.allclose(
        actual, wanted, rtol=0.0, atol=SAME * max(scale, 1e-300), equal_nan=True
    )


def _cause(evidence: Evidence, value: int, cut: Cut, pieces: int) -> Diagnosis:
    facts = {
        "result": evidence.name(value),
        "pieces": pieces,
        "shards": len({part.box for part in cut.parts}),
    }
    return Diagnosis(INTERLEAVED, facts, evidence.codes(value), evidence.first_reader(value), value)
