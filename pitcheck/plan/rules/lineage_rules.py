"""Rules on lineage: it must fit the shapes of the tensor and of the reference tensor."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import msgspec

from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import MICROBATCH_AXIS, Lineage, Plan, Shard, Table, Tensor
from pitcheck.plan.rules.name_rules import table_error
from pitcheck.plan.rules.violations import Severity, Violation

_RATIONAL = re.compile(r"^-?\d{1,40}(/0*[1-9]\d{0,39}|\.\d{1,40})?$", re.ASCII)

FREE, ZERO = -1, -2
"""The start of an interval of padding: values on which nothing may depend, and zeros."""


class LineageRules:
    """Checks PIT008 against a reference plan; without one, only the rules that need none.

    Lineage of a tensor that operators write is a hint. One that contradicts its plan is wrong; one
    that only does not fit the reference is left aside with a warning.
    """

    def __init__(self, plan: Plan, coordinates: Coordinates, reference: Plan | None) -> None:
        self.plan = plan
        self.coordinates = coordinates
        self.axes = set(coordinates.sizes) | {MICROBATCH_AXIS}
        self.tensors = {tensor.name: tensor for tensor in plan.tensors}
        self.written = {name for operator in plan.operators for name in operator.outputs}
        self.reference = (
            None if reference is None else {tensor.name: tensor for tensor in reference.tensors}
        )
        self._right: set[Hashable] = set()
        self._tables: dict[int, bytes] = {}
        """Encoded tables by the identity of the object, which the plan keeps."""

    def run(self) -> Iterator[Violation]:
        """Yield the findings of all tensors and outputs."""
        for number, tensor in enumerate(self.plan.tensors):
            if tensor.lineage is not None and not self._known_right(tensor, tensor.lineage):
                check = self.check_hint if tensor.name in self.written else self.check
                yield from check(tensor, tensor.lineage, f"tensors[{number}].lineage")
        for number, output in enumerate(self.plan.outputs):
            if output.lineage is not None and output.tensor in self.tensors:
                yield from self.check(
                    self.tensors[output.tensor], output.lineage, f"outputs[{number}].lineage"
                )

    def _known_right(self, tensor: Tensor, lineage: Lineage) -> bool:
        """Return True if nothing is wrong with a lineage.

        Equal lineages of tensors of the same shape are looked at once.
        """
        whole = None if self.reference is None else self.reference.get(lineage.reference)
        if whole is None and self.reference is not None:
            return False
        shape = None if whole is None else whole.shape
        shards = tuple(
            [
                (
                    shard.dim,
                    shard.by,
                    None if shard.intervals is None else self._said_by(shard.intervals),
                )
                for shard in lineage.shards
            ]
        )
        key = (
            shards,
            lineage.partial,
            lineage.partial_ranks,
            lineage.scale,
            tensor.shape,
            tensor.microbatched,
            shape,
        )
        if key not in self._right:
            if any(True for _ in self._problems(tensor, lineage, self.reference)):
                return False
            self._right.add(key)
        return True

    def _said_by(self, table: Table) -> bytes:
        """Return equal bytes for equal tables whose numbers are of equal types.

        1 and 1.0 are one to a dictionary, but not as the end of an interval.
        """
        if id(table) not in self._tables:
            try:
                self._tables[id(table)] = msgspec.msgpack.encode(table)
            except (OverflowError, TypeError, ValueError):
                # A table that cannot be written equals no other.
                self._tables[id(table)] = f"{id(table)}".encode()
        return self._tables[id(table)]

    def check(self, tensor: Tensor, lineage: Lineage, place: str) -> Iterator[Violation]:
        """Yield the findings of one lineage."""
        return (
            _violation(tensor, place, *problem, "error")
            for problem in self._problems(tensor, lineage, self.reference)
        )

    def check_hint(self, tensor: Tensor, lineage: Lineage, place: str) -> Iterator[Violation]:
        """Yield the findings of one lineage that is a hint."""
        found = list(self._problems(tensor, lineage, self.reference))
        own = list(self._problems(tensor, lineage, None)) if found else []
        yield from (
            _violation(tensor, place, *problem, "error" if own else "warning")
            for problem in own or found
        )

    def _problems(
        self, tensor: Tensor, lineage: Lineage, reference: Mapping[str, Tensor] | None
    ) -> Iterator[tuple[str, str]]:
        yield from self._scale_problems(lineage)
        yield from self._partial_problems(tensor, lineage)
        shape: tuple[int, ...] | None = None
        if reference is not None:
            whole = reference.get(lineage.reference)
            if whole is None:
                yield "reference", f"{lineage.reference!r} is no tensor of the reference plan"
            elif len(whole.shape) != len(tensor.shape):
                yield (
                    "",
                    f"has {len(tensor.shape)} dimensions, {list(tensor.shape)}, but "
                    f"{lineage.reference!r} has {len(whole.shape)}, {list(whole.shape)}",
                )
            else:
                shape = whole.shape
        yield from self._shard_problems(tensor, lineage, shape)

    @staticmethod
    def _scale_problems(lineage: Lineage) -> Iterator[tuple[str, str]]:
        if not _RATIONAL.match(lineage.scale):
            yield "scale", f"scale {lineage.scale[:40]!r} is no rational; write it as '1' or '1/2'"
        elif Fraction(lineage.scale) == 0:
            yield "scale", "scale 0 says nothing about the reference value; a scale is not 0"

    def _partial_problems(self, tensor: Tensor, lineage: Lineage) -> Iterator[tuple[str, str]]:
        for axis in lineage.partial:
            if axis not in self.axes:
                yield (
                    "partial",
                    f"unknown axis {axis!r}; the mesh has {', '.join(self.coordinates.sizes)} and "
                    f"mb",
                )
            elif axis == MICROBATCH_AXIS and not tensor.microbatched:
                yield "partial", "is a term over micro-batches, but does not exist per micro-batch"
            elif any(axis in shard.by for shard in lineage.shards):
                yield "partial", f"axis {axis!r} both cuts the tensor and makes it a term of a sum"
        if len(set(lineage.partial)) != len(lineage.partial):
            yield "partial", "names an axis twice"
        ranks = [rank for members in lineage.partial_ranks for rank in members]
        outside = [rank for rank in ranks if not 0 <= rank < self.coordinates.ranks]
        if outside:
            yield (
                "partial_ranks",
                f"rank {outside[0]} is not among the {self.coordinates.ranks} ranks of the mesh",
            )
        if len(set(ranks)) != len(ranks):
            yield "partial_ranks", "a rank stands in two lists, or twice in one"
        if lineage.partial and lineage.partial_ranks:
            yield "partial_ranks", "a lineage has partial axes or partial_ranks, not both"

    def _shard_problems(
        self, tensor: Tensor, lineage: Lineage, whole: tuple[int, ...] | None
    ) -> Iterator[tuple[str, str]]:
        seen: set[int] = set()
        for number, shard in enumerate(lineage.shards):
            part = f"shards[{number}]"
            if not 0 <= shard.dim < len(tensor.shape):
                yield (
                    f"{part}.dim",
                    f"dimension {shard.dim} of a tensor of {len(tensor.shape)} dimensions",
                )
                continue
            if shard.dim in seen:
                yield f"{part}.dim", f"dimension {shard.dim} has two shards; name all axes in one"
            seen.add(shard.dim)
            size = None if whole is None else whole[shard.dim]
            for name, message in self._one_shard(tensor, shard, size):
                yield (f"{part}.{name}" if name else part), message
        names = [axis for shard in lineage.shards for axis in shard.by]
        if len(set(names)) != len(names):
            yield "shards", "names an axis twice"
        if whole is not None:
            for dim, (local, size) in enumerate(zip(tensor.shape, whole, strict=True)):
                if dim not in seen and local != size:
                    yield (
                        "shards",
                        f"dimension {dim} is whole by its lineage, but is {local} here and {size} "
                        f"in the reference",
                    )

    def _one_shard(
        self, tensor: Tensor, shard: Shard, size: int | None
    ) -> Iterator[tuple[str, str]]:
        if (shard.intervals is None) == (not shard.by):
            yield "", "a shard is cut either 'by' axes or by 'intervals'; give exactly one of them"
            return
        unknown = [axis for axis in shard.by if axis not in self.axes]
        if unknown:
            yield (
                "by",
                f"unknown axis {unknown[0]!r}; the mesh has {', '.join(self.coordinates.sizes)} "
                f"and mb",
            )
            return
        over = shard.by if shard.intervals is None else shard.intervals.over
        if MICROBATCH_AXIS in over and not tensor.microbatched:
            yield (
                "by" if shard.by else "intervals.over",
                "is cut by micro-batches, but does not exist per micro-batch",
            )
        if shard.intervals is None:
            yield from self._even(tensor, shard, size)
            return
        message = table_error(shard.intervals, self.coordinates)
        if message:
            yield "intervals", message
            return
        for number, value in enumerate(shard.intervals.values):
            message = interval_error(value, tensor.shape[shard.dim], size)
            if message:
                yield f"intervals.values[{number}]", message
                return

    def _even(self, tensor: Tensor, shard: Shard, size: int | None) -> Iterator[tuple[str, str]]:
        if size is None or len(set(shard.by)) != len(shard.by):
            return
        count = self.coordinates.count(shard.by)
        if size % count:
            yield (
                "by",
                f"dimension {shard.dim} of size {size} cannot be cut into {count} equal parts "
                f"over {', '.join(shard.by)}; use 'intervals'",
            )
        elif size // count != tensor.shape[shard.dim]:
            yield (
                "by",
                f"dimension {shard.dim} is {tensor.shape[shard.dim]}, but {size} cut into {count} "
                f"parts is {size // count}",
            )


def _violation(
    tensor: Tensor, place: str, part: str, message: str, severity: Severity
) -> Violation:
    said = message if severity == "error" else f"a hint is left aside: {message}"
    return Violation(
        "PIT008",
        f"{place}.{part}" if part else place,
        f"{tensor.name!r}: {said}",
        tensor=tensor.name,
        severity=severity,
    )


def interval_error(value: Any, local: int, whole: int | None) -> str:
    """Return the fault of the intervals of one coordinate, "" if there is none.

    ``local`` is the local size, ``whole`` the reference size (None: unknown).
    """
    if not isinstance(value, tuple) or not value:
        return f"{value!r} is no list of (start, stop) intervals"
    total = 0
    for interval in value:
        if (
            not isinstance(interval, tuple)
            or len(interval) != 2
            or not all(isinstance(v, int) for v in interval)
        ):
            return f"{interval!r} is no (start, stop) interval"
        start, stop = interval
        if start in (FREE, ZERO):
            if stop < 1:
                return (
                    f"({start}, {stop}) is padding of {stop} elements; their number is at least 1"
                )
            total += stop
            continue
        if not 0 <= start < stop or (whole is not None and stop > whole):
            limit = "" if whole is None else f" of the reference dimension of size {whole}"
            return f"({start}, {stop}) is no interval{limit}"
        total += stop - start
    return (
        ""
        if total == local
        else f"the intervals have {total} elements, but the local dimension has {local}"
    )
