"""Megatron-core's GPTModel, proven on a CPU without launch, and with planted mistakes that are
caught where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from frontends.torch.checking import CLOSE
from frontends.torch.frameworks import megatron_bugs as bugs
from frontends.torch.frameworks.megatron_gpt import HEADS, INSTALLED, Bug, Setup, forgotten, spec
from frontends.torch.proving import check_at_one_mesh, proven
from frontends.torch.replay import difference, truth

from pitcheck.frontends.torch.recording.record import record
from pitcheck.torch import Options, check

pytestmark = [
    pytest.mark.skipif(
        not INSTALLED, reason="megatron-core is not installed; pip install '.[megatron]' does"
    ),
    pytest.mark.slow,
]
SEQUENCE = Setup(sequence=True)
LLAMA = Setup(sequence=True, gated=True, groups=HEADS // 2)

LATENT = Setup(layers=1, latent=True)
EXPERTS = Setup(tensor=1, data=2, layers=1, experts=4, spread=2)
DISTRIBUTED = Setup(
    tensor=1,
    data=2,
    layers=1,
    width=8,
    adam={
        "lr": 1e-3,
        "weight_decay": 0.01,
        "clip_grad": 0.0,
        "use_distributed_optimizer": True,
    },
    data_parallel={"use_distributed_optimizer": True},
)
GATHERED = replace(EXPERTS, config={"moe_token_dispatcher_type": "allgather"})


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    yield
    forgotten()


RIGHT = [
    SEQUENCE,
    *(
        pytest.param(setup, marks=pytest.mark.nightly)
        for setup in (
            Setup(),
            Setup(tensor=4, sequence=True),
            Setup(sequence=True, tied=True),
            LLAMA,
            Setup(tensor=1, data=2),
            Setup(sequence=True, data=2),
            Setup(tensor=1, data=2, micro=2),
            Setup(tensor=1, data=2, micro=2, layers=1, per_token=True),
            Setup(tensor=1, pipeline=2, micro=2, tied=True),
            Setup(tensor=1, pipeline=2, chunks=2, micro=2, layers=4),
            EXPERTS,
            GATHERED,
            Setup(sequence=True, layers=1, experts=4, expert_tensor=2),
            DISTRIBUTED,
        )
    ),
]


@pytest.mark.parametrize("setup", RIGHT, ids=str)
def test_gpt_is_proven(setup: Setup) -> None:
    assert proven(spec(setup)).outputs.total > 10


@pytest.mark.nightly
@pytest.mark.parametrize("setup", [SEQUENCE, LLAMA], ids=str)
def test_the_recorded_ranks_compute_what_gpt_computes(setup: Setup) -> None:
    """Run against each other in float64, and the model itself on one rank."""
    program = spec(setup)
    traces = record(program, "parallel", 2)
    true = truth(program)
    assert difference(traces, true.tensors, true.results) < CLOSE


@pytest.mark.nightly
def test_latent_attention_is_proven_once_a_fault_of_megatron_is_mended() -> None:
    assert proven(spec(LATENT, bugs.key_gradient_summed)).outputs.total > 10


@pytest.mark.nightly
@pytest.mark.parametrize("setup", [EXPERTS, GATHERED], ids=str)
def test_experts_that_take_tokens_of_others_are_a_mismatch(setup: Setup) -> None:
    report = check_at_one_mesh(spec(setup, bugs.experts_swapped))
    assert report.verdict == "mismatch", report.findings


@pytest.mark.nightly
def test_gradients_of_the_last_micro_batch_alone_are_a_mismatch() -> None:
    """The reference has no value like it, so that no cause is asked for."""
    setup = Setup(tensor=1, data=2, micro=2, layers=1)
    report = check_at_one_mesh(spec(setup, bugs.last_micro_batch_alone))
    assert report.verdict == "mismatch", report.findings


WRONG = [
    (
        SEQUENCE,
        bugs.attribute_forgotten,
        "PIT104",
        "pre_mlp_layernorm_output = self.pre_mlp_layernorm(hidden_states)",
    ),
    *(
        pytest.param(*row, marks=pytest.mark.nightly)
        for row in (
            (
                Setup(),
                bugs.input_gradient_not_summed,
                "PIT104",
                "grad_input = grad_output.matmul(weight)",
            ),
            (
                Setup(data=2),
                bugs.other_group,
                "PIT106",
                "torch.distributed.all_reduce(input_.contiguous(), group=group)",
            ),
            (
                Setup(tensor=1, data=2),
                bugs.scale_forgotten,
                "PIT101",
                "grad_input.mul_(grad_output.unsqueeze(dim=-1))",
            ),
            (
                SEQUENCE,
                bugs.largest_of_own,
                "PIT104",
                "logits_max = torch.max(vocab_parallel_logits, dim=-1)[0]",
            ),
            (
                SEQUENCE,
                bugs.last_id_missed,
                "PIT100",
                "predicted_logits_1d = logits_2d[arange_1d, masked_target_1d]",
            ),
            (LLAMA, bugs.halves_in_a_row, "PIT107", "x_glu, x_linear = torch.chunk(x, 2, dim=-1)"),
            (
                Setup(tensor=1, data=2, micro=2, layers=1),
                bugs.micro_batches_not_averaged,
                "PIT101",
                "bucket.grad_data *= bucket.gradient_scaling_factor",
            ),
            (
                Setup(tensor=1, pipeline=2, micro=2, tied=True),
                bugs.tied_gradients_not_summed,
                "PIT104",
                "with stream_context, _coalescing_manager(communication_group, async_ops=async_op) "
                "as cm:",
            ),
            (
                Setup(tensor=1, pipeline=2, micro=2),
                bugs.stale_activation,
                "PIT107",
                "input_layernorm_output = self.input_layernorm(hidden_states)",
            ),
            # A fault of Megatron 0.16.1 as it is published.
            (
                LATENT,
                bugs.nothing,
                "PIT104",
                "t = (t * cos_) + (_rotate_half(t, rotary_interleaved) * sin_)",
            ),
        )
    ),
]


@pytest.mark.parametrize(
    ("setup", "bug", "code", "line"), WRONG, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_mistake_is_caught_at_its_line(setup: Setup, bug: Bug, code: str, line: str) -> None:
    report = check(spec(setup, bug), Options(seed=0))
    assert report.verdict == "mismatch", report.findings
    found = report.findings[0]
    source, _, number = (found.source or "").rpartition(":")
    assert (found.code, Path(source).read_text().splitlines()[int(number) - 1].strip()) == (
        code,
        line,
    ), found
