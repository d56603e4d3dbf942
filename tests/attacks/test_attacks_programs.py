"""Short PyTorch programs in which something goes on that no plan file can say: hooks, objects,
numbers kept from the last call, integers of 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from frontends.torch.parallelism.averaging import average, network, verdict
from torch import nn

from pitcheck.torch import Input, Options, Part, Program, Spec, check

pytestmark = pytest.mark.slow


def halve(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad /= 2


def coalesced(waits: bool) -> Callable[[nn.Module], None]:
    def sync(model: nn.Module) -> None:
        with dist._coalescing_manager(async_ops=True) as works:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        if waits:
            works.wait()
        halve(model)

    return sync


def launching() -> nn.Sequential:
    model = network()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda own: dist.all_reduce(own.grad, async_op=True) and None
        )
    return model


def gathered_as_objects(model: nn.Module) -> None:
    found = [None, None]
    dist.all_gather_object(found, [parameter.grad for parameter in model.parameters()])
    for number, parameter in enumerate(model.parameters()):
        parameter.grad = (found[0][number] + found[1][number]) / 2


def fewer_on_one_rank(model: nn.Module) -> None:
    for parameter in list(model.parameters())[: 1 if dist.get_rank() == 0 else None]:
        dist.all_reduce(parameter.grad)
    halve(model)


def test_collectives_that_a_block_joins_are_waited_for() -> None:
    assert verdict(coalesced(True))[0] == "equivalent"
    assert verdict(coalesced(False))[0] == "invalid"


@pytest.mark.parametrize(
    ("sync", "make", "said"),
    [
        (halve, launching, "invalid"),
        (gathered_as_objects, network, "inconclusive"),
        (fewer_on_one_rank, network, "invalid"),
    ],
    ids=["launched in a hook", "gathered as objects", "fewer on one rank"],
)
def test_ways_around_communication(
    sync: Callable[[nn.Module], None], make: Callable[[], nn.Sequential], said: str
) -> None:
    assert verdict(sync, make)[0] == said


def test_the_loss_of_the_last_call_is_not_that_of_this_one() -> None:
    def build(late: bool) -> Program:
        model, kept = network(), {}

        def step(batch):
            loss = (model(batch["x"]) ** 2).mean()
            loss.backward()
            if late:
                average(model)
                last, kept["loss"] = kept.get("loss", loss), loss.detach()
                return last
            return loss

        return Program(model, step)

    spec = Spec(
        lambda: build(False),
        lambda _: build(True),
        {"dp": 2},
        {"x": Input((8, 6), split={0: "dp"})},
        {"loss": Part(mean="dp")},
    )
    assert check(spec, Options(seed=1, jobs=1)).verdict in ("mismatch", "inconclusive")


@pytest.mark.parametrize(
    ("dtype", "said"), [(torch.uint8, "inconclusive"), (torch.int64, "equivalent")]
)
def test_bytes_are_not_computed_with(dtype: torch.dtype, said: str) -> None:
    def build(kept: torch.dtype) -> Program:
        model = nn.Linear(1, 1)
        return Program(
            model, lambda batch: ((batch["x"].to(kept) * 2).float() * model.weight[0, 0]).sum()
        )

    batch = {"x": Input((4,), "uint8", bounds=(0, 200), split={0: "dp"})}
    spec = Spec(
        lambda: build(torch.int64),
        lambda _: build(dtype),
        {"dp": 2},
        batch,
        {"loss": Part(sum="dp")},
    )
    assert check(spec, Options(seed=1, jobs=1)).verdict == said
