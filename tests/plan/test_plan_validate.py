"""Every rule: the right plan passes, a near miss is found with its code and place."""

from __future__ import annotations

import time
from typing import Any

import pytest
from plan.plan_samples import (
    FIRST,
    PP2,
    change,
    linear_parallel,
    linear_reference,
    pipeline,
    with_operator,
    with_tensor,
)
from zoo.pairs import builders, pair

from pitcheck.plan.model import (
    Axis,
    Group,
    Lineage,
    Number,
    Operator,
    Output,
    Plan,
    Program,
    Shard,
    Step,
    Table,
    Tensor,
    Use,
)
from pitcheck.plan.rules.violations import TITLES, Violation, capped
from pitcheck.plan.validate import validate


def test_right_plans_have_no_violation() -> None:
    assert validate(linear_reference()) == []
    assert validate(linear_parallel(), linear_reference()) == []
    assert validate(pipeline()) == []


@pytest.mark.parametrize("name", builders())
def test_the_zoo_is_valid(name: str) -> None:
    reference, parallel = pair(name)
    assert validate(reference) == []
    assert [
        violation for violation in validate(parallel, reference) if violation.severity == "error"
    ] == []


@pytest.mark.parametrize(
    ("dtype", "number", "result", "right"),
    [
        ("int64", 2, "int64", True),
        ("int64", 2.0, "int64", True),
        ("bool", 2, "int64", True),
        ("int64", "1/2", "float32", True),
        ("float32", 2, "float32", True),
        ("int64", 2, "bool", False),
        ("int64", "1/2", "int64", False),
        ("float32", 2, "int64", False),
    ],
)
def test_a_whole_literal_beside_integers_may_be_an_integer(
    dtype: Any, number: Any, result: Any, right: bool
) -> None:
    tensors = (Tensor("x", (3,), dtype, "input"), Tensor("y", (3,), result))
    found = validate(
        Plan((), tensors, (Operator("y", "mul", ("x", Number(number)), ("y",)),), (Output("y"),))
    )
    assert [violation.code for violation in found] == ([] if right else ["PIT003"])


LINEAR, PIPELINE = linear_parallel(), pipeline()
WHERE0 = ({"tp": (0,)},)


def add(plan: Plan, *operators: Operator, tensors: tuple[Tensor, ...] = ()) -> Plan:
    return change(plan, operators=(*plan.operators, *operators), tensors=(*plan.tensors, *tensors))


def lineage(**fields: Any) -> Plan:
    """Return the linear layer with another lineage of w.

    Its reference has shape (6, 8), and it is (3, 8) here.
    """
    base = {"reference": "w", "shards": (Shard(0, by=("tp",)),)}
    return with_tensor(LINEAR, 1, lineage=Lineage(**{**base, **fields}))


def intervals(*values: Any, over: tuple[str, ...] = ("tp",), dim: int = 0) -> Plan:
    return lineage(shards=(Shard(dim, intervals=Table(over, values)),))


def steps(*rows: tuple[str, int | None], stage: int = 1) -> Plan:
    """Return the pipeline with other steps of one stage."""
    programs = list(PIPELINE.programs)
    programs[stage] = change(programs[stage], steps=tuple(Step(*row) for row in rows))
    return change(PIPELINE, programs=tuple(programs))


