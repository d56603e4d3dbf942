"""State that a step leaves for the next one.

It is parameters changed by hand, gradients, buffers, and tensors that the program keeps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

from pitcheck.frontends.torch.storage.reachable import reachable
from pitcheck.report.report import Report
from pitcheck.torch import Input, Options, Part, Program, Spec, check

IN, OUT = 4, 3
BATCH = {"x": Input((4, IN), split={0: "dp"}), "y": Input((4, OUT), split={0: "dp"})}
Build = Callable[[int, str], Program]
"""Builds the program of one of so many ranks, with a mistake that is named."""


def checked(
    build: Build, mistake: str = "", reference: str = "", *, explain: bool = True
) -> Report:
    spec = Spec(
        lambda: build(1, reference),
        lambda rank: build(2, mistake),
        {"dp": 2},
        BATCH,
        {"loss": Part(mean="dp")},
    )
    return check(spec, Options(seed=1, jobs=1, explain=explain))


def right(build: Build, mistake: str = "", reference: str = "") -> str:
    """The program is proven; returns what the report says of its state."""
    report = checked(build, mistake, reference)
    assert report.verdict == "equivalent", report.findings
    return next(line.partition("leaves: ")[2] for line in report.assumptions if "leaves: " in line)


def refuted(build: Build, mistake: str) -> None:
    report = checked(build, mistake, explain=False)
    assert report.verdict == "mismatch", report.findings


def refused(build: Build, mistake: str, *said: str, reference: str = "") -> None:
    report = checked(build, mistake, reference)
    assert report.verdict == "inconclusive", report.findings
    assert all(text in report.findings[0].title for text in said), report.findings


def mean(tensor: torch.Tensor, ranks: int) -> torch.Tensor:
    """The mean over ranks, in place."""
    if ranks > 1:
        dist.all_reduce(tensor)
        tensor /= ranks
    return tensor


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(IN, OUT, bias=False)


def backward(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    loss = ((model(batch["x"]) - batch["y"]) ** 2).mean()
    loss.backward()
    return loss


# --- tensors that are kept, of all kinds in one program


class Centred(nn.Linear):
    """Keeps the mean of what it has seen, which no checkpoint has, and counts its calls."""

    def __init__(self, ranks: int, mistake: str) -> None:
        super().__init__(IN, OUT, bias=False)
        self.ranks, self.mistake = ranks, mistake
        self.register_buffer("mean", torch.zeros(IN), persistent=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = super().forward(x - self.mean)
        with torch.no_grad():
            now = x.mean(0)
            self.mean.mul_(0.5).add_(now if self.mistake == "mean" else mean(now, self.ranks))
            self.seen += 2 if self.mistake == "seen" else 1
        return result


def keeping(ranks: int, mistake: str) -> Program:
    torch.manual_seed(0)
    model = Centred(ranks, mistake)
    velocity: dict[str, torch.Tensor] = {}
    average = [parameter.detach().clone() for parameter in model.parameters()]
    number = torch.zeros(())
    before: torch.Tensor | None = None

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        nonlocal before
        model.zero_grad()
        loss = backward(model, batch)
        number.add_(2 if mistake == "number" else 1)
        for (name, parameter), kept in zip(model.named_parameters(), average, strict=True):
            mean(parameter.grad, ranks)
            with torch.no_grad():
                scale = 1.0 if before is None else before
                velocity[name] = (0.8 if mistake == "velocity" else 0.9) * velocity.get(
                    name, torch.zeros(())
                ) + parameter.grad
                parameter.sub_(velocity[name] * scale / number)
                velocity[name] = velocity[name] * (2 if mistake == "carried" else 1)
                kept.mul_(0.9).add_(parameter, alpha=0.2 if mistake == "average" else 0.1)
        before = (
            loss.detach().clone() if mistake == "before" else mean(loss.detach().clone(), ranks)
        )
        return loss

    return Program(model, step)


def test_all_that_is_kept_is_compared() -> None:
    assert (
        right(keeping)
        == "1 parameter, 1 buffer, 3 kept tensors, 1 gradient, 2 known numbers as of that call"
    )


@pytest.mark.parametrize("mistake", ["mean", "velocity", "carried", "average", "before"])
def test_a_mistake_in_what_is_kept(mistake: str) -> None:
    refuted(keeping, mistake)


@pytest.mark.parametrize(("mistake", "name"), [("number", "step.number"), ("seen", "seen")])
def test_a_mistake_in_a_known_number(mistake: str, name: str) -> None:
    report = checked(keeping, mistake)
    assert report.verdict == "mismatch", report.findings
    first = report.findings[0]
    assert f"'new:{name}'" in first.title
    assert "test_state.py" in first.source


# --- gradients


def plain(ranks: int, mistake: str) -> Program:
    """Gradients only. The mistake says who zeroes them."""
    model = linear()

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if "never" not in mistake and not (mistake == "rank 0" and dist.get_rank()):
            model.zero_grad(set_to_none=mistake != "in place")
        loss = backward(model, batch)
        for parameter in model.parameters():
            mean(parameter.detach() if "reduced" in mistake else parameter.grad, ranks)
        return loss

    return Program(model, step)


def test_gradients_that_nobody_zeroes_are_those_of_one_call() -> None:
    report = checked(plain, "never", "never")
    assert report.verdict == "equivalent", report.findings
    assert any("taken to be zeroed between its calls" in line for line in report.assumptions)


def hooked(ranks: int, mistake: str) -> Program:
    """A hook after each gradient, which is given the parameter and not its gradient."""
    program = plain(1, "never")

    def hook(parameter: torch.Tensor) -> None:
        mean(parameter if mistake else parameter.grad, ranks)

    program.model.weight.register_post_accumulate_grad_hook(hook)
    return program


def test_a_hook_that_changes_parameters_of_one_side_alone_is_named() -> None:
    refused(
        hooked,
        "parameter",
        "rank 0 changes the parameter 'weight' at ",
        "test_state.py:",
        "the reference changes none",
    )
    assert checked(hooked, "", "").verdict == "equivalent"


def test_gradients_zeroed_on_one_side_alone() -> None:
    refused(plain, "never", "rank 0 adds to the gradient of 'weight'")
    refused(plain, "rank 0", "rank 1 adds to the gradient of 'weight'")
    assert right(plain, "in place") == "1 gradient"
    said = "rank 0 changes the parameter 'weight' at", "and the reference changes none"
    refused(plain, "never, parameters are reduced", *said, reference="never")


def stepping(ranks: int, mistake: str) -> Program:
    """With an optimizer; gradients are zeroed as the mistake says."""
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    flat = torch.zeros(IN * OUT + 4)
    if "flat" in mistake:
        model.weight.grad = flat[: IN * OUT].view(OUT, IN)

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if mistake == "flat":
            flat.zero_()
        elif mistake == "" or "cleared" in mistake:
            optimizer.zero_grad()
        loss = backward(model, batch)
        mean(flat if "flat" in mistake else model.weight.grad, 1 if "sum" in mistake else ranks)
        if mistake == "sum" and ranks > 1:
            dist.all_reduce(model.weight.grad)
        if mistake == "cleared before":
            optimizer.zero_grad(set_to_none=False)
        optimizer.step()
        if mistake == "after" or "cleared" in mistake:
            optimizer.zero_grad(set_to_none=mistake == "after")
        return loss

    return Program(model, step, optimizer)


def test_gradients_in_a_flat_buffer() -> None:
    assert right(stepping, "flat") == "1 parameter, 1 optimizer state, 1 gradient"


def test_gradients_that_add_up_over_calls() -> None:
    assert right(stepping, "added", "added") == "1 parameter, 1 optimizer state, 1 gradient"


def test_gradients_that_are_not_zeroed() -> None:
    refuted(stepping, "added")
    refused(stepping, "added", "'old grad:weight'", "the reference has none", reference="after")


def test_gradients_added_up_over_ranks_and_calls() -> None:
    """Gradients that earlier calls left are added up over ranks once more in every call."""
    report = checked(stepping, "sum", "added")
    assert report.verdict == "mismatch", report.findings


def test_a_gradient_that_is_cleared_after_it_was_used_is_dead() -> None:
    """Whether it is cleared or left is not seen by any later call, but what it has done is."""
    for reference in ("", "after"):
        report = checked(stepping, "cleared", reference)
        assert report.verdict == "equivalent", report.findings
        assert any("read by no later call" in line for line in report.assumptions)
    for mistake in ("cleared sum", "cleared before"):
        assert checked(stepping, mistake, explain=False).verdict == "mismatch", mistake


def frozen(ranks: int, mistake: str) -> Program:
    program = plain(ranks, "")
    program.model.weight.requires_grad_(mistake != "frozen")
    model = nn.Sequential(program.model, nn.Linear(OUT, OUT, bias=False))

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        model.zero_grad()
        loss = backward(model, batch)
        for parameter in model.parameters():
            if parameter.grad is not None:
                mean(parameter.grad, ranks)
        return loss

    return replace(program, model=model, step=step)


def test_a_parameter_that_is_frozen_on_one_side() -> None:
    assert right(frozen, "frozen", "frozen") == "1 gradient"
    refused(frozen, "frozen", "'grad:0.weight' is not there to compare")
    refused(frozen, "", "leaves a gradient of '0.weight'", reference="frozen")


# --- parameters that are changed by hand


def by_hand(ranks: int, mistake: str, way: str) -> Program:
    model = linear()

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        model.zero_grad()
        loss = backward(model, batch)
        gradient = model.weight.grad if mistake == "local" else mean(model.weight.grad, ranks)
        with torch.no_grad():
            new = model.weight - (0.2 if mistake == "rate" else 0.1) * gradient
            if mistake == "none":
                pass
            elif way == "data":
                model.weight.data = new
            elif way == "copy":
                model.weight.data.copy_(new)
            elif way == "set":
                model.weight.set_(new)
            else:
                model.weight = nn.Parameter(new)
        return loss

    return Program(model, step)


@pytest.mark.parametrize(
    ("way", "mistake"), [("data", "rate"), ("copy", "none"), ("set", "rate"), ("new", "rate")]
)
def test_parameters_changed_by_hand(way: str, mistake: str) -> None:
    build = partial(by_hand, way=way)
    assert "1 parameter" in right(build)
    refuted(build, mistake)


# --- state of one side alone


def alone(ranks: int, mistake: str) -> Program:
    model = linear()
    own = torch.zeros(OUT, IN)
    hidden = itertools.cycle([torch.zeros(OUT, IN)])
    kept: list[torch.Tensor] = []
    last: dict[str, torch.Tensor] = {}
    if mistake == "buffer" and ranks > 1:
        model.register_buffer("extra", torch.zeros(OUT))

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        model.zero_grad()
        loss = backward(model, batch)
        with torch.no_grad():
            gradient = mean(model.weight.grad, ranks)
            if mistake == "overwritten" and ranks > 1:
                gradient = own.copy_(gradient)
            elif mistake == "added" and ranks > 1:
                own.add_(gradient)
            elif mistake == "read" and ranks > 1:
                gradient = gradient + own
                own.copy_(gradient)
            elif mistake == "hidden":
                next(hidden).add_(gradient)
                gradient = next(hidden)
            elif mistake.startswith("alias"):
                gradient = gradient + last.get("one", torch.zeros(()))
                first = (
                    model.weight.data if mistake == "alias of a parameter" else torch.zeros(OUT, IN)
                )
                last.update({"one": gradient} if last else {"one": first, "other": first})
            elif mistake == "growing":
                kept.append(gradient.clone())
                gradient = sum(kept)
            elif mistake == "buffer" and ranks > 1:
                model.extra.copy_(batch["y"].mean(0))
            model.weight.sub_(gradient)
        kept.append(loss.detach())
        return loss

    return Program(model, replace_kept(step, kept) if mistake == "growing" else step)


def replace_kept(
    step: Callable[..., torch.Tensor], kept: list[torch.Tensor]
) -> Callable[..., torch.Tensor]:
    """Without the losses among what is kept."""

    def run(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = step(batch)
        kept.pop()
        return loss

    return run


def test_what_is_written_before_it_is_read_is_no_state() -> None:
    assert right(alone, "overwritten") == "1 parameter, 1 gradient"


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("added", "rank 0 reads 'step.own', which its call before left, and changes it at"),
        ("read", "rank 0 reads 'step.own', which its call before left, and changes it at"),
        ("buffer", "rank 0 changes 'extra' at"),
        ("hidden", "no name which the reference could have too"),
        ("growing", "what later calls do depends on the first batch"),
    ],
)
def test_state_that_cannot_be_compared(mistake: str, said: str) -> None:
    refused(alone, mistake, said, "test_state.py:")


def test_names_of_the_same_memory_that_part() -> None:
    refused(
        alone,
        "alias",
        "'step.last.one' and 'step.last.other' are the same memory before the step and not after "
        "it",
    )
    refused(alone, "alias of a parameter", "'step.last.one' shares memory with a parameter")


def packed(ranks: int, mistake: str) -> Program:
    """Gradients are averaged in a buffer that is longer than they are, and never filled beyond
    them.
    """
    model = linear()
    size = IN * OUT
    flat = torch.empty(size + 4)

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        model.zero_grad()
        loss = backward(model, batch)
        if ranks > 1:
            flat[:size].copy_(model.weight.grad.flatten())
            dist.all_reduce(flat)
            flat.div_(ranks)
            start = 1 if mistake == "shifted" else 0
            model.weight.grad.copy_(flat[start : start + size].view(OUT, IN))
        with torch.no_grad():
            model.weight.sub_(model.weight.grad)
        return loss

    return Program(model, step)


def test_padding_that_is_communicated_is_no_state() -> None:
    assert right(packed) == "1 parameter, 1 gradient"
    refused(packed, "shifted", "'step.flat'")


def pooled(ranks: int, mistake: str) -> Program:
    """A bucket lies at the end of a kept pool, is longer than the gradient, and is scaled as a
    whole; the rest of the pool is written to as well.
    """
    model = linear()
    size = IN * OUT
    pool = torch.empty(3 * size)

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        model.zero_grad()
        loss = backward(model, batch)
        if ranks > 1:
            bucket = pool[size : 2 * size + 3]
            pool[: size - 1].fill_(1.0)
            filled = size - 1 if mistake == "part" else size
            bucket[:filled].copy_(model.weight.grad.flatten()[:filled])
            dist.all_reduce(bucket, async_op=True).wait()
            bucket.div_(ranks)
            model.weight.grad.copy_(bucket[:size].view(OUT, IN))
        with torch.no_grad():
            model.weight.sub_(model.weight.grad)
        return loss

    return Program(model, step)


def test_padding_inside_a_pool_is_no_state() -> None:
    assert right(pooled) == "1 parameter, 1 gradient"
    refused(pooled, "part", "'step.pool'")


def crossed(ranks: int, mistake: str) -> Program:
    """Two groups of the same ranks are used in another order on each. What rank 0 gets there is
    what rank 1 has kept, or nothing.
    """
    model = linear()
    kept = torch.zeros(2 * IN)
    rank = dist.get_rank() if ranks > 1 else 0
    first, second = [dist.new_group([0, 1]) for _ in range(2)] if ranks > 1 else (None, None)

    def step(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        model.zero_grad()
        loss = backward(model, batch)
        mean(model.weight.grad, ranks)
        total = mean(loss.detach().clone(), ranks)
        if ranks > 1:
            old = kept[:IN].clone() if rank and mistake == "stale" else torch.zeros(IN)
            if rank == 0:
                dist.all_reduce(old, group=second)
            work = dist.reduce(torch.zeros(3), 0, group=first, async_op=True)
            if rank == 1:
                dist.all_reduce(old, group=second)
            work.wait()
            kept[:IN].copy_(batch["x"][0])
            total = total + old.sum()
        return {"loss": loss} if rank else {"loss": loss, "total": total}

    return Program(model, step)


def test_what_another_rank_has_kept_is_needed_in_its_own_group() -> None:
    """Neither do groups that are used in another order look as one, nor do operations block of
    which nobody reads what they gave.
    """
    assert right(crossed) == "1 gradient"
    refused(crossed, "stale", "'step.kept'")


# --- state that the user names


def shares(ranks: int, mistake: str) -> Program:
    """Every rank has some rows of the momentum."""
    model = linear()
    rows, rank = IN // ranks, dist.get_rank() if ranks > 1 else 0
    velocity = torch.zeros(rows, OUT)

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        model.zero_grad()
        loss = backward(model, batch)
        gradient = mean(model.weight.grad, ranks).t()
        with torch.no_grad():
            velocity.mul_(0.9).add_(gradient[rank * rows : (rank + 1) * rows])
            whole = velocity.clone()
            if ranks > 1:
                whole = torch.empty(IN, OUT)
                dist.all_gather_into_tensor(whole, velocity)
            model.weight.sub_(whole.t())
        return loss

    held = 1 - rank if mistake == "rows" else rank
    return Program(
        model,
        step,
        state=lambda: {"velocity": velocity},
        parts={"velocity": {0: [(held * rows, (held + 1) * rows)]}},
    )


def test_state_that_is_named_and_spread_over_ranks() -> None:
    assert right(shares) == "1 parameter, 1 kept tensor, 1 gradient"
    refuted(shares, "rows")


# --- finding tensors


class Keeper:
    """Has tensors in every place that a class has."""

    shared = torch.zeros(1)
    __slots__ = ("slot",)

    def __init__(self) -> None:
        self.slot = torch.zeros(2)

    def step(self, _: object, default: torch.Tensor = torch.zeros(3)) -> torch.Tensor:  # noqa: B008  that is the point
        return default


# --- a buffer that shrinks


class Weighed(nn.Linear):
    """Weighs the rows of a call by the first ones of a table."""

    def __init__(self, ranks: int, mistake: str) -> None:
        super().__init__(IN, OUT, bias=False)
        rows = len(range(0, 4, ranks)) if mistake == "built" else 4
        self.register_buffer("table", torch.ones(rows, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table = self.table[: len(x)]
        result: torch.Tensor = super().forward(x * self.table)
        return result


def weighed(ranks: int, mistake: str) -> Program:
    model = Weighed(ranks, mistake)

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        model.zero_grad()
        loss = backward(model, batch)
        mean(model.weight.grad, ranks)
        return loss

    return Program(model, step)


def test_a_buffer_of_which_the_first_call_keeps_the_first_rows() -> None:
    """The first rows are those of rank 0, and its shape is that of any rank's part."""
    refused(weighed, "", "leaves the buffer 'table' with the shape (2, 1)")


