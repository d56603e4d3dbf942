"""Planner files that are run as the planner's runtime would run them, against what the check says
of them: as they are, and changed in one thing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from frontends.nnscaler import nnscaler_changes as c
from frontends.nnscaler.nnscaler_executed import Change, wrong

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.nnscaler import read_nnscaler, reader
from pitcheck.frontends.nnscaler.pickles import loaded

SHIPPED = Path(__file__).parents[2] / "data" / "nnscaler"
FURTHER = Path(__file__).parents[4] / "shared" / "nnscaler"
CLASSES_ALONE = {"m01_drop_fw_allreduce", "p05_ffn_allreduce_dropped"}
"""Plans that run right, and are refused because the classes of primitives contradict what runs."""

MEGATRON = "mlp-L4-gbs128.dp2-pp2-tp2-mb2.megatron"
COLUMN = "mlp-L4-gbs128.dp2-pp2-tp2-mb2.column"
BATCH = "mlp-L4-gbs128.dp2-pp2-tp2-mb2.batch"
PIPELINE = "mlp-L4-gbs128.dp1-pp2-tp1-mb2.megatron"
LLAMA = "llama-L2-gbs32.dp2-pp2-tp2-mb2"
STAGES = "mlp-L8-d64.pp4-tp2-mb2"
SHAPES = "llama-shapes.dp2-pp2-tp2-mb2.hybrid"
FFN = "ffn-L2.pp2-mb2"


def rows(folder: Path) -> list[Any]:
    manifest = folder / "manifest.json"
    return json.loads(manifest.read_text()) if manifest.exists() else []


def params(folder: Path, slow: bool) -> list[Any]:
    known = {row["parallel"] for row in rows(SHIPPED)}
    chosen = [row for row in rows(folder) if folder == SHIPPED or row["parallel"] not in known]
    return [
        pytest.param(row, id=Path(row["parallel"]).stem, marks=[pytest.mark.slow] if slow else [])
        for row in chosen
    ]


@pytest.mark.parametrize("row", params(SHIPPED, slow=True))
def test_plan_runs_as_its_manifest_says(row: dict[str, str]) -> None:
    why = wrong(SHIPPED / row["reference"], SHIPPED / row["parallel"])
    assert (not why) == (
        row["expect"] == "equivalent" or Path(row["parallel"]).stem in CLASSES_ALONE
    ), why


@pytest.mark.parametrize("row", params(FURTHER, slow=True))
def test_further_plan_runs_as_its_manifest_says(row: dict[str, str]) -> None:
    why = wrong(FURTHER / row["reference"], FURTHER / row["parallel"])
    assert (not why) == (
        row["expect"] == "equivalent" or Path(row["parallel"]).stem in CLASSES_ALONE
    ), why


# --- changed in one thing


@contextmanager
def changed_files(change: Change, name: str) -> Iterator[None]:
    """The reader gets the objects of the parallel plan changed."""

    @contextmanager
    def instead(path: Path) -> Iterator[Any]:
        with loaded(path) as root:
            if path.name == name:
                change(root)
            yield root

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "loaded", instead)
        yield


def files(base: str) -> tuple[Path, Path]:
    folder = next((f for f in (SHIPPED, FURTHER) if (f / "pairs" / f"{base}.pkl").exists()), None)
    if folder is None:
        pytest.skip("the plan is not here")
    return (
        folder / "pairs" / f"{base.partition('.')[0]}.reference.pkl",
        folder / "pairs" / f"{base}.pkl",
    )


def verdict(reference: Path, parallel: Path, change: Change) -> tuple[str, str]:
    """(verdict, what is said)."""
    with changed_files(change, parallel.name):
        try:
            plans = read_nnscaler(reference), read_nnscaler(parallel)
        except UnsupportedError as error:
            return "inconclusive", str(error)
        except PlanError as error:
            return "invalid", str(error)
    report = check(*plans, Options(seed=1, explain=False))
    return report.verdict, "; ".join(f"{f.code} {f.title}" for f in report.findings[:3])


CHANGES: dict[str, tuple[str, Change]] = {
    # communication inside segments
    "ranks of all-reduces in reverse": (
        MEGATRON,
        c.keyword("nn.allreduce_allreduce", "ranks", c.as_list),
    ),
    "ranks of splits in reverse": (MEGATRON, c.keyword("nn.split_allgather", "ranks", c.as_list)),
    "all-reduce over one rank": (
        MEGATRON,
        c.keyword("nn.allreduce_allreduce", "ranks", lambda ranks: ranks[:1], (0,)),
    ),
    "all-reduce over one rank each": (
        MEGATRON,
        lambda root: [
            c.keyword("nn.allreduce_allreduce", "ranks", lambda _, d=d: [d], (d,))(root)
            for d in (0, 1)
        ],
    ),
    "all-gather along another dimension": (
        MEGATRON,
        c.keyword("nn.allgather_split", "dim", lambda _: 0),
    ),
    "all-gather with dimension counted from the end": (
        MEGATRON,
        c.keyword("nn.allgather_split", "dim", lambda _: -1),
    ),
    "split along another dimension": (
        BATCH,
        c.keyword("nn.split_allgather", "dim", lambda dim: 1 - dim),
    ),
    "forward all-reduce is an identity": (
        MEGATRON,
        c.signature(
            "nn.allreduce_allreduce", "nn.identity_allreduce", rename="IdentityAllreducePrim"
        ),
    ),
    "backward all-reduce is an identity": (
        MEGATRON,
        c.signature(
            "nn.allreduce_allreduce", "nn.allreduce_identity", rename="AllReduceIdentityPrim"
        ),
    ),
    "backward all-reduce on top": (
        MEGATRON,
        c.signature(
            "nn.allreduce_identity", "nn.allreduce_allreduce", rename="AllReduceAllReducePrim"
        ),
    ),
    "all-reduce without a backward half": (
        MEGATRON,
        c.signature("nn.allreduce_allreduce", "all_reduce", rename="AllReducePrim"),
    ),
    "all-gather whose backward half sums": (
        MEGATRON,
        c.signature(
            "nn.allgather_split", "nn.allgather_reducescatter", rename="AllGatherReduceScatterPrim"
        ),
    ),
    "unknown keyword": (
        MEGATRON,
        lambda root: c.primitives(root, "nn.allreduce_allreduce")[0].kwargs.update(scale=2),
    ),
    "no ranks": (
        MEGATRON,
        lambda root: c.primitives(root, "nn.allreduce_allreduce")[0].kwargs.pop("ranks"),
    ),
    "class alone exchanged": (
        MEGATRON,
        c.signature(
            "nn.allreduce_allreduce", "nn.allreduce_allreduce", rename="IdentityAllreducePrim"
        ),
    ),
    # between stages
    "target of a message exchanged": (
        MEGATRON,
        c.keyword("move", "dst", lambda dst: {2: 3, 3: 2}.get(dst, dst)),
    ),
    "source and target exchanged": (
        PIPELINE,
        lambda root: [
            p.kwargs.update(src=p.kwargs["dst"], dst=p.kwargs["src"])
            for p in c.primitives(root, "move")
        ],
    ),
    "buffer of another shape": (
        PIPELINE,
        c.keyword("move", "shape", lambda shape: shape[::-1] if len(shape) == 2 else shape, (1,)),
    ),
    "buffer of another dtype": (PIPELINE, c.keyword("move", "dtype", lambda _: c.FP16, (1,))),
    "chunk before a message along another dimension": (
        MEGATRON,
        c.keyword("chunk", "dim", lambda dim: 1 - dim),
    ),
    "gather after a message along another dimension": (
        MEGATRON,
        c.keyword("all_gather", "dim", lambda dim: 1 - dim),
    ),
    "chunk and gather along another dimension": (
        COLUMN,
        lambda root: [
            p.kwargs.update(dim=0) for f in ("chunk", "all_gather") for p in c.primitives(root, f)
        ],
    ),
    "primitives in the reverse order": (PIPELINE, c.chunk_before_after),
    "root of a broadcast": (STAGES, c.keyword("broadcast", "src", lambda src: src - 6)),
    "buffers of a broadcast": (STAGES, c.keyword("broadcast", "shape", lambda _: (2,), (0,))),
    "members of a broadcast": (
        STAGES,
        c.keyword("broadcast", "ranks", lambda ranks: list(ranks)[:-1]),
    ),
    "members of a broadcast in reverse": (STAGES, c.keyword("broadcast", "ranks", c.as_list)),
    # custom adapters
    "custom backward adapter along another dimension": (
        COLUMN,
        c.keyword("chunk", "dim", lambda dim: 1 - dim),
    ),
    "custom backward all-reduce over one rank each": (
        COLUMN,
        lambda root: [
            c.keyword("all_reduce", "ranks", lambda _, d=d: [d], (d,))(root) for d in range(4)
        ],
    ),
    # reducers
    "reducer without a weight": (MEGATRON, c.reducer(lambda weights: weights[1:], (0, 1))),
    "reducer without a weight on one device": (
        MEGATRON,
        c.reducer(lambda weights: weights[1:], (0,)),
    ),
    "reducer with a weight twice": (
        MEGATRON,
        c.reducer(lambda weights: [*weights, weights[0]], (0, 1)),
    ),
    "reducer in another order": (MEGATRON, c.reducer(lambda weights: weights[::-1], (0, 1))),
    "reducer over another device": (MEGATRON, c.reducer_devices(lambda _: (1,), (0,))),
    "reducers exchanged": (
        MEGATRON,
        lambda root: [c.reducer_devices(lambda _, d=d: (1 - d,), (d,))(root) for d in (0, 1)],
    ),
    "reducer over a tensor-parallel group": (MEGATRON, c.reducer_devices(lambda _: (0, 1), (0, 1))),
    "reducer before the last backward pass": (MEGATRON, c.reducer_early(0)),
    # micro-batches
    "forward calls exchanged": (PIPELINE, c.swap_calls(0, "IRSegment", False)),
    "backward calls exchanged on the last stage": (PIPELINE, c.swap_calls(1, "IRSegment", True)),
    "data calls exchanged": (PIPELINE, c.swap_calls(0, "IRDataOperation", None)),
    "data of the micro-batches exchanged": (
        MEGATRON,
        c.swap_outputs("IRDataOperation", None, (0, 1)),
    ),
    "data of the micro-batches exchanged on one device": (
        MEGATRON,
        c.swap_outputs("IRDataOperation", None, (0,)),
    ),
    "inputs of micro-batches exchanged on the second stage": (
        PIPELINE,
        c.swap_inputs("IRSegment", False, (1,)),
    ),
    "gradients of micro-batches exchanged": (PIPELINE, c.swap_inputs("IRSegment", True, (0,))),
    "gradient of the first micro-batch twice": (PIPELINE, c.mixed_gradients),
    "second backward call of the first forward call": (PIPELINE, c.exchanged_segments),
    "messages of the micro-batches exchanged on the sender": (
        PIPELINE,
        c.swap_calls(0, "IRAdapter", False),
    ),
    "last forward and backward call dropped": (PIPELINE, c.drop_calls(0, "IRSegment", True, 1)),
    "first stage, last in first out": (PIPELINE, c.reordered({0: (0, 1, 2, 3, 4, 5, 6, 8, 9, 7)})),
    "last stage, last in first out": (PIPELINE, c.reordered({1: (0, 3, 1, 5, 6, 2, 4, 7)})),
    "both stages, last in first out": (
        PIPELINE,
        c.reordered({0: (0, 1, 2, 3, 4, 5, 8, 9, 6, 7), 1: (0, 3, 1, 5, 6, 2, 7, 4)}),
    ),
    "last stage, all forward passes first": (PIPELINE, c.reordered({1: (0, 3, 1, 5, 2, 6, 4, 7)})),
    "micro-batches in the other order": (
        PIPELINE,
        c.reordered({0: (0, 3, 4, 5, 1, 2, 8, 9, 6, 7), 1: (3, 5, 6, 0, 7, 1, 2, 4)}),
    ),
    "gradients received early": (PIPELINE, c.reordered({0: (0, 1, 2, 3, 4, 5, 6, 8, 7, 9)})),
    "backward call repeated": (PIPELINE, c.repeated_backward),
    "forward call more": (PIPELINE, c.extra_forward),
    "gradient without a name": (PIPELINE, c.fewer_names),
    # what the step returns
    "one loss returned twice": (
        PIPELINE,
        lambda root: setattr(root.execplan, "_outputs", root.execplan._outputs[:1] * 2),
    ),
    "losses returned in the other order": (
        PIPELINE,
        lambda root: setattr(root.execplan, "_outputs", root.execplan._outputs[::-1]),
    ),
    "one loss returned": (
        PIPELINE,
        lambda root: setattr(root.execplan, "_outputs", root.execplan._outputs[:1]),
    ),
    "loss not sent back": (PIPELINE, lambda root: [root.execplan._seq[d].pop() for d in (0, 1)]),
    "losses sent back in the other order": (
        PIPELINE,
        c.reordered({0: (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 10)}),
    ),
    # what autograd is told
    "hints name nothing": (MEGATRON, c.no_hints),
    "hints in the reverse order": (MEGATRON, c.reversed_hints),
    "hints of other operators": (PIPELINE, c.exchanged_mirrors),
    "no loss flag": (PIPELINE, c.loss_flag),
    "loss flag on all gradients": (PIPELINE, c.seeds_everywhere),
    "first stage without gradients": (PIPELINE, c.no_gradient),
    "weight without gradient": (PIPELINE, c.frozen_weight),
    "weight without gradient on one device": (MEGATRON, c.frozen_weight),
    # lineage that nothing runs
    "boxes of activations": (PIPELINE, c.other_boxes),
    "terms of sums": (MEGATRON, c.terms_of_sums),
    # operators
    "second weight is the first": (PIPELINE, c.shared_weight),
    "second operator reads what the first reads": (PIPELINE, c.another_input),
    "factors exchanged": (FFN, c.argument("torch.mul", c.swap_operands)),
    "a number of one operator": (FFN, c.argument("torch.add", c.set_input(1, 1e-5 + 1e-3))),
    "alpha of an addition": (FFN, c.argument("torch.add", c.set_keyword("alpha", 2), which=3)),
    "axis of a mean": (FFN, c.argument("torch.mean", c.set_keyword("dim", (1,)))),
    "axis of a mean counted from the end": (
        FFN,
        c.argument("torch.mean", c.set_keyword("dim", (-1,))),
    ),
    "no hints of unused branches": (FFN, c.no_hints),
    # sizes
    "sizes exchanged": (SHAPES, c.next_exchanged),
    "sizes that the tracer saw": (SHAPES, c.sizes_said),
    "other sizes of as many elements": (SHAPES, c.unpacked((16, 4, 64))),
    "other sizes": (SHAPES, c.unpacked((4, 16, 32))),
    "too few sizes": (SHAPES, c.unpacked((4, 16))),
}

ALIKE = {
    "ranks of all-reduces in reverse",
    "ranks of splits in reverse",
    "all-gather with dimension counted from the end",
    "class alone exchanged",
    "primitives in the reverse order",
    "members of a broadcast in reverse",
    "reducer in another order",
    "last stage, all forward passes first",
    "micro-batches in the other order",
    "gradients received early",
    "losses returned in the other order",
    "losses sent back in the other order",
    "hints name nothing",
    "hints in the reverse order",
    "hints of other operators",
    "boxes of activations",
    "terms of sums",
    "factors exchanged",
    "axis of a mean counted from the end",
    "no hints of unused branches",
    "sizes that the tracer saw",
    "other sizes",
}
"""Changes after which the same is computed."""
CONTRADICTS = {"class alone exchanged"}
UNNAMED = {"one loss returned", "weight without gradient", "weight without gradient on one device"}
"""Changes after which an output is not there at all."""
FAST = {
    "class alone exchanged",
    "last stage, last in first out",
    "last stage, all forward passes first",
    "hints name nothing",
    "hints of other operators",
    "buffer of another shape",
    "buffer of another dtype",
    "sizes exchanged",
    "members of a broadcast in reverse",
    "loss flag on all gradients",
}


def change_params() -> list[Any]:
    return [
        pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in CHANGES
    ]


@pytest.mark.parametrize("name", change_params())
def test_changed_file_gets_the_verdict_of_what_it_runs(name: str) -> None:
    base, change = CHANGES[name]
    reference, parallel = files(base)
    why = wrong(reference, parallel, change)
    assert (not why) == (name in ALIKE), why
    found, said = verdict(reference, parallel, change)
    if name in CONTRADICTS:
        assert found == "invalid" and "contradicts itself" in said
    elif name in UNNAMED:
        assert found == "inconclusive", said
    else:
        assert found == "equivalent" if not why else found in ("mismatch", "invalid"), said


def test_names_of_changes() -> None:
    assert set(CHANGES) >= ALIKE | CONTRADICTS | UNNAMED | FAST