MISSES: list[tuple[str, Plan, str, str, str]] = [
    # --- single assignment
    (
        "unknown input",
        with_operator(LINEAR, 0, inputs=("x", "v")),
        "PIT002",
        "operators[0].inputs[1]",
        "'v' is no tensor",
    ),
    (
        "empty input",
        with_operator(LINEAR, 0, inputs=("x", "")),
        "PIT002",
        "operators[0].inputs[1]",
        "is empty",
    ),
    (
        "unknown output",
        with_operator(LINEAR, 0, outputs=("v",)),
        "PIT002",
        "operators[0].outputs[0]",
        "'v' is no tensor",
    ),
    (
        "written twice",
        add(LINEAR, change(LINEAR.operators[0], id="again", where=WHERE0)),
        "PIT002",
        "operators[2].outputs",
        "written twice on rank 0",
    ),
    (
        "two outputs, one name",
        with_operator(LINEAR, 0, outputs=("p", "p")),
        "PIT002",
        "operators[0].outputs[1]",
        "writes 'p' twice",
    ),
    (
        "input written",
        with_operator(LINEAR, 0, outputs=("x",)),
        "PIT002",
        "operators[0].outputs[0]",
        "comes from outside",
    ),
    (
        "not written on rank 1",
        with_operator(LINEAR, 0, where=WHERE0),
        "PIT002",
        "operators[1].inputs[0]",
        "on rank 1, micro-batch 0",
    ),
    (
        "never written",
        with_tensor(LINEAR, 1, role="activation"),
        "PIT002",
        "operators[0].inputs[1]",
        "nothing writes it anywhere",
    ),
    (
        "micro-batch of a whole tensor",
        with_operator(LINEAR, 0, inputs=(Use("x", 0), "w")),
        "PIT002",
        "operators[0].inputs[0]",
        "not exist per micro-batch",
    ),
    (
        "micro-batch out of range",
        with_operator(PIPELINE, 0, inputs=(Use("x", 2),)),
        "PIT002",
        "operators[0].inputs[0]",
        "micro-batch 2",
    ),
    (
        "written per micro-batch",
        with_operator(
            change(PIPELINE, tensors=(*PIPELINE.tensors, Tensor("o", (4,)))),
            0,
            kind="my_kernel",
            outputs=("a", "o"),
        ),
        "PIT002",
        "operators[0].outputs[1]",
        "written 2 times",
    ),
    (
        "read by one that runs once",
        with_tensor(PIPELINE, 1, microbatched=False),
        "PIT002",
        "operators[0].inputs[0]",
        "runs once but reads 'x'",
    ),
    (
        "read per micro-batch by one that runs once",
        add(
            PIPELINE,
            Operator("o", "neg", ("a",), ("o",), where=FIRST),
            tensors=(Tensor("o", (4,)),),
        ),
        "PIT002",
        "operators[7].inputs[0]",
        "use 'accumulate'",
    ),
    (
        "accumulate over a micro-batch that is not there",
        add(
            PIPELINE,
            Operator("o", "accumulate", ("x",), ("o",), {"microbatches": (0, 2)}),
            tensors=(Tensor("o", (4,)),),
        ),
        "PIT002",
        "operators[7].inputs[0]",
        "micro-batch 2",
    ),
    # --- shapes
    (
        "wrong shape of an output",
        with_tensor(LINEAR, 2, shape=(4, 9)),
        "PIT003",
        "operators[0].outputs[0]",
        "[4, 8]",
    ),
    (
        "operands that do not fit",
        with_tensor(LINEAR, 0, shape=(4, 5)),
        "PIT003",
        "operators[0]",
        "matmul",
    ),
    (
        "zero size",
        with_tensor(LINEAR, 0, shape=(4, 0)),
        "PIT003",
        "tensors[0].shape[1]",
        "is empty",
    ),
    (
        "negative size",
        with_tensor(LINEAR, 0, shape=(4, -3)),
        "PIT003",
        "tensors[0].shape[1]",
        "negative size",
    ),
    (
        "absurd size",
        with_tensor(LINEAR, 0, shape=(2**30, 2**30)),
        "PIT003",
        "tensors[0].shape",
        "2^52",
    ),
    (
        "integers multiplied by numbers",
        with_tensor(LINEAR, 2, dtype="int64"),
        "PIT003",
        "operators[0].outputs[0]",
        "kind field",
    ),
    (
        "too many inputs",
        with_operator(LINEAR, 0, inputs=("x", "w", "w")),
        "PIT003",
        "operators[0]",
        "inputs",
    ),
    (
        "a missing attribute",
        with_operator(LINEAR, 1, kind="all_gather", attributes={}),
        "PIT003",
        "operators[1].attributes.axis",
        "needs the attribute",
    ),
    (
        "an attribute of a wrong type",
        with_operator(LINEAR, 1, kind="all_gather", attributes={"axis": "x"}),
        "PIT003",
        "operators[1]",
        "all_gather",
    ),
    (
        "too many outputs",
        with_operator(with_operator(LINEAR, 1, where=()), 0, outputs=("p", "")),
        "PIT003",
        "operators[0].outputs",
        "1 outputs",
    ),
    (
        "a literal that is no number",
        with_operator(LINEAR, 0, inputs=("x", Number("one"))),
        "PIT003",
        "operators[0].inputs[1].value",
        "'one'",
    ),
    (
        "an endless literal",
        with_operator(LINEAR, 0, inputs=("x", Number("1e999999999"))),
        "PIT003",
        "operators[0].inputs[1].value",
        "not a number",
    ),
    (
        "a value of a parameter",
        with_tensor(LINEAR, 1, value=1),
        "PIT003",
        "tensors[1].value",
        "only a constant",
    ),
    (
        "bounds of a float",
        with_tensor(LINEAR, 1, bounds=(0, 4)),
        "PIT003",
        "tensors[1].bounds",
        "only integers",
    ),
    (
        "empty bounds",
        with_tensor(LINEAR, 1, bounds=(4, 4), dtype="int64"),
        "PIT003",
        "tensors[1].bounds",
        "empty",
    ),
    *(
        (
            f"a {dtype} of {value}",
            with_tensor(LINEAR, 1, role="constant", value=value, dtype=dtype, lineage=None),
            "PIT003",
            "tensors[1].value",
            "is outside of",
        )
        for dtype, value in (
            ("uint8", 300),
            ("uint8", -1),
            ("int8", 128),
            ("int32", 1 << 31),
            ("int64", 1 << 63),
            ("bool", 2),
        )
    ),
    *(
        (
            f"{dtype} with bounds {bounds}",
            with_tensor(LINEAR, 1, role="input", bounds=bounds, dtype=dtype),
            "PIT003",
            "tensors[1].bounds",
            "is outside of",
        )
        for dtype, bounds in (
            ("uint8", (-1, 4)),
            ("int16", (0, (1 << 15) + 1)),
            ("int64", (0, 1 << 63)),
            ("int64", (-(1 << 63), 0)),
        )
    ),
    # --- groups
    (
        "unknown axis",
        with_operator(LINEAR, 1, group=Group(axes=("dp",))),
        "PIT004",
        "operators[1].group.axes",
        "'dp'",
    ),
    (
        "rank out of range",
        with_operator(LINEAR, 1, group=Group(ranks=((0, 2),))),
        "PIT004",
        "operators[1].group",
        "rank 2",
    ),
    (
        "overlapping lists",
        with_operator(LINEAR, 1, group=Group(ranks=((0, 1), (1,)))),
        "PIT004",
        "operators[1].group",
        "stands twice",
    ),
    (
        "axes and ranks",
        with_operator(LINEAR, 1, group=Group(("tp",), ((0, 1),))),
        "PIT004",
        "operators[1].group",
        "not both",
    ),
    (
        "an axis twice",
        with_operator(LINEAR, 1, group=Group(("tp", "tp"))),
        "PIT004",
        "operators[1].group.axes",
        "twice",
    ),
    (
        "no group",
        with_operator(LINEAR, 1, group=None),
        "PIT004",
        "operators[1].group",
        "has no group",
    ),
    (
        "a member left out",
        with_operator(LINEAR, 1, group=Group(ranks=((0,),))),
        "PIT004",
        "operators[1].where",
        "none of its groups",
    ),
    (
        "root out of range",
        with_operator(LINEAR, 1, kind="broadcast", attributes={"root": 2}),
        "PIT004",
        "operators[1].attributes.root",
        "root 2",
    ),
    (
        "not divisible",
        with_tensor(
            with_operator(LINEAR, 1, kind="reduce_scatter", attributes={"axis": 1}), 2, shape=(4, 7)
        ),
        "PIT004",
        "operators[1].inputs[0]",
        "size 7, into 2",
    ),
    # --- meetings; more in test_plan_matching and test_plan_deadlock
    (
        "send alone",
        with_operator(PIPELINE, 2, attributes={"peer": 1}),
        "PIT005",
        "operators[1]",
        "no receive meets it",
    ),
    (
        "shapes that differ",
        with_tensor(PIPELINE, 2, shape=(5,)),
        "PIT005",
        "operators[2].outputs[0]",
        "both must be equal",
    ),
    (
        "a member that never comes",
        with_operator(LINEAR, 1, where=WHERE0),
        "PIT004",
        "operators[1].group",
        "runs no collective",
    ),
    # --- lineage
    ("unknown reference", lineage(reference="v"), "PIT008", "tensors[1].lineage.reference", "'v'"),
    (
        "another number of dimensions",
        lineage(reference="x", shards=(Shard(2, by=("tp",)),)),
        "PIT008",
        "tensors[1].lineage.shards[0].dim",
        "dimension 2",
    ),
    (
        "unknown axis of a shard",
        lineage(shards=(Shard(0, by=("dp",)),)),
        "PIT008",
        "tensors[1].lineage.shards[0].by",
        "'dp'",
    ),
    (
        "a shard that does not fit",
        lineage(shards=(Shard(1, by=("tp",)),)),
        "PIT008",
        "tensors[1].lineage.shards[0].by",
        "is 4",
    ),
    (
        "whole, but smaller",
        lineage(shards=()),
        "PIT008",
        "tensors[1].lineage.shards",
        "is 3 here and 6",
    ),
    (
        "neither axes nor intervals",
        lineage(shards=(Shard(0),)),
        "PIT008",
        "tensors[1].lineage.shards[0]",
        "exactly one",
    ),
    (
        "two shards of a dimension",
        lineage(shards=(Shard(0, by=("tp",)), Shard(0, by=("tp",)))),
        "PIT008",
        "tensors[1].lineage.shards",
        "",
    ),
    (
        "by micro-batches",
        lineage(shards=(Shard(0, by=("tp", "mb")),)),
        "PIT008",
        "tensors[1].lineage.shards[0].by",
        "per micro-batch",
    ),
    (
        "interval out of range",
        intervals(((0, 3),), ((4, 7),)),
        "PIT008",
        "tensors[1].lineage.shards[0].intervals.values[1]",
        "(4, 7)",
    ),
    (
        "intervals of a wrong sum",
        intervals(((0, 3),), ((3, 5),)),
        "PIT008",
        "tensors[1].lineage.shards[0].intervals.values[1]",
        "have 2 elements",
    ),
    (
        "empty interval",
        intervals(((0, 3), (3, 3)), ((3, 6),)),
        "PIT008",
        "tensors[1].lineage.shards[0].intervals.values[0]",
        "(3, 3)",
    ),
    (
        "no intervals",
        intervals(3, ((3, 6),)),
        "PIT008",
        "tensors[1].lineage.shards[0].intervals.values[0]",
        "no list",
    ),
    (
        "empty padding",
        intervals(((0, 3), (-1, 0)), ((3, 6),)),
        "PIT008",
        "tensors[1].lineage.shards[0].intervals.values[0]",
        "padding",
    ),
    (
        "too few intervals",
        intervals(((0, 3),)),
        "PIT008",
        "tensors[1].lineage.shards[0].intervals",
        "1 values for 2",
    ),
    (
        "intervals over an unknown axis",
        intervals(((0, 3),), over=("dp",)),
        "PIT008",
        "tensors[1].lineage.shards[0].intervals",
        "'dp'",
    ),
    ("scale 0", lineage(scale="0"), "PIT008", "tensors[1].lineage.scale", "scale 0"),
    (
        "scale that is no rational",
        lineage(scale="sqrt(2)"),
        "PIT008",
        "tensors[1].lineage.scale",
        "no rational",
    ),
    ("scale 1/0", lineage(scale="1/0"), "PIT008", "tensors[1].lineage.scale", "no rational"),
    (
        "endless scale",
        lineage(scale="1e999999999"),
        "PIT008",
        "tensors[1].lineage.scale",
        "no rational",
    ),
    (
        "term over an unknown axis",
        lineage(partial=("dp",)),
        "PIT008",
        "tensors[1].lineage.partial",
        "'dp'",
    ),
    (
        "shard and term over one axis",
        lineage(partial=("tp",)),
        "PIT008",
        "tensors[1].lineage.partial",
        "both cuts",
    ),
    (
        "term over micro-batches",
        lineage(partial=("mb",)),
        "PIT008",
        "tensors[1].lineage.partial",
        "per micro-batch",
    ),
    (
        "term over a rank that is not there",
        lineage(partial_ranks=((0, 2),)),
        "PIT008",
        "tensors[1].lineage.partial_ranks",
        "rank 2",
    ),
    (
        "term over overlapping lists",
        lineage(partial_ranks=((0, 1), (1,))),
        "PIT008",
        "tensors[1].lineage.partial_ranks",
        "two lists",
    ),
    # --- programs
    (
        "two tensors of a name",
        with_tensor(LINEAR, 3, name="p"),
        "PIT009",
        "tensors[3].name",
        "tensors[2]",
    ),
    (
        "two operators of an id",
        with_operator(LINEAR, 1, id="product"),
        "PIT009",
        "operators[1].id",
        "operators[0]",
    ),
    ("no id", with_operator(LINEAR, 1, id=""), "PIT009", "operators[1].id", "empty"),
    (
        "unknown operator in a block",
        change(PIPELINE, blocks={**PIPELINE.blocks, "f0": ("forward0", "no")}),
        "PIT009",
        "blocks.f0[1]",
        "'no'",
    ),
    (
        "operator twice in a block",
        change(PIPELINE, blocks={**PIPELINE.blocks, "f0": ("forward0",) * 2}),
        "PIT009",
        "blocks.f0[1]",
        "twice",
    ),
    (
        "unknown block",
        steps(("f1", 0), ("f2", 1), ("b1", 0), ("b1", 1)),
        "PIT009",
        "programs[1].steps[1].block",
        "'f2'",
    ),
    (
        "unknown micro-batch",
        steps(("f1", 0), ("f1", 2), ("b1", 0), ("b1", 1)),
        "PIT009",
        "programs[1].steps[1].microbatch",
        "micro-batch 2",
    ),
    (
        "no micro-batch",
        steps(("f1", 0), ("f1", None), ("b1", 0), ("b1", 1)),
        "PIT009",
        "programs[1].steps[1].microbatch",
        "for which one",
    ),
    (
        "not run",
        steps(("f1", 0), ("f1", 1), ("b1", 0)),
        "PIT009",
        "operators[4]",
        "stands in no step",
    ),
    (
        "run twice",
        steps(("f1", 0), ("f1", 1), ("b1", 0), ("b1", 1), ("b1", 1)),
        "PIT009",
        "operators[4]",
        "is run twice",
    ),
    (
        "backward before forward",
        steps(("f1", 0), ("b1", 1), ("f1", 1), ("b1", 0)),
        "PIT009",
        "operators[4]",
        "before 'forward1'",
    ),
    (
        "list order against dependence",
        change(LINEAR, operators=LINEAR.operators[::-1]),
        "PIT009",
        "operators[0]",
        "before 'product'",
    ),
    (
        "two programs of a rank",
        change(PIPELINE, programs=(*PIPELINE.programs, PIPELINE.programs[1])),
        "PIT009",
        "programs[2].where",
        "already has",
    ),
    (
        "no program",
        change(PIPELINE, programs=PIPELINE.programs[:1]),
        "PIT009",
        "operators[2]",
        "on rank 1",
    ),
    ("blocks without programs", change(PIPELINE, programs=()), "PIT009", "programs", "no programs"),
    (
        "program over micro-batches",
        change(
            PIPELINE,
            programs=(
                PIPELINE.programs[0],
                change(PIPELINE.programs[1], where=({"pp": (1,), "mb": (0,)},)),
            ),
        ),
        "PIT009",
        "programs[1].where[0].mb",
        "belongs to ranks",
    ),
    # --- boxes and tables
    (
        "where of an unknown axis",
        with_operator(LINEAR, 0, where=({"dp": (0,)},)),
        "PIT001",
        "operators[0].where[0]",
        "'dp'",
    ),
    (
        "where out of range",
        with_operator(LINEAR, 0, where=({"tp": (2,)},)),
        "PIT001",
        "operators[0].where[0].tp",
        "value 2",
    ),
    (
        "table over an unknown axis",
        with_operator(LINEAR, 0, attributes={"a": Table(("dp",), ())}),
        "PIT001",
        "operators[0].attributes.a",
        "'dp'",
    ),
    (
        "table of a wrong size",
        with_operator(LINEAR, 0, attributes={"a": Table(("tp",), (1,))}),
        "PIT001",
        "operators[0].attributes.a",
        "1 values for 2",
    ),
    # --- outputs
    (
        "unknown output tensor",
        change(LINEAR, outputs=(Output("v", "y"),)),
        "PIT011",
        "outputs[0].tensor",
        "'v'",
    ),
    (
        "output never written",
        change(LINEAR, tensors=(*LINEAR.tensors, Tensor("v", (4, 8))), outputs=(Output("v", "y"),)),
        "PIT011",
        "outputs[0].tensor",
        "writes",
    ),
    (
        "output compared twice",
        change(LINEAR, outputs=LINEAR.outputs * 2),
        "PIT011",
        "outputs[1]",
        "already compared",
    ),
    (
        "unknown reference of an output",
        change(LINEAR, outputs=(Output("y", "v"),)),
        "PIT011",
        "outputs[0].reference",
        "'v'",
    ),
    (
        "lineage against the reference",
        change(LINEAR, outputs=(Output("y", "y", Lineage("w")),)),
        "PIT011",
        "outputs[0].lineage.reference",
        "'w'",
    ),
    (
        "gradient of nothing",
        with_tensor(LINEAR, 2, gradient_of="v"),
        "PIT011",
        "tensors[2].gradient_of",
        "'v'",
    ),
]


