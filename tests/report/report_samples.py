"""Handmade reports, one of every verdict, for snapshots of every format."""

from __future__ import annotations

from msgspec.structs import replace

from pitcheck.report.pictures import HeldValue, HeldValues, StageStep, StageSteps
from pitcheck.report.report import (
    Edit,
    Finding,
    OperatorCounts,
    OutputCounts,
    Report,
    RoutedTokens,
    Seconds,
    Shown,
    StageCounts,
    TriedRepair,
    Verdict,
)

MESH = {"pp": 2, "dp": 2, "tp": 2}

MISSING = Finding(
    code="PIT104",
    verdict="mismatch",
    title="gradient of layers.3.attention_norm.weight is not summed over tp",
    stage="layers.3.attention_norm.backward",
    output="layers.3.attention_norm.weight.grad",
    operator="rms_norm.backward layers.3.attention_norm",
    source="model/norm.py:41",
    ranks=(0, 1, 2, 3, 4, 5, 6, 7),
    microbatches=(0, 1),
    element=(3, 5),
    reference_value="6",
    parallel_value="tp=0 holds 4, tp=1 holds 2",
    cause="each rank holds one term of a sum over tp",
    repair="an all-reduce(sum) over tp after this operator makes the stage pass",
    witness="layers.3.witness.json",
)
DRAWN = replace(
    MISSING,
    held=HeldValues(
        output="layers.3.attention_norm.weight.grad",
        element=(3,),
        reference_value="0.25",
        values=(
            HeldValue(value="0.125", ranks="tp=0 of every pp, dp"),
            HeldValue(value="0.25", ranks="tp=1 of every pp, dp", microbatch=1),
        ),
        left_out=2,
    ),
    steps=StageSteps(
        reference=(
            StageStep(operator="norm", kind="rms_norm", reads=("x", "weight"), results=("y",)),
            StageStep(
                operator="norm.backward",
                kind="rms_norm.backward",
                reads=("dy", "x", "weight"),
                results=("weight.grad",),
                source="model/norm.py:41",
                differs=True,
            ),
        ),
        parallel=(
            StageStep(
                operator="norm",
                kind="rms_norm",
                reads=("x", "weight"),
                results=("y",),
                ranks="every rank",
                holds="y",
            ),
            StageStep(
                operator="norm.backward",
                kind="rms_norm.backward",
                reads=("dy", "x", "weight"),
                results=("weight.grad",),
                source="model/norm.py:41",
                ranks="every rank",
                differs=True,
            ),
        ),
        parallel_left_out=7,
    ),
)
REPAIRED = replace(
    MISSING,
    stage=None,
    output="loss",
    element=(),
    repair="use 4 (tested: with it, every output is right)",
    edits=(Edit(sign="-", text="'mean' (div): 8"), Edit(sign="+", text="'mean' (div): 4")),
    tried=TriedRepair(
        right=("loss", "w.grad"), compared=12, said="tested: with it, every output is right"
    ),
    held=HeldValues(
        output="loss",
        element=(),
        reference_value="-1.8839284619203847e-91",
        values=(
            HeldValue(value="0.125", ranks="dp=0 of every pp, tp", microbatch=0),
            HeldValue(value="0.125", ranks="dp=0 of every pp, tp", microbatch=1),
            HeldValue(value="-0.25", ranks="dp=1 of every pp, tp"),
        ),
        terms=True,
        sums=(HeldValue(value="-0.0", ranks="every rank"),),
    ),
)
RENDEZVOUS = Finding(
    code="PIT012",
    verdict="warning",
    title="pp=0 and pp=1 both send first: hangs where a send waits for its receive",
    ranks=(0, 4),
)
UNREADABLE = Finding(
    code="PIT001",
    verdict="invalid",
    title="operators[3].inputs[0]: Expected `str`, got `int` (in parallel.plan.json)",
)
UNKNOWN = Finding(
    code="PIT200",
    verdict="inconclusive",
    title="operator kind 'my_fused_mlp' has no meaning",
    operator="my_fused_mlp layers.0.mlp",
    source="model/mlp.py:7",
    ranks=(1, 3),
    microbatches=(1,),
)
NOWHERE = Finding(
    code="PIT108",
    verdict="mismatch",
    title="a term or micro-batch is missing or doubled in 'grad'",
    output="w.grad",
    operator="accumulate:grad (accumulate)",
    element=(0,),
    reference_value="1",
    parallel_value="2",
    cause="micro-batch 0 is counted twice",
)
MODULE = Finding(
    code="PIT009",
    verdict="invalid",
    title="reference plan: 'a' runs twice",
    operator="operators[4]",
    source="model.layers.0",
)
ODD = Finding(
    code="PIT102",
    verdict="mismatch",
    title="'größe\n::error::α' is 100% wrong,\r\nsays 模型",
    operator="scale:größe\n::error::α (mul)",
    source="модель dir/a,b:c%.py:12",
    output="größe\n::error::α",
    cause="attribute 'x' is \"5%\"",
    repair="set it to 1\nhere",
)
NOTHING = Finding(code="PIT500", verdict="nothing-checked", title="the reference has no outputs")
INTERNAL = Finding(
    code="PIT900",
    verdict="invalid",
    title="internal error: KeyError: 'x'",
    repair="report the traceback on stderr",
)


