"""Time, memory and communicators.

Each rule is tried on a plan that keeps it and on the nearest one that breaks it.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pitcheck.plan.model import (
    Axis,
    Group,
    Operator,
    Output,
    Plan,
    Program,
    Step,
    Table,
    Tensor,
    Use,
)
from pitcheck.plan.validate import validate

TWO = (Axis("r", 2),)
OTHER = Table(("r",), (1, 0))
FIRST, SECOND = ({"r": (0,)},), ({"r": (1,)},)
ALL = Group(axes=("r",))


def plan(
    *operators: Operator,
    outputs: tuple[str, ...] = (),
    orders: tuple[tuple[str, ...], ...] = (),
    **tensors: Tensor,
) -> Plan:
    """Return a plan over two ranks; every tensor that is not given has shape (4,).

    ``orders`` has the ids of each rank, if not those of the list.
    """
    names = dict.fromkeys(
        name
        for o in operators
        for name in (*o.inputs, *o.outputs)
        if isinstance(name, str) and name
    )
    found = [
        tensors.get(name) or Tensor(name, (4,), role="input" if name in "xu" else "activation")
        for name in (*names, *(tensors.keys() - names))
    ]
    blocks = {f"b{rank}": ids for rank, ids in enumerate(orders)}
    programs = tuple(Program((Step(f"b{rank}"),), ({"r": (rank,)},)) for rank in range(len(orders)))
    return Plan(
        TWO, tuple(found), operators, tuple(Output(name) for name in outputs), 1, blocks, programs
    )


def codes(given: Plan) -> list[str]:
    """Return the different codes of the findings."""
    return list(
        dict.fromkeys(
            violation.code for violation in validate(given) if violation.severity == "error"
        )
    )


def messages(given: Plan) -> str:
    return "\n".join(map(str, validate(given)))


NEG = Operator("neg", "neg", ("x",), ("a",))
SEND = Operator("send", "send", ("a",), (), {"peer": OTHER, "async": True})
RECEIVE = Operator("receive", "receive", (), ("b",), {"peer": OTHER})
SENT = Operator("sent", "wait", ("a",))
OVER = Operator("over", "square", ("x",), ("c",))
IN_S = {name: Tensor(name, (4,), storage="S") for name in "abc"}


def shared(*names: str) -> dict[str, Tensor]:
    return {name: IN_S[name] for name in names}


# --- sends in flight


def test_what_is_sent_asynchronously_stays_until_its_wait() -> None:
    assert codes(plan(NEG, SEND, RECEIVE, SENT, OVER, **shared("a", "c"))) == []
    assert codes(plan(NEG, SEND, RECEIVE, OVER, SENT)) == []
    assert codes(plan(NEG, SEND, RECEIVE, OVER, SENT, **shared("a", "c"))) == ["PIT010"]
    assert (
        "'over' writes 'c', in the memory of 'a', which 'send' still reads; move this behind its "
        "'wait'" in messages(plan(NEG, SEND, RECEIVE, OVER, SENT, **shared("a", "c")))
    )
    # What is received lies over what is sent.
    assert codes(plan(NEG, SEND, RECEIVE, SENT, **shared("a", "b"))) == ["PIT010"]


def test_what_is_launched_is_waited_for_before_the_end() -> None:
    assert codes(plan(NEG, SEND, RECEIVE, SENT)) == []
    assert codes(plan(NEG, SEND, RECEIVE)) == ["PIT010"]
    assert "nothing waits for it before the end of the step" in messages(plan(NEG, SEND, RECEIVE))
    gather = Operator("sum", "all_reduce", ("a",), ("b",), {"async": True}, ALL)
    assert codes(plan(NEG, gather, outputs=("b",))) == ["PIT010"]
    assert codes(plan(NEG, gather, Operator("w", "wait", ("b",), ("c",)), outputs=("c",))) == []


def test_a_wait_names_what_it_waits_for() -> None:
    again = Operator("again", "send", ("a",), (), {"peer": OTHER, "async": True, "tag": 2})
    more = Operator("more", "receive", (), ("d",), {"peer": OTHER, "tag": 2})
    only = replace(SENT, attributes={"of": "send"})
    assert codes(plan(NEG, SEND, again, RECEIVE, more, SENT)) == []
    assert codes(plan(NEG, SEND, again, RECEIVE, more, only)) == ["PIT010"]
    assert (
        codes(
            plan(
                NEG, SEND, again, RECEIVE, more, replace(SENT, attributes={"of": ("send", "again")})
            )
        )
        == []
    )
    assert codes(
        plan(NEG, SEND, RECEIVE, SENT, replace(SENT, id="of another", attributes={"of": "receive"}))
    ) == ["PIT010"]
    assert codes(plan(NEG, SENT)) == ["PIT010"]
    # A wait that comes first waits for nothing.
    assert codes(plan(NEG, SENT, SEND, RECEIVE)) == ["PIT010"]


def test_a_wait_moves_nothing() -> None:
    launch = Operator("sum", "all_reduce", ("a",), ("b",), {"async": True}, ALL)
    wait, over, read = (
        Operator("w", "wait", ("b",), ("d",)),
        replace(OVER, outputs=("c",)),
        Operator("read", "neg", ("d",), ("e",)),
    )
    assert codes(plan(NEG, launch, wait, read, over, **shared("b", "c"))) == []
    # What was waited for lies where the result lies, though it says nothing of a storage.
    assert codes(plan(NEG, launch, wait, over, read, **shared("b", "c"))) == ["PIT010"]
    assert codes(
        plan(NEG, launch, wait, read, **shared("b"), d=Tensor("d", (4,), storage="T"))
    ) == ["PIT010"]
    assert (
        codes(plan(NEG, launch, wait, read, **shared("b"), d=Tensor("d", (4,), storage="S"))) == []
    )


def test_a_wait_in_a_circle_of_sends_hangs() -> None:
    assert codes(plan(NEG, SEND, SENT, RECEIVE)) == ["PIT012"]
    buffered = replace(SEND, attributes={**SEND.attributes, "protocol": "buffered"})
    assert codes(plan(NEG, buffered, SENT, RECEIVE)) == []
    assert codes(plan(NEG, replace(SEND, attributes={"peer": OTHER}), RECEIVE)) == ["PIT012"]
    assert (
        codes(plan(NEG, replace(SEND, attributes={"peer": OTHER, "protocol": "buffered"}), RECEIVE))
        == []
    )


# --- batches


def batched(*, one_buffer: bool = False, chained: bool = False) -> Plan:
    send = Operator("send", "send", ("b" if chained else "a",), (), {"peer": OTHER, "batch": 1})
    receive = Operator("receive", "receive", (), ("b",), {"peer": OTHER, "batch": 1})
    pair = (receive, send) if chained else (send, receive)
    return plan(NEG, *pair, **(shared("a", "b") if one_buffer else {}))


def test_what_runs_in_one_batch_runs_at_the_same_time() -> None:
    assert codes(batched()) == []
    assert "PIT010" in codes(batched(one_buffer=True))
    assert "PIT010" in codes(batched(chained=True))
    assert "before 'receive' has written 'b'" in messages(batched(chained=True))


def test_what_stands_between_the_members_of_a_batch_is_not_read_from_them() -> None:
    send = Operator("send", "send", ("a",), (), {"peer": OTHER, "batch": 1})
    receive = Operator("receive", "receive", (), ("b",), {"peer": OTHER, "batch": 1})
    use = Operator("use", "neg", ("b",), ("c",))
    assert codes(plan(NEG, receive, send, use)) == []
    assert codes(plan(NEG, receive, use, send)) == ["PIT010"]
    late = Operator("late", "neg", ("x",), ("a",))
    assert codes(plan(receive, late, send)) == ["PIT010"]


# --- places


def places(first: int, second: int, size: int = 4) -> dict[str, Tensor]:
    return {
        "a": Tensor("a", (4,), storage="S", offset=first),
        "c": Tensor("c", (size,), storage="S", offset=second),
    }


def test_tensors_share_the_places_where_they_overlap() -> None:
    use = Operator("use", "neg", ("a",), ("d",))
    assert codes(plan(NEG, OVER, use, **places(0, 4))) == []
    assert codes(plan(NEG, OVER, use, **places(0, 3))) == ["PIT010"]
    assert codes(plan(NEG, OVER, use, **places(4, 0))) == []
    assert codes(plan(NEG, use, OVER, **places(0, 3))) == []
    # Places are bytes: an element of half the width has half of the place.
    half = {**places(0, 8), "c": Tensor("c", (4,), "bfloat16", storage="S", offset=8)}
    assert codes(plan(NEG, OVER, use, **half)) == []
    assert codes(plan(NEG, OVER, use, **{**half, "c": replace(half["c"], offset=7)})) == ["PIT010"]


@pytest.mark.parametrize(
    "tensor", [Tensor("a", (4,), offset=1), Tensor("a", (4,), storage="S", offset=-1)]
)
def test_an_offset_is_a_place_in_a_storage(tensor: Tensor) -> None:
    assert codes(plan(NEG, a=tensor)) == ["PIT010"]


def test_a_view_is_the_same_memory_and_no_new_version() -> None:
    view, use = (
        Operator("view", "reshape", ("a",), ("b",), {"sizes": (2, 2)}),
        Operator("use", "neg", ("a",), ("d",)),
    )
    seen = {"a": IN_S["a"], "b": Tensor("b", (2, 2), storage="S")}
    assert codes(plan(NEG, view, use, **seen)) == []
    assert codes(
        plan(
            NEG,
            replace(view, kind="transpose", attributes={"dim0": 0, "dim1": 1}),
            use,
            a=Tensor("a", (2, 2), storage="S"),
            x=Tensor("x", (2, 2), role="input"),
            b=seen["b"],
            d=Tensor("d", (2, 2)),
        )
    ) == ["PIT010"]
    over = Operator("over", "square", ("x",), ("c",))
    assert codes(
        plan(
            NEG,
            view,
            over,
            Operator("use", "neg", ("b",), ("d",)),
            **seen,
            c=IN_S["c"],
            d=Tensor("d", (2, 2)),
        )
    ) == ["PIT010"]


def test_parts_of_a_flat_buffer_are_views() -> None:
    """Two gradients are written into one buffer, joined, reduced in place, and cut again."""
    flat = {
        name: Tensor(name, (4,), storage="F", offset=offset)
        for name, offset in (("a", 0), ("b", 4), ("p", 0), ("q", 4))
    }
    flat |= {name: Tensor(name, (8,), storage="F") for name in ("whole", "total")}
    operators = (
        Operator("a", "neg", ("x",), ("a",)),
        Operator("b", "square", ("x",), ("b",)),
        Operator("join", "cat", ("a", "b"), ("whole",), {"axis": 0}),
        Operator("sum", "all_reduce", ("whole",), ("total",), {}, ALL),
        Operator("first", "slice", ("total",), ("p",), {"axis": 0, "stop": 4}),
        Operator("second", "slice", ("total",), ("q",), {"axis": 0, "start": 4}),
        Operator("use", "add", ("p", "q"), ("y",)),
    )
    assert codes(plan(*operators, outputs=("y",), **flat)) == []
    # Before the sum a part may still be read by itself; after it, it is another.
    assert (
        codes(
            plan(*operators[:3], Operator("early", "neg", ("b",), ("z",)), *operators[3:], **flat)
        )
        == []
    )
    assert codes(
        plan(*operators[:4], Operator("late", "neg", ("b",), ("z",)), *operators[4:], **flat)
    ) == ["PIT010"]
    # A part that is put one place further lies over what it is cut from.
    assert codes(plan(*operators, **{**flat, "q": replace(flat["q"], offset=3)})) == ["PIT010"]
    assert codes(plan(*operators, **{**flat, "q": replace(flat["q"], offset=8)})) == []
    assert codes(plan(*operators, **{**flat, "whole": replace(flat["whole"], offset=1)})) == [
        "PIT010"
    ]


def test_an_operator_may_compute_in_place_and_not_beside_its_place() -> None:
    use = Operator("use", "square", ("a",), ("b",))
    assert codes(plan(NEG, use, **shared("a", "b"))) == []
    assert codes(plan(NEG, use, a=IN_S["a"], b=Tensor("b", (4,), storage="S", offset=2))) == [
        "PIT010"
    ]


def test_what_meets_nobody_has_no_group() -> None:
    assert codes(plan(NEG, replace(SEND, group=ALL), RECEIVE, SENT)) == ["PIT004"]
    assert codes(plan(NEG, SEND, replace(RECEIVE, group=ALL), SENT)) == ["PIT004"]


@pytest.mark.parametrize("kind", ["all_reduce", "broadcast"])
def test_a_collective_in_place_has_its_result_where_its_operand_was(kind: str) -> None:
    one = Operator("one", kind, ("a",), ("b",), {"root": 0} if kind == "broadcast" else {}, ALL)
    assert codes(plan(NEG, one, **shared("a", "b"))) == []
    assert codes(plan(NEG, one, a=IN_S["a"], b=Tensor("b", (4,), storage="S", offset=2))) == [
        "PIT010"
    ]
    assert codes(plan(NEG, one, a=IN_S["a"], b=Tensor("b", (4,), storage="S", offset=4))) == []


def test_the_operand_of_a_broadcast_is_used_at_its_root_alone() -> None:
    """Overwrite the buffer before the broadcast or in flight, on ranks that read it or do not."""
    cast = Operator("cast", "broadcast", ("a",), ("b",), {"root": 1}, ALL)
    for here, expected in ((FIRST, []), (SECOND, ["PIT010"])):
        over = replace(OVER, where=here)
        assert codes(plan(NEG, over, cast, outputs=("b",), **shared("a", "c"))) == expected
        launched = replace(cast, attributes={"root": 1, "async": True})
        done = Operator("done", "wait", ("b",), ("d",))
        assert (
            codes(plan(NEG, launched, over, done, outputs=("d",), **shared("a", "c"))) == expected
        )
        # In place the root sends what lies there, and all others write there.
        assert codes(
            plan(
                NEG,
                launched,
                over,
                done,
                outputs=("d",),
                a=IN_S["a"],
                b=IN_S["b"],
                c=IN_S["c"],
                d=Tensor("d", (4,)),
            )
        ) == ["PIT010"]
    # The result lies over the operand, but not in its place.
    beside = Tensor("b", (4,), storage="S", offset=2)
    assert codes(
        plan(
            replace(NEG, where=FIRST), replace(cast, attributes={"root": 0}), a=IN_S["a"], b=beside
        )
    ) == ["PIT010"]


def test_the_operand_of_a_broadcast_is_written_before_at_its_root_alone() -> None:
    cast = Operator("cast", "broadcast", ("a",), ("b",), {"root": 1}, ALL)
    before, after = ("neg", "cast"), ("cast", "neg")
    assert codes(plan(NEG, cast, orders=(after, before))) == []
    assert codes(plan(NEG, cast, orders=(before, after))) == ["PIT009"]
    assert codes(plan(replace(NEG, where=SECOND), cast)) == []
    assert codes(plan(replace(NEG, where=FIRST), cast)) == ["PIT002"]
    scatter = replace(cast, kind="scatter_from", attributes={"root": 1, "axis": 0})
    assert codes(plan(replace(NEG, where=SECOND), scatter, b=Tensor("b", (2,)))) == []
    assert codes(plan(replace(NEG, where=FIRST), scatter, b=Tensor("b", (2,)))) == ["PIT002"]
    # A reduce reads what all members have.
    assert codes(plan(replace(NEG, where=SECOND), replace(cast, kind="reduce"))) == ["PIT002"]


def test_what_a_reduce_leaves_in_place_is_not_its_operand_on_any_rank() -> None:
    """Who is not the root has something else there afterwards, too."""
    reduce = Operator("reduce", "reduce", ("a",), ("b",), {"root": 0}, ALL)
    use = Operator("use", "square", ("a",), ("d",), where=SECOND)
    assert codes(plan(NEG, reduce, use, outputs=("d",))) == []
    assert codes(plan(NEG, reduce, use, outputs=("d",), **shared("a", "b"))) == ["PIT010"]
    assert codes(plan(NEG, use, reduce, outputs=("d",), **shared("a", "b"))) == []


def test_a_collective_that_rearranges_is_not_run_in_place() -> None:
    one = Operator("one", "all_to_all", ("a",), ("b",), {"split_axis": 0, "concat_axis": 0}, ALL)
    assert codes(plan(NEG, one)) == []
    assert codes(plan(NEG, one, **shared("a", "b"))) == ["PIT010"]


# --- the beginning and the end of the step


def test_outputs_are_read_at_the_end() -> None:
    assert codes(plan(NEG, OVER, outputs=("a",), **shared("a"))) == []
    assert codes(plan(NEG, OVER, outputs=("a",), **shared("a", "c"))) == ["PIT010"]
    assert codes(plan(OVER, NEG, outputs=("a",), **shared("a", "c"))) == []


def stepped(*, again: bool = False, new: str | None = "w", junk: bool = False) -> Plan:
    w = Tensor("w", (4,), role="parameter", storage="W")
    first = Tensor("n", (4,), storage="W", updated=new)
    operators = [Operator("update", "sub", ("w", "x"), ("n",))]
    more: dict[str, Tensor] = {}
    if again or junk:
        operators.append(Operator("again", "sub", ("n", "x"), ("m",)))
        more = {"m": Tensor("m", (4,), storage="W", updated=None if junk else "w")}
    return plan(*operators, outputs=("n",), w=w, n=first, **more)


def test_what_lasts_into_the_next_step_is_there_at_its_end() -> None:
    assert codes(stepped()) == []
    assert codes(stepped(new=None)) == ["PIT010"]
    assert codes(stepped(junk=True)) == ["PIT010"]
    assert set(codes(stepped(again=True))) == {"PIT010", "PIT011"}


def test_what_comes_from_outside_has_places_of_its_own() -> None:
    add = Operator("add", "add", ("x", "u"), ("a",))
    x, u = (
        Tensor("x", (4,), role="input", storage="S"),
        Tensor("u", (4,), role="input", storage="S", offset=4),
    )
    assert codes(plan(add, x=x, u=u)) == []
    assert codes(plan(add, x=x, u=replace(u, offset=2))) == ["PIT010"]
    many = replace(
        plan(NEG, x=replace(x, microbatched=True), a=Tensor("a", (4,), microbatched=True)),
        microbatches=2,
    )
    assert codes(many) == ["PIT010"]


def test_one_buffer_holds_one_micro_batch_of_an_output() -> None:
    def over(storage: str | None) -> Plan:
        tensors = (
            Tensor("x", (4,), role="input", microbatched=True),
            Tensor("a", (4,), microbatched=True, storage=storage),
        )
        return Plan(TWO, tensors, (NEG,), (Output("a"),), 2)

    assert codes(over(None)) == []
    assert codes(over("S")) == ["PIT010"]


# --- communicators


def met(one: Operator, two: Operator, *, order: bool = True) -> Plan:
    return plan(
        one, two, orders=((one.id, two.id), (one.id, two.id) if order else (two.id, one.id))
    )


def collective(identity: str, made: str, **rest: object) -> Operator:
    attributes = {
        key: value for key, value in rest.items() if key not in ("kind", "group", "where")
    }
    where = rest.get("where", ())
    return Operator(
        identity,
        str(rest.get("kind", "all_reduce")),
        ("x",),
        (made,),
        attributes,
        rest.get("group", ALL),
        where,
    )  # type: ignore[arg-type]


def test_groups_of_the_same_ranks_are_different_communicators_if_their_names_differ() -> None:
    waits = (Operator("wa", "wait", ("a",), ("c",)), Operator("wb", "wait", ("b",), ("d",)))

    def crossed(name: str, *, launched: bool) -> Plan:
        said = {"async": True} if launched else {}
        one, two = (
            collective("one", "a", **said),
            collective("two", "b", reduction="max", group=replace(ALL, name=name), **said),
        )
        ends = ("wa", "wb") if launched else ()
        return plan(
            one,
            two,
            *(waits if launched else ()),
            orders=(("one", "two", *ends), ("two", "one", *ends)),
        )

    assert codes(crossed("second", launched=True)) == []
    assert codes(crossed("", launched=True)) == ["PIT006"]
    # Each blocks until the other rank comes.
    assert codes(crossed("second", launched=False)) == ["PIT007"]


@pytest.mark.parametrize(
    ("kind", "attributes", "other"),
    [
        ("all_reduce", {"reduction": "sum"}, {"reduction": "max"}),
        ("all_reduce", {}, {"reduction": "avg"}),
        ("reduce_scatter", {"axis": 0}, {"axis": 1}),
        ("all_gather", {"axis": 0}, {"axis": 1}),
        ("all_to_all", {"split_axis": 0, "concat_axis": 0}, {"split_axis": 1, "concat_axis": 1}),
        ("broadcast", {"root": 0}, {"root": 1}),
    ],
)
def test_members_agree_in_everything_that_their_library_sees(
    kind: str, attributes: dict[str, object], other: dict[str, object]
) -> None:
    def of(second: dict[str, object], *, tabled: bool) -> list[str]:
        given = Tensor("x", (4, 4), role="input")
        if tabled:
            merged = {
                name: Table(("r",), (attributes.get(name, "sum"), second[name])) for name in second
            }
            return codes(
                plan(
                    Operator("one", kind, ("x",), ("a",), merged, ALL),
                    x=given,
                    a=Tensor("a", shape(kind, 4)),
                )
            )  # type: ignore[arg-type]
        one = Operator("one", kind, ("x",), ("a",), attributes, ALL, FIRST)  # type: ignore[arg-type]
        two = Operator("two", kind, ("x",), ("b",), second, ALL, SECOND)  # type: ignore[arg-type]
        return codes(
            plan(
                one,
                two,
                x=given,
                a=Tensor("a", shape(kind, 4)),
                b=Tensor("b", shape(kind, 4, second)),
            )
        )

    assert of({name: attributes.get(name, "sum") for name in other}, tabled=False) == []
    assert "PIT006" in of(other, tabled=False)
    same = {name: attributes.get(name, "sum") for name in other}
    assert of(same, tabled=True) == []
    assert {"PIT006", "PIT003"} & set(of(other, tabled=True))


def shape(kind: str, size: int, attributes: dict[str, object] | None = None) -> tuple[int, ...]:
    axis = (attributes or {}).get("axis", (attributes or {}).get("split_axis", 0))
    if kind == "reduce_scatter":
        return (2, 4) if axis == 0 else (4, 2)
    if kind == "all_gather":
        return (8, 4) if axis == 0 else (4, 8)
    return (size, size)


def test_an_axis_counted_from_the_back_is_the_same_axis() -> None:
    one = Operator("one", "reduce_scatter", ("x",), ("a",), {"axis": 0}, ALL, FIRST)
    two = Operator("two", "reduce_scatter", ("x",), ("a",), {"axis": -2}, ALL, SECOND)
    assert codes(plan(one, two, x=Tensor("x", (4, 4), role="input"), a=Tensor("a", (2, 4)))) == []


# --- barriers


def test_all_members_of_a_group_come_to_a_barrier_in_one_order() -> None:
    barrier, total = Operator("barrier", "barrier", group=ALL), collective("sum", "a")
    assert codes(plan(barrier, total)) == []
    assert codes(plan(replace(barrier, where=FIRST), total)) == ["PIT006"]
    assert codes(plan(barrier, total, orders=(("barrier", "sum"), ("sum", "barrier")))) == [
        "PIT006"
    ]
    assert codes(plan(replace(barrier, attributes={"async": True}))) == ["PIT010"]
    assert codes(plan(replace(barrier, group=None))) != []
    second = replace(barrier, id="other", group=replace(ALL, name="second"))
    assert codes(plan(barrier, second, orders=(("barrier", "other"), ("other", "barrier")))) == [
        "PIT007"
    ]


# --- boxes


def test_a_box_without_coordinates_is_refused() -> None:
    assert codes(plan(replace(NEG, where=({"r": (0,)},)))) == []
    assert codes(plan(replace(NEG, where=({"r": ()},)))) == ["PIT001"]


# --- found by attacks


def test_a_chain_of_waits_lies_in_one_place_in_any_order_of_the_list() -> None:
    launch = Operator("sum", "all_reduce", ("a",), ("b",), {"async": True}, ALL)
    first, second = Operator("w1", "wait", ("b",), ("d",)), Operator("w2", "wait", ("d",), ("e",))
    read = Operator("read", "neg", ("e",), ("f",))
    right, wrong = (
        ("neg", "sum", "w1", "w2", "read", "over"),
        ("neg", "sum", "w1", "w2", "over", "read"),
    )
    for waits in ((first, second), (second, first)):
        operators = (NEG, launch, *waits, OVER, read)
        assert codes(plan(*operators, orders=(right, right), **shared("b", "c"))) == []
        assert codes(plan(*operators, orders=(wrong, wrong), **shared("b", "c"))) == ["PIT010"]


def test_waits_for_different_places_have_different_outputs() -> None:
    def launch(name: str) -> Operator:
        return Operator(f"sum {name}", "all_reduce", ("x",), (name,), {"async": True}, ALL)

    waits = (
        Operator("here", "wait", ("a",), ("d",), where=FIRST),
        Operator("there", "wait", ("b",), ("d",), where=SECOND),
    )
    others = (
        Operator("a too", "wait", ("a",), ("e",), where=SECOND),
        Operator("b too", "wait", ("b",), ("f",), where=FIRST),
    )
    places = {"a": Tensor("a", (4,), storage="A"), "b": Tensor("b", (4,), storage="B")}
    operators = (launch("a"), launch("b"), *waits, *others)
    assert codes(plan(*operators)) == []
    assert codes(plan(*operators, **places)) == ["PIT010"]


@pytest.mark.parametrize("protocol", [None, Table(("r",), (None, None))])  # type: ignore[arg-type]
def test_a_protocol_that_is_null_is_none(protocol: object) -> None:
    send = replace(SEND, attributes={"peer": OTHER, "protocol": protocol})
    assert codes(plan(NEG, send, RECEIVE)) in (["PIT012"], ["PIT007"])


def test_a_part_that_is_not_wanted_has_its_place_all_the_same() -> None:
    split = Operator("split", "split", ("a",), ("", "q"), {"axis": 0, "sizes": (2, 2)})
    use = Operator("use", "neg", ("a",), ("d",))
    for offset, said in ((2, []), (0, ["PIT010"]), (1, ["PIT010"])):
        assert (
            codes(
                plan(NEG, split, use, a=IN_S["a"], q=Tensor("q", (2,), storage="S", offset=offset))
            )
            == said
        ), offset


def test_a_view_has_the_dtype_of_what_it_shows() -> None:
    copy, use = Operator("copy", "identity", ("a",), ("b",)), Operator("use", "neg", ("a",), ("d",))
    for dtype, said in (("float32", []), ("int32", ["PIT003", "PIT010"]), ("bfloat16", ["PIT010"])):
        found = codes(plan(NEG, copy, use, a=IN_S["a"], b=Tensor("b", (4,), dtype, storage="S")))  # type: ignore[arg-type]
        assert set(found) == set(said), dtype
    launch, wait = (
        Operator("sum", "all_reduce", ("a",), ("b",), {"async": True}, ALL),
        Operator("w", "wait", ("b",), ("d",)),
    )
    assert codes(plan(NEG, launch, wait, d=Tensor("d", (4,), "bfloat16"))) == ["PIT010"]
    assert codes(
        plan(NEG, launch, wait, b=Tensor("b", (4,), "bfloat16"), d=Tensor("d", (4,), "bfloat16"))
    ) == ["PIT003"]


def test_a_wait_and_a_barrier_are_in_no_batch() -> None:
    send = replace(SEND, attributes={**SEND.attributes, "batch": 1})
    receive = replace(RECEIVE, attributes={**RECEIVE.attributes, "batch": 1})
    wait = replace(SENT, attributes={"batch": 1})
    assert codes(plan(NEG, send, receive, SENT)) == []
    assert codes(plan(NEG, send, wait, receive)) == ["PIT012"]
    barrier = Operator("barrier", "barrier", attributes={"batch": 1}, group=ALL)
    blocking = replace(send, attributes={"peer": OTHER, "batch": 1})
    assert codes(plan(NEG, blocking, receive)) == []
    assert codes(plan(NEG, blocking, barrier, receive)) == ["PIT012"]


def test_two_results_of_one_operator_have_places_of_their_own() -> None:
    split = Operator("split", "split", ("x",), ("p", "q"), {"axis": 0, "sizes": (2, 2)})
    for offset, said in ((2, []), (1, ["PIT010"]), (0, ["PIT010"])):
        parts = {
            "p": Tensor("p", (2,), storage="S"),
            "q": Tensor("q", (2,), storage="S", offset=offset),
        }
        assert codes(plan(split, **parts)) == said, offset


@pytest.mark.parametrize(
    ("kind", "attributes", "said"),
    [
        ("square", {}, []),
        ("clamp", {"min": 0}, []),
        ("transpose", {"dim0": 0, "dim1": 1}, ["PIT010"]),
        ("flip", {"axes": (0,)}, ["PIT010"]),
        ("cumsum", {"axis": 0}, ["PIT010"]),
        ("softmax", {"axis": 0}, ["PIT010"]),
    ],
)
def test_what_reads_other_places_is_not_computed_in_place(
    kind: str, attributes: dict[str, object], said: list[str]
) -> None:
    use = Operator("use", kind, ("a",), ("b",), attributes)  # type: ignore[arg-type]
    square = {name: Tensor(name, (4, 4), storage="S") for name in "ab"} | {
        "x": Tensor("x", (4, 4), role="input")
    }
    assert codes(plan(NEG, use, **square)) == said
    assert (
        codes(
            plan(
                NEG, use, **{name: replace(tensor, storage=None) for name, tensor in square.items()}
            )
        )
        == []
    )


def test_a_new_value_takes_all_of_the_old_one_s_places_or_none() -> None:
    update = Operator("update", "sub", ("w", "x"), ("n",))
    w, n = (
        Tensor("w", (4,), role="parameter", storage="W"),
        Tensor("n", (4,), storage="W", updated="w"),
    )
    assert codes(plan(update, w=w, n=n)) == []
    assert codes(plan(update, w=w, n=replace(n, offset=4))) == []
    assert codes(plan(update, w=w, n=replace(n, offset=3))) == ["PIT010"]
    assert codes(plan(update, w=w, n=replace(n, storage=None))) == []
    junk = Operator("junk", "square", ("x",), ("j",))
    assert (
        codes(plan(update, junk, w=w, n=replace(n, storage=None), j=Tensor("j", (4,), storage="W")))
        == []
    )
    assert codes(plan(update, junk, w=w, n=n, j=Tensor("j", (4,), storage="W"))) == ["PIT010"]


def test_a_send_of_another_micro_batch_is_waited_for_by_that() -> None:
    once = ({"mb": (0,)},)
    send = Operator("send", "send", (Use("a", 1),), (), {"peer": OTHER, "async": True}, where=once)
    receive = Operator("receive", "receive", (), ("b",), {"peer": OTHER})
    tensors = tuple(
        Tensor(name, (4,), role="input" if name == "x" else "activation", microbatched=name in "xa")
        for name in "xab"
    )

    def over(wait: Operator) -> Plan:
        return Plan(TWO, tensors, (NEG, send, receive, wait), (), 2)

    assert codes(over(Operator("w", "wait", (Use("a", 1),), where=once))) == []
    assert codes(over(Operator("w", "wait", (Use("a", 0),), where=once))) == ["PIT010"]


@pytest.mark.parametrize("value", ["yes", 1, None, Table(("r",), (True, "no"))])
def test_asynchronous_is_true_or_false(value: object) -> None:
    assert codes(
        plan(NEG, replace(SEND, attributes={"peer": OTHER, "async": value}), RECEIVE, SENT)
    ) == ["PIT001"]


def test_a_barrier_has_no_output() -> None:
    assert codes(plan(Operator("barrier", "barrier", (), ("b",), group=ALL))) == ["PIT004"]
    assert codes(plan(Operator("barrier", "barrier", attributes={"async": False}, group=ALL))) == []
