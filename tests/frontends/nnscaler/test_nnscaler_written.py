"""Plans written for the tests, with features that the real plans lack.

They have shared weights, early reducers, further primitives, and unknown functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from frontends.nnscaler.nnscaler_interpreter import Machine, given_for
from frontends.nnscaler.nnscaler_writer import Writer, written_modules

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.nnscaler import read_nnscaler
from pitcheck.plan.model import Group, Number, Plan
from pitcheck.plan.validate import validate


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    with written_modules():
        yield


def read(tmp_path: Path, data: bytes) -> Plan:
    file = tmp_path / "written.pkl"
    file.write_bytes(data)
    return read_nnscaler(file)


def kinds(plan: Plan) -> list[str]:
    return [operator.kind for operator in plan.operators]


class Linear:
    """loss = sum(x w^T), with its backward pass, as segments of a writer."""

    def __init__(self, w: Writer) -> None:
        self.x, self.w = w.tensor("x", (4, 3)), w.tensor("w", (5, 3), parameter=True)
        self.y, self.loss = w.tensor("y", (4, 5)), w.tensor("total", (1,), loss=True)
        product, total = (
            w.compute("torch.nn.functional.linear", [self.x, self.w], [self.y], bias=None),
            w.compute("torch.sum", [self.y], [self.loss]),
        )
        backward = [
            w.derive(total, [self.loss._grad], [self.y._grad]),
            w.derive(product, [self.y._grad], [self.x._grad, self.w._grad]),
        ]
        self.data = w.data([self.x])
        self.forward = w.segment([product, total], [self.x], [self.loss])
        self.backward = w.segment(backward, [self.loss._grad], [], self.forward)
        self.forward._mirror = self.backward


def test_weight_used_twice(tmp_path: Path) -> None:
    w = Writer()
    x, weight = w.tensor("x", (4, 3)), w.tensor("w", (3, 3), parameter=True)
    y, z, loss = w.tensor("y", (4, 3)), w.tensor("z", (4, 3)), w.tensor("total", (1,), loss=True)
    first, second = (
        w.compute("torch.nn.functional.linear", [a, weight], [b]) for a, b in ((x, y), (y, z))
    )
    total = w.compute("torch.sum", [z], [loss])
    forward = w.segment([first, second, total], [x], [loss])
    nodes = [
        w.derive(total, [loss._grad], [z._grad]),
        w.derive(second, [z._grad], [y._grad, weight._grad]),
        w.derive(first, [y._grad], [x._grad, weight._grad]),
    ]
    backward = w.segment(nodes, [loss._grad], [], forward)
    plan = read(tmp_path, w.root({0: [w.data([x]), forward, backward]}, 1))
    assert not validate(plan)
    given = given_for(plan)
    machine = Machine(plan, given)
    machine.run()
    leaf = given["w"].clone().requires_grad_()
    torch.nn.functional.linear(torch.nn.functional.linear(given["x"], leaf), leaf).sum().backward()
    assert leaf.grad is not None
    assert torch.allclose(machine.values["grad:w", 0, None], leaf.grad)


def test_tensor_read_by_two_operators(tmp_path: Path) -> None:
    w = Writer()
    x, y, a, b, loss = (
        w.tensor("x", (4,)),
        w.tensor("y", (4,)),
        w.tensor("a", (4,)),
        w.tensor("b", (4,)),
        w.tensor("total", (1,), loss=True),
    )
    weight = w.tensor("w", (4,), parameter=True)
    scaled, root = w.compute("torch.mul", [x, weight], [y]), w.compute("torch.mul", [y, 3], [a])
    both, total = w.compute("torch.add", [a, y], [b], alpha=2), w.compute("torch.sum", [b], [loss])
    forward = w.segment([scaled, root, both, total], [x], [loss])
    nodes = [
        w.derive(total, [loss._grad], [b._grad]),
        w.derive(both, [b._grad], [a._grad, y._grad]),
        w.derive(root, [a._grad], [y._grad]),
        w.derive(scaled, [y._grad], [x._grad, weight._grad]),
    ]
    plan = read(
        tmp_path,
        w.root({0: [w.data([x]), forward, w.segment(nodes, [loss._grad], [], forward)]}, 1),
    )
    assert not validate(plan)
    given = given_for(plan)
    machine = Machine(plan, given)
    machine.run()
    assert torch.allclose(machine.values["grad:w", 0, None], 5 * given["x"])


def test_reducer_before_the_last_microbatch(tmp_path: Path) -> None:
    w = Writer()
    cells = Linear(w)
    more, loss = w.tensor("x", (4, 3)), w.tensor("total", (1,), loss=True)
    calls = [w.call(cells.data, [], [cells.x]), w.call(cells.data, [], [more])]
    forwards = [
        w.call(cells.forward, [cells.x], [cells.loss]),
        w.call(cells.forward, [more], [loss]),
    ]
    backwards = [
        w.call(cells.backward, [cells.loss._grad], [], forwards[0]),
        w.call(cells.backward, [loss._grad], [], forwards[1]),
    ]
    plan = read(
        tmp_path,
        w.root({0: [*calls, *forwards, backwards[0], w.reducer([cells.w], (0,)), backwards[1]]}, 2),
    )
    assert not validate(plan)
    tail = [
        operator
        for operator in plan.operators
        if "grad:w" in operator.outputs or any("partial:w" in name for name in operator.outputs)
    ]
    assert [(o.kind, o.inputs) for o in tail] == [
        ("accumulate", ("gw",)),
        ("all_reduce", ("partial:w",)),
        ("accumulate", ("gw",)),
        ("add", ("partial:w.1", "partial:w.2")),
    ]
    assert (tail[0].attributes, tail[2].attributes) == (
        {"microbatches": (0,)},
        {"microbatches": (1,)},
    )
    assert tail[1].group == Group(axes=("dp",))


def test_reducer_without_a_gradient_adds_zeros(tmp_path: Path) -> None:
    w = Writer()
    cells = Linear(w)
    plan = read(
        tmp_path,
        w.root({0: [cells.data, cells.forward, w.reducer([cells.w], (0,)), cells.backward]}, 2),
    )
    reduced = next(operator for operator in plan.operators if operator.kind == "all_reduce")
    assert reduced.inputs == ("zero:5x3",)
    assert kinds(plan)[-1] == "add"


def test_backward_without_forward_is_refused(tmp_path: Path) -> None:
    w = Writer()
    cells = Linear(w)
    with pytest.raises(PlanError, match="before its forward pass"):
        read(tmp_path, w.root({0: [cells.data, cells.backward, cells.forward]}, 1))


def test_tensor_that_nothing_wrote_is_refused(tmp_path: Path) -> None:
    w = Writer()
    cells = Linear(w)
    with pytest.raises(
        PlanError, match=r"_seq\[0\]\[0\]\._nodes\[0\].*nothing on device 0 has written"
    ):
        read(tmp_path, w.root({0: [cells.forward, cells.backward]}, 1))


def exchange(tmp_path: Path, sender: list[Any], receiver: list[Any], w: Writer, x: Any) -> Plan:
    return read(tmp_path, w.root({0: [w.data([x]), *sender], 1: [w.data([x]), *receiver]}, 2))


def test_scatter_and_gather_between_devices(tmp_path: Path) -> None:
    w = Writer()
    x = w.tensor("x", (4, 6))
    half, back = w.part(x._full_tensor, ((0, 4), (0, 3))), w.part(x._full_tensor, ((0, 4), (0, 6)))
    there = {"shape": (4, 6), "dtype": "torch.float32", "src": 0, "dsts": (1,), "dim": 1}
    plan = exchange(
        tmp_path,
        [w.adapter([w.primitive("RDScatterPrim", [x], [], **there)], [x], [])],
        [w.adapter([w.primitive("RDScatterPrim", [], [back], **there)], [], [back])],
        w,
        x,
    )
    assert kinds(plan) == ["chunk", "send", "receive"]
    assert not validate(plan)
    w = Writer()
    x = w.tensor("x", (4, 6))
    whole = w.part(x._full_tensor, ((0, 4), (0, 6)))
    here = {"shape": (4, 6), "dtype": "torch.float32", "srcs": (0,), "dst": 1, "dim": 1}
    plan = exchange(
        tmp_path,
        [w.adapter([w.primitive("RDGatherPrim", [x], [], **here)], [x], [])],
        [w.adapter([w.primitive("RDGatherPrim", [], [whole], **here)], [], [whole])],
        w,
        x,
    )
    assert kinds(plan) == ["send", "receive", "cat"]
    assert half is not whole and not validate(plan)


def test_broadcast_and_reduce(tmp_path: Path) -> None:
    w = Writer()
    x = w.tensor("x", (4, 6))
    y, z = w.part(x._full_tensor, ((0, 4), (0, 6))), w.part(x._full_tensor, ((0, 4), (0, 6)))
    sent = {"shape": (4, 6), "dtype": "torch.float32", "src": 0, "ranks": (1, 0)}
    plan = exchange(
        tmp_path,
        [
            w.adapter([w.primitive("BroadcastPrim", [x], [y], **sent)], [x], [y]),
            w.adapter([w.primitive("ReducePrim", [y], [], dst=1, ranks=[0, 1])], [y], []),
        ],
        [
            w.adapter([w.primitive("BroadcastPrim", [], [y], **sent)], [], [y]),
            w.adapter([w.primitive("ReducePrim", [y], [z], dst=1, ranks=[0, 1])], [y], [z]),
        ],
        w,
        x,
    )
    assert [(o.kind, o.inputs, o.attributes.get("root")) for o in plan.operators] == [
        ("broadcast", ("x",), 0),
        ("reduce", ("x.1",), 1),
        ("broadcast", ("zero:4x6",), 0),
        ("reduce", ("x.2",), 1),
    ]


def test_sums_and_joins_on_one_device(tmp_path: Path) -> None:
    w = Writer()
    x = w.tensor("x", (4, 6))
    y, z, v = (w.part(x._full_tensor, ((0, 4), (0, 6))) for _ in range(3))
    primitives = [
        w.primitive("SumPrim", [x, x], [y]),
        w.primitive("MergeDimPrim", [x, y], [z], dim=1),
        w.primitive("VChunkPrim", [y], [v], ranks=[0]),
    ]
    plan = read(tmp_path, w.root({0: [w.data([x]), w.adapter(primitives, [x], [z])]}, 1))
    assert kinds(plan) == ["add", "cat", "div"]
    assert plan.operators[2].inputs[1] == Number(1)


def test_unknown_primitive_is_refused(tmp_path: Path) -> None:
    w = Writer()
    x = w.tensor("x", (4, 6))
    with pytest.raises(UnsupportedError, match="SurprisePrim"):
        read(
            tmp_path,
            w.root(
                {0: [w.data([x]), w.adapter([w.primitive("SurprisePrim", [x], [x])], [x], [])]}, 1
            ),
        )


def test_primitive_on_another_device_is_refused(tmp_path: Path) -> None:
    w = Writer()
    x = w.tensor("x", (4, 6))
    move = w.primitive("MovePrim", [x], [], src=3, dst=4, shape=(4, 6), dtype="torch.float32")
    with pytest.raises(PlanError, match="from device 3 to device 4 runs on device 0"):
        read(tmp_path, w.root({0: [w.data([x]), w.adapter([move], [x], [])]}, 1))


# --- functions


def operator_for(
    tmp_path: Path,
    signature: str,
    *arguments: Any,
    shape: tuple[int, ...] = (4, 6),
    **keywords: Any,
) -> Any:
    w = Writer()
    x, y = w.tensor("x", (4, 6)), w.tensor("y", shape)
    values = [x if argument is ... else argument for argument in arguments]
    segment = w.segment([w.compute(signature, values, [y], **keywords)], [x], [y])
    return read(tmp_path, w.root({0: [w.data([x]), segment]}, 1)).operators[0]


@pytest.mark.parametrize(
    ("signature", "arguments", "keywords", "kind", "attributes"),
    [
        ("torch.add", (..., 1), {"alpha": 1}, "add", {}),
        ("torch.add", (..., 1), {"alpha": 2}, "add", {"alpha": 2}),
        ("torch.sum", (...,), {"dim": 1, "keepdim": True}, "sum", {"axes": (1,), "keepdim": True}),
        ("torch.sum", (...,), {"dim": None, "dtype": None}, "sum", {}),
        ("torch.mean", (...,), {"dim": [0, 1]}, "mean", {"axes": (0, 1)}),
        ("torch.Tensor.view", (..., 2, -1), {}, "view", {"sizes": (2, -1)}),
        (
            "torch.nn.functional.dropout",
            (...,),
            {"p": 0.0, "training": True, "inplace": False},
            "identity",
            {},
        ),
        ("nnscaler.runtime.function.cat", (..., ...), {"dim": 1}, "cat", {"axis": 1}),
        (
            "nnscaler.runtime.function.layer_norm",
            (...,),
            {"normalized_shape": (6,), "eps": 1e-5},
            "layer_norm",
            {"dims": 1, "eps": 1e-5},
        ),
        (
            "torch.nn.functional.gelu",
            (...,),
            {"approximate": "tanh"},
            "gelu",
            {"approximate": "tanh"},
        ),
    ],
)
def test_functions(
    tmp_path: Path,
    signature: str,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    kind: str,
    attributes: dict[str, Any],
) -> None:
    found = operator_for(tmp_path, signature, *arguments, **keywords)
    assert (found.kind, found.attributes) == (kind, attributes)


@pytest.mark.parametrize(
    ("signature", "arguments", "keywords"),
    [
        ("torch.special.zeta", (..., 2), {"mode": "x"}),
        ("torch.nn.functional.dropout", (...,), {"training": True}),
        ("torch.nn.functional.dropout", (..., 0.5), {}),
        ("torch.pow", (2, ...), {}),
        ("torch.sum", (...,), {"dim": ()}),
        ("torch.Tensor.view", (..., "int64"), {}),
        ("torch.nn.functional.softmax", (...,), {}),
        ("torch.add", (..., None), {}),
    ],
)
def test_functions_that_are_not_understood_have_no_meaning(
    tmp_path: Path, signature: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    found = operator_for(tmp_path, signature, *arguments, **keywords)
    assert found.kind == f"nnscaler:{signature}"
    assert "x" in found.inputs


@pytest.mark.parametrize(
    ("signature", "keywords", "attribute"),
    [
        ("torch.div", {"rounding_mode": "floor"}, "torch.rounding_mode"),
        ("torch.nn.functional.dropout", {"p": 0.5}, "torch.p"),
        ("torch.nn.functional.dropout", {"p": False}, "torch.p"),
        ("torch.softmax", {"dim": 1, "dtype": "torch.float64"}, "torch.dtype"),
        ("torch.sum", {"axes": (0,)}, "torch.axes"),
    ],
)
def test_arguments_that_are_not_understood_are_kept_and_refused(
    tmp_path: Path, signature: str, keywords: dict[str, Any], attribute: str
) -> None:
    arguments = (..., 2) if signature == "torch.div" else (...,)
    assert attribute in operator_for(tmp_path, signature, *arguments, **keywords).attributes


def test_shapes_of_tensors_without_dimensions(tmp_path: Path) -> None:
    w = Writer()
    x, total, half = (
        w.tensor("x", (4, 6)),
        w.tensor("total", (1,)),
        w.tensor("half", (1,), loss=True),
    )
    kept = w.tensor("kept", (1,))
    nodes = [
        w.compute("torch.sum", [x], [total]),
        w.compute("torch.mul", [total, 0.5], [half]),
        w.compute("torch.Tensor.view", [total], [kept], size=(1,)),
    ]
    plan = read(tmp_path, w.root({0: [w.data([x]), w.segment(nodes, [x], [half, kept])]}, 1))
    assert {tensor.name: tensor.shape for tensor in plan.tensors} == {
        "x": (4, 6),
        "total": (),
        "loss": (),
        "kept": (1,),
    }
    assert not validate(plan)


def test_mesh_of_unlike_stages(tmp_path: Path) -> None:
    w = Writer()
    x = w.tensor("x", (4, 6))
    halves = [w.part(x._full_tensor, ((0, 4), (0, 6))) for _ in range(3)]
    y, z = w.tensor("y", (4, 6)), w.tensor("z", (4, 6))
    one = w.segment([w.compute("torch.exp", [x], [y])], [x], [y])
    two = w.segment([w.compute("torch.exp", [x], [z])], [x], [z])
    plan = read(
        tmp_path, w.root({0: [w.data([x]), one], 1: [w.data([x]), two], 2: [w.data([x]), two]}, 6)
    )
    assert halves and [(axis.name, axis.size) for axis in plan.mesh] == [("dp", 2), ("device", 3)]
