"""Stand-ins for CUDA, and names of Megatron's parameters on a single rank."""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from pitcheck.errors import UsageError
from pitcheck.frontends.torch.megatron.cuda import CpuForCuda, Event, Stream, entered
from pitcheck.torch import Program
from pitcheck.torch.megatron import on_cpu


def test_without_megatron_a_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "megatron.core.models.gpt.gpt_layer_specs", None)
    with pytest.raises(
        UsageError, match=r"needs Megatron-core; install pitcheck\[torch,megatron\]"
    ):
        on_cpu(lambda: Program({}, lambda batch: None))


def test_what_is_asked_of_cuda_runs_on_the_cpu() -> None:
    with CpuForCuda():
        made = torch.zeros(2, device="cuda:1", pin_memory=True)
        assert (made.is_cuda, made.type()) == (True, "torch.cuda.FloatTensor")
        assert made.to(torch.device("cuda")) is made.cuda() is made
        assert made.pin_memory() is not made
        assert made.type(torch.int64).dtype == torch.int64
    assert (made.device.type, made.is_cuda, made.type()) == ("cpu", False, "torch.FloatTensor")


def test_streams_and_events_do_nothing() -> None:
    stream, event = Stream(device="cuda"), Event(enable_timing=True)
    with entered(stream):
        assert stream.record_event(event) is event and stream.query() and event.query()
        stream.wait_event(stream.record_event())
        stream.wait_stream(Stream())
        event.record(stream)
        event.wait(stream)
        event.synchronize()
        stream.synchronize()


class Layer(nn.Module):
    """A layer that knows its number in the whole model, from 1, and its experts."""

    def __init__(self, number: int, experts: list[int]) -> None:
        super().__init__()
        self.layer_number = number
        self.mlp = nn.Module()
        self.mlp.local_expert_indices = experts  # type: ignore[assignment]
        self.mlp.experts = nn.Module()
        self.mlp.experts.local_experts = nn.ModuleList(nn.Linear(2, 2) for _ in experts)


def chunk(*numbers: int, experts: list[int], **said: Any) -> nn.Module:
    model = nn.Module()
    model.decoder = nn.Module()
    model.decoder.layers = nn.ModuleList(Layer(number, experts) for number in numbers)
    model.output_layer = nn.Linear(2, 2, bias=False)
    for name, value in said.items():
        setattr(model, name, value)
    return model


def test_layers_and_experts_are_called_after_their_numbers() -> None:
    pytest.importorskip("megatron.core")
    names = import_module("pitcheck.frontends.torch.megatron.names")
    name = names.reference_names([chunk(3, 4, experts=[2, 3])])
    assert (
        name("decoder.layers.1.mlp.experts.local_experts.0.weight")
        == "decoder.layers.3.mlp.experts.local_experts.2.weight"
    )
    assert name("output_layer.weight") == "output_layer.weight"
    assert name("of.another") == "of.another"


def test_chunks_of_a_stage_and_the_tied_embedding_have_their_names() -> None:
    pytest.importorskip("megatron.core")
    names = import_module("pitcheck.frontends.torch.megatron.names")
    tied = {"share_embeddings_and_output_weights": True}
    chunks = [
        chunk(2, experts=[0], pre_process=True, **tied),
        chunk(4, experts=[0], pre_process=False, **tied),
    ]
    name = names.reference_names(chunks)
    assert [
        name(f"{place}.decoder.layers.0.mlp.experts.local_experts.0.bias") for place in (0, 1)
    ] == [f"decoder.layers.{layer}.mlp.experts.local_experts.0.bias" for layer in (1, 3)]
    assert name("0.output_layer.weight") == "output_layer.weight"
    assert name("1.output_layer.weight") == "embedding.word_embeddings.weight"


def test_a_norm_says_if_it_sees_a_part_of_the_sequence() -> None:
    pytest.importorskip("megatron.core")
    shims = import_module("pitcheck.frontends.torch.megatron.shims")
    kind = import_module("megatron.core.transformer.torch_norm").WrappedTorchNorm
    config = SimpleNamespace(
        normalization="RMSNorm", sequence_parallel=True, layernorm_zero_centered_gamma=False
    )
    with shims.shims():
        assert kind(config, 4).weight.sequence_parallel
        config.layernorm_zero_centered_gamma = True
        with pytest.raises(NotImplementedError, match="layernorm_zero_centered_gamma=True"):
            kind(config, 4)