@pytest.mark.parametrize(
    ("plan", "code", "place", "message"),
    [miss[1:] for miss in MISSES],
    ids=[miss[0] for miss in MISSES],
)
def test_a_near_miss_is_found(plan: Plan, code: str, place: str, message: str) -> None:
    found = validate(plan, linear_reference() if plan.mesh == LINEAR.mesh else None)
    assert any(
        v.code == code and v.place.startswith(place) and message in v.message for v in found
    ), "\n".join(map(str, found))
    assert all(v.severity == "error" for v in found if v.code == code)


def test_padding_and_uneven_intervals_are_right() -> None:
    assert validate(intervals(((0, 3),), ((3, 5), (-1, 1))), linear_reference()) == []
    assert validate(intervals(((0, 1), (4, 6)), ((1, 4),)), linear_reference()) == []


HINTS: list[tuple[Lineage, str]] = [
    (Lineage("y", partial=("tp",)), ""),
    (Lineage("nowhere"), "warning"),
    (Lineage("w"), "warning"),
    (Lineage("y", (Shard(0, by=("tp",)),)), "warning"),
    (
        Lineage("y", (Shard(0, intervals=Table(("tp",), (((0, 3), (3, 5)), ((0, 1), (1, 5))))),)),
        "error",
    ),
    (Lineage("y", (Shard(0, by=("dp",)),)), "error"),
    (Lineage("y", scale="0"), "error"),
]