ROUTED = RoutedTokens(
    stage="3f1c0a9be672",
    tensor="layers.3.mlp",
    draws=3,
    tokens=24,
    sender_receiver_pairs=16,
    tokens_per_pair=5,
    source_expert_pairs=64,
    tokens_per_expert=1,
    empty_experts=2,
    largest_share=3.125,
)


SHOWN = Shown("grad:layers.3.attention_norm.weight", (2,), "8.0", "4.0", "680 digits")


def sample(verdict: Verdict, *findings: Finding, proven: int = 12, bound: float = 0.0) -> Report:
    """A report with every field filled."""
    return Report(
        verdict=verdict,
        exceptions=("the gradient of embed.weight is accepted scaled by 1/2",),
        error_bound_log2=bound,
        seed=7,
        primes=(888679679, 1777359359),
        trials=3,
        backend="numpy",
        mesh=MESH,
        ranks=8,
        microbatches=2,
        operators=OperatorCounts(reference=31, parallel=412, records=58),
        outputs=OutputCounts(total=12, proven=proven),
        stages=StageCounts(total=20, distinct=4, proven=19, failed=1, inconclusive=0, widened=1),
        seconds=Seconds(
            load=0.01,
            validate=0.02,
            lineage=0.03,
            stages=0.04,
            evaluate=0.05,
            explain=0.06,
            total=0.21,
        ),
        peak_memory_mb=81.5,
        assumptions=tuple(
            f"assumption number {number} that the frontend had to make" for number in range(6)
        ),
        discrete_cases=("token ids: first and last of every vocabulary shard",),
        routing=(ROUTED,),
        reductions=("batch 128 -> 8, two sets of sizes", "dp 2 -> 2, copies are equal programs"),
        heuristic=("exp of dependent terms in stage layers.3.attention",),
        not_covered=(
            "Discrete inputs other than those listed under tried.",
            "The meanings of operators, derived backward formulas among them." * 2,
        ),
        dead_operators=("layers.0.unused",),
        shown=SHOWN if verdict == "mismatch" else None,
        findings=findings,
    )


IMPRECISE = Finding(
    code="PIT301",
    verdict="imprecise",
    title="'w.grad' is summed in bfloat16; the reference sums in float32",
    operator="reduce:w.grad (all_reduce)",
    source="train.py:12",
    ranks=(0, 1, 2, 3, 4, 5, 6, 7),
    cause="it is part of what the reference computes as 'w.grad' (matmul at model.py:8)",
    repair="cast what is summed to float32 before 'all_reduce'",
)


def samples() -> dict[str, Report]:
    """The reports by name."""
    return {
        "equivalent": sample("equivalent", RENDEZVOUS, bound=-66.25),
        "mismatch": sample("mismatch", MISSING, proven=11),
        "drawn": sample("mismatch", DRAWN, RENDEZVOUS, proven=11),
        "repaired": replace(
            sample("mismatch", REPAIRED, proven=9), differing=("loss", "w.grad", "x.grad")
        ),
        "mismatch-without-source": sample("mismatch", NOWHERE, proven=11),
        "several": sample("mismatch", MISSING, NOWHERE, MISSING, RENDEZVOUS, proven=9),
        "odd-names": sample("mismatch", ODD, proven=11),
        "invalid-in-reference": Report(verdict="invalid", seed=7, findings=(MODULE,)),
        "imprecise": sample("equivalent", IMPRECISE, bound=-66.25),
        "invalid": Report(verdict="invalid", seed=7, findings=(UNREADABLE,)),
        "internal": Report(verdict="invalid", findings=(INTERNAL,)),
        "inconclusive": sample("inconclusive", UNKNOWN, proven=3, bound=-64.5),
        "nothing-checked": sample("nothing-checked", NOTHING, proven=0),
    }
