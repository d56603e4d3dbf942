"""Programs with a mistake are recorded again on other numbers of ranks, to try its repair there."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from pitcheck.report.report import Finding
from pitcheck.torch import Input, Options, Part, Program, Rank, Spec, check


def halved_loss(most_ranks: int, wrong: bool = True) -> Spec:
    """Half a sum of squares; wrong: ranks average it. At most ``most_ranks`` can run it."""

    def program(rank: Rank | None = None) -> Program:
        model = nn.Linear(4, 3, bias=False)
        if rank is not None and rank.mesh["dp"] > most_ranks:
            raise ValueError("too many ranks")

        def step(batch):
            loss = 0.5 * model(batch["x"]).square().sum()
            loss.backward()
            if rank is not None:
                dist.all_reduce(model.weight.grad)
                loss = loss.detach().clone()
                dist.all_reduce(loss, op=dist.ReduceOp.AVG if wrong else dist.ReduceOp.SUM)
            return {"loss": loss}

        return Program(model, step)

    batch = {"x": Input((8, 4), split={0: "dp"})}
    return Spec(program, program, {"dp": 2}, batch, {"loss": Part()})


def only(spec: Spec) -> Finding:
    report = check(spec, Options(seed=1))
    assert report.verdict == "mismatch", report.findings
    (found,) = report.findings
    return found


def test_programs_are_recorded_on_more_ranks() -> None:
    found = only(halved_loss(4))
    assert found.code == "PIT111" and "all_reduce" in (found.operator or ""), found
    assert "(tested at dp=2 and at dp=4: with it, every output is right)" in (found.repair or "")


def test_programs_for_a_fixed_number_of_ranks_are_explained_at_that_number() -> None:
    found = only(halved_loss(2))
    assert "(tested: with it, every output is right)" in (found.repair or ""), found
    assert found.tried is not None and found.tried.meshes == ()


def test_the_right_program_is_proven() -> None:
    assert check(halved_loss(2, wrong=False), Options(seed=1)).verdict == "equivalent"