@pytest.mark.parametrize(("hint", "severity"), HINTS)
def test_a_hint_that_only_does_not_fit_the_reference_is_left_aside(
    hint: Lineage, severity: str
) -> None:
    found = validate(with_tensor(LINEAR, 2, lineage=hint), linear_reference())
    assert {violation.severity for violation in found} == ({severity} if severity else set()), found
    assert {violation.code for violation in found} <= {"PIT008"}
    assert all(violation.place.startswith("tensors[2].lineage") for violation in found)


def test_unknown_operators_are_no_violation() -> None:
    assert validate(with_operator(LINEAR, 0, kind="my_kernel"), linear_reference()) == []


def test_attributes_by_table_are_checked_value_by_value() -> None:
    tensors = (Tensor("x", (6,), role="input"), Tensor("y", (3,)))

    def plan(*starts: int) -> Plan:
        attributes = {
            "axis": 0,
            "start": Table(("tp",), starts),
            "stop": Table(("tp",), tuple(s + 3 for s in starts)),
        }
        return Plan(
            (Axis("tp", 2),),
            tensors,
            (Operator("s", "slice", ("x",), ("y",), attributes),),
            (Output("y"),),
        )

    assert validate(plan(0, 3)) == []
    found = validate(plan(0, 4))
    assert [violation.code for violation in found] == ["PIT003"]
    assert found[0].ranks == (1,)


