"""Flat buckets: buffers of parameters, gradients and moments that are cut over ranks in the middle
of parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from programs.near_misses import Change, assert_caught, changed, dropped, with_attributes
from programs.program_cases import Case, assert_right, case, gpt, layouts, llama
from support.by_day import some_at_once

from pitcheck.errors import PlanError
from pitcheck.models.presets import preset
from pitcheck.plan.model import Operator, Plan, Table


def flat(model: Any, sequences: int = 4, length: int = 8, **layout: Any) -> Case:
    """A case with flat buckets, of ZeRO 1 where nothing else is said."""
    return case(model, sequences, length, flat_buckets=True, **{"zero": 1, **layout})


PADDED = flat(llama(1), 6, dp=3, microbatches=2)
"""One bucket of 3,249 elements with its padding, cut in the middle of two parameters."""
SPREAD = flat(llama(), 8, dp=2, tp=2, pp=2, zero=2, microbatches=2, bucket=700)

FAST = {
    "one bucket": PADDED,
    "small buckets": flat(llama(1), dp=2, bucket=500),
    "gradient shards": flat(llama(1), 8, dp=2, zero=2, microbatches=2, bucket=500),
}
SLOW = {
    "over tensor and pipeline ranks": SPREAD,
    "sequence and context": flat(
        llama(1), 4, 16, dp=2, tp=2, cp=2, zero=2, sequence_parallel=True, bucket=700
    ),
    "sequence": flat(llama(), dp=2, tp=2, sequence_parallel=True, bucket=300),
    "one parameter a bucket": flat(llama(1), 10, dp=5, microbatches=2, bucket=1),
    "gpt": flat(gpt(), 6, dp=3, tp=2, bucket=300),
    "gpt, gradient shards": flat(gpt(1), 6, dp=3, zero=2, bucket=1000, microbatches=2),
    "copies of heads, zero bubbles": flat(
        llama(), dp=2, tp=4, pp=2, zero=2, schedule="zero-bubble", microbatches=2, bucket=300
    ),
    "interleaved": flat(llama(4), 8, dp=2, pp=2, virtual=2, microbatches=4, schedule="interleaved"),
    "computed again": flat(llama(2), 8, dp=4, pp=2, recompute=True, microbatches=2, bucket=900),
    "sixteen ranks": flat(llama(1), 32, dp=16, microbatches=2),
}


@pytest.mark.parametrize("found", layouts(FAST, SLOW))
def test_a_layout_is_right(found: Case) -> None:
    assert_right(found)


def test_shards_end_within_parameters() -> None:
    _, parallel = PADDED.plans()
    (first,) = [t for t in parallel.tensors if t.name == "first:flat.0"]
    assert first.lineage is not None
    assert first.lineage.shards[0].intervals == Table(
        ("dp",), (((0, 1083),), ((1083, 2166),), ((2166, 3248), (-1, 1)))
    )


def _whole(
    parallel: Plan, name: str, number: np.ndarray[Any, Any], at: dict[str, int]
) -> np.ndarray[Any, Any]:
    """Return the part of an array that a rank has, by the lineage of the parameter."""
    tensor = next(t for t in parallel.tensors if t.name == name)
    sizes = {axis.name: axis.size for axis in parallel.mesh}
    for shard in tensor.lineage.shards if tensor.lineage is not None else ():
        over = shard.by if shard.intervals is None else shard.intervals.over
        place = int(
            np.ravel_multi_index([at[axis] for axis in over], [sizes[axis] for axis in over])
        )
        if shard.intervals is None:
            number = np.split(number, int(np.prod([sizes[axis] for axis in over])), axis=shard.dim)[
                place
            ]
        else:
            intervals: Any = shard.intervals.values[place]
            number = np.concatenate(
                [number.take(range(start, stop), axis=shard.dim) for start, stop in intervals],
                axis=shard.dim,
            )
    return number


@pytest.mark.parametrize(
    "found", [SPREAD, SLOW["gpt"], SLOW["copies of heads, zero bubbles"], SLOW["sixteen ranks"]]
)
def test_a_shard_is_what_its_lineage_says(found: Case) -> None:
    """Against every parameter cut by NumPy, joined, padded and cut again."""
    reference, parallel = found.plans()
    sizes = {axis.name: axis.size for axis in parallel.mesh}
    shapes = {t.name: t.shape for t in reference.tensors}
    made = {o.outputs[0]: o for o in reference.operators}
    buffers = [t for t in parallel.tensors if t.name.startswith("first:flat.")]
    assert buffers
    for buffer in buffers:
        names = [
            str(made[str(part)].inputs[0])
            for part in made[buffer.name.removeprefix("first:")].inputs
        ]
        begins = np.cumsum([0, *(int(np.prod(shapes[name])) for name in names)])
        numbers = [
            np.arange(begin, begin + int(np.prod(shapes[name]))).reshape(shapes[name])
            for begin, name in zip(begins, names, strict=False)
        ]
        assert buffer.lineage is not None
        table = buffer.lineage.shards[0].intervals
        assert table is not None
        for place, at in enumerate(product(*(range(sizes[axis]) for axis in table.over))):
            coordinate = dict(zip(table.over, at, strict=True))
            own = np.concatenate(
                [
                    _whole(parallel, name, number, coordinate).reshape(-1)
                    for name, number in zip(names, numbers, strict=True)
                ]
            )
            intervals: Any = table.values[place]
            said = np.concatenate(
                [
                    np.full(stop, -1) if start < 0 else np.arange(start, stop)
                    for start, stop in intervals
                ]
            )
            size, shard = buffer.shape[0], coordinate["dp"]
            expected = np.concatenate([own, np.full(size * sizes["dp"] - len(own), -1)])[
                shard * size : (shard + 1) * size
            ]
            assert (said == expected).all()


def _one_later(operator: Operator) -> Operator:
    """The second rank's part of three begins one element later."""
    return replace(
        operator,
        kind="slice",
        attributes={
            "axis": 0,
            "start": Table(("dp",), (0, 1084, 2166)),
            "stop": Table(("dp",), (1083, 2167, 3249)),
        },
    )


