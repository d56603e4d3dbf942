"""Wrong plans whose mistake hides where nothing computes: attributes, groups, dtypes, storage,
lineage, outputs. None may be called equivalent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from support.verdicts import caught, not_proven, proven, reports
from zoo.builder import Builder, intervals, lineage, table

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Group, Lineage, Number, Output, Plan, Shard, Tensor


def _linear() -> Plan:
    b = Builder("linear")
    x, w, g = b.input("x", (4, 6)), b.parameter("w", (6, 6)), b.input("g", (4, 6))
    y = b.op("linear", x, w, out="y")
    b.output(y)
    b.back("linear", [x, w], y, g, ["", "dw"])
    b.gradient("dw", w)
    return b.plan()


def _spread(reduce: Any = None, outputs: bool = True, **options: Any) -> Builder:
    """Two ranks with half of the rows each; ``reduce`` appends what makes dw from dw_own."""
    b = Builder("linear", {"dp": 2})
    x, w, g = (
        b.input("x", (2, 6), {0: "dp"}),
        b.parameter("w", (6, 6), {}),
        b.input("g", (2, 6), {0: "dp"}),
    )
    y = b.op("linear", x, w)
    b.op("all_gather", y, out="y", group="dp", axis=0)
    b.back("linear", [x, w], y, g, ["", "dw_own"], **options)
    (reduce or (lambda b: b.op("all_reduce", "dw_own", out="dw", group="dp")))(b)
    if outputs:
        b.output("y")
        b.gradient("dw", "w")
    return b


def test_the_right_plan() -> None:
    proven(_linear(), _spread().plan())


# --- outputs


def test_no_outputs_are_nothing_checked() -> None:
    plan = _spread(outputs=False).plan()
    assert not_proven(_linear(), plan).verdict == "nothing-checked"
    empty = replace(_linear(), outputs=())
    assert not_proven(empty, _spread().plan()).verdict in ("nothing-checked", "invalid")
    assert not_proven(empty, plan).verdict == "nothing-checked"


@pytest.mark.parametrize("kept", [0, 1])
def test_missing_output(kept: int) -> None:
    plan = _spread().plan()
    assert (
        not_proven(_linear(), replace(plan, outputs=(plan.outputs[kept],))).verdict
        == "inconclusive"
    )


def test_output_of_another_name() -> None:
    plan = _spread().plan()
    for other in ("x", "w", "g"):
        not_proven(_linear(), replace(plan, outputs=(plan.outputs[0], Output("dw", other))))


def test_output_of_an_input_is_not_an_output_of_the_plan() -> None:
    plan = _spread().plan()
    not_proven(_linear(), replace(plan, outputs=(Output("x", "x"), Output("w", "w"))))


def test_outputs_exchanged() -> None:
    def two(first: str, second: str) -> Plan:
        b = Builder("two")
        x, v, w, g = (
            b.input("x", (4, 6)),
            b.parameter("v", (6, 6)),
            b.parameter("w", (6, 6)),
            b.input("g", (4, 6)),
        )
        h = b.op("linear", x, v)
        y = b.op("linear", h, w)
        b.back("linear", [h, w], y, g, ["dh", "dw"])
        b.back("linear", [x, v], h, "dh", ["", "dv"])
        b.gradient("dv", v, first)
        b.gradient("dw", w, second)
        return b.plan()

    proven(two("", ""), two("dv", "dw"))
    caught(two("", ""), two("dw", "dv"))


@pytest.mark.parametrize("value", [0, 1, "nan", "inf"])
def test_constant_outputs(value: Any) -> None:
    b = _spread(lambda b: b.op("full", out="dw", sizes=(6, 6), value=value))
    caught(_linear(), b.plan())


def test_output_that_is_nan_on_both_sides_for_other_reasons() -> None:
    r, b = Builder("nan"), Builder("nan")
    x = r.input("x", (4, 6))
    r.output(r.op("add", r.op("mul", x, Number("nan")), Number(1), out="y"))
    b.output(b.op("mul", b.input("x", (4, 6)), Number("nan"), out="y"))
    proven(r.plan(), b.plan())
    c = Builder("nan")
    c.output(c.op("mul", c.input("x", (4, 6)), Number(2), out="y"))
    caught(r.plan(), c.plan())
    caught(c.plan(), r.plan())


def test_constant_outputs_are_compared() -> None:
    def filled(value: int) -> Plan:
        b = Builder("filled")
        b.output(b.op("full_like", b.input("x", (4, 6)), value=value, out="y"))
        return b.plan()

    proven(filled(3), filled(3))
    caught(filled(3), filled(2))


@pytest.mark.parametrize("hint", [lineage("dw", partial=("dp",)), lineage("dw", scale="1/2")])
def test_lineage_of_an_output_that_the_plan_claims_itself(hint: Lineage) -> None:
    """The tensor's own lineage is a hint: only the output's is specification."""
    b = _spread(lambda b: b.op("identity", "dw_own", out="dw", hint=hint))
    caught(_linear(), b.plan())


def test_exceptions_are_said() -> None:
    b = _spread(lambda b: b.op("identity", "dw_own", out="dw"), outputs=False)
    b.output("y")
    b._mark("dw", role="gradient", gradient_of="w")
    b.output("dw", spec=lineage("dw", partial=("dp",)))
    for report in reports(_linear(), b.plan()):
        assert report.verdict == "equivalent"
        assert any("dw" in line and "dp" in line for line in report.exceptions)


@pytest.mark.parametrize(
    "spec",
    [
        lineage("y", {0: intervals("dp", [(0, 2)], [(0, 2)])}),
        lineage("y", {0: intervals("dp", [(0, 2)], [(-1, 2)])}),
    ],
)
def test_output_whose_parts_leave_something_out(spec: Lineage) -> None:
    b = _spread(outputs=False)
    own = b.operators[0].outputs[0]
    b.output(own, "y", spec)
    b.gradient("dw", "w")
    not_proven(_linear(), b.plan())


def test_output_that_claims_to_be_a_gradient() -> None:
    """A result of the forward pass must be whole on every rank; calling it the gradient of a
    sharded parameter does not make it sharded.
    """
    r = Builder("claim")
    x, w = r.input("x", (6, 4)), r.parameter("w", (6, 4))
    r.output(r.op("mul", x, w, out="y"))
    b = Builder("claim", {"tp": 2})
    x, w = b.input("x", (3, 4), {0: "tp"}), b.parameter("w", (3, 4), {0: "tp"})
    b.op("mul", x, w, out="y")
    b.gradient("y", w)
    for report in reports(r.plan(), b.plan()):
        assert report.verdict != "equivalent" or report.exceptions


def test_gradient_on_one_rank_only() -> None:
    def once(b: Builder) -> None:
        b.op("all_reduce", "dw_own", out="sum", group="dp")
        b.op("identity", "sum", out="dw", where={"dp": (0,)})

    not_proven(_linear(), _spread(once).plan())


@pytest.mark.parametrize("rank", [0, 1])
def test_gradient_reduced_on_one_rank_only(rank: int) -> None:
    def once(b: Builder) -> None:
        b.op("all_reduce", "dw_own", out="sum", group="dp")
        b.op("identity", "sum", out="dw", where={"dp": (rank,)})
        b.op("identity", "dw_own", out="dw", where={"dp": (1 - rank,)})

    caught(_linear(), _spread(once).plan())


def test_second_copy_of_a_parameter_without_a_gradient() -> None:
    """Rank 1 holds its own copy under another name, whose gradient nobody computes: it would go its
    own way.
    """
    b = Builder("copies", {"dp": 2})
    x, g = b.input("x", (2, 6), {0: "dp"}), b.input("g", (2, 6), {0: "dp"})
    first, second = b.parameter("w", (6, 6), {}), b.parameter("w_copy", (6, 6), lineage("w"))
    y = b.op("linear", x, first, out="y_own", where={"dp": (0,)})
    b.op("linear", x, second, out=y, where={"dp": (1,)})
    b.output(b.op("all_gather", y, out="y", group="dp", axis=0))
    b.back("linear", [x, first], y, g, ["", "dw_own"])
    b.op("all_reduce", "dw_own", out="sum", group="dp")
    b.op("identity", "sum", out="dw", where={"dp": (0,)})
    b.gradient("dw", first)
    not_proven(_linear(), b.plan())


def _tied(complete: bool) -> tuple[Plan, Plan]:
    """A parameter that is used twice, under two names in the parallel plan: each copy's gradient
    must be the sum of both.
    """
    r = Builder("tied")
    x, w, g = r.input("x", (4, 6)), r.parameter("w", (6, 6)), r.input("g", (4, 6))
    h = r.op("linear", x, w)
    y = r.op("linear", h, w, out="y")
    r.output(y)
    r.back("linear", [h, w], y, g, ["dh", "dw1"])
    r.back("linear", [x, w], h, "dh", ["", "dw0"])
    r.op("add", "dw0", "dw1", out="dw")
    r.gradient("dw", w)
    b = Builder("tied", {"pp": 2})
    x, g = b.input("x", (4, 6), {}), b.input("g", (4, 6), {})
    v, w = b.parameter("v", (6, 6), lineage("w")), b.parameter("w", (6, 6), {})
    h = b.op("linear", x, v)
    y = b.op("linear", h, w, out="y")
    b.output(y)
    b.back("linear", [h, w], y, g, ["dh", "dw1"])
    b.back("linear", [x, v], h, "dh", ["", "dw0"])
    b.op("add", "dw0", "dw1", out="dw")
    b.gradient("dw", w)
    b._mark("dw0", gradient_of=v)
    if not complete:
        b._mark("dw0", role="gradient")
    return r.plan(), b.plan()


def test_copy_of_a_tied_parameter_with_half_of_the_gradient() -> None:
    not_proven(*_tied(complete=False))


def test_gradient_of_a_padded_parameter_that_leaves_a_row_out() -> None:
    r = Builder("padded")
    x, w, g = r.input("x", (4, 5)), r.parameter("w", (7, 5)), r.input("g", (4, 7))
    y = r.op("linear", x, w, out="y")
    r.back("linear", [x, w], y, g, ["", "dw"])
    r.gradient("dw", w)
    for last in ((4, 7), (4, 6)):
        b = Builder("padded", {"tp": 2})
        cut = intervals("tp", [(0, 4)], [last, (-1, 8 - last[1])])
        x, w, g = (
            b.input("x", (4, 5), {}),
            b.parameter("w", (4, 5), {0: cut}),
            b.input("g", (4, 4), {1: cut}),
        )
        y = b.op("linear", x, w)
        b.back("linear", [x, w], y, g, ["", "dw"])
        b.gradient("dw", w)
        report = reports(r.plan(), b.plan())[0]
        assert (report.verdict == "equivalent") == (last == (4, 7))


# --- state


def _updated(
    scale: str, mend: str, spec: dict[int, Any] | None = None, shape: tuple[int, int] = (6, 6)
) -> Plan:
    b = Builder("updated", {"tp": 2})
    w = b.parameter("w", shape, lineage("w", spec, scale=scale))
    g = b.input("g", shape, lineage("g", spec))
    own = b.op("mul", w, Number(mend)) if mend != "1" else w
    b.op("sub", own, g, out="new")
    b.update("new", w)
    return b.plan()


def test_state_ends_with_the_lineage_it_began_with() -> None:
    """A parameter held at twice its value must be left at twice its new value: the next step begins
    there.
    """
    r = Builder("updated")
    w = r.parameter("w", (6, 6))
    r.op("sub", w, r.input("g", (6, 6)), out="new")
    r.update("new", w)
    proven(r.plan(), _updated("1", "1"))
    proven(r.plan(), _updated("1", "1", {0: "tp"}, (3, 6)))
    not_proven(r.plan(), _updated("2", "1/2"))


def test_update_on_one_rank_only() -> None:
    r = Builder("updated")
    w = r.parameter("w", (6, 6))
    r.op("sub", w, r.input("g", (6, 6)), out="new")
    r.update("new", w)
    b = Builder("updated", {"dp": 2})
    w, g = b.parameter("w", (6, 6), {}), b.input("g", (6, 6), {})
    b.op("sub", w, g, out="new", where={"dp": (0,)})
    b.op("identity", w, out="new", where={"dp": (1,)})
    b.update("new", w)
    caught(r.plan(), b.plan())


# --- what is given


def test_lineage_of_an_input_that_is_computed() -> None:
    b = Builder("given")
    given = b.add(Tensor("y_given", (4, 6), role="input", lineage=lineage("y")))
    b.op("identity", given, out="y")
    b.output("y")
    not_proven(replace(_linear(), outputs=(Output("y"),)), b.plan())


def test_input_that_nothing_is_known_of() -> None:
    b = _spread()
    b.add(Tensor("mystery", (4, 6), role="input"))
    plan = b.plan()
    operators = tuple(
        replace(o, inputs=(o.inputs[0],), kind="identity") if o.outputs == ("y",) else o
        for o in plan.operators
    )
    not_proven(_linear(), replace(plan, operators=operators))


def test_parameter_without_lineage_is_whole() -> None:
    b = Builder("whole", {"dp": 2})
    b.output(b.op("square", b.parameter("w", (6, 6)), out="y"))
    r = Builder("whole")
    r.output(r.op("square", r.parameter("w", (6, 6)), out="y"))
    assert any("w has no lineage" in line for line in proven(r.plan(), b.plan()).assumptions)
    small = Builder("whole", {"dp": 2})
    part = small.parameter("w", (3, 6))
    small.output(small.op("all_gather", small.op("square", part), out="y", group="dp", axis=0))
    assert not_proven(r.plan(), small.plan()).verdict == "invalid"


def test_integers_without_bounds() -> None:
    def looked(bounds: tuple[int, int] | None) -> Plan:
        b = Builder("looked")
        ids = b.add(Tensor("ids", (4,), "int64", "input", bounds=bounds))
        b.output(b.op("embedding", ids, b.parameter("w", (5, 3)), out="y"))
        return b.plan()

    assert reports(looked(None), looked(None))[0].verdict == "inconclusive"
    assert reports(looked((0, 5)), looked((0, 5)))[0].verdict == "equivalent"
    assert reports(looked((0, 6)), looked((0, 6)))[0].verdict != "equivalent"


def test_bounds_of_the_reference_decide() -> None:
    """The parallel plan may not say that fewer tokens exist."""

    def looked(bounds: tuple[int, int], rows: int) -> Plan:
        b = Builder("looked")
        ids = b.input("ids", (8,), {}, dtype="int64", bounds=bounds)
        w = b.parameter("w", (6, 3), {})
        b.output(b.op("embedding", ids, b.op("slice", w, axis=0, start=0, stop=rows), out="y"))
        return b.plan()

    not_proven(looked((0, 6), 6), looked((0, 3), 3))


def test_root_that_narrows_the_inputs() -> None:
    """A root in the parallel plan alone does not make the inputs positive."""
    r, b = Builder("root"), Builder("root")
    r.output(r.op("contiguous", r.input("x", (4, 6)), out="y"))
    root = b.op("sqrt", b.input("x", (4, 6)))
    b.output(b.op("mul", root, root, out="y"))
    caught(r.plan(), b.plan())


def test_root_that_hides_a_relu() -> None:
    r, b = Builder("root"), Builder("root")
    r.output(r.op("contiguous", r.input("x", (4, 6)), out="y"))
    x = b.input("x", (4, 6))
    b.output(b.op("add", b.op("relu", x), b.op("mul", b.op("sqrt", x), Number(0)), out="y"))
    caught(r.plan(), b.plan())


# --- attributes, groups, dtypes


def _reference_sum() -> Plan:
    b = Builder("sum")
    b.output(b.op("sum", b.input("x", (4, 6)), axes=(0,), out="y"))
    return b.plan()


@pytest.mark.parametrize(
    ("name", "value"), [("axis", 0), ("axes ", (0,)), ("dtype", "float32"), ("keepdims", True)]
)
def test_unknown_attribute(name: str, value: Any) -> None:
    plan = _reference_sum()
    operator = plan.operators[0]
    not_proven(
        plan,
        replace(
            plan, operators=(replace(operator, attributes={**operator.attributes, name: value}),)
        ),
    )


@pytest.mark.parametrize(
    "group",
    [
        Group(ranks=((0,), (1,))),
        Group(axes=("tp",)),
        Group(ranks=((0, 2), (1, 3))),
        Group(axes=("dp", "tp")),
        Group(ranks=((0, 1),)),
        Group(),
    ],
)
def test_other_group(group: Group) -> None:
    """Two by two ranks; the sum runs over dp."""
    r = Builder("grouped")
    r.output(r.op("sum", r.input("x", (2, 6)), axes=(0,), out="y"))

    def spread(group: Group) -> Plan:
        b = Builder("grouped", {"dp": 2, "tp": 2})
        x = b.input("x", (1, 6), {0: "dp"})
        b.output(b.op("all_reduce", b.op("squeeze", x, axis=0), out="y", group=Group(axes=("dp",))))
        plan = b.plan()
        return replace(
            plan, operators=(*plan.operators[:-1], replace(plan.operators[-1], group=group))
        )

    right = group == Group(ranks=((0, 2), (1, 3)))
    (proven if right else caught)(r.plan(), spread(group))


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0)])
def test_order_of_a_gathering_group(order: tuple[int, ...]) -> None:
    r = Builder("ordered")
    r.output(r.op("square", r.input("x", (6, 4)), out="y"))
    b = Builder("ordered", {"dp": 3})
    own = b.op("square", b.input("x", (2, 4), {0: "dp"}))
    b.output(b.op("all_gather", own, out="y", group=[order], axis=0))
    (proven if order == (0, 1, 2) else caught)(r.plan(), b.plan())


@pytest.mark.parametrize("root", [0, 1, 2])
def test_root_of_a_broadcast(root: int) -> None:
    r = Builder("root")
    r.output(r.op("select", r.input("x", (3, 4)), axis=0, index=1, out="y"))
    b = Builder("root", {"dp": 3})
    own = b.op("squeeze", b.input("x", (1, 4), {0: "dp"}), axis=0)
    b.output(b.op("broadcast", own, out="y", group="dp", root=root))
    (proven if root == 1 else caught)(r.plan(), b.plan())


def test_narrowed_integers() -> None:
    """Ids up to 1,000 do not fit 8 bits."""

    def looked(dtype: str) -> Plan:
        b = Builder("looked")
        ids = b.op("cast", b.input("ids", (8,), dtype="int64", bounds=(0, 1000)), dtype=dtype)
        b.output(
            b.op(
                "embedding", b.op("cast", ids, dtype="int64"), b.parameter("w", (1000, 3)), out="y"
            )
        )
        return b.plan()

    proven(looked("int64"), looked("int32"))
    not_proven(looked("int64"), looked("int8"))
    not_proven(looked("int64"), looked("uint8"))


def test_cast_to_integers_rounds() -> None:
    def rounded(cast: bool) -> Plan:
        b = Builder("rounded")
        x = b.input("x", (4, 6))
        y = b.op("cast", b.op("cast", x, dtype="int64"), dtype="float32") if cast else x
        b.output(b.op("mul", y, Number(2), out="y"))
        return b.plan()

    caught(rounded(True), rounded(False))


def test_dtype_of_an_output() -> None:
    def held(kind: str) -> Plan:
        b = Builder("held")
        b.output(
            b.op("cast", b.input("x", (4, 6), dtype="int64", bounds=(0, 9)), dtype=kind, out="y")
        )
        return b.plan()

    not_proven(held("float32"), held("bool"))
    not_proven(held("int64"), held("bool"))


def test_loss_of_the_declared_kind() -> None:
    """A tensor declared as integers that an operator fills with reals."""
    plan = _spread().plan()
    for name in ("y", "dw"):
        not_proven(
            _linear(),
            replace(
                plan,
                tensors=tuple(
                    replace(t, dtype="int64") if t.name == name else t for t in plan.tensors
                ),
            ),
        )


def test_backward_of_another_forward() -> None:
    """The derivative is told an output that its inputs do not give, or attributes of another
    operator.
    """

    def derived(axis: int, output: str) -> Plan:
        b = Builder("derived")
        x, g = b.input("x", (6, 6)), b.input("g", (6, 6))
        y = b.op("softmax", x, axis=1)
        z = b.op("mul", y, Number(2))
        b.back("softmax", [x], y if output == "y" else z, g, ["dx"], axis=axis)
        b.output("dx")
        return b.plan()

    proven(derived(1, "y"), derived(1, "y"))
    not_proven(derived(1, "y"), derived(0, "y"))
    assert reports(derived(1, "y"), derived(1, "z"))[0].verdict != "equivalent"


# --- storage and order


def test_buffer_that_is_overwritten_too_early() -> None:
    r = Builder("buffer")
    x = r.input("x", (4, 6))
    r.output(r.op("add", r.op("square", x), r.op("exp", x), out="y"))

    def buffered(late: bool) -> Plan:
        b = Builder("buffer")
        x = b.input("x", (4, 6))
        b.add(Tensor("first", (4, 6), storage="buffer"))
        b.add(Tensor("second", (4, 6), storage="buffer"))
        b.op("square", x, out="first")
        if late:
            kept = b.op("exp", x, out="second")
            b.output(b.op("add", "first", kept, out="y"))
        else:
            kept = b.op("mul", "first", Number(1))
            b.output(b.op("add", kept, b.op("exp", x, out="second"), out="y"))
        return b.plan()

    assert reports(r.plan(), buffered(late=False))[0].verdict == "equivalent"
    assert reports(r.plan(), buffered(late=True))[0].verdict == "invalid"


def test_result_of_a_collective_that_is_not_waited_for() -> None:
    r = Builder("async")
    r.output(r.op("square", r.op("sum", r.input("x", (2, 6)), axes=(0,)), out="y"))

    def launched(waits: bool) -> Plan:
        b = Builder("async", {"dp": 2})
        own = b.op("squeeze", b.input("x", (1, 6), {0: "dp"}), axis=0)
        total = b.op("all_reduce", own, group="dp")
        plan_operator = b.operators[-1]
        b.operators[-1] = replace(plan_operator, attributes={"async": True})
        b.output(b.op("square", b.op("wait", total) if waits else total, out="y"))
        return b.plan()

    assert reports(r.plan(), launched(True))[0].verdict == "equivalent"
    assert reports(r.plan(), launched(False))[0].verdict == "invalid"


def _accumulated(write: Callable[[Builder], Any]) -> Plan:
    b = Builder("accumulated", microbatches=3)
    x = b.input("x", (2, 6), {0: "mb"}, microbatched=True)
    b.op("sum", x, axes=(0,), out="own")
    write(b)
    b.output("y")
    return b.plan()


@pytest.mark.parametrize("chosen", [(0, 1), (0, 0, 1), (0, 1, 1, 2), (1,), (0, 1, 5), (-1, 0, 1)])
def test_micro_batches_that_are_missing_or_counted_twice(chosen: tuple[int, ...]) -> None:
    r = Builder("accumulated")
    r.output(r.op("sum", r.input("x", (6, 6)), axes=(0,), out="y"))
    proven(r.plan(), _accumulated(lambda b: b.op("accumulate", "own", out="y")))
    proven(
        r.plan(), _accumulated(lambda b: b.op("accumulate", "own", out="y", microbatches=(0, 1, 2)))
    )
    assert not_proven(
        r.plan(), _accumulated(lambda b: b.op("accumulate", "own", out="y", microbatches=chosen))
    ).verdict in ("mismatch", "invalid")


def test_operators_that_reach_nothing_are_listed() -> None:
    b = _spread()
    b.op("exp", "x", out="unused")
    report = proven(_linear(), b.plan())
    assert any("exp" in name for name in report.dead_operators)


# --- discrete cases that are rare
def test_one_rare_id_is_lost() -> None:
    """Of 5,000 ids one is looked up wrongly: no draw is likely to show it, but the plan
    names it.
    """

    def looked(lost: bool) -> Plan:
        b = Builder("looked")
        ids, w = b.input("ids", (4,), dtype="int64", bounds=(0, 5000)), b.parameter("w", (5000, 2))
        y = b.op("embedding", ids, w)
        if lost:
            rare = b.op("full", sizes=(4,), value=3517, dtype="int64")
            y = b.op("masked_fill", y, b.op("unsqueeze", b.op("eq", ids, rare), axis=1), Number(0))
        b.output(b.op("identity", y, out="y"))
        return b.plan()

    proven(looked(False), looked(False))
    proven(looked(True), looked(True))
    not_proven(looked(False), looked(True))


def test_rank_without_tokens_among_many() -> None:
    """A rank without a token that counts is one draw in 2^32: the case is tried on purpose, or
    nothing is said.
    """

    def mean(weighted: bool, ranks: int) -> Plan:
        b = Builder("tokens", {"dp": ranks})
        size = 16 // ranks
        spec = {0: "dp"} if ranks > 1 else None
        losses, ids = (
            b.input("losses", (size,), spec),
            b.input("ids", (size,), spec, dtype="int64", bounds=(0, 16)),
        )
        counts = b.op("cast", b.op("ne", ids, Number(0)), dtype="float32")
        own, number = b.op("sum", b.op("mul", losses, counts)), b.op("sum", counts)
        if weighted:
            own = b.op("mul", b.op("div", own, number), number)
        if ranks > 1:
            own, number = (
                b.op("all_reduce", own, group="dp"),
                b.op("all_reduce", number, group="dp"),
            )
        b.output(b.op("div", own, number, out="y"))
        return b.plan()

    assert reports(mean(False, 1), mean(False, 2))[0].verdict in ("equivalent", "inconclusive")
    not_proven(mean(False, 1), mean(True, 2))


def test_rows_that_are_masked_wholly() -> None:
    """One plan gives NaN where nothing is visible, the other 0."""

    def attention(guarded: bool) -> Plan:
        b = Builder("masked")
        x, mask = b.input("x", (4, 40)), b.input("mask", (4, 40), dtype="bool")
        p = b.op("softmax", b.op("masked_fill", x, mask, Number("-inf")), axis=1)
        if guarded:
            p = b.op("masked_fill", p, b.op("all", mask, axes=(1,), keepdim=True), Number(0))
        b.output(b.op("identity", p, out="y"))
        return b.plan()

    not_proven(attention(False), attention(True))


def test_ties_of_integers() -> None:
    """The first and the last of equal maxima differ."""

    def place(last: bool) -> Plan:
        b = Builder("ties")
        x = b.input("x", (4, 6), dtype="int64", bounds=(0, 3))
        if last:
            back = b.op("argmax", b.op("flip", x, axes=(1,)), axis=1)
            five = b.op("full_like", back, value=5)
            b.output(b.op("sub", five, back, out="y"))
        else:
            b.output(b.op("argmax", x, axis=1, out="y"))
        return b.plan()

    proven(place(False), place(False))
    caught(place(False), place(True))


@pytest.mark.parametrize("size", [32, 128])
@pytest.mark.parametrize("kind", ["amax", "amin"])
def test_maximum_that_leaves_one_element_out(kind: str, size: int) -> None:
    """One of many elements decides seldom: draws that never chose it say nothing."""

    def most(stop: int) -> Plan:
        b = Builder("most")
        x = b.input("x", (4, size))
        b.output(b.op(kind, b.op("slice", x, axis=1, start=0, stop=stop), axes=(1,), out="y"))
        return b.plan()

    proven(most(size), most(size))
    for seed in range(8):
        report = check(most(size), most(size - 1), Options(seed=seed))
        assert report.verdict != "equivalent"


@pytest.mark.parametrize("size", [8, 32, 100])
def test_choice_that_leaves_one_element_out(size: int) -> None:
    def chosen(stop: int) -> Plan:
        b = Builder("chosen")
        x = b.op("slice", b.input("x", (4, size)), axis=1, start=0, stop=stop)
        values, _ = b.op("topk", x, k=2, out=["values", "places"])
        b.output(b.op("identity", values, out="y"))
        return b.plan()

    proven(chosen(size), chosen(size))
    not_proven(chosen(size), chosen(size - 1))


def test_chain_of_maxima_that_leaves_one_out() -> None:
    def most(count: int) -> Plan:
        b = Builder("chain")
        given = [b.input(f"x{i}", (4,)) for i in range(16)]
        y = given[0]
        for x in given[1:count]:
            y = b.op("maximum", y, x)
        b.output(b.op("identity", y, out="y"))
        return b.plan()

    not_proven(most(16), most(15))


def test_clamp_at_a_bound_that_is_seldom_reached() -> None:
    def clamped(bound: Any) -> Plan:
        b = Builder("clamped")
        b.output(b.op("clamp", b.input("x", (4, 6)), max=bound, out="y"))
        return b.plan()

    proven(clamped(1000000), clamped(1000000))
    not_proven(clamped(1000000), clamped(2000000))
    not_proven(clamped(1000), clamped(1001))


def test_comparison_of_sums_that_seldom_differs() -> None:
    def step(shift: Any) -> Plan:
        b = Builder("step")
        x = b.input("x", (4, 6))
        b.output(
            b.op(
                "where", b.op("gt", b.op("sub", x, Number(shift)), Number(0)), x, Number(0), out="y"
            )
        )
        return b.plan()

    proven(step(3), step(3))
    not_proven(step(3), step(4))
    not_proven(step(3), step("301/100"))


def test_shards_of_a_table_read_by_position() -> None:
    """The second rank's positions begin at 0 again."""
    r = Builder("positions")
    x, w = r.input("x", (8, 5)), r.parameter("w", (8, 5))
    r.output(r.op("add", x, r.op("embedding", r.op("positions", x, axis=0), w), out="y"))

    def spread(offset: Any) -> Plan:
        b = Builder("positions", {"cp": 2})
        x, w = b.input("x", (4, 5), {0: "cp"}), b.parameter("w", (8, 5), {})
        own = b.op("add", x, b.op("embedding", b.op("positions", x, axis=0, offset=offset), w))
        b.output(b.op("all_gather", own, out="y", group="cp", axis=0))
        return b.plan()

    proven(r.plan(), spread(table("cp", 0, 4)))
    caught(r.plan(), spread(0))
    caught(r.plan(), spread(table("cp", 0, 3)))