# --- buffers


def buffers(order: tuple[str, ...], *, storage: str | None = "s") -> Plan:
    """Return a plan that reads a by 'use' while 'update' writes the buffer's next version."""
    tensors = (
        Tensor("x", (4,), role="input"),
        Tensor("a", (4,), storage=storage),
        Tensor("b", (4,), storage=storage),
        Tensor("u", (4,)),
    )
    operators = {
        "make": Operator("make", "neg", ("x",), ("a",)),
        "use": Operator("use", "neg", ("a",), ("u",)),
        "update": Operator("update", "square", ("x",), ("b",)),
    }
    return Plan((Axis("r", 2),), tensors, tuple(operators[name] for name in order), (Output("u"),))


def test_a_version_is_read_before_the_next_is_written() -> None:
    assert validate(buffers(("make", "use", "update"))) == []
    assert validate(buffers(("make", "update", "use"), storage=None)) == []
    found = validate(buffers(("make", "update", "use")))
    assert [(v.code, v.place, v.tensor) for v in found] == [("PIT010", "operators[2]", "a")]
    assert "'update' has written 'b'" in found[0].message


def test_an_operator_may_update_its_input_in_place() -> None:
    plan = buffers(("make", "use", "update"))
    assert validate(with_operator(plan, 2, inputs=("a",))) == []


