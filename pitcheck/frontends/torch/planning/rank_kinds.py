"""Ranks that compute other things than each other, such as the stages of a pipeline.

What ranks compute at one place of their programs has one name. Stages run the same modules, or the
same lines, on other parameters. If their values had one name, no value of a later stage would be
found in the reference, and all that is computed from one to the other end would be one proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pitcheck.frontends.torch.recording.rank_batch import coordinate_of
from pitcheck.frontends.torch.trace import Trace

Names = frozenset[str]


def kind_labels(traces: Sequence[Trace], mesh: Mapping[str, int]) -> dict[int, str]:
    """Return for each rank the end of the names of what it computes, "" for those like the first.

    Ranks are of one kind if they read the same parameters, or more than half of those that either
    of them reads. Names have no meaning, so that a wrong kind costs time at most.
    """
    read = {trace.rank: _parameters(trace) for trace in traces}
    kinds = _kinds(list(dict.fromkeys(read.values())))
    kind_of = {rank: kinds[names] for rank, names in read.items()}
    first: dict[int, int] = {}
    for rank, kind in kind_of.items():
        first.setdefault(kind, rank)
    axis = _axis(kind_of, mesh)
    return {
        rank: ""
        if kind == 0
        else f"@rank={first[kind]}"
        if axis is None
        else f"@{axis}={coordinate_of(rank, mesh)[axis]}"
        for rank, kind in kind_of.items()
    }


def _parameters(trace: Trace) -> Names:
    return frozenset(
        given.name for given in trace.given if given.role == "parameter" and not given.idle
    )


def _kinds(sets: Sequence[Names]) -> dict[Names, int]:
    """Return the number of the kind of each set of parameters; sets of one kind may be chained."""
    kinds: list[list[Names]] = []
    for names in sets:
        near = [kind for kind in kinds if any(_alike(names, other) for other in kind)]
        joined = [*(other for kind in near for other in kind), names]
        at = kinds.index(near[0]) if near else len(kinds)
        kinds = [kind for kind in kinds if kind not in near]
        kinds.insert(at, joined)
    return {names: number for number, kind in enumerate(kinds) for names in kind}


def _alike(one: Names, other: Names) -> bool:
    return one == other or 2 * len(one & other) > min(len(one), len(other))


def _axis(kind_of: Mapping[int, int], mesh: Mapping[str, int]) -> str | None:
    """Return the axis of the mesh along which kinds differ, and along no other; None without it."""
    for axis in mesh:
        pairs = {(coordinate_of(rank, mesh)[axis], kind) for rank, kind in kind_of.items()}
        if len(pairs) == len({place for place, _ in pairs}) == len({kind for _, kind in pairs}):
            return axis
    return None
