"""Modular arithmetic on a GPU: each operation is one launch of a kernel, or two.

Results are those of :class:`pitcheck.algebra.residues.modular.Modular` bit for bit. Operands may
have any strides: a kernel follows up to eight axes, and of more a copy is made.

>>> parts_of(count=1 << 20, kept=4), parts_of(count=1000, kept=3), parts_of(count=0, kept=1)
(8192, 8, 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from pitcheck.algebra.device.device_forms import DeviceForms
from pitcheck.algebra.device.kernels import kernels_of, primes_struct
from pitcheck.algebra.device.layouts import (
    Operand,
    Plan,
    grid_of,
    operand,
    planned,
    planned_along,
)
from pitcheck.algebra.device.products import DeviceProduct
from pitcheck.algebra.device.programs import (
    ADD,
    LOAD,
    MULTIPLY,
    NEGATE,
    POWER,
    REDUCE,
    SUBTRACT,
    Step,
    program,
)
from pitcheck.algebra.keyed import SHORT
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.modular import Modular

_FLAT = {ADD: "add_residues", SUBTRACT: "subtract_residues", MULTIPLY: "multiply_residues"}
_RUN = 16
"""The elements that a thread inverts together, if there are many."""
_MANY = 1 << 17
"""The elements from which on a card is full."""
_FEW = 128
"""The terms up to which a thread adds up all of a sum."""


def parts_of(count: int, kept: int) -> int:
    """Return how many threads share a sum of ``count`` terms, if ``kept`` sums are computed.

    There are enough to fill a card, and each has terms enough to be worth a second launch.
    """
    return max(1, min(-(-count // _FEW), max(_FEW, -(-_MANY // max(1, kept)))))


class DeviceModular(DeviceForms, Modular):
    """Exact arithmetic modulo the members of one chain, by kernels; ``xp`` is cupy.

    Raises:
        UsageError: if the chain is longer than kernels allow.
    """

    def __init__(self, xp: Any, chain: Chain) -> None:
        super().__init__(xp, chain)
        self.kernels = kernels_of(xp)
        self.device_product = DeviceProduct(self.kernels)
        self.structs = [primes_struct(chain.primes[low:]) for low in range(len(chain))]
        self.mixed_trials = {}
        self._constants: dict[tuple[int, int, int, int], Any] = {}
        self._host = Modular(np, chain)

    def drawn(
        self,
        parts: tuple[object, ...],
        trials: Sequence[int],
        instances: int,
        shape: Sequence[int],
        domain: str,
    ) -> Any:
        if instances * prod(shape) > SHORT:
            return self.drawn_in_bulk(parts, trials, instances, shape, domain)
        # A transfer of residues costs less than one of words and a launch.
        return self.xp.asarray(self._host.drawn(parts, trials, instances, shape, domain))

    # --- launches
    def evaluate(
        self,
        steps: tuple[Step, ...],
        operands: Sequence[Any],
        low: int,
        constants: tuple[tuple[int, ...], ...] = (),
    ) -> Any:
        """Return a program of up to four operands that broadcast, in one launch.

        ``constants`` have a number for each level.

        Raises:
            ValueError: if the operands do not broadcast, or the program is none.
        """
        plan, arrays = self.kernels.over(*operands)
        out = self.xp.empty(plan.shape, dtype=np.int64)
        self._evaluate_into(out, steps, plan, arrays, low, constants)
        return out

    def _evaluate_into(
        self,
        out: Any,
        steps: tuple[Step, ...],
        plan: Plan,
        arrays: Sequence[Any],
        low: int,
        constants: tuple[tuple[int, ...], ...] = (),
    ) -> None:
        given = (*arrays, *(arrays[0],) * (4 - len(arrays)))
        self.kernels.launch(
            "elementwise",
            plan,
            *given,
            out,
            plan.layout,
            self.structs[low],
            program(steps, constants),
        )

    def _binary(self, code: int, a: Any, b: Any, low: int) -> Any:
        if a.shape != b.shape or not (a.flags.c_contiguous and b.flags.c_contiguous):
            return self.evaluate(((LOAD, 0), (LOAD, 1), (code, 0)), (a, b), low)
        out = self.xp.empty(a.shape, dtype=np.int64)
        levels = a.shape[0]
        if out.size:
            size = out.size // levels
            self.kernels.run(
                _FLAT[code],
                grid_of(-(-size // 2), levels),
                (a, b, out, np.uint64(size), np.uint64(levels), self.structs[low]),
            )
        return out

    # --- ring
    def reduce(self, t: Any, low: int) -> Any:
        return self.evaluate(((LOAD, 0), (REDUCE, 0)), (t,), low)

    def add(self, a: Any, b: Any, low: int) -> Any:
        return self._binary(ADD, a, b, low)

    def subtract(self, a: Any, b: Any, low: int) -> Any:
        return self._binary(SUBTRACT, a, b, low)

    def negate(self, a: Any, low: int) -> Any:
        return self.evaluate(((LOAD, 0), (NEGATE, 0)), (a,), low)

    def multiply(self, a: Any, b: Any, low: int) -> Any:
        return self._binary(MULTIPLY, a, b, low)

    def embed(self, integers: Any, low: int, count: int) -> Any:
        return self.reduce(self.xp.broadcast_to(integers, (count, *integers.shape[1:])), low)

    def constant(self, numerator: int, denominator: int, low: int, count: int) -> Any:
        """Return a rational as residues, kept for the next time: it is not to be changed."""
        key = numerator, denominator, low, count
        if key not in self._constants:
            self._constants[key] = super().constant(*key)
        return self._constants[key]

    def power(self, a: Any, exponent: int, low: int) -> Any:
        return self._powers(a, (exponent,) * a.shape[0], low)

    def root(self, a: Any, low: int) -> Any:
        primes = self.chain.primes[low : low + a.shape[0]]
        return self._powers(a, tuple((p + 1) // 4 for p in primes), low)

    def _powers(self, a: Any, exponents: tuple[int, ...], low: int) -> Any:
        """Return powers with an exponent for each level; Fermat's theorem makes each small."""
        primes = self.chain.primes[low : low + a.shape[0]]
        small = tuple(
            n if n < p else 1 + (n - 1) % (p - 1) for n, p in zip(exponents, primes, strict=True)
        )
        return self.evaluate(((LOAD, 0), (POWER, 0)), (a,), low, (small,))

    def matmul(self, a: Any, b: Any, low: int) -> Any:
        return self.device_product(a, b, self.structs[low])

    # --- inverses
    def inverse(self, a: Any, low: int) -> Any:
        return self._inverted(a, low, self.kernels.next_mark())

    def inverse_or_one(self, a: Any, low: int) -> tuple[Any, Any]:
        mark = self.kernels.next_mark()
        inverse = self._inverted(a, low, mark)
        return inverse, (a == 0) if a.size and self.kernels.marked(mark) else None

    def _inverted(self, a: Any, low: int, mark: np.uint32) -> Any:
        plan, (x,) = self.kernels.over(a)
        out = self.xp.empty(plan.shape, dtype=np.int64)
        few = plan.size * plan.shape[0] < _MANY
        threads = plan.size if few else -(-plan.size // _RUN)
        if out.size:
            self.kernels.run(
                "inverses" if few else "inverses_in_runs",
                grid_of(threads, plan.shape[0]),
                (x, out, self.kernels.flag, mark, plan.layout, self.structs[low]),
            )
        return out

    # --- sums
    def sum(self, a: Any, axes: tuple[int, ...], low: int) -> Any:
        return self._folded("sum_residues", (a,), axes, low)

    def sum_of_products(self, a: Any, b: Any, axes: tuple[int, ...], low: int) -> Any:
        return self._folded("sum_products", (a, b), axes, low, "sum_residues")

    def product(self, a: Any, axis: int, low: int) -> Any:
        return self._folded("product_residues", (a,), (axis,), low)

    def _folded(
        self,
        name: str,
        arrays: Sequence[Any],
        axes: tuple[int, ...],
        low: int,
        then: str | None = None,
    ) -> Any:
        """Return arrays folded along axes, by parts if there are few results of many terms."""
        kept, along = planned_along(tuple(map(operand, arrays)), axes)
        if kept.layout is None or along.layout is None:
            shape = np.broadcast_shapes(*(x.shape for x in arrays))
            arrays = [self.xp.ascontiguousarray(self.xp.broadcast_to(x, shape)) for x in arrays]
            kept, along = planned_along(tuple(map(operand, arrays)), axes)
        parts = parts_of(along.size, kept.size * kept.shape[0])
        shape = (kept.shape[0], parts, *kept.shape[1:])
        out = self.xp.empty(shape if parts > 1 else kept.shape, dtype=np.int64)
        if out.size:
            self.kernels.run(
                name,
                grid_of(kept.size * parts, kept.shape[0]),
                (
                    *arrays,
                    out,
                    kept.layout,
                    along.layout,
                    np.uint64(parts),
                    np.int32(along.innermost <= kept.innermost),
                    self.structs[low],
                ),
            )
        return out if parts == 1 else self._folded(then or name, (out,), (1,), low)

    def add_at(self, base: Any, axis: int, index: Any, source: Any, low: int) -> Any:
        index = index.astype(np.int64, copy=False)
        places = list(base.strides)
        step, places[axis] = places[axis] // 8, 0
        target = Operand(source.shape, tuple(places))
        plan = planned((operand(source), operand(index), target))
        if plan.layout is None:
            source, index = (
                self.xp.ascontiguousarray(self.xp.broadcast_to(x, source.shape))
                for x in (source, index)
            )
            plan = planned((operand(source), operand(index), target))
        self.kernels.launch("add_at_places", plan, source, index, base, plan.layout, np.int64(step))
        whole = planned((operand(base),))
        self._evaluate_into(base, ((LOAD, 0), (REDUCE, 0)), whole, (base,), low)
        return base
