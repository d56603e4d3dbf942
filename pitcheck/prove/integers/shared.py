"""Values that both sides compute from integers by the same steps.

Such values are equal whatever is drawn, so that draws need not show what they may be. Values that
change are the same on both sides if they were in all draws, as is what is given; what did not
change in any draw is only if it is made of the same values by the same operator.

>>> one, other = (Value("int", np.array(n).reshape(1, 2, 1)) for n in ([7, 8], [7, 9]))
>>> _of_draws(one) == _of_draws(one), _of_draws(one) == _of_draws(other)
(True, False)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.value import Value
from pitcheck.prove.integers.cone import Cone, Side
from pitcheck.stage.batch import Argument, StepOperand, values_of

Bools = NDArray[np.bool_]
Digests = dict[int, list[bytes]]
"""A digest of every row of a value, by value."""


@dataclass(frozen=True)
class Shared:
    """The rows of a side that the other side has, too.

    ``values`` has them by value, shape (rows,); ``steps`` by number of the step, shape (count,).
    """

    values: Mapping[int, Bools]
    steps: Mapping[int, Bools]


def shared(
    cone: Cone,
    values: tuple[Mapping[int, Value], Mapping[int, Value]],
    *,
    as_seen: bool = True,
) -> list[Shared]:
    """Return what the sides of a cone share; ``values`` are all values of both in some draws.

    Without ``as_seen`` values that are computed are the same only if all their steps are.
    """
    found = [_digests(side, own, as_seen) for side, own in zip(cone.sides, values, strict=True)]
    sets = [{each for by in own for rows in by.values() for each in rows} for own in found]
    return [
        Shared(
            {v: np.array([row in other for row in rows]) for v, rows in by_value.items()},
            {n: np.array([row in other for row in rows]) for n, rows in by_step.items()},
        )
        for (by_value, by_step), other in zip(found, sets[::-1], strict=True)
    ]


def _digests(side: Side, values: Mapping[int, Value], as_seen: bool) -> tuple[Digests, Digests]:
    """Return the digests of all rows of a side, by value and by step."""
    given = {value: known for value, known in values.items() if value not in side.made}
    by_value = {value: _of_draws(known) for value, known in given.items()}
    by_step: Digests = {}
    for number, (step, attributes) in enumerate(
        zip(side.batch.steps, side.attributes, strict=True)
    ):
        named = f"{step.kind} {sorted(attributes.items())!r}"
        for row in range(step.count):
            read = [_operand(by_value, operand, row) for operand in step.inputs]
            digest = blake2b(f"{named} {read!r}".encode(), digest_size=16).digest()
            by_step.setdefault(number, []).append(digest + b"0")
            for place, output in enumerate(step.outputs):
                if output is not None:
                    by_value.setdefault(output, []).append(digest + str(place).encode())
        for output in (o for o in step.outputs if o is not None and as_seen):
            by_value[output] = _with_seen(by_value[output], values[output])
    return by_value, by_step


def _operand(known: Digests, operand: StepOperand, row: int) -> Any:
    """Return what tells an operand of a row from others."""
    if not isinstance(operand, Argument | tuple):
        return repr(operand)
    found = []
    for argument in values_of([operand]):
        rows = np.atleast_1d(argument.rows[min(row, len(argument.rows) - 1)]).tolist()
        digests = known[argument.value]
        found.append([digests[min(each, len(digests) - 1)] for each in rows])
    return found


def _with_seen(digests: list[bytes], value: Value) -> list[bytes]:
    """Return the digests of the rows so far, with those of their numbers where these change."""
    seen, changed = _of_draws(value), (value.data != value.data[:, :1]).swapaxes(0, 2)
    places = [min(row, len(seen) - 1) for row in range(len(digests))]
    return [
        seen[place] if changed[place].any() else digest
        for place, digest in zip(places, digests, strict=True)
    ]


def _of_draws(value: Value) -> list[bytes]:
    """Return a digest of every row of what is given, from its numbers in all draws."""
    data = np.moveaxis(value.data[0], 1, 0)
    return [
        blake2b(
            f"{value.kind} {row.shape}".encode() + np.ascontiguousarray(row).tobytes(),
            digest_size=16,
        ).digest()
        for row in data
    ]