def test_a_buffer_shared_by_micro_batches_is_used_up_first() -> None:
    tensors = (
        Tensor("x", (4,), role="input", microbatched=True),
        Tensor("a", (4,), microbatched=True, storage="s"),
        Tensor("u", (4,), microbatched=True),
    )
    operators = (Operator("make", "neg", ("x",), ("a",)), Operator("use", "neg", ("a",), ("u",)))

    def plan(*order: tuple[str, int]) -> Plan:
        blocks = {"make": ("make",), "use": ("use",)}
        return Plan(
            PP2,
            tensors,
            operators,
            (Output("u"),),
            2,
            blocks,
            (Program(tuple(Step(*step) for step in order)),),
        )

    assert validate(plan(("make", 0), ("use", 0), ("make", 1), ("use", 1))) == []
    found = validate(plan(("make", 0), ("make", 1), ("use", 0), ("use", 1)))
    assert [(v.code, v.microbatches) for v in found] == [("PIT010", (0,))]


def asynchronous(order: tuple[str, ...], *, storage: str | None = None) -> Plan:
    tensors = (
        Tensor("x", (4,), role="input"),
        Tensor("g", (4,), storage=storage),
        Tensor("h", (4,), storage=storage),
        Tensor("s", (4,)),
        Tensor("w", (4,)),
        Tensor("u", (4,)),
        Tensor("d", (4,)),
    )
    operators = {
        "make": Operator("make", "neg", ("x",), ("g",)),
        "launch": Operator(
            "launch", "all_reduce", ("g",), ("s",), {"async": True}, Group(axes=("r",))
        ),
        "wait": Operator("wait", "wait", ("s",), ("w",)),
        "use": Operator("use", "neg", ("w",), ("u",)),
        "early": Operator("early", "neg", ("s",), ("d",)),
        "clear": Operator("clear", "square", ("x",), ("h",)),
    }
    return Plan((Axis("r", 2),), tensors, tuple(operators[name] for name in order), (Output("w"),))


