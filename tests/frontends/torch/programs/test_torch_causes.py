"""Causes of mistakes in programs whose values in between nobody has described."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from pitcheck.frontends.torch.recording.record import record
from pitcheck.torch import Input, Program, Rank, Spec, check

ROWS, WIDTH, CLASSES = 8, 4, 6


def line_of(where: str | None) -> str:
    source, _, number = (where or "").rpartition(":")
    return Path(source).read_text().splitlines()[int(number) - 1].strip()


def log_of_sum(reduction: str | None) -> Spec:
    """log of the sum of exponentials over columns, of which a rank has some; their largest is
    subtracted before.
    """
    parts = CLASSES // 2
    reduce = {"max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}.get(reduction or "")

    def program(columns: int, members: int, held=None) -> Program:
        model = nn.Linear(WIDTH, columns, bias=False)

        def step(batch):
            with torch.no_grad():
                scores = model(batch["x"])
                largest = scores.amax(-1)
                if members > 1 and reduce is not None:
                    dist.all_reduce(largest, op=reduce)
                total = (scores - largest[:, None]).exp().sum(-1)
                if members > 1:
                    dist.all_reduce(total)
                return {"out": total.log() + largest}

        return Program(model, step, parts={} if held is None else {"weight": {0: [held]}})

    def parallel(rank: Rank) -> Program:
        start = rank.coordinate["tp"] * parts
        return program(parts, 2, (start, start + parts))

    return Spec(lambda: program(CLASSES, 1), parallel, {"tp": 2}, {"x": Input((ROWS, WIDTH))})


def test_the_largest_of_one_rank_is_not_that_of_all() -> None:
    assert check(log_of_sum("max")).verdict == "equivalent"
    report = check(log_of_sum(None))
    found = report.findings[0]
    assert (report.verdict, found.code, line_of(found.source)) == (
        "mismatch",
        "PIT104",
        "largest = scores.amax(-1)",
    ), found
    assert "all-reduce(max) over tp" in (found.repair or "")


def test_any_shift_is_right_that_is_the_same_on_all_ranks() -> None:
    assert check(log_of_sum("min")).verdict == "equivalent"


def test_what_reads_a_result_belongs_to_where_that_was_made() -> None:
    """Gradients lie in one buffer, of which the parts are read when the step is over."""

    def program(_: object = None) -> Program:
        model = nn.Linear(WIDTH, CLASSES)

        def step(batch):
            (model(batch["x"]) ** 2).sum().backward()
            buffer = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
            for parameter, part in zip(
                model.parameters(), buffer.split([CLASSES * WIDTH, CLASSES]), strict=True
            ):
                parameter.grad = part.view_as(parameter)
            dist.all_reduce(buffer)

        return Program(model, step)

    traces = record(
        Spec(program, program, {"dp": 2}, {"x": Input((ROWS, WIDTH), split={0: "dp"})}),
        "parallel",
        2,
    )
    for trace in traces:
        results = {result.value for result in trace.results}
        assert {
            line_of(event.source) for event in trace.events if results & set(event.outputs)
        } == {"dist.all_reduce(buffer)"}


def test_the_line_of_what_a_wrapper_calls_is_that_of_the_caller() -> None:
    """PyTorch's older names of collectives are wrapped by what warns of them."""

    def program(_: object = None) -> Program:
        def step(batch):
            whole = torch.empty(ROWS, WIDTH)
            dist.all_gather_into_tensor(whole, batch["x"] * 2)
            return {"whole": whole}

        return Program(nn.Linear(1, 1), step)

    (trace, _) = record(
        Spec(program, program, {"dp": 2}, {"x": Input((ROWS, WIDTH), split={0: "dp"})}),
        "parallel",
        2,
    )
    assert [line_of(event.source) for event in trace.events if event.group] == [
        'dist.all_gather_into_tensor(whole, batch["x"] * 2)'
    ]
