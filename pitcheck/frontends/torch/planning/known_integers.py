"""Integer and bool tensors with known elements, as operators that make them.

They are runs of equal elements, joined.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from pitcheck.base.dtypes import DType
from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.planning.families import RankNames
from pitcheck.frontends.torch.trace import Complex, Given, Value
from pitcheck.plan.fold import Instance

MOST_RUNS = 4096
"""The greatest number of runs of equal elements."""


class KnownIntegers:
    """The tensors of known elements of one rank. Equal runs, and equal constants, are made once."""

    def __init__(self, names: RankNames) -> None:
        self._names = names
        self._runs: dict[tuple[int, int, DType | Complex], str] = {}
        self._constants: dict[tuple[tuple[int, ...], Value], str] = {}

    def made(self, given: Given, elements: tuple[int, ...], value: Value) -> Iterator[Instance]:
        """Name a given value, and yield the operators that make it of its row-major elements.

        Raises UnsupportedError for a tensor of more than ``MOST_RUNS`` runs.
        """
        known = None if given.name else self._constants.get((elements, value))
        if known is not None:
            self._names.enter(given.value, known)
            return
        name = self._names.known(given)
        if not given.name:
            self._constants[elements, value] = name
        yield from self._joined(name, elements, value)

    def _joined(self, name: str, elements: tuple[int, ...], value: Value) -> Iterator[Instance]:
        runs = [(element, len(list(same))) for element, same in groupby(elements)]
        if len(runs) > MOST_RUNS:
            raise UnsupportedError(
                f"{name!r} has known elements that change {len(runs):,} times, more than "
                f"{MOST_RUNS:,}; let the program compute it"
            )
        dtype = value.dtype
        parts = []
        for element, length in runs:
            yield from self._run(name, element, length, dtype)
            parts.append(self._runs[element, length, dtype])
        flat = (
            parts[0]
            if len(parts) == 1
            else self._names.new(f"{name}.flat", Value((len(elements),), dtype))
        )
        if len(parts) > 1:
            yield Instance("cat", tuple(parts), (flat,), {"axis": 0})
        yield Instance("reshape", (flat,), (name,), {"sizes": value.shape})

    def _run(
        self, name: str, element: int, length: int, dtype: DType | Complex
    ) -> Iterator[Instance]:
        if (element, length, dtype) in self._runs:
            return
        run = self._names.new(f"{name}.run", Value((length,), dtype))
        self._runs[element, length, dtype] = run
        filled = bool(element) if dtype == "bool" else int(element)
        yield Instance(
            "full", (), (run,), {"sizes": (length,), "value": filled, "dtype": str(dtype)}
        )
