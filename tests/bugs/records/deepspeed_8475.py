"""Every rank has other experts: their norm is the root of the sum of the squares of the ranks'
norms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bugs.cases import llama, mixtral, spread
from bugs.record import Bug, Patched, each

from pitcheck.programs.data_parallel.optimizer_step import _over
from pitcheck.programs.rank import Names, Rank


def mean_of_norms(rank: Rank, axes: Names, by_place: Mapping[int, Sequence[str]]) -> str:
    """The sum of squares; over expert-parallel ranks the square of the mean of their norms."""
    if not set(axes) & {*rank.axes.experts}:
        return _over(rank, axes, by_place)
    tape = rank.tape
    for place in range(rank.layout.pp):
        with rank.at(place):
            tape.op(
                "sum",
                tape.op("stack", *(by_place.get(place) or [tape.constant("zero", 0)]), axis=0),
                name="squares.experts:own",
            )
    norm = tape.op("sqrt", "squares.experts:own", name="experts.norm:own")
    mean = tape.op("all_reduce", norm, group=axes, reduction="avg", name="experts.norm")
    return tape.op("square", mean, name="squares.experts")


buggy = Patched({"data_parallel.optimizer_step._over": mean_of_norms})

BUG = Bug(
    where="DeepSpeed #8475",
    should="the norm of experts on different ranks is the root of the sum of squares",
    was="the mean of the ranks' norms: 7.24 where it should be 10.95",
    codes=("PIT111", "PIT112"),
    says=("norm",),
    shows=each(
        buggy,
        experts_over_data=spread(mixtral(), 2, dp=2, ep=2),
        experts_over_part_of_data=spread(mixtral(), 4, dp=4, ep=2),
    ),
    silent=each(
        buggy,
        all_experts_on_every_rank=spread(mixtral(), 2, dp=2),
        no_experts=spread(llama(1), 2, tp=2),
    ),
    slow=True,
)
