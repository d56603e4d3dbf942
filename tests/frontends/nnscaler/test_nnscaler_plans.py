"""Plans of a real planner: what the reader makes of them computes what it must, rank by rank in
float64; and what it makes of some, by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from frontends.nnscaler.nnscaler_interpreter import (
    Machine,
    StuckError,
    differing_outputs,
    given_for,
)

from pitcheck.errors import PlanError
from pitcheck.frontends.nnscaler import read_nnscaler
from pitcheck.plan.model import Box, Group, Lineage, Operator, Plan, Shard, Table, Use
from pitcheck.plan.validate import validate

DATA = Path(__file__).parents[2] / "data" / "nnscaler"
MORE = Path(__file__).parents[4] / "shared" / "nnscaler"
MEGATRON = "pairs/mlp-L4-gbs128.dp2-pp2-tp2-mb2.megatron.pkl"


def entries(folder: Path) -> list[Any]:
    manifest = folder / "manifest.json"
    return json.loads(manifest.read_text()) if manifest.exists() else []


def plan(name: str) -> Plan:
    return read_nnscaler(DATA / name)


def by_id(found: Plan) -> dict[str, Operator]:
    return {operator.id: operator for operator in found.operators}


def tensors(found: Plan) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in found.tensors}


def changed(before: Plan, after: Plan) -> set[str]:
    """Ids of operators that are in one plan only, or differ."""
    first, second = by_id(before), by_id(after)
    return {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}


def judge(folder: Path, entry: dict[str, str]) -> tuple[bool, str]:
    """(whether the parallel plan runs and computes every output of the reference, why not)."""
    reference = read_nnscaler(folder / entry["reference"])
    assert not validate(reference)
    try:
        parallel = read_nnscaler(folder / entry["parallel"])
    except PlanError as error:
        return False, str(error)
    violations = validate(parallel, reference)
    if violations:
        return False, violations[0].message
    try:
        wrong = differing_outputs(reference, parallel)
    except StuckError as stuck:
        return False, f"stuck: {stuck}"
    return not wrong, ", ".join(wrong)


def slow_where_large(entry: dict[str, str]) -> Any:
    return pytest.param(
        entry,
        id=Path(entry["parallel"]).stem,
        marks=[pytest.mark.slow] if "llama" in entry["reference"] else [],
    )


@pytest.mark.parametrize("entry", [slow_where_large(entry) for entry in entries(DATA)])
def test_plan_computes_what_the_manifest_says(entry: dict[str, str]) -> None:
    right, why = judge(DATA, entry)
    assert right == (entry["expect"] == "equivalent"), why


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    [
        e
        for e in entries(MORE)
        if not (DATA / e["parallel"]).exists() and "L32" not in e["parallel"]
    ],
    ids=lambda entry: Path(entry["parallel"]).stem,
)
def test_further_plans_compute_what_their_manifest_says(entry: dict[str, str]) -> None:
    right, why = judge(MORE, entry)
    assert right == (entry["expect"] == "equivalent"), why


@pytest.mark.parametrize("name", ["reference", "dp2-pp2-tp2-mb2"])
def test_many_blocks_are_valid(name: str) -> None:
    file = MORE / "pairs" / f"llama-L32-gbs32.{name}.pkl"
    if not file.exists():
        pytest.skip("the large plan is not here")
    found = read_nnscaler(file)
    assert not validate(found)
    assert len(found.outputs) == 290


# --- hand-checked structure


def test_megatron_mesh_inputs_and_parameters() -> None:
    found = plan(MEGATRON)
    assert [(axis.name, axis.size) for axis in found.mesh] == [("dp", 2), ("pp", 2), ("tp", 2)]
    assert found.microbatches == 2
    table = tensors(found)
    assert (
        table["data"].shape == (32, 128)
        and table["data"].role == "input"
        and table["data"].microbatched
    )
    assert table["data"].lineage == Lineage("data", (Shard(0, by=("dp", "mb")),))
    assert table["layers.0.weight"].shape == (64, 128)
    assert table["layers.0.weight"].lineage == Lineage("layers.0.weight", (Shard(0, by=("tp",)),))
    assert table["layers.1.weight"].lineage == Lineage("layers.1.weight", (Shard(1, by=("tp",)),))
    assert table["grad:layers.1.weight"].gradient_of == "layers.1.weight"
    assert table["loss"].shape == ()
    assert table["grad:loss"].value == 1


def test_megatron_operators_of_the_first_stage() -> None:
    operators = by_id(plan(MEGATRON))
    stage: tuple[Box, ...] = ({"pp": (0,)},)
    first = operators["linear:linear"]
    assert (first.kind, first.inputs, first.outputs, first.where) == (
        "linear",
        ("data.1", "layers.0.weight"),
        ("linear",),
        stage,
    )
    assert (first.source, first.module) == (
        "generator/TrainVerify/Verdict/gen_model/model/mlp.py:18",
        "layers.0",
    )
    reduced = operators["all_reduce:linear_1.1"]
    assert (reduced.inputs, reduced.group, reduced.attributes) == (
        ("linear_1",),
        Group(axes=("tp",)),
        {"reduction": "sum"},
    )
    chunk = operators["chunk:linear_2.2"]
    assert chunk.attributes == {"axis": 1, "count": 2, "position": Table(("tp",), (0, 1))}
    assert operators["send:linear_2.2"].attributes == {"peer": Table(("dp", "tp"), (2, 3, 6, 7))}
    backward = operators["linear.backward:glinear_1"]
    assert backward.inputs == ("linear_1.1", "layers.2.weight", "linear_2", "glinear_2.2")
    assert backward.outputs == ("glinear_1", "glayers_2_weight")
    assert backward.attributes == {"forward_inputs": 2, "forward_outputs": 1, "gradients": (0,)}
    assert operators["accumulate:partial:layers.0.weight"].inputs == ("glayers_0_weight",)
    final = operators["all_reduce:grad:layers.0.weight"]
    assert (final.inputs, final.group) == (("partial:layers.0.weight",), Group(axes=("dp",)))


def test_megatron_backward_halves() -> None:
    operators = by_id(plan(MEGATRON))
    assert operators["identity:data.1"].module == "IdentityAllreducePrim"
    assert "all_reduce:gdata.1" not in operators, "no gradient is asked for of the data"
    assert operators["all_reduce:glinear_1.1"].group == Group(axes=("tp",))
    assert operators["chunk:glinear_2.2"].module == "AllGatherSplitPrim"
    assert operators["identity:glinear_3.1"].module == "AllReduceIdentityPrim"
    assert operators["all_gather:glinear_2.4"].attributes == {"axis": 1}


def test_megatron_programs() -> None:
    found = plan(MEGATRON)
    first, second = sorted(found.programs, key=lambda program: program.where[0]["pp"])
    kinds = [
        (operator.split(":")[0], step.microbatch)
        for step in first.steps
        for operator in found.blocks[step.block]
    ]
    forward = [
        "identity",
        "linear",
        "linear",
        "all_reduce",
        "linear",
        "all_gather",
        "chunk",
        "send",
    ]
    backward = [
        "receive",
        "all_gather",
        "chunk",
        "linear.backward",
        "all_reduce",
        "linear.backward",
        "linear.backward",
    ]
    expected = (
        [(k, m) for m in (0, 1) for k in forward]
        + [(k, m) for m in (0, 1) for k in backward]
        + [("receive", 0), ("receive", 1)]
    )
    assert kinds == expected + [(k, None) for _ in range(3) for k in ("accumulate", "all_reduce")]
    order = [
        (operator, step.microbatch)
        for step in second.steps
        for operator in found.blocks[step.block]
        if operator in ("receive:linear_2.3", "send:glinear_2.6")
    ]
    assert order == [
        ("receive:linear_2.3", 0),
        ("receive:linear_2.3", 1),
        ("send:glinear_2.6", 0),
        ("send:glinear_2.6", 1),
    ]


def test_reference_has_neither_lineage_nor_groups() -> None:
    found = plan("pairs/mlp-L4-gbs128.reference.pkl")
    assert all(tensor.lineage is None for tensor in found.tensors)
    assert all(operator.group is None for operator in found.operators)
    assert [output.tensor for output in found.outputs] == [
        "loss",
        *(f"grad:layers.{n}.weight" for n in range(4)),
    ]
    assert tensors(found)["data"].shape == (128, 128)


def test_bias_without_tensor_parallelism() -> None:
    found = plan("pairs/bias-mlp-L2-gbs128.dp2-pp1-tp1-mb1.pkl")
    assert by_id(found)["linear:linear"].inputs == ("data", "l.0.weight", "l.0.bias")
    assert by_id(found)["linear.backward:gl_0_weight"].outputs == ("", "gl_0_weight", "gl_0_bias")
    assert tensors(found)["data"].lineage == Lineage("data", (Shard(0, by=("dp",)),))


def test_reducer_over_replicas_and_devices() -> None:
    operators = by_id(plan("pairs/mlp-L4-gbs128.dp2-pp2-tp2-mb2.batch.pkl"))
    assert operators["all_reduce:grad:layers.0.weight"].group == Group(axes=("dp", "tp"))


def test_plan_without_replicas_is_one_stage() -> None:
    found = plan("pairs/mlp-L4-gbs128.dp1-pp1-tp2-mb1.megatron.pkl")
    assert [(axis.name, axis.size) for axis in found.mesh] == [("dp", 1), ("pp", 1), ("tp", 2)]
    assert found.outputs[0].lineage is None


def test_numbers_and_keywords_of_llama() -> None:
    kinds = {
        operator.kind: operator for operator in plan("pairs/llama-L2-gbs32.reference.pkl").operators
    }
    assert kinds["div"].inputs[1].value == 4.0  # type: ignore[union-attr]
    assert kinds["mean"].attributes == {"axes": (2,), "keepdim": True}
    assert kinds["softmax"].attributes == {"axis": -1}
    assert kinds["pow"].attributes == {"exponent": 2}
    assert kinds["multiref"].attributes == {"count": 2}
    assert kinds["pow.backward"].attributes == {
        "exponent": 2,
        "forward_inputs": 1,
        "forward_outputs": 1,
        "gradients": (0,),
    }
    assert not any(kind.startswith("nnscaler:") for kind in kinds)


# --- mutants differ where they were changed, and nowhere else


def test_unchanged_copy_is_the_same_plan() -> None:
    assert msgspec.structs.replace(
        plan("mutants/m00_none.pkl"), name=""
    ) == msgspec.structs.replace(plan(MEGATRON), name="")


def test_order_of_ranks_means_nothing() -> None:
    assert not changed(plan(MEGATRON), plan("mutants/n06_fw_allgather_order_reversed.pkl"))


@pytest.mark.parametrize("name", ["m01_drop_fw_allreduce", "p05_ffn_allreduce_dropped"])
def test_class_that_contradicts_its_signature(name: str) -> None:
    with pytest.raises(
        PlanError,
        match=r"IdentityAllreducePrim carries the signature 'nn.allreduce_\w+': the plan "
        r"contradicts itself",
    ):
        plan(f"mutants/{name}.pkl")


def test_class_that_nothing_depends_on() -> None:
    """The primitive gives the very tensor that it takes, and no gradient comes back through it:
    whatever its class says, the signature runs an identity.
    """
    after = plan("mutants/m02_drop_bw_allreduce.pkl")
    assert changed(plan(MEGATRON), after) == {"identity:data.1"}
    assert by_id(after)["identity:data.1"].module == "AllReduceIdentityPrim"
    assert (
        after.assumptions[-1]
        == "AllReduceIdentityPrim carries the signature 'nn.identity_allreduce', which is what runs"
    )


def test_wrong_slice_of_a_weight() -> None:
    after = plan("mutants/m08_weight_wrong_slice.pkl")
    lineage = tensors(after)["layers.0.weight"].lineage
    assert lineage == Lineage("layers.0.weight", (Shard(0, intervals=Table((), (((0, 64),),))),))
    assert not changed(plan(MEGATRON), after)


def test_slice_off_by_one() -> None:
    lineage = tensors(plan("mutants/n30_weight_slice_off_by_one_rank0.pkl"))[
        "layers.0.weight"
    ].lineage
    assert lineage == Lineage(
        "layers.0.weight", (Shard(0, intervals=Table(("tp",), (((1, 65),), ((64, 128),)))),)
    )


def test_reducers() -> None:
    without = by_id(plan("mutants/m11_drop_reducer_all.pkl"))
    assert "accumulate:grad:layers.0.weight" in without and not any(
        o.group == Group(axes=("dp",)) for o in without.values()
    )
    twice = by_id(plan("mutants/m20_reducer_run_twice.pkl"))
    assert twice["all_reduce:partial:layers.0.weight.1"].inputs == ("partial:layers.0.weight",)
    assert twice["all_reduce:grad:layers.0.weight"].inputs == ("partial:layers.0.weight.1",)
    assert "all_reduce:partial:layers.3.weight.1" not in twice
    wrong = by_id(plan("mutants/m19_reducer_group_wrong_devices.pkl"))
    assert wrong["all_reduce:grad:layers.0.weight"].group == Group(axes=("dp", "pp"))


def test_input_of_another_microbatch() -> None:
    after = by_id(plan("mutants/n14_wrong_microbatch_inputs_only.pkl"))
    assert after["identity:data.1"].where == ({"pp": (0,), "mb": (0,)},)
    assert after["identity:data.1#2"].inputs == (Use("data", 0),)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("m04_allreduce_wrong_ranks", "PIT004"),
        ("m19_reducer_group_wrong_devices", "PIT004"),
        ("m16_recv_before_send_deadlock", "PIT007"),
    ],
)
def test_plans_that_cannot_run(name: str, code: str) -> None:
    violations = validate(plan(f"mutants/{name}.pkl"))
    assert {violation.code for violation in violations} == {code}


def test_deadlock_really_hangs() -> None:
    given = given_for(plan("pairs/mlp-L4-gbs128.reference.pkl"))
    with pytest.raises(StuckError):
        Machine(plan("mutants/m16_recv_before_send_deadlock.pkl"), given).run()


def test_names_do_not_depend_on_the_run() -> None:
    assert plan(MEGATRON) == plan(MEGATRON)
