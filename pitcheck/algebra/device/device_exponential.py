"""The exponential of a chain on a GPU, in one launch; its tables are made on the host.

>>> from pitcheck.algebra.residues.exponential import DIGITS
>>> sum(1 << bits for bits in DIGITS) == ENTRIES
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pitcheck.algebra.device.device_modular import DeviceModular
from pitcheck.algebra.device.layouts import Operand
from pitcheck.algebra.residues.exponential import Exponential
from pitcheck.algebra.residues.modular import Modular

ENTRIES = 4096
"""The entries of the tables of one level and trial."""


class DeviceExponential(Exponential):
    """The exponential at all levels and for given trials, by ``kernels/exponentials.cu``."""

    def __init__(self, modular: DeviceModular, seed: int, trials: Sequence[int]) -> None:
        super().__init__(modular, seed, trials)
        self.device = modular
        self._on_device: Any = None

    def __call__(self, x: Any, low: int) -> Any:
        if self._on_device is None:
            self._on_device = self.device.xp.asarray(self._joined())
        trials = len(self.exponents[0])
        shape = (x.shape[0], trials, *(1,) * (x.ndim - 2))
        lanes = Operand(shape, (trials, 1, *(0,) * (x.ndim - 2)), 1)
        plan, (x,) = self.device.kernels.over(x, beside=(lanes,))
        out = self.device.xp.empty(plan.shape, dtype=np.int64)
        self.device.kernels.launch(
            "exponential",
            plan,
            x,
            self._on_device[low * trials :],
            out,
            plan.layout,
            self.device.structs[low + 1],
        )
        return out

    def _joined(self) -> Any:
        """Return the tables of all levels and trials, (levels * trials, 4096), on the host."""
        tables = self.tables(Modular(np, self.modular.chain))
        lanes = len(self.exponents) * len(self.exponents[0])
        joined = np.concatenate([table.reshape(lanes, -1) for table in tables], axis=1)
        return joined.astype(np.uint32)
