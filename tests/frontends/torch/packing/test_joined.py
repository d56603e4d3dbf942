"""The joined form of a reference computes what it computed, whatever was joined with what."""

from __future__ import annotations

import pytest
import torch
from frontends.torch.packing.packed_programs import LENGTH, WIDTH, Batch, alone

from pitcheck.frontends.torch.recording.known_values import evaluate
from pitcheck.frontends.torch.recording.record import record
from pitcheck.frontends.torch.rewrites.joined_documents import joined_documents
from pitcheck.frontends.torch.trace import Trace
from pitcheck.torch import Input, Packing, Program, Rank, Spec


def nothing(_: Rank) -> Program:
    raise NotImplementedError


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _: Batch) -> torch.Tensor:
    """Attend to earlier tokens by operators that a trace has one by one."""
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    return (q @ k.transpose(-1, -2)).masked_fill(later, float("-inf")).softmax(-1) @ v


def spec(packing: Packing, rows: int = 1) -> Spec:
    batch = {name: Input((rows, LENGTH, WIDTH), tokens=1) for name in ("x", "y")}
    return Spec(
        lambda: alone("token mean", inner=plain), nothing, {"dp": rows}, batch, packings=[packing]
    )


def results(trace: Trace, seed: int) -> list[torch.Tensor]:
    """The results of a trace on random numbers, by PyTorch itself."""
    random = torch.Generator().manual_seed(seed)
    known: dict[int, torch.Tensor] = {}
    for given in trace.given:
        shape = trace.values[given.value].shape
        known[given.value] = torch.randn(shape, generator=random)
        if given.number is not None:
            known[given.value] = torch.full(shape, given.number)
        if given.integers is not None:
            known[given.value] = torch.tensor(given.integers, dtype=torch.bool).reshape(shape)
    for event in trace.events:
        made = evaluate(event, known)
        assert made is not None, event
        known |= {
            n: x
            for n, x in zip(event.outputs, made, strict=True)
            if x is not None and n is not None
        }
    return [known[result.value] for result in trace.results]


@pytest.mark.parametrize(
    ("packing", "rows"),
    [(Packing([3, 5]), 1), (Packing([4, 4]), 1), (Packing([[3, 5], [8]]), 2)],
    ids=["other lengths", "equal lengths", "two sequences"],
)
def test_joined_results(packing: Packing, rows: int) -> None:
    pair = spec(packing, rows)
    (trace,) = record(pair, "reference", 1)
    joined = joined_documents(trace, pair)
    assert len(joined.events) > len(trace.events)
    for one, other in zip(results(trace, 1), results(joined, 1), strict=True):
        torch.testing.assert_close(one, other)


def test_padding_is_not_joined() -> None:
    """A packed program has rows then that no document has."""
    pair = spec(Packing([3, 4]))
    (trace,) = record(pair, "reference", 1)
    assert joined_documents(trace, pair) is trace


@pytest.mark.slow
def test_what_depends_on_another_document_is_left_alone() -> None:
    """Chains over documents, such as sums of losses, cannot wait for each other."""
    pair = spec(Packing([2, 3, 3]))
    (trace,) = record(pair, "reference", 1)
    joined = joined_documents(trace, pair)
    parts = {event.outputs[0] for event in joined.events if event.operator == "slice.Tensor"}
    assert parts
    for one, other in zip(results(trace, 2), results(joined, 2), strict=True):
        torch.testing.assert_close(one, other)
