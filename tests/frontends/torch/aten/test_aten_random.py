"""ATen's random draws: distributed as PyTorch's are, the same from one stream and others from
another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from frontends.torch.aten.aten_harness import (
    as_array,
    by_algebra,
    evaluated,
    name_of,
    overload,
    translation_of,
)

from pitcheck.frontends.torch.aten.random import TABLE
from pitcheck.frontends.torch.recording.generator_state import begin, drawn
from pitcheck.frontends.torch.trace import Event, Ref, Value

SHAPE = (64, 64)
QUANTILES = (0.02, 0.2, 0.8, 0.98)
_X = Ref(0)
CASES: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = [
    ("rand.default", (SHAPE, "float64", None, None, None), (SHAPE,)),
    ("rand.generator", (SHAPE, None, "float64", None, None, None), (SHAPE,)),
    ("rand_like.default", (_X, "float64", None, None, None, None), (torch.zeros(SHAPE),)),
    ("randn.default", (SHAPE, "float64", None, None, None), (SHAPE,)),
    ("randn.generator", (SHAPE, None, "float64", None, None, None), (SHAPE,)),
    ("randn_like.default", (_X, "float64", None, None, None, None), (torch.zeros(SHAPE),)),
    ("normal_functional.default", (_X, 1.0, 0.5, None), (torch.zeros(SHAPE), 1.0, 0.5)),
    (
        "normal.float_float",
        (-1.0, 0.5, SHAPE, None, "float64", None, None, None),
        (-1.0, 0.5, SHAPE),
    ),
    ("uniform.default", (_X, -1.0, 2.5, None), (torch.zeros(SHAPE), -1.0, 2.5)),
    ("bernoulli.p", (_X, 0.3, None), (torch.zeros(SHAPE), 0.3)),
    ("bernoulli.p", (_X, 0.0, None), (torch.zeros(SHAPE), 0.0)),
    ("bernoulli.p", (_X, 1.0, None), (torch.zeros(SHAPE), 1.0)),
    ("bernoulli.default", (_X, None), (torch.linspace(0, 1, 64).expand(SHAPE).contiguous(),)),
]


def translated(
    operator: str, arguments: tuple[Any, ...], given: torch.Tensor, stream: str
) -> np.ndarray[Any, Any]:
    values = [Value(SHAPE, "float64"), Value(SHAPE, "float64")]
    translation = translation_of(
        Event(operator, (*arguments, stream), (1,), source="model.py:3", module="layers.0"), values
    )
    said = {name_of(0): values[0], name_of(1): values[1], **translation.tensors}
    result: np.ndarray[Any, Any] = evaluated(
        translation, {name_of(0): as_array(given)}, said, by_algebra
    )[name_of(1)]
    return result


@pytest.mark.parametrize(("operator", "arguments", "called"), CASES)
def test_distribution(operator: str, arguments: tuple[Any, ...], called: tuple[Any, ...]) -> None:
    given = (
        called[0].double() if isinstance(called[0], torch.Tensor) else torch.zeros(SHAPE).double()
    )
    keywords = (
        {"generator": torch.Generator().manual_seed(1)} if operator.endswith(".generator") else {}
    )
    torch.manual_seed(0)
    theirs = overload(operator)(*called, **keywords).double().numpy()
    ours = translated(operator, arguments, given, "a")
    assert abs(ours.mean() - theirs.mean()) < 0.1 and abs(ours.std() - theirs.std()) < 0.1
    assert np.abs(ours.mean(0) - theirs.mean(0)).max() < (0.8 if theirs.std() > 0.9 else 0.4)
    assert np.abs(np.quantile(ours, QUANTILES) - np.quantile(theirs, QUANTILES)).max() < 0.2
    if not operator.startswith(("randn", "normal")):
        assert ours.min() >= theirs.min() - 0.1 and ours.max() <= theirs.max() + 0.1
    assert (ours == translated(operator, arguments, given, "a")).all()
    assert np.unique(ours).size == 1 or (ours != translated(operator, arguments, given, "b")).any()


def test_every_overload_has_an_example() -> None:
    assert {operator for operator, *_ in CASES} | set(ORDERS) == TABLE.keys()


ORDERS: dict[str, tuple[Any, ...]] = {
    "randperm.default": (64, "int64", None, None, None),
    "randperm.generator": (64, None, "int64", None, None, None),
}


@pytest.mark.parametrize("operator", ORDERS)
def test_orders(operator: str) -> None:
    """Every place once, another order from another stream."""
    values = [Value((64,), "float64"), Value((64,), "int64")]
    found = []
    for said in ("a", "a", "b"):
        translation = translation_of(
            Event(
                operator, (*ORDERS[operator], said), (1,), source="model.py:3", module="layers.0"
            ),
            values,
        )
        known = {name_of(0): values[0], name_of(1): values[1], **translation.tensors}
        found.append(
            evaluated(translation, {name_of(0): np.zeros(64)}, known, by_algebra)[
                name_of(1)
            ].tolist()
        )
    first, again, other = found
    assert sorted(first) == sorted(other) == list(range(64)) and first == again != other


def stream(*shape: int, operator: str = "rand.default") -> str:
    called = overload(operator)
    bound = [
        (type("Named", (), {"name": a.name})(), shape if a.name == "size" else None)
        for a in called._schema.arguments
    ]
    return drawn(called, operator, bound)[0]


def test_streams() -> None:
    """One state, operator and shape, one stream; what is drawn before is part of the state, and a
    state may be saved and restored.
    """
    begin("rank 0")
    first, saved = stream(2, 3), torch.get_rng_state()
    second, other = stream(2, 3), torch.manual_seed(5)
    seeded = stream(2, 3)
    torch.set_rng_state(saved)
    again = stream(2, 3)
    torch.set_rng_state(saved)
    longer = stream(3, 2)
    assert other is torch.default_generator
    assert again == second and len({first, second, seeded, longer}) == 4
    begin("rank 0")
    assert stream(2, 3) == first
    begin("rank 1")
    assert stream(2, 3) != first


def test_orders_of_other_lengths_are_others() -> None:
    streams = []
    for length in (4, 4, 5):
        begin("rank 0")
        streams.append(
            drawn(
                overload("randperm.default"),
                "randperm.default",
                [(type("Named", (), {"name": "n"})(), length)],
            )
        )
    first, again, longer = streams
    assert first == again != longer


def test_what_has_no_meaning_moves_the_generator_on() -> None:
    begin("rank 0")
    before = torch.get_rng_state()
    called = overload("randint.default")
    assert drawn(called, "randint.default", []) == ()
    assert not torch.equal(torch.get_rng_state(), before)