def test_what_is_launched_is_waited_for() -> None:
    assert validate(asynchronous(("make", "launch", "wait", "use"))) == []
    assert validate(asynchronous(("make", "launch", "wait", "use", "early"))) == []
    found = validate(asynchronous(("make", "launch", "early", "wait", "use")))
    assert [(v.code, v.place) for v in found] == [("PIT010", "operators[2]")]
    assert (
        "reads 's', which 'launch' is still writing; move this behind its 'wait'"
        in found[0].message
    )
    unwaited = validate(change(asynchronous(("make", "launch", "early")), outputs=(Output("d"),)))
    assert [(v.code, v.place) for v in unwaited] == [
        ("PIT010", "operators[2]"),
        ("PIT010", "operators[1]"),
    ]
    assert "nothing waits for that" in unwaited[0].message
    assert "nothing waits for it before the end of the step" in unwaited[1].message


def test_the_input_of_a_launch_is_not_overwritten_before_its_wait() -> None:
    assert validate(asynchronous(("make", "launch", "wait", "clear"), storage="grad")) == []
    assert validate(asynchronous(("make", "launch", "clear", "wait"))) == []
    found = validate(asynchronous(("make", "launch", "clear", "wait"), storage="grad"))
    assert [(v.code, v.place) for v in found] == [("PIT010", "operators[2]")]