@pytest.mark.parametrize("how", ["same", "shifted", "stream"])
def test_random_draws(how: str) -> None:
    """Shards draw different numbers, replicas the same."""

    def dropped(ranks: int, how: str) -> Plan:
        b = Builder("dropped", {"dp": ranks})
        x = b.input("x", (8 // ranks, 5), {0: "dp"} if ranks > 1 else None)
        starts = {
            "right": ((0, 0), (4, 0)),
            "same": ((0, 0), (0, 0)),
            "shifted": ((0, 0), (3, 0)),
            "stream": ((0, 0), (4, 0)),
        }[how]
        where = {"start": table("dp", *starts), "whole": (8, 5)} if ranks > 1 else {}
        mask = b.op(
            "dropout_mask", x, stream="other" if how == "stream" else "s", probability=0.5, **where
        )
        y = b.op("dropout", x, mask, probability=0.5)
        b.output(
            b.op("all_gather", y, out="y", group="dp", axis=0)
            if ranks > 1
            else b.op("identity", y, out="y")
        )
        return b.plan()

    proven(dropped(1, "right"), dropped(2, "right"))
    if how == "stream":
        # nothing says how the two streams correspond
        assert not_proven(dropped(1, "right"), dropped(2, how)).verdict == "inconclusive"
    else:
        caught(dropped(1, "right"), dropped(2, how))


def test_partial_sum_that_leaves_ranks_out() -> None:
    """An output that is a sum over ranks 0 and 1 while ranks 2 and 3 hold something else."""
    r = Builder("partial")
    r.output(r.op("sum", r.input("x", (2, 6)), axes=(0,), out="y"))
    b = Builder("partial", {"dp": 2, "tp": 2})
    x = b.input("x", (1, 6), {0: "tp"})
    b.output(b.op("squeeze", x, axis=0, out="y"), spec=Lineage("y", partial_ranks=((0, 1),)))
    not_proven(r.plan(), b.plan())


def test_shard_by_an_axis_of_size_one() -> None:
    r = Builder("one")
    r.output(r.op("square", r.input("x", (6, 4)), out="y"))
    b = Builder("one", {"dp": 1, "tp": 2})
    b.op(
        "square",
        b.add(Tensor("x", (6, 4), role="input", lineage=Lineage("x", (Shard(0, by=("dp",)),)))),
        out="y",
    )
    b.output("y")
    proven(r.plan(), b.plan())


def _when_all(size: int, how: str) -> Plan:
    """Every element doubled where all are positive."""
    b = Builder("when-all")
    x = b.input("x", (2, size))
    if how == "chain":
        parts = [
            b.op("gt", b.op("slice", x, axis=1, start=i, stop=i + 1), Number(0))
            for i in range(size)
        ]
        every = parts[0]
        for part in parts[1:]:
            every = b.op("logical_and", every, part)
    else:
        every = b.op("all", b.op("gt", x, Number(0)), axes=(1,), keepdim=True)
    b.output(b.op("where", every, b.op("mul", x, Number(2)), x, out="y"))
    return b.plan()


@pytest.mark.parametrize("how", ["chain", "all"])
def test_condition_that_seldom_holds(how: str) -> None:
    b = Builder("never")
    b.output(b.op("mul", b.input("x", (2, 30)), Number(1), out="y"))
    proven(_when_all(30, how), _when_all(30, how))
    for seed in range(4):
        assert check(b.plan(), _when_all(30, how), Options(seed=seed)).verdict != "equivalent"


def test_product_of_decisions_that_seldom_all_hold() -> None:
    r, b = Builder("product"), Builder("product")
    r.output(r.op("mul", r.input("x", (2, 30)), Number(1), out="y"))
    x = b.input("x", (2, 30))
    every = b.op("relu", b.op("slice", x, axis=1, start=0, stop=1))
    for i in range(1, 30):
        every = b.op("mul", every, b.op("relu", b.op("slice", x, axis=1, start=i, stop=i + 1)))
    b.output(b.op("add", x, every, out="y"))
    for seed in range(4):
        assert check(r.plan(), b.plan(), Options(seed=seed)).verdict != "equivalent"


def test_place_of_a_maximum_that_leaves_one_out() -> None:
    def place(stop: int) -> Plan:
        b = Builder("place")
        x = b.op("slice", b.input("x", (4, 32)), axis=1, start=0, stop=stop)
        b.output(b.op("argmax", x, axis=1, out="y"))
        return b.plan()

    proven(place(32), place(32))
    for seed in range(6):
        assert check(place(32), place(31), Options(seed=seed)).verdict != "equivalent"


def test_copies_of_each_other() -> None:
    b = Builder("copies")
    b.add(Tensor("first", (4, 6)))
    b.add(Tensor("second", (4, 6)))
    b.op("identity", "second", out="first")
    b.op("identity", "first", out="second")
    b.op("square", "first", out="y")
    b.output("y")
    r = Builder("copies")
    r.output(r.op("square", r.input("first", (4, 6)), out="y"))
    assert not_proven(r.plan(), b.plan()).verdict == "invalid"


def test_copy_on_one_rank_that_another_rank_reads() -> None:
    r = Builder("copies")
    r.output(r.op("square", r.input("x", (4, 6)), out="y"))
    b = Builder("copies", {"dp": 2})
    copy = b.op("identity", b.input("x", (4, 6), {}), out="copy", where={"dp": (0,)})
    b.output(b.op("square", copy, out="y"))
    assert not_proven(r.plan(), b.plan()).verdict == "invalid"


def test_padding_of_integers_is_free() -> None:
    """Rank 1's last id is padding; the plan takes it for a 0."""
    r = Builder("padded")
    ids, w = r.input("ids", (5,), dtype="int64", bounds=(0, 6)), r.parameter("w", (6, 4))
    r.output(r.op("sum", r.op("embedding", ids, w), axes=(0,), out="y"))
    b = Builder("padded", {"dp": 2})
    ids = b.input(
        "ids", (3,), {0: intervals("dp", [(0, 3)], [(3, 5), (-1, 1)])}, dtype="int64", bounds=(0, 6)
    )
    w = b.parameter("w", (6, 4), {})
    own = b.op("sum", b.op("embedding", ids, w), axes=(0,))
    last = {"dp": (1,)}
    b.op("sub", own, b.op("select", w, axis=0, index=0, where=last), out="mended", where=last)
    b.op("identity", own, out="mended", where={"dp": (0,)})
    b.output(b.op("all_reduce", "mended", out="y", group="dp"))
    caught(r.plan(), b.plan())


def test_padding_of_two_tensors_differs() -> None:
    r = Builder("padded")
    r.input("x", (5, 6))
    r.output(r.op("mul", r.input("u", (6,)), Number(1), out="y"))
    b = Builder("padded", {"tp": 2})
    cut = intervals("tp", [(0, 3)], [(3, 5), (-1, 1)])
    x, z = b.input("x", (3, 6), {0: cut}), b.input("z", (3, 6), lineage("x", {0: cut}))
    rest = b.op("all_reduce", b.op("sum", b.op("sub", x, z), axes=(0,)), group="tp")
    b.output(b.op("add", b.input("u", (6,), {}), rest, out="y"))
    caught(r.plan(), b.plan())
