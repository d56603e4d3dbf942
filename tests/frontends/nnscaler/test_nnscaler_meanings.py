"""Meanings of calls are kept by form: equal forms share them, and nothing else does."""

from __future__ import annotations

from typing import Any

from pitcheck.frontends.nnscaler.pickles import Stub
from pitcheck.frontends.nnscaler.signatures import Meanings
from pitcheck.plan.model import Number


class Tensor(Stub):
    origin = ("nnscaler.ir.tensor", "IRSubTensor")


def of(
    meanings: Meanings, signature: str, *arguments: Any, **keywords: Any
) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    found = meanings.of(signature, arguments, keywords, ["float32"])
    return found.kind, found.operands, found.attributes


def test_operands_are_those_of_the_call() -> None:
    meanings = Meanings()
    a, b = Tensor(), Tensor()
    assert of(meanings, "torch.mul", a, a) == ("mul", (a, a), {})
    assert of(meanings, "torch.mul", a, b) == ("mul", (a, b), {})
    assert of(meanings, "torch.mul", b, a) == ("mul", (b, a), {})
    assert of(meanings, "torch.mul", b, 2) == ("mul", (b, Number(2)), {})
    assert of(meanings, "torch.mul", 2, b) == ("mul", (Number(2), b), {})


def test_equal_numbers_of_different_types_are_different_calls() -> None:
    meanings = Meanings()
    a = Tensor()
    assert [repr(of(meanings, "torch.mul", a, n)[1][1].value) for n in (1, 1.0, 0.0, -0.0)] == [
        "1",
        "1.0",
        "0.0",
        "-0.0",
    ]
    assert of(meanings, "torch.mul", a, True)[0] == "nnscaler:torch.mul"
    assert of(meanings, "torch.softmax", a, dim=1)[2] == {"axis": 1}
    assert of(meanings, "torch.softmax", a, dim=-1)[2] == {"axis": -1}


def test_results_and_number_of_arguments_tell_calls_apart() -> None:
    meanings = Meanings()
    a = Tensor()
    assert meanings.of("torch.Tensor.view", [a, 2, 3], {}, ["float32"]).attributes == {
        "sizes": (2, 3)
    }
    assert meanings.of("torch.Tensor.view", [a, 2], {}, ["float32"]).attributes == {"sizes": (2,)}
    assert meanings.of("torch.Tensor.view", [a], {"size": 2}, ["float32"]).attributes == {
        "sizes": (2,)
    }


def test_unknown_calls_keep_the_class_of_a_tensor_in_a_keyword() -> None:
    a, b = Tensor(), Tensor()
    for _ in range(2):
        kind, operands, attributes = of(Meanings(), "my.function", a, other=b)
        assert (kind, operands) == ("nnscaler:my.function", (a, b))
        assert attributes == {"other": "<nnscaler.ir.tensor.IRSubTensor>"}
