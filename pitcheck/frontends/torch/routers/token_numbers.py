"""The numbers of the tokens that a rank's routers see, among the tokens of the whole batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.program import Input
from pitcheck.frontends.torch.recording.rank_batch import box_of
from pitcheck.frontends.torch.routing import Router
from pitcheck.frontends.torch.trace import Intervals

SAY = "say in Spec.router in which shape the tokens lie (tokens) and what divides them (split)"


class TokenNumbers:
    """The tokens of a rank, call by call of a router.

    ``mesh`` and ``coordinate`` are empty for the reference. ``total`` is the number of tokens of
    the reference's routers; None while the reference is recorded.
    """

    def __init__(
        self,
        router: Router,
        batch: Mapping[str, Input],
        mesh: Mapping[str, int],
        coordinate: Mapping[str, int],
        total: int | None,
    ) -> None:
        self._router = router
        self._batch = batch
        self._mesh = mesh
        self._coordinate = coordinate
        self._total = total

    def calls(self, rows: int, where: str) -> list[tuple[int, ...]]:
        """Return the numbers of the tokens of every call, each of ``rows`` tokens.

        Raises UnsupportedError if nothing tells them, PlanError if the tokens that the rank has are
        not divided into such calls.
        """
        shape, box = self._grid(rows, where)
        own = prod(stop - start for ((start, stop),) in box)
        count = own // rows
        dim = self._router.microbatched
        if not 0 <= dim < len(shape):
            raise PlanError(f"Spec.router.microbatched is {dim}, but tokens have the shape {shape}")
        ((start, stop),) = box[dim]
        if own % rows or (stop - start) % count:
            raise UnsupportedError(
                f"{where}: a router chooses for {rows} tokens, but the rank has {own} of the "
                f"{prod(shape)} tokens of the batch; {SAY}"
            )
        part = (stop - start) // count
        return [
            tuple(
                _numbers(
                    shape,
                    [
                        range(start + call * part, start + (call + 1) * part)
                        if place == dim
                        else range(*interval)
                        for place, (interval,) in enumerate(box)
                    ],
                )
            )
            for call in range(count)
        ]

    def _grid(self, rows: int, where: str) -> tuple[tuple[int, ...], tuple[Intervals, ...]]:
        """Return the shape of all tokens, and the interval of each dimension that the rank has."""
        if self._router.tokens is not None:
            given = Input(self._router.tokens, split=self._router.split)
            return given.shape, self._box("tokens", given)
        found = [
            (given.shape, self._box(name, given))
            for name, given in self._fitting(self._total or rows)
        ]
        sets = {
            tuple(_numbers(shape, [range(*interval) for (interval,) in box]))
            for shape, box in found
        }
        if len(sets) != 1:
            known = (
                "inputs of the batch divide them in several ways"
                if sets
                else f"no input of the batch begins with {self._total or rows} elements"
            )
            raise UnsupportedError(
                f"{where}: nothing tells for which tokens a router chooses: {known}; {SAY}"
            )
        return found[0]

    def _fitting(self, total: int) -> Iterator[tuple[str, Input]]:
        """Yield the inputs whose first dimensions have as many elements as there are tokens."""
        for name, given in self._batch.items():
            for dims in range(1, len(given.shape) + 1):
                if prod(given.shape[:dims]) == total:
                    split = {dim: axes for dim, axes in given.split.items() if dim < dims}
                    yield name, Input(given.shape[:dims], split=split)
                    break

    def _box(self, name: str, given: Input) -> tuple[Intervals, ...]:
        held = given if self._mesh else Input(given.shape)
        return box_of(name, held, self._mesh, self._coordinate)


def _numbers(shape: Sequence[int], places: Sequence[range]) -> Iterator[int]:
    """Yield the row-major numbers of the places of a grid, in order."""
    for place in product(*places):
        number = 0
        for size, at in zip(shape, place, strict=True):
            number = number * size + at
        yield number


def runs(numbers: Sequence[int]) -> Intervals:
    """Return numbers as half-open intervals, which follow one another in their order."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return tuple(found)
