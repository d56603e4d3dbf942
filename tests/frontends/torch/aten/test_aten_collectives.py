"""Collectives of a trace, and what the driver does with names."""

from __future__ import annotations

from typing import Any

import pytest
from frontends.torch.aten.aten_harness import name_of, translation_of

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.aten.operators import table, translated
from pitcheck.frontends.torch.trace import COLLECTIVES, Event, Ref, Value
from pitcheck.ops.registry import check_attributes, operator_kind
from pitcheck.plan.fold import Instance
from pitcheck.plan.model import Group

_FOUR, _EIGHT, _TWO = (Value((n, 3), "bfloat16") for n in (4, 8, 2))
_GROUP = (3, 1)


def _instance(
    kind: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    grouped: bool = True,
    **attributes: Any,
) -> Instance:
    return Instance(
        kind,
        inputs,
        outputs,
        attributes,
        Group(ranks=(_GROUP,)) if grouped else None,
        "model.py:9",
        "mlp",
    )


CASES = [
    (
        "all_reduce",
        (Ref(0), "avg"),
        _FOUR,
        _instance("all_reduce", ("v0",), ("v1",), reduction="avg"),
    ),
    ("all_gather", (Ref(0),), _EIGHT, _instance("all_gather", ("v0",), ("v1",), axis=0)),
    (
        "reduce_scatter",
        (Ref(0), "sum"),
        _TWO,
        _instance("reduce_scatter", ("v0",), ("v1",), axis=0, reduction="sum"),
    ),
    (
        "all_to_all",
        (Ref(0), None, None),
        _FOUR,
        _instance("all_to_all", ("v0",), ("v1",), split_axis=0, concat_axis=0),
    ),
    (
        "all_to_all",
        (Ref(0), (2, 2), (2, 2)),
        _FOUR,
        _instance("all_to_all", ("v0",), ("v1",), split_axis=0, concat_axis=0),
    ),
    ("broadcast", (Ref(0), 1), _FOUR, _instance("broadcast", ("v0",), ("v1",), root=1)),
    ("send", (Ref(0), 5, 7), None, _instance("send", ("v0",), (), False, peer=5, tag=7)),
    ("receive", (5, 7), _FOUR, _instance("receive", (), ("v1",), False, peer=5, tag=7)),
    ("wait", (Ref(0),), _FOUR, _instance("wait", ("v0",), ("v1",), False)),
    ("wait", (Ref(0),), None, _instance("wait", ("v0",), (), False)),
    ("barrier", (), None, _instance("barrier", (), ())),
]


def _event(kind: str, arguments: tuple[Any, ...], output: Value | None) -> Event:
    outputs = () if output is None else (1,)
    return Event(
        kind,
        arguments,
        outputs,
        group=() if kind in ("send", "receive", "wait") else _GROUP,
        source="model.py:9",
        module="mlp",
    )


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("kind", "arguments", "output", "expected"), CASES)
def test_collective(
    kind: str,
    arguments: tuple[Any, ...],
    output: Value | None,
    expected: Instance,
    asynchronous: bool,
) -> None:
    translation = translated(
        _event(kind, arguments, output),
        [_FOUR, output or _FOUR],
        name_of,
        lambda hint, _: hint,
        asynchronous,
    )
    attributes = {
        **expected.attributes,
        **({"async": True} if asynchronous and kind not in ("wait", "barrier") else {}),
    }
    assert translation.instances == (
        Instance(
            kind, expected.inputs, expected.outputs, attributes, expected.group, "model.py:9", "mlp"
        ),
    )
    assert not translation.tensors
    check_attributes(operator_kind(kind), attributes)


def test_every_collective_is_known() -> None:
    assert set(table()) >= COLLECTIVES == {kind for kind, *_ in CASES}


