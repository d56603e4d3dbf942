"""Hashes, order, comparison and special codes of residues on a GPU: one launch each.

Results are those of :class:`pitcheck.algebra.residues.array_forms.ArrayForms` bit for bit.

>>> KEYED.itemsize
48
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.device.joins import concatenated
from pitcheck.algebra.device.kernels import Kernels
from pitcheck.algebra.device.layouts import Operand, grid_of
from pitcheck.algebra.keyed import BLOCK, block_of, bulk_keys, mix_int
from pitcheck.algebra.residues.array_forms import ArrayForms, Output, Parity
from pitcheck.algebra.residues.residue_order import key_of_nan, scale_for

DOMAINS = {"any": 0, "nonzero": 1, "square": 2, "words": 3}
PARITIES: dict[Parity | None, int] = {None: 0, "odd": 1, "even": 2}
MOST_ARGUMENTS = 3

KEYED = np.dtype(
    [
        ("key", np.uint64),
        ("lowest", np.uint64),
        ("scale", np.uint64),
        ("arguments", np.int32),
        ("levels", np.int32),
        ("first", np.int32),
        ("lane_first", np.int32),
        ("parity", np.int32),
        ("output", np.int32),
    ],
    align=True,
)


class DeviceForms(ArrayForms):
    """Operations beside those of a ring, by kernels."""

    kernels: Kernels
    structs: list[NDArray[np.void]]
    """For each level, the primes from it on."""
    mixed_trials: dict[tuple[int, ...], Any]
    nothing: Any = None

    def concatenate(self, arrays: Sequence[Any], axis: int) -> Any:
        return concatenated(self.kernels, arrays, axis)

    # --- comparison and order
    def equal(self, a: Any, b: Any) -> Any:
        return self._compared(a, b, 0)

    def differ(self, a: Any, b: Any) -> Any:
        return self._compared(a, b, 1)

    def vanishes(self, a: Any) -> Any:
        return self._compared(a, self._zero(a.ndim), 0)

    def _zero(self, ndim: int) -> Any:
        """Return one number 0 with so many axes."""
        if self.nothing is None:
            self.nothing = self.xp.zeros(1, dtype=np.int64)
        return self.nothing.reshape((1,) * ndim)

    def _codes_or_zero(self, special: Any, ndim: int) -> Any:
        """Return codes, or one code of finite numbers in place of None."""
        return self._zero(ndim).view(np.uint8)[..., :1] if special is None else special

    def _compared(self, a: Any, b: Any, differ: int) -> Any:
        plan, (x, y) = self.kernels.over(a, b)
        out = self.xp.empty((1, *plan.shape[1:]), dtype=np.bool_)
        self.kernels.each(
            "equal_at_all_levels", plan, x, y, out.view(np.uint8), plan.layout, np.int32(differ)
        )
        return out

    def order_key(self, top: Any, level: int, special: Any = None, nan_first: bool = False) -> Any:
        plan, (x, y) = self.kernels.over(top, self._codes_or_zero(special, top.ndim))
        out = self.xp.empty(plan.shape, dtype=np.int64)
        self.kernels.launch(
            "order_keys",
            plan,
            x,
            y,
            out,
            plan.layout,
            self.structs[level],
            np.uint64(scale_for(self.members[level])),
            np.int64(key_of_nan(nan_first)),
        )
        return out

    # --- specials
    def signless(self, a: Any, low: int, bound: int, special: Any = None) -> Any:
        plan, (x, y) = self.kernels.over(a, self._codes_or_zero(special, a.ndim))
        out = self.xp.empty((1, *plan.shape[1:]), dtype=np.bool_)
        self.kernels.each(
            "signless_numbers",
            plan,
            x,
            y,
            out.view(np.uint8),
            plan.layout,
            self.structs[low],
            np.int64(bound),
        )
        return out

    def stand_ins(self, a: Any, low: int, special: Any) -> Any:
        plan, (x, y) = self.kernels.over(a, self._codes_or_zero(special, a.ndim))
        out = self.xp.empty((1, *plan.shape[1:]), dtype=np.float64)
        scale = scale_for(self.members[low + a.shape[0] - 1])
        self.kernels.each(
            "stand_ins", plan, x, y, out, plan.layout, self.structs[low], np.uint64(scale)
        )
        return out

    def codes_of(self, stand_ins: Any) -> Any:
        plan, (x,) = self.kernels.over(stand_ins)
        out = self.xp.empty(plan.shape, dtype=np.uint8)
        mark = self.kernels.next_mark()
        self.kernels.each("codes_of_numbers", plan, x, out, self.kernels.flag, mark, plan.layout)
        return out if out.size and self.kernels.marked(mark) else None

    # --- hashes
    def residues_of(self, words: Any, domain: str) -> Any:
        plan, (x,) = self.kernels.over(words)
        out = self.xp.empty(plan.shape, dtype=np.int64)
        self.kernels.launch(
            "residues_of_words",
            plan,
            x,
            out,
            plan.layout,
            self.structs[0],
            np.int32(DOMAINS[domain]),
        )
        return out

    def drawn_in_bulk(
        self,
        parts: tuple[object, ...],
        trials: Sequence[int],
        instances: int,
        shape: Sequence[int],
        domain: str,
        first: int = 0,
    ) -> Any:
        """Return a part of a draw that is too large for SHAKE128, made on the device."""
        keys = bulk_keys(parts, range(len(self.members)), trials)
        levels, count = len(self.members), instances * prod(shape)
        out = self.xp.empty((levels, len(trials), instances, *shape), dtype=np.int64)
        if out.size:
            self.kernels.run(
                "philox",
                grid_of(len(trials) * -(-count // BLOCK), levels),
                (
                    self.xp.asarray(keys),
                    out,
                    *map(np.uint64, (levels, len(trials), count, block_of(first))),
                    self.structs[0],
                    np.int32(DOMAINS[domain]),
                ),
            )
        return out

    def hashed(
        self,
        key: int,
        trials: Sequence[int],
        arguments: Sequence[Any],
        low: int,
        levels: int,
        parity: Parity | None = None,
    ) -> Any:
        if len(arguments) > MOST_ARGUMENTS:
            return super().hashed(key, trials, arguments, low, levels, parity)
        counted = min(x.shape[0] for x in arguments)
        first = max(counted - 2, 0)
        options = (key, low, 0, len(arguments), counted, first, 0, PARITIES[parity], 0)
        return self._keyed(options, trials, arguments, low, levels)

    def entries(
        self,
        key: int,
        trials: Sequence[int],
        arguments: Sequence[Any],
        parity: Parity | None = None,
        output: Output = "any",
    ) -> Any:
        if len(arguments) > MOST_ARGUMENTS:
            return super().entries(key, trials, arguments, parity, output)
        levels = len(self.members)
        options = (key, 0, 0, len(arguments), levels, 0, 1, PARITIES[parity], DOMAINS[output])
        found = self._keyed(options, trials, arguments, 0, levels)
        return found.view(np.uint64) if output == "words" else found

    def _keyed(
        self,
        options: tuple[int, ...],
        trials: Sequence[int],
        arguments: Sequence[Any],
        low: int,
        levels: int,
    ) -> Any:
        ndim = arguments[0].ndim
        of_trials = Operand(
            (levels, len(trials), *(1,) * (ndim - 2)), (0, 1, *(0,) * (ndim - 2)), 1
        )
        missing = [arguments[0]] * (MOST_ARGUMENTS - len(arguments))
        plan, arrays = self.kernels.over(*arguments, *missing, beside=(of_trials,))
        out = self.xp.empty(plan.shape, dtype=np.int64)
        keyed = np.array([options], dtype=KEYED)
        keyed["scale"] = scale_for(self.members[low + int(keyed["levels"][0]) - 1])
        self.kernels.each(
            "keyed_function",
            plan,
            *arrays,
            self._mixed(tuple(trials)),
            out,
            plan.layout,
            self.structs[low],
            keyed,
        )
        return out

    def _mixed(self, trials: tuple[int, ...]) -> Any:
        """Return the mixed numbers of trials on the device, sent once."""
        if trials not in self.mixed_trials:
            numbers = [mix_int(trial) for trial in trials]
            self.mixed_trials[trials] = self.xp.asarray(numbers, dtype=np.uint64)
        return self.mixed_trials[trials]