def _exchanged(first: int, second: int) -> Change:
    """Two of the tensors that are joined stand in each other's place."""

    def change(operator: Operator) -> Operator:
        order = list(operator.inputs)
        order[first], order[second] = order[second], order[first]
        return replace(operator, inputs=tuple(order))

    return change


def _maker(tensor: str) -> Callable[[Plan], Operator]:
    """The operator that makes a tensor."""
    return lambda plan: next(o for o in plan.operators if tensor in o.outputs)


def _joining(tensor: str) -> Callable[[Plan], Operator]:
    """The operator that joins what a tensor is padded from."""
    return lambda plan: _maker(str(_maker(tensor)(plan).inputs[0]))(plan)


def _splitting(plan: Plan) -> Operator:
    """The operator that cuts new parameters out of what was gathered."""
    return next(o for o in plan.operators if o.kind == "split" and len(o.outputs) == 12)


def _keys_for_values(operator: Operator) -> Operator:
    """Keys begin where values do, and the other way round."""
    order = list(operator.outputs)
    order[3], order[4] = order[4], order[3]
    return replace(operator, outputs=tuple(order))


def _cutting(tensor: str) -> Callable[[Plan], Operator]:
    """The operator that takes the padding off a tensor."""
    return lambda plan: next(o for o in plan.operators if o.kind == "slice" and tensor in o.inputs)


MISSES: dict[str, tuple[Callable[[Plan], Operator], Change]] = {
    "a shard of parameters begins one later": (_maker("flat.0:own"), _one_later),
    "padding counts in the norm": (_maker("flat.0:gradients"), with_attributes(value=1)),
    "new parameters begin one later in the buffer": (
        _cutting("flat.0:gathered"),
        with_attributes(start=1, stop=3249),
    ),
    "new keys and values stand in each other's place": (_splitting, _keys_for_values),
    "gradients of keys and values stand in each other's place": (
        _joining("flat.0:gradients"),
        _exchanged(3, 4),
    ),
    "elements decay as those of another parameter do": (_maker("flat.0:decays"), _exchanged(5, 6)),
    "shards are averaged": (_maker("grad:flat.0"), with_attributes(reduction="avg")),
    "the squares of other shards are missing": (_maker("squares.own.dp.summed"), dropped),
}


@pytest.mark.parametrize("name", some_at_once(MISSES, len(MISSES), 4))
def test_a_near_miss_is_caught(name: str) -> None:
    find, change = MISSES[name]
    reference, parallel = PADDED.plans()
    assert_caught(reference, changed(parallel, find(parallel).id, change))


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"dp": 2, "zero": 3}, "layout.flat_buckets: are those of zero 1 and 2, not of zero 3"),
        ({"dp": 2, "zero": 0}, "layout.flat_buckets: are those of zero 1 and 2, not of zero 0"),
        (
            {"dp": 2, "pp": 2},
            "layout.flat_buckets: are not built where both ends of a pipeline share an embedding",
        ),
    ],
)
def test_what_is_not_built_is_refused(layout: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        flat(gpt(), **layout).plans()


def test_experts_are_refused() -> None:
    with pytest.raises(
        PlanError, match="are built for dense models, and mixtral-8x7b-tiny has experts"
    ):
        flat(preset("mixtral-8x7b-tiny"), dp=2).plans()