@pytest.mark.parametrize(
    ("kind", "arguments", "output"),
    [
        ("all_to_all", (Ref(0), (1, 3), (2, 2)), _FOUR),
        ("all_to_all", (Ref(0), (2, 2), (3, 1)), _FOUR),
    ],
)
def test_parts_of_different_sizes_are_refused(
    kind: str, arguments: tuple[Any, ...], output: Value
) -> None:
    with pytest.raises(UnsupportedError, match=r"'all_to_all' with sizes (sent|received) = "):
        translation_of(_event(kind, arguments, output), [_FOUR, output])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (((1, 1), (2, 2)), r"has sizes sent \[1, 1\]"),
        (((2, 2), (1, 1)), r"has sizes received \[1, 1\]"),
        (((4,), (2, 2)), r"has sizes sent \[4\]"),
        (((1, 1, 1, 1), (2, 2)), r"has sizes sent \[1, 1, 1, 1\]"),
    ],
)
def test_parts_that_are_not_all_rows_are_an_error(
    sizes: tuple[tuple[int, ...], tuple[int, ...]], message: str
) -> None:
    with pytest.raises(
        PlanError, match=f"model.py:9: an all_to_all of 2 ranks with 4 rows {message}"
    ):
        translation_of(_event("all_to_all", (Ref(0), *sizes), _FOUR), [_FOUR, _FOUR])


def test_equal_parts_of_rows_that_cannot_be_cut() -> None:
    odd = Value((3, 3), "bfloat16")
    with pytest.raises(
        PlanError, match="an all_to_all of 2 ranks with 3 rows, which are not cut into equal parts"
    ):
        translation_of(_event("all_to_all", (Ref(0), None, None), odd), [odd, odd])


def test_parts_of_one_size_that_differ_between_members_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"'all_to_all' with x = "):
        translation_of(_event("all_to_all", (Ref(0), (2, 2), (4, 4)), _EIGHT), [_FOUR, _EIGHT])


@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter"])
def test_a_reduction_that_is_not_known_is_refused(kind: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'{kind}' with reduction = 'premul_sum'"):
        translation_of(_event(kind, (Ref(0), "premul_sum"), _FOUR), [_FOUR, _FOUR])


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("all_gather", _FOUR),
        ("all_gather", Value((8, 4), "bfloat16")),
        ("reduce_scatter", _FOUR),
        ("all_reduce", _TWO),
    ],
)
def test_an_output_of_another_shape_is_an_error(kind: str, output: Value) -> None:
    arguments = (Ref(0), *(("sum",) if kind != "all_gather" else ()))
    with pytest.raises(PlanError, match=f"'{kind}' gives a bfloat16 tensor of shape"):
        translation_of(_event(kind, arguments, output), [_FOUR, output])


def test_one_value_as_two_outputs_and_an_output_that_is_an_input() -> None:
    """Every output has a name of its own, however the meaning comes by it."""
    values = [Value((4,), "float32"), Value((4,), "float32"), Value((4,), "bool")]
    translation = translation_of(
        Event("native_dropout.default", (Ref(0), 0.0, True), (1, 2)), values
    )
    assert [(i.kind, i.inputs, i.outputs) for i in translation.instances] == [
        ("full", (), ("v2",)),
        ("identity", ("v0",), ("v1",)),
    ]


def test_tensors_in_between_are_named_and_described() -> None:
    values = [Value((2, 4), "bfloat16")] * 2 + [
        Value((4, 4), "bfloat16"),
        Value((2, 4), "bfloat16"),
    ]
    translation = translation_of(
        Event("addmm.default", (Ref(0), Ref(1), Ref(2), 1, 1), (3,)), values
    )
    assert [(i.kind, i.inputs, i.outputs) for i in translation.instances] == [
        ("matmul", ("v1", "v2"), ("matmul~0",)),
        ("add", ("v0", "matmul~0"), ("v3",)),
    ]
    assert translation.tensors == {"matmul~0": Value((2, 4), "bfloat16")}


def test_an_output_that_is_stored_elsewhere_is_the_same() -> None:
    values = [Value((2, 4), "float32"), Value((4, 4), "float32"), Value((2, 4), "float32")]
    plain, stored = (
        translation_of(Event(f"mm.{overload}", (Ref(0), Ref(1)), (2,)), values)
        for overload in ("default", "out")
    )
    assert plain == stored
