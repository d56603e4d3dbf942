"""Counts of the tokens that choose places of routers, and that all-to-alls carry.

>>> one = Coverage(4, tokens=8, pairs=4, carried=2, choices=6, chosen=1, empty=1, share=3.0)
>>> one.joined(one).draws
8
"""

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
"""The draws over residues in which each pair must have carried the same number of tokens before it
is believed that it always does.
"""


HIDDEN = 1e-6
"""The share of the largest real number of a draw below which another one does not show in what is
compared.
"""


FLOODED = 3.0
"""The factor of its even share that an expert must have received in some draw. If all tokens are
less than that, half as much above the even share as they would be.
"""


@dataclass(frozen=True)
class Coverage:
    """The routes of tokens in so many ``draws``.

    Each rank routed at least so many ``tokens``. Each of the ``pairs`` of a sender and a receiver
    (0 if nothing is sent) got at least ``carried``. Each of the ``choices`` of a rank and an expert
    was chosen by at least ``chosen``. In one draw ``empty`` experts received nothing and another
    one ``share`` times its even share. Both are 0 if no draw can do that, because all tokens choose
    all experts, or every expert takes the same number.
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
        """Return what holds of two sets of sizes together.

        That is all draws, the ways of the larger set, and what the less travelled ones carried.
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
    """Return what holds of all sets of sizes together; None if there is no coverage."""
    own = [coverage for coverage in found if coverage is not None]
    return reduce(Coverage.joined, own) if own else None


@dataclass
class Router:
    """A step that chooses places along ``axis`` of an operand for every token.

    Its rows of ``output`` begin at ``begin``.
    """

    step: Step
    output: int
    begin: int
    axis: int
    narrows: bool
    """True if another router is left to choose within what it chose (a group of experts). Its ways
    count, but its places are no experts.
    """
    chosen: Counts = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    """The number of tokens that chose, shape (rows, places)."""
    tokens: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The number of tokens of each row, shape (rows,)."""
    loads: list[Counts] = field(default_factory=list)
    """The number of tokens that chose each place in every draw, over all rows, shapes (draws,
    places).
    """
    varied: Bools | None = None
    """The places with different scores in different draws, shape (rows, places). None while no two
    draws were seen together.
    """

    @property
    def operand(self) -> Argument:
        """Return the scores."""
        (given,) = values_of(self.step.inputs[:1])
        return given

    @property
    def each(self) -> int:
        """Return how many places a token chooses."""
        return int(self.step.attributes.get("k", 1))

    def take(self, evaluated: Evaluated, good: Bools) -> None:
        """Count the ``good`` draws of an evaluation, shape (draws,)."""
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
        """Return where scores differ between draws, shape (rows, places).

        No draw chooses what a mask fills in, or a constant.
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
        """Return the places that a draw can choose, shape (rows, places)."""
        return np.ones(self.chosen.shape, dtype=np.bool_) if self.varied is None else self.varied

    def bias(self) -> tuple[int, float] | None:
        """Return (empty places, load of one place) of the draw that flooded a place most.

        The load is in multiples of its even share. Only places count that a draw can choose. Return
        (0, 0) if a token chooses all that there are, and None if no draw flooded a place so far.
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
    """An all-to-all of one value: its rows are the senders, its parts along ``dim`` the receivers'.

    ``sent`` and ``carried``, shape (rows, receivers): the parts that are handed on, and the tokens
    they carried.
    """

    node: int
    value: int
    dim: int
    sent: Bools
    carried: Counts
    exact: list[Counts] = field(default_factory=list)
    """The tokens that each pair carried in every draw over residues, shapes (draws, rows,
    receivers).
    """

    def take(self, evaluated: Evaluated, good: Bools) -> None:
        """Count the ``good`` draws of an evaluation, shape (draws,)."""
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
        """Return True if each pair carried the same in all draws over residues.

        This is so if every expert takes a fixed number of tokens: none is ever empty or flooded.
        """
        each = (
            np.concatenate(self.exact)
            if self.exact
            else np.zeros((0, *self.sent.shape), dtype=np.int64)
        )
        return len(each) >= LEAST_EVEN and bool(((each == each[:1]) | ~self.sent).all())


def _full(value: Value) -> Any:
    """Return which elements hold a number other than zero, shape (trials or 1, rows or 1, *shape).

    Real numbers count only if larger ones beside them do not hide them.
    """
    data = value.data[0]
    if data.dtype.kind == "f":
        size = np.where(np.isfinite(data), np.abs(data), 0.0)
        return size > HIDDEN * size.max(axis=tuple(range(1, size.ndim)), initial=0.0, keepdims=True)
    return data != 0 if value.special is None else (data != 0) & (value.special[0] == 0)
