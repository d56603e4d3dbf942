"""All-to-alls of parts of different sizes, taken apart: as many rows arrive as before, in the same
order, and sizes that do not fit are found.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from frontends.torch.checking import CLOSE
from frontends.torch.parallelism.test_experts import in_place, spec
from frontends.torch.replay import Replay, difference, truth

from pitcheck.errors import PlanError
from pitcheck.frontends.torch.recording.record import record
from pitcheck.frontends.torch.rewrites.uneven_all_to_all import with_even_parts
from pitcheck.frontends.torch.trace import Event, Given, Ref, Result, Trace, Value
from pitcheck.torch import Input, Program, Rank, Spec, check

Sizes = tuple[int, ...] | None


def exchanged(rank: int, rows: int, got: int, sent: Sizes, received: Sizes) -> Trace:
    """A rank that does nothing else."""
    values = (Value((rows, 2), "float32"), Value((got, 2), "float32"))
    event = Event("all_to_all", (Ref(0), sent, received), (1,), (0, 1), "model.py:3")
    box = ((0, rows), (0, 2))
    given = Given(0, "input", f"x{rank}", (rows, 2), tuple((interval,) for interval in box))
    return Trace(rank, values, (event,), (given,), (Result(1, "output", "y"),))


PAIR = [exchanged(0, 4, 4, None, None), exchanged(1, 6, 6, (2, 4), (2, 4))]
"""One rank's own parts are equal."""


def test_a_rank_whose_own_parts_are_equal_takes_part() -> None:
    tensors = {
        "x0": torch.arange(8.0).view(4, 2).double(),
        "x1": 100 + torch.arange(12.0).view(6, 2).double(),
    }
    traces = with_even_parts(PAIR)
    assert not any(event.operator == "all_to_all" for trace in traces for event in trace.events)
    found = Replay(traces, tensors).run()
    assert torch.equal(found[0]["output", "y"], torch.cat([tensors["x0"][:2], tensors["x1"][:2]]))
    assert torch.equal(found[1]["output", "y"], torch.cat([tensors["x0"][2:], tensors["x1"][2:]]))


def test_equal_parts_stay_a_collective() -> None:
    traces = [exchanged(rank, 4, 4, None, None) for rank in range(2)]
    assert with_even_parts(traces) == traces


@pytest.mark.slow
def test_a_recorded_program_computes_the_same() -> None:
    own = spec(in_place)
    true = truth(own)
    # The loss is a sum over ranks.
    compared = {key: value for key, value in true.results.items() if key[0] != "output"}
    assert difference(with_even_parts(record(own, "parallel", 2)), true.tensors, compared) < CLOSE


@pytest.mark.parametrize(
    ("traces", "message"),
    [
        (
            [PAIR[0], exchanged(1, 6, 6, (3, 4), (2, 4))],
            r"sizes sent \[3, 4\]; they must be one per rank, and add up",
        ),
        ([PAIR[0], exchanged(1, 6, 6, (2, 4), (3, 3))], r"rank 1 receives 3 rows of itself"),
    ],
)
def test_sizes_that_contradict_themselves(traces: Sequence[Trace], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        with_even_parts(traces)


def test_sizes_on_which_ranks_disagree() -> None:
    """One rank sends more than the other expects: the plan cannot run."""

    def parallel(rank: Rank) -> Program:
        received = [1, 1] if rank.number else [3, 2]

        def step(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            out = torch.empty(sum(received), 2)
            torch.distributed.all_to_all_single(out, batch["x"], received, [3, 1])
            return {"y": out.sum()}

        return Program({}, step)

    wrong = Spec(
        lambda: Program({}, lambda batch: {"y": batch["x"].sum()}),
        parallel,
        {"ep": 2},
        {"x": Input((4, 2))},
    )
    assert check(wrong).verdict == "invalid"