def test_a_buffer_that_is_built_as_a_part() -> None:
    report = checked(weighed, "built")
    assert report.verdict == "equivalent", report.findings
    assert any("'table' is split along dimension 0 over dp" in each for each in report.assumptions)


def test_tensors_are_found_by_their_way() -> None:
    linear, inner = nn.Linear(1, 1), [torch.zeros(4)]
    linear.weight.main_grad = torch.zeros(1, 1)  # type: ignore[assignment]

    def closing() -> object:
        return inner, linear

    def running() -> object:
        frame = torch.zeros(5)
        yield frame

    generator = running()
    next(generator)
    found = reachable(
        {
            "method": Keeper().step,
            "closing": closing,
            "generator": generator,
            "state": {linear.weight: {"m": torch.zeros(6)}},
        }
    )
    assert {path: tuple(tensor.shape) for path, tensor in found.items()} == {
        "method.slot": (2,),
        "method.shared": (1,),
        "method": (3,),
        "closing.inner.0": (4,),
        "closing.linear.weight": (1, 1),
        "closing.linear.bias": (1,),
        "closing.linear.weight.main_grad": (1, 1),
        "generator.frame": (5,),
        "state.0.m": (6,),
    }


def test_a_dict_that_makes_what_it_is_asked_for_is_not_asked() -> None:
    class Lazy(dict[str, torch.Tensor]):
        def items(self) -> None:
            raise ValueError("nothing is made by a look")

    tensor = torch.zeros(2)
    assert reachable({"step": Lazy(kept=tensor)})["step.kept"] is tensor
