"""The tape against PyTorch's autograd, run by the independent executor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from pitcheck.errors import PlanError
from pitcheck.execution.executor import execute
from pitcheck.models.records import held
from pitcheck.models.tape import Tape
from pitcheck.plan.model import Lineage, Plan
from pitcheck.plan.validate import validate


def _values(
    plan: Plan, seed: int = 0, ranks: int = 1
) -> tuple[dict[str, Any], dict[tuple[str, int, int], Any]]:
    """Random initial values by name (equal on all ranks and micro-batches), and all values of the
    plan.
    """
    generator = np.random.default_rng(seed)
    written = {name for operator in plan.operators for name in operator.outputs}
    given: dict[str, Any] = {}
    for tensor in plan.tensors:
        if tensor.name not in written:
            given[tensor.name] = (
                generator.normal(size=tensor.shape)
                if tensor.value is None
                else np.full(tensor.shape, float(tensor.value))
            )
    places = [
        (name, rank, m) for name in given for rank in range(ranks) for m in range(plan.microbatches)
    ]
    return given, execute(plan, {place: given[place[0]] for place in places})


def _valid(plan: Plan) -> None:
    assert [str(v) for v in validate(plan)] == []


def _perceptron(tape: Tape) -> tuple[str, list[str]]:
    """A tensor used three times, one operand used twice, two outputs of which one is used."""
    x = tape.input("x", (4, 3))
    w, c = tape.parameter("w", (3, 3)), tape.parameter("c", (3,))
    h = tape.op("linear", x, w, name="h")
    squared = tape.op("mul", h, h, name="squared")
    left, _ = tape.several(
        "split", tape.op("tanh", h, name="t"), names=("left", "right"), axis=1, sizes=(1, 2)
    )
    total = tape.op(
        "add", squared, tape.op("mul", tape.op("add", h, left), c, name="scaled"), name="total"
    )
    return tape.op("sum", total, name="loss"), [w, c]


def _torch_perceptron(given: dict[str, Any]) -> dict[str, Any]:
    x, w, c = (torch.tensor(given[name], requires_grad=True) for name in ("x", "w", "c"))
    h = x @ w.T
    left = torch.tanh(h)[:, :1]
    loss = (h * h + (h + left) * c).sum()
    loss.backward()
    assert w.grad is not None and c.grad is not None
    return {"loss": loss.detach().numpy(), "grad:w": w.grad.numpy(), "grad:c": c.grad.numpy()}


def test_gradients_are_those_of_autograd() -> None:
    tape = Tape("perceptron")
    loss, parameters = _perceptron(tape)
    gradients = tape.backward({loss: tape.constant("one", 1)})
    assert gradients == {name: f"grad:{name}" for name in parameters}
    for name, gradient in gradients.items():
        tape.gradient(gradient, of=name)
    plan = tape.plan()
    _valid(plan)
    given, values = _values(plan)
    for name, expected in _torch_perceptron(given).items():
        np.testing.assert_allclose(values[name, 0, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("split", [False, True])
def test_blocks_and_recomputation_change_no_value(split: bool) -> None:
    tape = Tape("perceptron", {"pp": 1})
    with tape.block("forward.0"), tape.recomputed():
        loss, _ = _perceptron(tape)
    tape.backward({loss: tape.constant("one", 1)}, split=split)
    blocks = [
        name for name in ("forward.0", "backward.0", "weight.0") if split or name != "weight.0"
    ]
    tape.program([(name, None) for name in blocks])
    plan = tape.plan()
    _valid(plan)
    assert list(plan.blocks) == blocks
    assert "h:again" in {name for operator in plan.operators for name in operator.outputs}
    backward = [operator for operator in plan.operators if operator.kind.endswith(".backward")]
    assert all("h" not in operator.inputs for operator in backward)
    given, values = _values(plan)
    for name, expected in _torch_perceptron(given).items():
        np.testing.assert_allclose(values[name, 0, 0], expected, rtol=1e-12)


def _column_and_row(tape: Tape) -> str:
    """Two linear layers cut over tp, with the hand-written derivative of the all-reduce between."""
    x = tape.parameter("x", (4, 6), {})
    first, second = tape.parameter("a", (4, 6), {0: "tp"}), tape.parameter("b", (5, 4), {1: "tp"})
    with tape.untracked():
        entered = tape.op("identity", x, name="entered")

    def leave(gradients: Sequence[str | None]) -> Sequence[str | None]:
        assert gradients[0] is not None
        return [tape.op("all_reduce", gradients[0], group="tp", name=tape.gradient_name(x))]

    tape.region([x], [entered], leave)
    part = tape.op(
        "linear", tape.op("tanh", tape.op("linear", entered, first)), second, name="part"
    )
    with tape.untracked():
        y = tape.op("all_reduce", part, group="tp", name="y", hint=held("y"))
    tape.region([part], [y], lambda gradients: gradients)
    return tape.op("sum", tape.op("square", y), name="loss")


def test_a_region_has_the_derivative_that_is_written() -> None:
    tape = Tape("tensor parallel", {"tp": 2})
    loss = _column_and_row(tape)
    assert tape.backward({loss: tape.constant("one", 1)}) == {
        "a": "grad:a",
        "b": "grad:b",
        "x": "grad:x",
    }
    plan = tape.plan()
    _valid(plan)
    generator = np.random.default_rng(3)
    x, a, b = (
        generator.normal(size=(4, 6)),
        generator.normal(size=(8, 6)),
        generator.normal(size=(5, 8)),
    )
    initial = {("one", rank, 0): np.ones(()) for rank in range(2)}
    for rank in range(2):
        initial |= {
            ("x", rank, 0): x,
            ("a", rank, 0): a[4 * rank : 4 * rank + 4],
            ("b", rank, 0): b[:, 4 * rank : 4 * rank + 4],
        }
    values = execute(plan, initial)
    leaves = [torch.tensor(value, requires_grad=True) for value in (x, a, b)]
    ((torch.tanh(leaves[0] @ leaves[1].T) @ leaves[2].T) ** 2).sum().backward()
    expected_x, expected_a, expected_b = (leaf.grad for leaf in leaves)
    assert expected_x is not None and expected_a is not None and expected_b is not None
    for rank in range(2):
        part = slice(4 * rank, 4 * rank + 4)
        np.testing.assert_allclose(values["grad:x", rank, 0], expected_x, rtol=1e-12)
        np.testing.assert_allclose(values["grad:a", rank, 0], expected_a[part], rtol=1e-12)
        np.testing.assert_allclose(values["grad:b", rank, 0], expected_b[:, part], rtol=1e-12)


def _pipeline(tape: Tape) -> dict[str, str]:
    """A linear layer on each of two stages, every record at its stage."""
    x = tape.input("x", (4, 3), microbatched=True)
    with tape.at(pp=(0,)), tape.block("forward.0"):
        sent = tape.op("linear", x, tape.parameter("a", (3, 3)), name="sent")
        with tape.untracked():
            tape.send(sent, 1)
    with tape.at(pp=(1,)), tape.block("forward.1"), tape.untracked():
        got = tape.receive(sent, 0, name="got")

    def back(gradients: Sequence[str | None]) -> Sequence[str | None]:
        assert gradients[0] is not None
        with tape.at(pp=(1,)), tape.block("backward.1"):
            tape.send(gradients[0], 0)
        return [tape.receive(gradients[0], 1, name=tape.gradient_name(sent))]

    with tape.at(pp=(0,)), tape.block("forward.0"):
        tape.region([sent], [got], back)
    with tape.at(pp=(1,)), tape.block("forward.1"):
        loss = tape.op(
            "sum", tape.op("tanh", tape.op("linear", got, tape.parameter("b", (3, 3)))), name="loss"
        )
    return tape.backward({loss: tape.constant("one", 1)}, partial="partial:")


def test_stages_that_send_and_receive() -> None:
    tape = Tape("pipeline", {"pp": 2}, microbatches=2)
    gradients = _pipeline(tape)
    assert gradients == {"a": "partial:a", "b": "partial:b"}
    for name, stage in (("a", 0), ("b", 1)):
        with tape.at(pp=(stage,)), tape.block(f"end.{stage}"):
            tape.op("accumulate", gradients[name], name=f"grad:{name}")
    for stage in range(2):
        order: list[tuple[str, int | None]] = [
            (f"forward.{stage}", 0),
            (f"forward.{stage}", 1),
            (f"backward.{stage}", 0),
            (f"backward.{stage}", 1),
        ]
        tape.program([*order, (f"end.{stage}", None)], pp=(stage,))
    plan = tape.plan()
    _valid(plan)
    given, values = _values(plan, ranks=2)
    a, b = (
        torch.tensor(given["a"], requires_grad=True),
        torch.tensor(given["b"], requires_grad=True),
    )
    (2 * torch.tanh(torch.tensor(given["x"]) @ a.T @ b.T).sum()).backward()
    assert a.grad is not None and b.grad is not None
    np.testing.assert_allclose(values["grad:a", 0, 0], a.grad, rtol=1e-12)
    np.testing.assert_allclose(values["grad:b", 1, 0], b.grad, rtol=1e-12)


def test_one_tensor_at_several_places() -> None:
    """Ranks compute in different records, and each has gradients of its own."""
    tape = Tape("places", {"pp": 2})
    w = tape.parameter("w", (3,))
    with tape.at(pp=(0,)):
        tape.op("square", w, name="y")
    with tape.at(pp=(1,)):
        tape.op("tanh", tape.op("mul", w, 2), name="y")
    loss = tape.op("sum", "y", name="loss")
    tape.backward({loss: tape.constant("one", 1)})
    plan = tape.plan()
    _valid(plan)
    given, values = _values(plan, ranks=2)
    w0 = given["w"]
    np.testing.assert_allclose(values["grad:w", 0, 0], 2 * w0, rtol=1e-12)
    np.testing.assert_allclose(values["grad:w", 1, 0], 2 * (1 - np.tanh(2 * w0) ** 2), rtol=1e-12)


def test_gradients_are_hinted_where_they_are_complete() -> None:
    tape = Tape("hints", {"dp": 2, "tp": 2})
    x = tape.input("x", (4, 6), lineage={0: "dp"})
    w = tape.parameter("w", (6, 6), {0: "tp"}, gradient=held("grad:w", {0: "tp"}, partial=("dp",)))
    y = tape.op("linear", x, w, name="y", hint={0: "dp", 1: "tp"})
    z = tape.op("tanh", y, name="z", hint={0: "dp", 1: "tp"}, gradient=False)
    tape.backward({tape.op("sum", z): tape.constant("one", 1)})
    tensors = tape.tensors
    assert tensors["grad:y"].lineage == held("grad:y", {0: "dp", 1: "tp"})
    assert tensors["grad:z"].lineage is None
    assert tensors["grad:w"].lineage == Lineage(
        "grad:w", held("w", {0: "tp"}).shards, partial=("dp",)
    )


def test_a_collective_without_a_derivative_is_refused() -> None:
    tape = Tape("refused", {"tp": 2})
    w = tape.parameter("w", (4,))
    with pytest.raises(PlanError, match="untracked"):
        tape.op("all_reduce", w, group="tp")


def test_names_axes_and_outputs_are_checked() -> None:
    tape = Tape("refused", {"tp": 2})
    x = tape.input("x", (4,))
    with pytest.raises(PlanError, match="there already"):
        tape.input("x", (4,))
    with pytest.raises(PlanError, match="no tensor of this name"):
        tape.op("neg", "y")
    with pytest.raises(PlanError, match="outputs, but 1 are named"):
        tape.op("topk", x, k=2)
    with pytest.raises(PlanError, match="another record would write"):
        tape.op("sum", x, name=tape.op("neg", x, name="y"))
    with pytest.raises(PlanError, match="not all within axis 'pp'"), tape.at(pp=(0,)):
        pass
