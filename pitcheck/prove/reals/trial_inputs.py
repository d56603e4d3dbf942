"""Real inputs of many magnitudes, at which decisions show what they do.

>>> points_of([3.0]).named.tolist()[-1], len(points_of([3.0]).derived)
(3.0, 9)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.discrete import Decision
from pitcheck.algebra.keyed import key_of, lane_keys, uniform_words, unit_interval
from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.value import Value

Floats = NDArray[np.float64]

LARGEST = 1e12
"""The size beyond which a plan's numbers are no thresholds at which inputs are drawn: they would
hide everything beside them.
"""
FEW = 4
"""The count of numbers up to which their sums, differences, products and quotients are possible
thresholds, too.
"""
MOST_POINTS = 48
"""The most numbers of a plan at which inputs are drawn."""
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
"""The golden section."""
RAISED = 8.0
"""The height of a raised element above the others, in standard deviations."""
FIRST_EQUAL = 1 << 19
"""The first trial in which all elements of all tensors are one number."""
MOST_EQUAL = 6
"""The most of these trials: of 1, 0, and the smallest numbers of the plan."""
FIRST_RAISED = 1 << 20
"""The first trial in which one element per line is raised."""
FIRST_ALIKE = 1 << 21
"""The first trial in which lines are nearly equal."""
FIRST_SCALED = 1 << 22
"""The first trial that has the same ordinary numbers as all after it, each times a factor."""
ONE_RAISED, ALIKE, SCALED, EQUAL = -1, -2, -3, -4
"""The sorts of numbers that are asked for: one element of every line raised, all lines nearly
equal, ordinary ones on another scale, and one number everywhere.
"""
UNCOUNTED = np.zeros((0, 0), dtype=np.int64)
"""The counts of a decision on real numbers, which nobody counts."""
WAYS = 4
"""The ways in which lines are nearly equal, one trial after the other. The axes of a tensor that
are tokens are not known.
"""
APART = 1.0 / 64.0
"""The difference of nearly equal lines, in standard deviations. What chooses by them chooses the
same for nearly all, and what is chosen can be distinguished.
"""


@dataclass(frozen=True)
class Points:
    """The numbers at which decisions may change.

    ``named`` are 0, the numbers that both sides name, and their negatives. ``derived`` are what a
    step makes of two of them. Both have shape (points,).
    """

    named: Floats
    derived: Floats


def points_of(numbers: Iterable[float]) -> Points:
    """Return the points for the numbers that a stage names."""
    own = sorted({abs(n) for n in numbers if 0 < abs(n) <= LARGEST})[:MOST_POINTS]
    found = {0.0, *own}
    if len(own) <= FEW:
        found.update(
            n
            for a, b in product(own, own)
            for n in (a + b, abs(a - b), a * b, a / b)
            if n <= LARGEST
        )
    return Points(_mirrored({0.0, *own}), _mirrored(found))


def equal_numbers(points: Points) -> list[float]:
    """Return the numbers that all elements are in turn, one for each trial."""
    found = dict.fromkeys((1.0, *sorted(points.named.tolist(), key=abs)))
    return list(found)[:MOST_EQUAL]


def _mirrored(sizes: Iterable[float]) -> Floats:
    """Return the sizes with both signs, ascending."""
    return np.array(sorted({sign * n for n in sizes for sign in (-1.0, 1.0)}))


@dataclass(frozen=True)
class Raising:
    """The choice of elements that are raised.

    They are those of tensors with at least ``rank`` dimensions, along axes of ``size``; tensors of
    fewer dimensions are small then. The lines of a tensor are divided among ``instances``, in each
    of which every element is raised.
    """

    size: int = 0
    rank: int = 0
    instances: int = 1

    @classmethod
    def among(cls, shapes: Iterable[Sequence[int]], size: int, instances: int) -> Raising:
        """Return the raising along axes of ``size``, of matrices if there are any.

        In a matrix several elements are tried at once.
        """
        return cls(
            size, 2 if any(len(shape) > 1 and size in shape for shape in shapes) else 0, instances
        )

    def apart(self, shape: Sequence[int], axis: int) -> tuple[int, int]:
        """Return (distance of the raised elements of an instance's lines, lines of an instance)."""
        lines = max(1, prod(shape) // max(shape[axis], 1) // self.instances)
        return max(1, -(-shape[axis] // lines)), lines

    def turn(self, shape: Sequence[int], axis: int) -> int:
        """Return in how many trials elements are raised in turn; in as many then they are lowered.

        Half of them raise every element in every instance of consecutive lines; all of them most
        elements in most others.
        """
        return min(max(1, shape[axis]), 2 * self.apart(shape, axis)[0])

    def places(
        self, shape: Sequence[int], axis: int, number: int
    ) -> tuple[float, NDArray[np.int64]]:
        """Return (1 to raise or -1 to lower, the place of every line) in a trial along an axis.

        Consecutive lines are moved against each other by equal steps, as many as an instance has,
        and what follows by multiples of the golden section: an instance may have lines from several
        places, and these are spread, too.
        """
        size, turn = shape[axis], self.turn(shape, axis)
        apart, own = self.apart(shape, axis)
        block, rest = divmod(number, turn)
        lines = np.arange(prod(shape) // size)
        moved = lines % own * apart + np.floor(size * (lines // own * GOLDEN % 1.0)).astype(
            np.int64
        )
        return 1.0 - 2.0 * (block % 2), (block // 2 * turn + rest + moved) % size

    def most(self, shape: Sequence[int], axis: int) -> int:
        """Return after how many trials every line has had each element raised and lowered."""
        turn = self.turn(shape, axis)
        return 2 * turn * -(-shape[axis] // turn)

    def axes(self, shape: Sequence[int]) -> list[int]:
        """Return the axes of a tensor along which an element is raised.

        They are those of the size, or all if none has it.
        """
        return [axis for axis, size in enumerate(shape) if size == self.size] or list(
            range(len(shape))
        )


class TrialInputs(RealAlgebra):
    """A float64 algebra whose fresh values are of another sort in every trial.

    All tensors have the same sort in the first ``len(SORTS)`` trials, then each has its own.
    """

    def __init__(
        self,
        seed: int,
        trials: Sequence[int],
        points: Points,
        raising: Raising | None = None,
        factors: Sequence[float] = (),
    ) -> None:
        super().__init__(np, seed, trials)
        self.points = points
        self.factors = factors
        self.raising = raising or Raising()

    def fresh(
        self, key: str, shape: Sequence[int], instances: int = 1, domain: Any = "any"
    ) -> Value:
        """Return field values of the sort of every trial, shape (1, trials, instances, *shape).

        Of domain ``square`` they are squares, of domain ``nonzero`` they have no zeros, of domain
        ``positive`` they are positive, of domain ``nonnegative`` not negative.
        """
        drawn = [min(trial, FIRST_SCALED) for trial in self.trials]
        words = [
            unit_interval(
                np,
                uniform_words(
                    np,
                    lane_keys(np, key_of(self.seed, "trial", key, part), range(1), drawn),
                    instances,
                    shape,
                ),
            )[0]
            for part in (0, 1)
        ]
        result = np.empty_like(words[0])
        sorts = np.array([sort_of(self.seed, key, trial) for trial in self.trials])
        for sort in np.unique(sorts):
            chosen = sorts == sort
            own = [t for t, c in zip(self.trials, chosen, strict=True) if c]
            result[chosen] = self._draw(int(sort), len(shape))(
                _Draw(words[0][chosen], words[1][chosen], self.points, own, self.raising)
            )
        if self.factors:
            factors = [
                self.factors[trial - FIRST_SCALED] if trial >= FIRST_SCALED else 1.0
                for trial in self.trials
            ]
            result *= np.reshape(factors, (-1, *(1,) * (result.ndim - 1)))
        if domain == "square":
            # Some arguments of roots stay negative: both sides must have no value there.
            signed = np.isin(sorts, SIGNED).reshape(-1, *(1,) * (result.ndim - 1))
            result = np.where(signed, result, result * result)
        elif domain == "nonzero":
            result = np.where(result == 0, 1.0, result)
        elif domain == "positive":
            result = np.where(result == 0, 1.0, np.abs(result))
        elif domain == "nonnegative":
            result = np.abs(result)
        return Value("field", result[None])

    def _draw(self, sort: int, rank: int) -> Callable[[_Draw], Floats]:
        """Return the function that draws numbers of a sort for a tensor of so many dimensions."""
        if sort >= 0 or sort == SCALED:
            return SORTS[max(sort, 0)]
        if sort in (ALIKE, EQUAL):
            return _alike if sort == ALIKE else _equal
        return _raised if rank >= self.raising.rank else _small

    def _record(self, outcome: Any, free: Any) -> None:  # noqa: ARG002 (nobody counts outcomes on real numbers)
        """Note that something is decided, and not how often."""
        if outcome.shape[1] > 1 or len(self.trials) == 1:
            self.decisions.append(Decision(self._numbered("#"), UNCOUNTED, UNCOUNTED))

    def _record_reduction(self, key: Any, place: int, largest: bool) -> None:  # noqa: ARG002 (as above)
        self._record(key, False)


class SmallIntegers(TrialInputs):
    """Inputs that are 1 or 2, of either sign, and 0 at about one element of a tensor."""

    def _draw(self, sort: int, rank: int) -> Callable[[_Draw], Floats]:  # noqa: ARG002
        """Return the function that draws them."""
        return _rarely_zero


def _rarely_zero(d: _Draw) -> Floats:
    """Return 1 or 2 of either sign, and 0 at about one element."""
    zero = d.first * max(prod(d.first.shape[2:]), 2) < 1.0
    sizes = np.where(d.first < 0.5 + 0.5 / max(prod(d.first.shape[2:]), 2), 1.0, 2.0)
    return np.where(zero, 0.0, d.sign * sizes)


def sort_of(seed: int, key: str, trial: int) -> int:
    """Return the number of the sort that a tensor has in a trial.

    It is negative for ``SCALED``, ``ALIKE``, ``ONE_RAISED`` and ``EQUAL``.
    """
    if trial >= FIRST_SCALED:
        return SCALED
    if trial >= FIRST_RAISED:
        return ALIKE if trial >= FIRST_ALIKE else ONE_RAISED
    if trial >= FIRST_EQUAL:
        return EQUAL
    return trial if trial < len(SORTS) else key_of(seed, "sort", key, trial) % len(SORTS)


class _Draw:
    """Uniform numbers in (0, 1), shape (trials, instances, *shape), to make others of."""

    def __init__(
        self, first: Floats, second: Floats, points: Points, trials: Sequence[int], raising: Raising
    ) -> None:
        self.first = first
        self.second = second
        self.points = points
        self.trials = trials
        self.raising = raising
        shape = first.shape[2:]
        self.scale = 1.0 / math.sqrt(shape[-1]) if len(shape) > 1 and shape[-1] else 1.0

    @property
    def normal(self) -> Floats:
        """Return normal numbers."""
        result: Floats = np.sqrt(-2.0 * np.log(self.first)) * np.cos(2.0 * math.pi * self.second)
        return result

    @property
    def sized(self) -> Floats:
        """Return numbers between 1/2 and 2."""
        result: Floats = np.exp2(2.0 * self.first - 1.0)
        return result

    @property
    def sign(self) -> Floats:
        """Return random signs."""
        result: Floats = np.where(self.second < 0.5, -1.0, 1.0)
        return result


def _equal(d: _Draw) -> Floats:
    """Return one number at all elements, another one in each trial."""
    numbers = equal_numbers(d.points)
    chosen = [numbers[(trial - FIRST_EQUAL) % len(numbers)] for trial in d.trials]
    shape = (-1, *(1,) * (d.first.ndim - 1))
    return np.broadcast_to(np.reshape(np.array(chosen), shape), d.first.shape)


def _ordinary(d: _Draw) -> Floats:
    """Return normal numbers of the scale that suits a matrix."""
    return d.normal * d.scale


def _spread(d: _Draw) -> Floats:
    """Return numbers that are uniform between minus and plus twice a number of the plan."""
    sizes = d.points.named[d.points.named > 0]
    chosen = sizes if len(sizes) else np.ones(1)
    return (4.0 * d.second - 2.0) * chosen[(d.first * len(chosen)).astype(np.int64)]


def _near(d: _Draw) -> Floats:
    """Return numbers at a point, and at all distances from it down to 2^-24 of its size."""
    points = d.points.derived
    number = points[(d.first * len(points)).astype(np.int64)]
    steps = d.second * 52.0
    distance = np.where(
        steps < 4.0,
        0.0,
        np.exp2(-np.floor(steps / 2.0 - 2.0)) * np.where(steps % 2.0 < 1.0, -1.0, 1.0),
    )
    result: Floats = number + np.where(number == 0, 1.0, np.abs(number)) * distance
    return result


def _between(points: Floats, d: _Draw) -> Floats:
    """Return points, and numbers between a point and the next one.

    Whatever is compared with the points gets every outcome.
    """
    place = d.first * (2 * len(points) + 1)
    slot = place.astype(np.int64)
    width = max(1.0, float(points[-1]))
    borders = np.concatenate([points[:1] - width, points, points[-1:] + width])
    low, high = borders[slot // 2], borders[slot // 2 + 1]
    return np.where(slot % 2 == 1, borders[(slot + 1) // 2], low + (high - low) * d.second)


def _at_named(d: _Draw) -> Floats:
    """Return numbers at and between the named points."""
    return _between(d.points.named, d)


def _at_derived(d: _Draw) -> Floats:
    """Return numbers at and between the derived points."""
    return _between(d.points.derived, d)


def _few(d: _Draw) -> Floats:
    """Return integers from -2 to 2."""
    return np.floor(5.0 * d.first) - 2.0


def _positive(d: _Draw) -> Floats:
    """Return numbers between 1/2 and 2."""
    return d.sized


def _negative(d: _Draw) -> Floats:
    """Return numbers between -2 and -1/2."""
    return -d.sized


def _large(d: _Draw) -> Floats:
    """Return normal numbers of standard deviation 8."""
    return 8.0 * d.normal


def _integers(d: _Draw) -> Floats:
    """Return integers from -10 to 10."""
    return np.floor(21.0 * d.first) - 10.0


def _small(d: _Draw) -> Floats:
    """Return normal numbers of standard deviation 1/64."""
    return d.normal / 64.0


def _mostly_positive(d: _Draw) -> Floats:
    """Return numbers of which about one element of the last dimension is negative."""
    return np.where(d.second * max(d.first.shape[-1], 2) < 1.0, -d.sized, d.sized)


def _one_sign(d: _Draw) -> Floats:
    """Return numbers of one sign for a whole tensor."""
    if not d.sign.size:
        return d.sized
    first = d.sign.reshape(*d.sign.shape[:2], -1)[:, :, 0]
    return d.sized * first.reshape(*first.shape, *(1,) * (d.sign.ndim - 2))


SORTS: tuple[Callable[[_Draw], Floats], ...] = (
    _ordinary,
    _at_named,
    _positive,
    _few,
    _spread,
    _negative,
    _large,
    _at_derived,
    _integers,
    _mostly_positive,
    _near,
    _one_sign,
    _small,
)
"""The functions that draw numbers, one sort after the other. The first is what a plan meets."""

SIGNED = (SORTS.index(_few), SORTS.index(_mostly_positive))
"""The sorts that keep their signs even under roots."""


def _raised(d: _Draw) -> Floats:
    """Return ordinary numbers with one element of every line far above or below the others.

    The lines go along one axis. After as many trials as a line is long, each element has been
    raised.
    """
    values = d.normal * d.scale
    shape = values.shape[2:]
    if not shape or 0 in shape:
        return values
    axes = d.raising.axes(shape)
    for index, trial in enumerate(d.trials):
        number = trial - FIRST_RAISED
        axis, number = axes[number % len(axes)], number // len(axes)
        along = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        sign, places = d.raising.places(shape, axis, number)
        place = places.reshape([1 if i == axis else n for i, n in enumerate(shape)])
        values[index] = np.where(
            along == place, sign * (RAISED * d.scale + np.abs(values[index])), values[index]
        )
    return values


def _alike(d: _Draw) -> Floats:
    """Return ordinary numbers that hardly depend on the places along some axes.

    Such tokens all look the same to what routes them.
    """
    values = d.normal * d.scale
    shape = values.shape[2:]
    if not shape or 0 in shape:
        return values
    for index, trial in enumerate(d.trials):
        kept = _told_apart(shape, trial - FIRST_ALIKE, d.raising.size)
        first = values[index][
            (
                slice(None),
                *(slice(None) if axis in kept else slice(0, 1) for axis in range(len(shape))),
            )
        ]
        values[index] = first + APART * values[index]
    return values


def _told_apart(shape: Sequence[int], number: int, size: int) -> Sequence[int]:
    """Return the axes along which the numbers of a trial differ.

    They are all but two (sequences and places), all but one (tokens), the last alone, or one of
    ``size`` (experts).
    """
    last = len(shape) - 1
    fours, way = divmod(number, WAYS)
    if way < WAYS - 1:
        return range(min((2, 1, last)[way], last), last + 1)
    axes = [axis for axis in range(len(shape)) if shape[axis] == size] or [last]
    return (axes[fours % len(axes)],)
