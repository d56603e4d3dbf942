"""Runs of a planner's file.

They have signatures, autograd of the forward segment, sizes that the model unpacks, and parts that
are selected.
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
from pitcheck.plan.model import Number, Plan
from pitcheck.plan.validate import validate


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    with written_modules():
        yield


def read(tmp_path: Path, data: bytes) -> Plan:
    file = tmp_path / "written.pkl"
    file.write_bytes(data)
    return read_nnscaler(file)


# --- signatures


def adapted(tmp_path: Path, primitive: Any, w: Writer, x: Any) -> Plan:
    return read(tmp_path, w.root({0: [w.data([x]), w.adapter([primitive], [x], [])]}, 1))


def test_class_that_contradicts_its_signature(tmp_path: Path) -> None:
    w = Writer()
    x, y = w.tensor("x", (4, 6)), w.tensor("y", (4, 6))
    primitive = w.signed("AllReducePrim", "nnscaler.runtime.adapter.identity", [x], [y], ranks=[0])
    with pytest.raises(
        PlanError,
        match="AllReducePrim carries the signature 'identity': the plan contradicts itself",
    ):
        adapted(tmp_path, primitive, w, x)


@pytest.mark.parametrize("signature", [None, ""])
def test_primitive_without_a_signature_runs_nothing(tmp_path: Path, signature: str | None) -> None:
    w = Writer()
    x = w.tensor("x", (4, 6))
    with pytest.raises(PlanError, match="has no signature"):
        adapted(tmp_path, w.signed("AllReducePrim", signature, [x], [x], ranks=[0]), w, x)


@pytest.mark.parametrize("signature", ["rvscatter", "my.all_reduce", "all_reduce.more"])
def test_function_without_a_meaning_is_not_guessed(tmp_path: Path, signature: str) -> None:
    w = Writer()
    x = w.tensor("x", (4, 6))
    with pytest.raises(UnsupportedError, match="has no meaning here"):
        adapted(
            tmp_path,
            w.signed("OtherPrim", f"nnscaler.runtime.adapter.{signature}", [x], [x], ranks=[0]),
            w,
            x,
        )


def test_keyword_that_the_function_does_not_take(tmp_path: Path) -> None:
    w = Writer()
    x = w.tensor("x", (4, 6))
    with pytest.raises(PlanError, match="the keyword 'async_op', which all_reduce does not take"):
        adapted(tmp_path, w.primitive("AllReducePrim", [x], [x], ranks=[0], async_op=True), w, x)


def test_selected_part_of_terms(tmp_path: Path) -> None:
    w = Writer()
    x, y = w.tensor("x", (4, 6)), w.tensor("y", (2, 3))
    w.data([x])
    primitive = w.primitive("SelectPrim", [x], [y], indmap=(slice(2, 4), slice(0, 3)), valmap=2)
    plan = read(tmp_path, w.root({0: [w.data([x]), w.adapter([primitive], [x], [y])]}, 1))
    assert [
        (o.kind, {k: v for k, v in o.attributes.items() if k != "step"}) for o in plan.operators
    ] == [
        ("slice", {"axis": 0, "start": 2, "stop": 4}),
        ("slice", {"axis": 1, "start": 0, "stop": 3}),
        ("div", {}),
    ]
    assert plan.operators[-1].inputs[1] == Number(2)
    assert not validate(plan)


def test_selected_part_outside_is_refused(tmp_path: Path) -> None:
    w = Writer()
    x, y = w.tensor("x", (4, 6)), w.tensor("y", (2, 3))
    primitive = w.primitive("SelectPrim", [x], [y], indmap=(slice(2, 5), slice(0, 3)), valmap=1)
    with pytest.raises(PlanError, match="no part of a dimension of size 4"):
        adapted(tmp_path, primitive, w, x)


# --- autograd


class Branches:
    """loss = sum(a + x w), where a and b are copies of x w; what the file says of the backward pass
    is given.
    """

    def __init__(self, w: Writer) -> None:
        self.x, self.weight = w.tensor("x", (4,)), w.tensor("w", (4,), parameter=True)
        self.y, self.a, self.b = w.tensor("y", (4,)), w.tensor("a", (4,)), w.tensor("b", (4,))
        self.unused, self.loss = w.tensor("unused", (4,)), w.tensor("total", (1,), loss=True)
        self.nodes = [
            w.compute("torch.mul", [self.x, self.weight], [self.y]),
            w.compute("nnscaler.runtime.function.multiref", [self.y], [self.a, self.b], times=2),
            w.compute("torch.nn.functional.silu", [self.b], [self.unused]),
            w.compute("torch.sum", [self.a], [self.loss]),
        ]
        self.forward = w.segment(self.nodes, [self.x], [self.loss])


def gradient_of(plan: Plan, name: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    assert not validate(plan)
    given = given_for(plan)
    machine = Machine(plan, given)
    machine.run()
    return machine.values[f"grad:{name}", 0, None], given


@pytest.mark.parametrize("hints", [True, False])
def test_branch_without_a_gradient_takes_zeros(tmp_path: Path, hints: bool) -> None:
    w = Writer()
    cells = Branches(w)
    nodes = [
        w.derive(cells.nodes[1], [cells.a._grad, cells.b._grad], [cells.y._grad]),
        w.derive(
            cells.nodes[0], [cells.y._grad], [cells.x._grad, cells.weight._grad] if hints else []
        ),
    ]
    backward = w.segment(nodes, [cells.loss._grad], [], cells.forward)
    gradient, given = gradient_of(
        read(tmp_path, w.root({0: [w.data([cells.x]), cells.forward, backward]}, 1)), "w"
    )
    assert torch.allclose(gradient, given["x"])


def test_backward_operators_are_hints(tmp_path: Path) -> None:
    """A backward operator that names the gradient of another tensor changes nothing that runs."""
    w = Writer()
    cells = Branches(w)
    nodes = [w.derive(cells.nodes[0], [cells.unused._grad], [cells.weight._grad, cells.x._grad])]
    backward = w.segment(nodes, [cells.loss._grad], [], cells.forward)
    gradient, given = gradient_of(
        read(tmp_path, w.root({0: [w.data([cells.x]), cells.forward, backward]}, 1)), "w"
    )
    assert torch.allclose(gradient, given["x"])


def test_loss_of_several_elements_is_refused(tmp_path: Path) -> None:
    w = Writer()
    x, weight, loss = (
        w.tensor("x", (4,)),
        w.tensor("w", (4,), parameter=True),
        w.tensor("total", (4,), loss=True),
    )
    product = w.compute("torch.mul", [x, weight], [loss])
    forward = w.segment([product], [x], [loss])
    backward = w.segment(
        [w.derive(product, [loss._grad], [weight._grad])], [loss._grad], [], forward
    )
    with pytest.raises(PlanError, match=r"the loss 'total' has shape \(4,\)"):
        read(tmp_path, w.root({0: [w.data([x]), forward, backward]}, 1))


def two_microbatches(w: Writer, order: tuple[int, int]) -> bytes:
    """Two forward passes, then their backward passes in an order."""
    cells = Branches(w)
    backward = w.segment(
        [w.derive(cells.nodes[0], [cells.y._grad], [cells.weight._grad])],
        [cells.loss._grad],
        [],
        cells.forward,
    )
    data = w.data([cells.x])
    calls, forwards, losses = [], [], []
    for _ in range(2):
        x, loss = w.tensor("x", (4,)), w.tensor("total", (1,), loss=True)
        forwards.append(w.call(cells.forward, [x], [loss]))
        losses.append(loss)
        calls += [w.call(data, [], [x]), forwards[-1]]
    calls += [w.call(backward, [losses[n]._grad], [], forwards[n]) for n in order]
    return w.root({0: calls}, 1)


def test_saved_inputs_are_taken_first_in_first_out(tmp_path: Path) -> None:
    assert not validate(read(tmp_path, two_microbatches(Writer(), (0, 1))))
    with pytest.raises(PlanError, match="first in, first out"):
        read(tmp_path, two_microbatches(Writer(), (1, 0)))


# --- sizes


def unpacked(
    tmp_path: Path, w: Writer, sizes: Any, take: int = 2, signature: str = "builtins.iter"
) -> Plan:
    """``a, b, ... = sizes; y = x.view(b, a)``."""
    x, y, values = (
        w.tensor("x", (4, 6)),
        w.tensor("y", (6, 4)),
        [w.value(4), w.value(6), w.value(1)],
    )
    source = w.value()
    nodes = [w.python(signature, [x if sizes is None else sizes], [source])]
    if sizes is None:
        first, source = source, w.value()
        nodes.append(w.python("builtins.iter", [first], [source]))
    nodes += [w.python("builtins.next", [source], [value]) for value in values[:take]]
    nodes.append(w.compute("torch.Tensor.view", [x], [y], size=(values[1], values[0])))
    return read(tmp_path, w.root({0: [w.data([x]), w.segment(nodes, [x], [y])]}, 1))


def test_sizes_are_those_that_are_unpacked(tmp_path: Path) -> None:
    assert unpacked(tmp_path, Writer(), (4, 6)).operators[0].attributes == {"sizes": (6, 4)}
    assert unpacked(tmp_path, Writer(), (2, 12)).operators[0].attributes == {"sizes": (12, 2)}, (
        "not what the tracer saw"
    )


def test_sizes_of_a_tensor(tmp_path: Path) -> None:
    plan = unpacked(tmp_path, Writer(), None, signature="torch.Tensor.size")
    assert plan.operators[0].attributes == {"sizes": (6, 4)}
    assert len(plan.operators) == 1 and not validate(plan)


def test_too_few_sizes(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="next takes more values than the 2"):
        unpacked(tmp_path, Writer(), (4, 6), take=3)


@pytest.mark.parametrize(
    "signature", ["builtins.eval", "os.system", "builtins.print", "torch.Tensor.tolist"]
)
def test_function_of_the_model_without_a_meaning(tmp_path: Path, signature: str) -> None:
    with pytest.raises(UnsupportedError, match="computes no tensor, and has no meaning here"):
        unpacked(tmp_path, Writer(), (4, 6), signature=signature)


@pytest.mark.parametrize(
    ("signature", "arguments", "value"),
    [
        ("builtins.float", [4], 4.0),
        ("builtins.int", [4.5], 4),
        ("_operator.getitem", [(4, 6), -1], 6),
        ("_operator.floordiv", [7, 2], 3),
        ("_operator.mul", [2, 3], 6),
        ("math.sqrt", [16], 4.0),
        ("builtins.len", [(1, 2, 3)], 3),
    ],
)
def test_numbers_that_the_model_computes(
    tmp_path: Path, signature: str, arguments: list[Any], value: float
) -> None:
    w = Writer()
    x, y, number = w.tensor("x", (4, 6)), w.tensor("y", (4, 6)), w.value(99)
    nodes = [w.python(signature, arguments, [number]), w.compute("torch.mul", [x, number], [y])]
    plan = read(tmp_path, w.root({0: [w.data([x]), w.segment(nodes, [x], [y])]}, 1))
    assert plan.operators[0].inputs[1] == Number(value)


@pytest.mark.parametrize(
    ("signature", "arguments"),
    [
        ("_operator.floordiv", [7, 0]),
        ("_operator.mul", [2**40, 2**40]),
        ("_operator.getitem", [(4, 6), 5]),
        ("_operator.add", ["a", "b"]),
        ("builtins.iter", [3]),
    ],
)
def test_numbers_that_are_not_computed(
    tmp_path: Path, signature: str, arguments: list[Any]
) -> None:
    w = Writer()
    x, number = w.tensor("x", (4, 6)), w.value(99)
    with pytest.raises(UnsupportedError):
        read(
            tmp_path,
            w.root(
                {0: [w.data([x]), w.segment([w.python(signature, arguments, [number])], [x], [])]},
                1,
            ),
        )


def test_object_that_nothing_computes_has_no_value(tmp_path: Path) -> None:
    """The value that the tracer saw is not the one of a run."""
    w = Writer()
    x, y = w.tensor("x", (4, 6)), w.tensor("y", (4, 6))
    plan = read(
        tmp_path,
        w.root(
            {0: [w.data([x]), w.segment([w.compute("torch.mul", [x, w.value(2)], [y])], [x], [y])]},
            1,
        ),
    )
    assert plan.operators[0].kind == "nnscaler:torch.mul"
