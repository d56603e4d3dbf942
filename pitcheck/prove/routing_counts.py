"""Counts of the tokens that routers choose places for, and that all-to-alls carry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.value import LEADING, Value
from pitcheck.stage.batch import Argument, Step, values_of
from pitcheck.stage.evaluate import Evaluated

Bools = NDArray[np.bool_]


Counts = NDArray[np.int64]


LEAST_EVEN = 3
"""Draws over residues in which each pair must have carried the same number of tokens before it is
believed that it always does.
"""


HIDDEN = 1e-6
"""How much smaller than the largest number of a draw one may be, among real numbers, to be seen in
what is compared.
"""


FLOODED = 3.0
"""How many times its even share an expert must have received in some draw, or half as much above it
as all tokens would be.
"""


@dataclass(frozen=True)
class Coverage:
    """Where tokens went in so many ``draws``: at least so many ``tokens`` a rank, so many
    ``carried`` for each of the ``pairs`` of a sender and a receiver (0 pairs where nothing is
    sent), and so many that chose (``chosen``) for each of the ``choices`` of a rank and an expert.

    In one draw ``empty`` experts received nothing and another one ``share`` times its even share;
    both are 0 where no draw can do that, because all tokens choose all experts, or every expert
    takes the same number.
    """

    draws: int
    tokens: int
    pairs: int
    carried: int
    choices: int
    chosen: int
    empty: int
    share: float

    def joined(self, other: Coverage) -> Coverage:
        """What holds of two sets of sizes: all draws, the ways of the larger set, and what the less
        travelled ones carried.
        """
        carried = [c.carried for c in (self, other) if c.pairs]
        return Coverage(
            self.draws + other.draws,
            min(self.tokens, other.tokens),
            max(self.pairs, other.pairs),
            min(carried, default=0),
            max(self.choices, other.choices),
            min(self.chosen, other.chosen),
            min(self.empty, other.empty),
            min(self.share, other.share),
        )


def joined(found: Iterable[Coverage | None]) -> Coverage | None:
    """What holds of all sets of sizes together."""
    own = [coverage for coverage in found if coverage is not None]
    return reduce(Coverage.joined, own) if own else None


@dataclass
class Router:
    """A step that chooses places along ``axis`` of an operand for every token; its rows of
    ``output`` begin at ``begin``.
    """

    step: Step
    output: int
    begin: int
    axis: int
    narrows: bool
    """Whether another router is left to choose within what it chose (a group of experts): its ways
    count, but its places are no experts.
    """
    chosen: Counts = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    """How many tokens chose, shape (rows, places)."""
    tokens: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """How many tokens each row had."""
    loads: list[Counts] = field(default_factory=list)
    """How many tokens chose each place in every draw, over all rows, shapes (draws, places)."""
    varied: Bools | None = None
    """Which places had different scores in different draws, (rows, places); None while no two draws
    were seen together.
    """

    @property
    def operand(self) -> Argument:
        """The scores."""
        (given,) = values_of(self.step.inputs[:1])
        return given

    @property
    def each(self) -> int:
        """How many places a token chooses."""
        return int(self.step.attributes.get("k", 1))

    def take(self, evaluated: Evaluated, good: Bools) -> None:
        """Count the ``good`` draws of an evaluation."""
        xp, trials = evaluated.algebra.xp, len(good)
        data = evaluated.parallel[self.output].data[0]
        if data.shape[0] == 1 and trials > 1:
            return  # the same choice in every draw: no draw decides it
        scores: Value = evaluated.parallel[self.operand.value]
        places = scores.data.shape[LEADING + self.axis]
        found = to_host(
            xp, data[:, self.begin : self.begin + self.step.count] if data.shape[1] > 1 else data
        ).reshape(trials, -1, *data.shape[2:])
        found = np.broadcast_to(found, (trials, self.step.count, *found.shape[2:])).reshape(
            trials, self.step.count, -1
        )[good]
        line = np.arange(found.shape[0] * found.shape[1]).reshape(*found.shape[:2], 1) * places
        counts = np.bincount((line + found).reshape(-1), minlength=line.size * places).reshape(
            *found.shape[:2], places
        )
        if not self.chosen.size:
            self.chosen, self.tokens = (
                np.zeros(counts.shape[1:], dtype=np.int64),
                np.zeros(counts.shape[1], dtype=np.int64),
            )
        self.chosen += counts.sum(axis=0)
        self.tokens += found.shape[0] * (found.shape[2] // self.each)
        self.loads.append(counts.sum(axis=1))
        if trials > 1 and (self.varied is None or not self.varied.all()):
            varied = self._varied(xp, scores)
            self.varied = varied if self.varied is None else self.varied | varied

    def _varied(self, xp: Any, scores: Value) -> Bools:
        """Where scores differ between draws: what a mask fills in, or a constant, is chosen by no
        draw.
        """
        key = (
            scores.data[0]
            if scores.special is None
            else xp.where(
                scores.special[0] != 0, -scores.special[0].astype(np.int64), scores.data[0]
            )
        )
        place = LEADING - 1 + self.axis
        different = (key != key[:1]).any(
            axis=(0, *(i for i in range(LEADING - 1, key.ndim) if i != place))
        )
        rows = to_host(xp, different)
        return (
            np.broadcast_to(rows, (int(self.operand.rows.max()) + 1, rows.shape[1]))[
                self.operand.rows
            ]
            if len(rows) == 1
            else rows[self.operand.rows]
        )

    @property
    def eligible(self) -> Bools:
        """Which places a draw can choose, (rows, places)."""
        return np.ones(self.chosen.shape, dtype=np.bool_) if self.varied is None else self.varied

    def bias(self) -> tuple[int, float] | None:
        """(places that stayed empty, how many times its even share one received) of the draw that
        flooded a place most; None where none did so far.

        No place is counted that no draw can choose; (0, 0) where a token chooses all that there
        are.
        """
        able = self.eligible.any(axis=0)
        count = int(able.sum())
        if count <= self.each:
            return 0, 0.0
        loads = (
            np.concatenate(self.loads)[:, able]
            if self.loads
            else np.zeros((0, count), dtype=np.int64)
        )
        empty = (loads == 0).sum(axis=1)
        share = loads.max(axis=1, initial=0) * count / np.maximum(loads.sum(axis=1), 1)
        share[(empty == 0) | (share < min(FLOODED, (1 + count / self.each) / 2))] = 0.0
        if not share.any():
            return None
        best = int(share.argmax())
        return int(empty[best]), float(share[best])


@dataclass
class Move:
    """An all-to-all of one value: its rows are the senders, its parts along ``dim`` go to the
    receivers.

    ``sent`` and ``carried``, of shape (rows, receivers): which parts are handed on, and how many
    tokens they carried.
    """

    node: int
    value: int
    dim: int
    sent: Bools
    carried: Counts
    exact: list[Counts] = field(default_factory=list)
    """What each pair carried in every draw over residues, shapes (draws, rows, receivers)."""

    def take(self, evaluated: Evaluated, good: Bools) -> None:
        """Count the ``good`` draws of an evaluation."""
        value: Value = evaluated.parallel[self.value]
        full = _full(value)
        rank, count = value.rank, self.sent.shape[1]
        if self.dim != rank - 1:
            full = full.any(axis=-1)
            rank -= 1
        shape = full.shape[LEADING - 1 :]
        parts = full.reshape(
            *full.shape[: LEADING - 1],
            *shape[: self.dim],
            count,
            shape[self.dim] // count,
            *shape[self.dim + 1 :],
        )
        place = LEADING - 1 + self.dim
        tokens = to_host(
            evaluated.algebra.xp,
            parts.sum(
                axis=tuple(i for i in range(LEADING - 1, parts.ndim) if i != place), dtype=np.int64
            ),
        )
        each = np.broadcast_to(tokens, (len(good), *self.sent.shape))[good]
        self.carried += each.sum(axis=0)
        if value.data.dtype.kind != "f":
            self.exact.append(each)

    @property
    def even(self) -> bool:
        """Whether each pair carried the same in all draws over residues, as where experts take a
        number of tokens each: none is ever empty or flooded.
        """
        each = (
            np.concatenate(self.exact)
            if self.exact
            else np.zeros((0, *self.sent.shape), dtype=np.int64)
        )
        return len(each) >= LEAST_EVEN and bool(((each == each[:1]) | ~self.sent).all())


def _full(value: Value) -> Any:
    """Which elements hold a number other than zero, shape (trials or 1, rows or 1, *shape); of real
    ones those that larger ones beside them do not hide.
    """
    data = value.data[0]
    if data.dtype.kind == "f":
        size = np.where(np.isfinite(data), np.abs(data), 0.0)
        return size > HIDDEN * size.max(axis=tuple(range(1, size.ndim)), initial=0.0, keepdims=True)
    return data != 0 if value.special is None else (data != 0) & (value.special[0] == 0)
