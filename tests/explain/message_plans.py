"""For every code that a check gives findings of: a pair of plans that brings one about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from explain.test_causes import CASES
from precision.mixed import NARROW
from precision.narrow_plans import CASES as NARROW_PLANS
from prove.mixtures import Mixture, first_two
from support.explain_plans import Pair, linear_reference, row_parallel
from zoo.builder import Builder

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
    Tensor,
)

TP = (Axis("tp", 2),)


def changed(number: int, **fields: Any) -> Pair:
    """A linear layer over two ranks, of which one operator is changed."""
    reference, parallel = row_parallel(True)
    operators = list(parallel.operators)
    operators[number] = msgspec.structs.replace(operators[number], **fields)
    return reference, msgspec.structs.replace(parallel, operators=tuple(operators))


def with_tensor(name: str, **fields: Any) -> Pair:
    reference, parallel = row_parallel(True)
    return reference, msgspec.structs.replace(
        parallel,
        tensors=tuple(
            msgspec.structs.replace(each, **fields) if each.name == name else each
            for each in parallel.tensors
        ),
    )


def exchange(
    first: str, second: str, peers: tuple[int, int] = (1, 0), protocol: str = "rendezvous"
) -> Pair:
    """Two ranks that send to each other; ``first`` and ``second``: in which order each of them
    sends and receives.
    """
    tensors = [Tensor("x", (4,), role="input", lineage=Lineage("x")), Tensor("y", (4,))]
    operators, blocks = [], {}
    for rank, order in enumerate((first, second)):
        where = ({"tp": (rank,)},)
        made = {
            "s": Operator(
                f"send{rank}",
                "send",
                ("x",),
                (),
                {"peer": peers[rank], **({"protocol": protocol} if protocol else {})},
                None,
                where,
                "train.py:7",
            ),
            "r": Operator(
                f"receive{rank}",
                "receive",
                (),
                ("y",),
                {"peer": 1 - rank},
                None,
                where,
                "train.py:8",
            ),
        }
        operators += [made[each] for each in order]
        blocks[f"rank{rank}"] = tuple(made[each].id for each in order)
    programs = tuple(Program((Step(f"rank{rank}"),), ({"tp": (rank,)},)) for rank in range(2))
    parallel = Plan(
        TP, tuple(tensors), tuple(operators), (Output("y", "y"),), blocks=blocks, programs=programs
    )
    return Plan(
        (),
        (Tensor("x", (4,), role="input"), Tensor("y", (4,))),
        (Operator("copy", "identity", ("x",), ("y",)),),
        (Output("y"),),
    ), parallel


def out_of_step() -> Pair:
    """Rank 0 runs an all-reduce where rank 1 runs a reduce-scatter."""
    reference, parallel = row_parallel(True)
    last = parallel.operators[-1]
    first = msgspec.structs.replace(last, where=({"tp": (0,)},))
    other = msgspec.structs.replace(
        last, id="other", attributes={"reduction": "max"}, where=({"tp": (1,)},)
    )
    return reference, msgspec.structs.replace(
        parallel, operators=(*parallel.operators[:-1], first, other)
    )


def read_too_late() -> Pair:
    """A buffer is written again, and then its old content is read."""
    r = Builder("reference")
    r.output(r.op("add", r.op("square", r.input("x", (4,))), "x", out="y"))
    tensors = tuple(
        Tensor(name, (4,), storage="buffer" if name in "ab" else None) for name in "aby"
    )
    operators = (
        Operator("a", "square", ("x",), ("a",), source="train.py:3"),
        Operator("b", "neg", ("x",), ("b",), source="train.py:4"),
        Operator("y", "add", ("a", "x"), ("y",), source="train.py:5"),
    )
    given = Tensor("x", (4,), role="input", lineage=Lineage("x"))
    return r.plan(), Plan((Axis("device", 1),), (given, *tensors), operators, (Output("y", "y"),))


def unknown_cause() -> Pair:
    """Something else altogether is computed."""
    r = Builder("reference")
    r.output(r.op("square", r.op("sigmoid", r.input("x", (4, 6))), out="y"))
    b = Builder("train", {"tp": 2})
    b.output(b.op("tanh", b.op("exp", b.input("x", (4, 6), {})), out="y"))
    return r.plan(), b.plan()


def scaled() -> Pair:
    """Half of what it should be."""
    reference, _ = row_parallel(True)
    b = Builder("train", {"tp": 2})
    part = b.op("linear", b.input("x", (4, 3), {1: "tp"}), b.parameter("w", (5, 3), {1: "tp"}))
    b.output(b.op("mul", b.op("all_reduce", part, group="tp"), Number("1/2"), out="y"))
    return reference, b.plan()


def tower() -> Pair:
    """Exponentials of exponentials, of which residues have no more than a few, and a law of the
    last one.
    """
    r, b = Builder("reference"), Builder("train", {"tp": 2})
    for builder, spec in ((r, None), (b, {})):
        towers = [builder.input(name, (4, 6), spec) for name in "xz"]
        for _ in range(10):
            towers = [builder.op("exp", tower) for tower in towers]
        builder.output(
            builder.op("mul", *(builder.op("exp", tower) for tower in towers), out="y")
            if builder is r
            else builder.op("exp", builder.op("add", *towers), out="y")
        )
    return r.plan(), b.plan()


def mask_of(stream: str, spec: dict[int, Any] | None = None) -> Plan:
    """Dropout by a mask drawn from a stream."""
    b = Builder("train", None if spec is None else {"tp": 2})
    x = b.input("x", (4, 6), spec)
    b.output(
        b.op(
            "dropout",
            x,
            b.op("dropout_mask", x, stream=stream, probability=0.5),
            out="y",
            probability=0.5,
        )
    )
    return b.plan()


def by_sign() -> Pair:
    """The same on real numbers, but not over residues, which have no sign."""
    r, b = Builder("reference"), Builder("train", {"tp": 2})
    r.output(r.op("abs", r.input("x", (4, 6)), out="y"))
    b.output(b.op("sqrt", b.op("square", b.input("x", (4, 6), {})), out="y"))
    return r.plan(), b.plan()


def unwritten(*, chosen: bool) -> Pair:
    """A term, or a condition between equal values, that is read from memory that nobody has written
    to.
    """
    r, b = Builder("reference"), Builder("train", {"tp": 2})
    r.output(r.op("square", r.input("x", (4, 6)), out="y"))
    y = b.op("square", b.input("x", (4, 6), {}))
    memory = b.op("uninitialised", sizes=(4, 6), dtype="float32")
    b.output(
        b.op("where", b.op("gt", memory, Number(0)), y, y, out="y")
        if chosen
        else b.op("add", y, memory, out="y")
    )
    return r.plan(), b.plan()


def slots() -> Pair:
    """Rows that are read at places which all of them choose together."""

    def side(name: str) -> Plan:
        b = Builder(name, {} if name == "reference" else {"dp": 1})
        given = () if name == "reference" else ({},)
        x, y = b.input("x", (6, 4), *given), b.input("y", (6, 3), *given)
        hot = b.op("one_hot", b.op("argmax", x, axis=1), classes=4)
        before = b.op("sub", b.op("cumsum", hot, axis=0), hot)
        place = b.op("sum", b.op("mul", before, hot), axes=(1,))
        b.output(b.op("index_select", y, place, out="rows", axis=0), *given)
        return b.plan()

    return side("reference"), side("parallel")


def without_outputs() -> Pair:
    reference, parallel = row_parallel(True)
    return msgspec.structs.replace(reference, outputs=()), msgspec.structs.replace(
        parallel, outputs=()
    )


def narrow(name: str) -> Pair:
    return NARROW_PLANS[name].reference(), NARROW_PLANS[name].parallel(NARROW)


def found_in(name: str) -> Callable[[], Pair]:
    return lambda: CASES[name].pair(False)


PAIRS: dict[str, Callable[[], Pair]] = {
    "PIT002": lambda: changed(0, inputs=("x", "v")),
    "PIT003": lambda: with_tensor("x", shape=(4, 2), lineage=Lineage("x", (Shard(1, by=("tp",)),))),
    "PIT004": lambda: changed(1, group=Group(ranks=((0, 7),))),
    "PIT005": lambda: exchange("sr", "s"),
    "PIT006": out_of_step,
    "PIT007": lambda: exchange("rs", "rs"),
    "PIT008": lambda: with_tensor("w", lineage=Lineage("w", (Shard(0, by=("tp",)),))),
    "PIT009": lambda: changed(1, id=row_parallel(True)[1].operators[0].id),
    "PIT010": read_too_late,
    "PIT011": lambda: (
        linear_reference(),
        msgspec.structs.replace(row_parallel(True)[1], outputs=(Output("z", "y"),)),
    ),
    "PIT012": lambda: exchange("sr", "sr", protocol=""),
    "PIT100": unknown_cause,
    "PIT101": scaled,
    "PIT102": found_in("literal"),
    "PIT103": found_in("operand"),
    "PIT104": found_in("no sum over tp"),
    "PIT105": found_in("summed twice"),
    "PIT106": found_in("other group"),
    "PIT107": found_in("other slice"),
    "PIT108": found_in("micro-batch missing"),
    "PIT109": found_in("replicas differ"),
    "PIT110": found_in("gap"),
    "PIT118": lambda: unwritten(chosen=False),
    "PIT200": lambda: changed(0, kind="my_fused_linear"),
    "PIT201": lambda: (
        linear_reference(),
        msgspec.structs.replace(row_parallel(True)[1], outputs=()),
    ),
    "PIT202": by_sign,
    "PIT203": lambda: row_parallel(True),
    "PIT205": tower,
    "PIT206": lambda: (mask_of("s"), mask_of("t", {})),
    "PIT207": lambda: unwritten(chosen=True),
    "PIT208": slots,
    "PIT301": lambda: narrow("gradient reduced"),
    "PIT302": lambda: narrow("missing cast"),
    "PIT303": lambda: narrow("two buffers"),
    "PIT500": without_outputs,
}


def crossed_calls() -> Pair:
    """Two products, each a sum over two ranks, of which the second rank calls the all-reduces in
    the other order.
    """

    def plan(name: str, mesh: dict[str, int] | None) -> Plan:
        b = Builder(name, mesh)
        held = ({1: "tp"},) if mesh else ()
        for name in ("first", "second"):
            own = b.op(
                "linear",
                b.input(f"{name}.x", (4, 3 if mesh else 6), *held),
                b.parameter(f"{name}.w", (5, 3 if mesh else 6), *held),
                out=f"{name}.own",
            )
            b.output(
                b.op(
                    "all_reduce" if mesh else "identity",
                    own,
                    **({"group": "tp"} if mesh else {}),
                    out=name,
                )
            )
        return b.plan()

    parallel = plan("tp", {"tp": 2})
    steps = tuple(Step(operator.id) for operator in parallel.operators)
    blocks = {operator.id: (operator.id,) for operator in parallel.operators}
    crossed = (steps[0], steps[2], steps[3], steps[1])
    programs = tuple(
        Program(order, ({"tp": (rank,)},)) for rank, order in enumerate((steps, crossed))
    )
    return plan("reference", None), msgspec.structs.replace(
        parallel, blocks=blocks, programs=programs
    )


def unreachable_experts() -> Pair:
    """Experts that no token can choose, so that nothing ever goes to the ranks that have them."""
    mixture = Mixture(ranks=2, experts=4, each=1, taken=first_two)
    return mixture.reference(), mixture.parallel()