# --- findings


def test_findings_are_capped_per_code() -> None:
    many = [Violation("PIT002", f"operators[{i}]", "wrong") for i in range(120)] + [
        Violation("PIT003", "x", "also wrong")
    ]
    kept = capped(many, 50)
    assert len(kept) == 51
    assert kept[49].message == "wrong (and 70 more of PIT002)"
    broken = change(
        LINEAR, operators=tuple(Operator(f"o{i}", "neg", ("v",), ("p",)) for i in range(500))
    )
    assert len([v for v in validate(broken, linear_reference()) if v.code == "PIT002"]) == 50


def test_every_code_has_a_title() -> None:
    assert {miss[2] for miss in MISSES} <= set(TITLES)
    assert sorted(TITLES) == [f"PIT{number:03}" for number in range(1, 13)]


def layers(
    stages: int, count: int
) -> tuple[list[Tensor], list[Operator], dict[str, tuple[str, ...]]]:
    tensors, operators, blocks = [], [], {}
    for stage in range(stages):
        where = ({"pp": (stage,)},)
        names = []
        for i in range(count):
            external = stage == 0 and i == 0
            tensors.append(
                Tensor(
                    f"h{stage}.{i}",
                    (4,),
                    role="input" if external else "activation",
                    microbatched=True,
                )
            )
            if i == 0 and stage:
                peers = Table(("dp", "tp"), tuple((stage - 1) * 512 + j for j in range(512)))
                operators.append(
                    Operator(
                        f"receive{stage}",
                        "receive",
                        (),
                        (f"h{stage}.0",),
                        {"peer": peers},
                        where=where,
                    )
                )
            elif i:
                collective = (
                    {"kind": "all_reduce", "group": Group(axes=("tp",))}
                    if i % 8 == 0
                    else {"kind": "neg"}
                )
                operators.append(
                    Operator(
                        id=f"o{stage}.{i}",
                        inputs=(f"h{stage}.{i - 1}",),
                        outputs=(f"h{stage}.{i}",),
                        where=where,
                        **collective,
                    )
                )
            if not external:
                names.append(operators[-1].id)
        if stage < stages - 1:
            peers = Table(("dp", "tp"), tuple((stage + 1) * 512 + j for j in range(512)))
            operators.append(
                Operator(
                    f"send{stage}",
                    "send",
                    (f"h{stage}.{count - 1}",),
                    (),
                    {"peer": peers},
                    where=where,
                )
            )
            names.append(operators[-1].id)
        blocks[f"b{stage}"] = tuple(names)
    return tensors, operators, blocks


@pytest.mark.slow
def test_a_plan_of_8192_ranks_is_validated_in_seconds() -> None:
    tensors, operators, blocks = layers(16, 1417)
    programs = tuple(
        Program(tuple(Step(f"b{stage}", m) for m in range(16)), ({"pp": (stage,)},))
        for stage in range(16)
    )
    plan = Plan(
        (Axis("pp", 16), Axis("dp", 64), Axis("tp", 8)),
        tuple(tensors),
        tuple(operators),
        (),
        16,
        blocks,
        programs,
    )
    assert len(plan.operators) > 22_000
    start = time.perf_counter()
    assert validate(plan) == []
    assert time.perf_counter() - start < 15.0


@pytest.mark.parametrize("end", [3.0, True, 10**30, object()])
def test_an_end_that_equals_a_right_one_but_is_none_is_found(end: Any) -> None:
    """Lineages that say the same are looked at once; 3 and 3.0 do not say the same."""
    plan = linear_parallel()
    wrong = Lineage("w", (Shard(0, intervals=Table(("tp",), (((0, end),), ((3, 6),)))),))
    tensors = (*plan.tensors, Tensor("again", (3, 8), role="parameter", lineage=wrong))
    found = [
        v for v in validate(change(plan, tensors=tensors), linear_reference()) if v.code == "PIT008"
    ]
    assert [v.tensor for v in found] == ["again"]
