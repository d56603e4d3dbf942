"""The contents of a program's storages while it runs.

A storage is a row of elements cut into pieces, each a stretch of a value. A read of a view is built
from the pieces that lie there by then. A write makes a new piece or, if the view has gaps, a new
value of the stretch around it. So contiguous parts of a large buffer are joined and cut, and
nothing else of it is touched. Complex numbers lie there as pairs of real ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.arguments import dtype_name
from pitcheck.frontends.torch.recording.tape import Tape
from pitcheck.frontends.torch.storage.geometry import Block, Geometry, block, contiguous, geometry
from pitcheck.frontends.torch.trace import Ref

REAL = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
"""The dtype of the parts of complex numbers."""
GATHERED = 1 << 20
"""The greatest number of elements of a view of irregular strides.

Such a view is read and written by the places of its elements.
"""


Mark = tuple[Geometry, tuple[tuple[int, Geometry, int, int], ...]]
"""A view, and the stretches of roots that it shows.

A stretch is the root's value and its place in memory, the element of the root at which the stretch
begins, and its length.
"""


@dataclass(eq=False)
class Root:
    """A value that was written as a whole, to a dense view.

    ``rows`` is the same value in the order of memory, made when it is first needed. ``parts`` are
    the values of its parts, by their first and last element and the shape of a row.
    """

    value: int
    view: Geometry
    dtype: torch.dtype
    rows: int | None = None
    parts: dict[tuple[int, int, tuple[int, ...]], int] = field(default_factory=dict)


@dataclass(eq=False)
class Piece:
    """The elements ``start`` to ``stop`` of a storage: those of a root from ``begin`` on."""

    start: int
    stop: int
    root: Root
    begin: int


@dataclass(eq=False)
class Storage:
    """Pieces by their start, and the views that have been read since they were last written to.

    ``held`` keeps the memory from being given to another storage.
    """

    held: torch.UntypedStorage
    starts: list[int] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    views: dict[tuple[Geometry, torch.dtype], int] = field(default_factory=dict)


def view_of(tensor: torch.Tensor) -> Geometry:
    """Return the geometry of a tensor in its storage."""
    return geometry(tensor.shape, tensor.stride(), int(tensor.storage_offset()))


def _pairs(view: Geometry) -> Geometry:
    """Return a view of complex numbers as one of real numbers, with a further last dimension."""
    return geometry((*view.shape, 2), (*(2 * step for step in view.stride), 1), 2 * view.offset)


class Storages:
    """The storages of a process. Reading and writing them makes events on the tape."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._storages: dict[int, Storage] = {}
        self._joined_memory: list[torch.UntypedStorage] = []
        """Memory that stands for other memory, so that no other gets its handle."""

    def read(self, tensor: torch.Tensor) -> int:
        """Return the value that a tensor has now.

        Raises UnsupportedError for memory that was written in another dtype.
        """
        storage = self._of(tensor)
        value = self._read(storage, view_of(tensor), tensor.dtype)
        # The conjugate or the negative is taken by the view; memory has the plain numbers.
        for lazy, operator in (
            (tensor.is_conj(), "_conj.default"),
            (tensor.is_neg(), "_neg_view.default"),
        ):
            if lazy:
                value = self._tape.one(operator, (Ref(value),), tensor.shape, tensor.dtype)
        return value

    def write(self, tensor: torch.Tensor, value: int) -> None:
        """Give a tensor a value, and with it everything else that lies there.

        Raises UnsupportedError for a conjugated or negated view, and for one that shows elements
        several times.
        """
        if tensor.is_conj() or tensor.is_neg():
            raise UnsupportedError(f"{self._tape.where()}: a write to a conjugated or negated view")
        storage = self._of(tensor)
        self._write(storage, view_of(tensor), value, tensor.dtype)

    def join(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """Take the memory of a tensor for that of another one."""
        self._joined_memory.append(tensor.untyped_storage())
        self._storages[self._joined_memory[-1]._cdata] = self._of(other)

    def alias(self, tensor: torch.Tensor, value: int) -> None:
        """Note the value that a view that was just made has now."""
        if not tensor.is_conj() and not tensor.is_neg():
            self._of(tensor).views[view_of(tensor), tensor.dtype] = value

    def freed(self, held: torch.UntypedStorage) -> None:
        """Forget the contents of memory that was given back.

        They stay gone if the storage grows again.
        """
        storage = self._storages.get(held._cdata)
        if storage is not None:
            storage.starts.clear()
            storage.pieces.clear()
            storage.views.clear()

    def undefined(self, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        """Return a new value about which nothing is known."""
        return self._tape.one(
            "empty.memory_format", (shape, dtype_name(dtype), None, None, None, None), shape, dtype
        )

    def mark(self, tensor: torch.Tensor) -> Mark:
        """Return the content of a tensor's memory.

        It stays equal until somebody writes there, through whatever view it is read.
        """
        view = view_of(tensor)
        start, stop = view.extent
        storage = self._of(tensor)
        parts = []
        for piece in storage.pieces:
            first, last = max(piece.start, start), min(piece.stop, stop)
            if first < last:
                parts.append(
                    (
                        piece.root.value,
                        piece.root.view,
                        piece.begin + first - piece.start,
                        last - first,
                    )
                )
        return view._replace(offset=0), tuple(parts)

    def dtype_of(self, tensor: torch.Tensor) -> torch.dtype | None:
        """Return the dtype in which a tensor's memory was written, None if nothing or several."""
        found = {piece.root.dtype for piece in self._of(tensor).pieces}
        return found.pop() if len(found) == 1 else None

    def all(self) -> list[Storage]:
        """Return every storage that was ever written to or read, in the order of its first use."""
        return list(self._storages.values())

    def has(self, tensor: torch.Tensor) -> bool:
        """Return True if anything is known about the memory of a tensor."""
        return tensor.untyped_storage()._cdata in self._storages

    def holds(self, held: torch.UntypedStorage) -> bool:
        """Return True if anything is known about a storage."""
        return held._cdata in self._storages

    def _of(self, tensor: torch.Tensor) -> Storage:
        held = tensor.untyped_storage()
        return self._storages.setdefault(held._cdata, Storage(held))

    def _read(self, storage: Storage, view: Geometry, dtype: torch.dtype) -> int:
        found = storage.views.get((view, dtype))
        if found is not None:
            return found
        value = (
            self._complex(storage, view, dtype)
            if dtype in REAL
            else self._build(storage, view, dtype)
        )
        storage.views[view, dtype] = value
        return value

    def _complex(self, storage: Storage, view: Geometry, dtype: torch.dtype) -> int:
        value = self._read(storage, _pairs(view), REAL[dtype])
        return self._tape.one("view_as_complex.default", (Ref(value),), view.shape, dtype)

    def _build(self, storage: Storage, view: Geometry, dtype: torch.dtype) -> int:
        shape = view.shape
        if not view.elements:
            return self._tape.one(
                "full.default", (shape, 0, dtype_name(dtype), None, None, None), shape, dtype
            )
        if view.repeats:
            value = self._read(storage, view.single(), dtype)
            return self._tape.one("expand.default", (Ref(value), shape, False), shape, dtype)
        if view.dense:
            value = self._stretch(storage, *view.extent, self._shape_of(view), dtype)
        else:
            around = self._around(storage, view, dtype)
            if around is None:
                return self._gather(storage, view, dtype)
            value = self._take(
                self._read(storage, contiguous(around.stretch, around.start), dtype), around, dtype
            )
        return self._arrange(value, view, dtype)

    def _shape_of(self, view: Geometry) -> tuple[int, ...]:
        """Return the shape in which a dense view is put together.

        It is the view's own if the view is contiguous, so that nothing must be rearranged.
        """
        return view.shape if view.order == tuple(sorted(view.order)) else view.memory_shape

    def _arrange(self, value: int, view: Geometry, dtype: torch.dtype) -> int:
        """Return a value, whose dimensions are in the order of memory, as a view has them."""
        if self._tape.kinds[value].shape == view.shape and view.order == tuple(sorted(view.order)):
            return value
        order = view.order
        value = self._viewed(value, view.memory_shape, dtype)
        back = tuple(order.index(dim) for dim in sorted(order))
        if back != tuple(range(len(back))):
            value = self._tape.one(
                "permute.default",
                (Ref(value), back),
                tuple(view.memory_shape[dim] for dim in back),
                dtype,
            )
        return self._viewed(value, view.shape, dtype)

    def _lay(self, value: int, view: Geometry, dtype: torch.dtype) -> int:
        """Return a view's value with its dimensions in the order of memory.

        It is the inverse of :meth:`_arrange`.
        """
        order = view.order
        present = sorted(order)
        value = self._viewed(value, tuple(view.shape[dim] for dim in present), dtype)
        forth = tuple(present.index(dim) for dim in order)
        if forth != tuple(range(len(forth))):
            value = self._tape.one("permute.default", (Ref(value), forth), view.memory_shape, dtype)
        return value

    def _viewed(self, value: int, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        if self._tape.kinds[value].shape == shape:
            return value
        return self._tape.one("view.default", (Ref(value), shape), shape, dtype)

    def _stretch(
        self, storage: Storage, start: int, stop: int, shape: tuple[int, ...], dtype: torch.dtype
    ) -> int:
        """Return the elements of an interval as a row-major tensor.

        Pieces are joined along the first dimension if that cuts no row, and in one row if it does.
        """
        pieces = list(self._pieces(storage, start, stop, dtype))
        row = prod(shape[1:])
        if not shape or any((max(piece.start, start) - start) % row for piece in pieces):
            flat = self._joined(pieces, start, stop, (), dtype)
            return self._viewed(flat, shape, dtype)
        return self._viewed(self._joined(pieces, start, stop, shape[1:], dtype), shape, dtype)

    def _joined(
        self, pieces: list[Piece], start: int, stop: int, row: tuple[int, ...], dtype: torch.dtype
    ) -> int:
        parts = []
        for piece in pieces:
            first, last = max(piece.start, start), min(piece.stop, stop)
            parts.append(
                self._part(
                    piece.root,
                    piece.begin + first - piece.start,
                    piece.begin + last - piece.start,
                    row,
                )
            )
        if len(parts) == 1:
            return parts[0]
        shape = ((stop - start) // prod(row), *row)
        return self._tape.one("cat.default", (tuple(map(Ref, parts)), 0), shape, dtype)

    def _part(self, root: Root, start: int, stop: int, row: tuple[int, ...]) -> int:
        """Return rows of a root, given by their first and last element."""
        key = (start, stop, row)
        if key not in root.parts:
            root.parts[key] = self._cut(root, start, stop, row)
        return root.parts[key]

    def _cut(self, root: Root, start: int, stop: int, row: tuple[int, ...]) -> int:
        dtype = root.dtype
        if root.rows is None:
            root.rows = (
                root.value
                if root.view.order == tuple(sorted(root.view.order))
                else self._lay(root.value, root.view, dtype)
            )
        shape = ((stop - start) // prod(row), *row)
        if (start, stop) == (0, root.view.elements):
            return self._viewed(root.rows, shape, dtype)
        length = prod(row)
        if start % length:
            return self._viewed(self._part(root, start, stop, ()), shape, dtype)
        whole = self._part(
            root, 0, root.view.elements, row if not root.view.elements % length else ()
        )
        if len(self._tape.kinds[whole].shape) != len(shape):
            return self._viewed(self._part(root, start, stop, ()), shape, dtype)
        return self._tape.one(
            "slice.Tensor", (Ref(whole), 0, start // length, stop // length, 1), shape, dtype
        )

    def _pieces(
        self, storage: Storage, start: int, stop: int, dtype: torch.dtype
    ) -> Iterator[Piece]:
        """Yield the pieces that an interval touches.

        Elements that nobody has written are an undefined value.
        """
        self._fill(storage, start, stop, dtype)
        at = bisect_right(storage.starts, start) - 1
        while at < len(storage.pieces) and storage.pieces[at].start < stop:
            piece = storage.pieces[at]
            if piece.root.dtype != dtype:
                raise UnsupportedError(
                    f"{self._tape.where()}: memory written as {dtype_name(piece.root.dtype)} is "
                    f"read as {dtype_name(dtype)}"
                )
            yield piece
            at += 1

    def _fill(self, storage: Storage, start: int, stop: int, dtype: torch.dtype) -> None:
        self._check_size(storage, dtype, "read")
        at = max(bisect_right(storage.starts, start) - 1, 0)
        gaps = []
        for piece in storage.pieces[at:]:
            if piece.start >= stop:
                break
            if piece.start > start:
                gaps.append((start, piece.start))
            start = max(start, piece.stop)
        if start < stop:
            gaps.append((start, stop))
        for first, last in gaps:
            shape = (last - first,)
            self._put(
                storage, first, last, Root(self.undefined(shape, dtype), contiguous(shape), dtype)
            )

    def _put(self, storage: Storage, start: int, stop: int, root: Root) -> None:
        """Replace an interval by a root."""
        first = max(bisect_right(storage.starts, start) - 1, 0)
        last, new = first, []
        while last < len(storage.pieces) and storage.pieces[last].start < stop:
            piece = storage.pieces[last]
            if piece.start < start:
                new.append(Piece(piece.start, min(start, piece.stop), piece.root, piece.begin))
            if piece.stop > stop:
                new.append(Piece(stop, piece.stop, piece.root, piece.begin + stop - piece.start))
            last += 1
        new = sorted([*new, Piece(start, stop, root, 0)], key=lambda piece: piece.start)
        storage.pieces[first:last] = new
        storage.starts[first:last] = [piece.start for piece in new]

    def _check_size(self, storage: Storage, dtype: torch.dtype, what: str) -> None:
        """Raise UnsupportedError if the elements of a storage have another size than a dtype's.

        Their places cannot be compared then.
        """
        if storage.pieces and storage.pieces[0].root.dtype.itemsize != dtype.itemsize:
            held = dtype_name(storage.pieces[0].root.dtype)
            raise UnsupportedError(
                f"{self._tape.where()}: memory that holds {held} is {what} as {dtype_name(dtype)}"
            )

    def _write(self, storage: Storage, view: Geometry, value: int, dtype: torch.dtype) -> None:
        if not view.elements:
            storage.views[view, dtype] = value
            return
        if view.repeats:
            raise UnsupportedError(
                f"{self._tape.where()}: a write to a view that shows elements several times"
            )
        start, stop = view.extent
        if dtype in REAL:
            pairs = _pairs(view)
            self._write(
                storage,
                pairs,
                self._tape.one("view_as_real.default", (Ref(value),), pairs.shape, REAL[dtype]),
                REAL[dtype],
            )
        elif not view.dense:
            around = self._around(storage, view, dtype)
            if around is None:
                self._scatter(storage, view, value, dtype)
            else:
                inner = self._lay(value, view, dtype)
                stretch = contiguous(around.stretch, around.start)
                changed = self._insert(self._read(storage, stretch, dtype), inner, around, dtype)
                self._write(storage, stretch, changed, dtype)
        else:
            # Views of other dtypes cannot be compared with this one, and are read anew.
            storage.views = {
                (other, kind): number
                for (other, kind), number in storage.views.items()
                if kind == dtype and (other.extent[1] <= start or other.extent[0] >= stop)
            }
            self._check_size(storage, dtype, "written")
            self._put(
                storage, start, stop, Root(value, geometry(view.shape, view.stride, 0), dtype)
            )
        storage.views[view, dtype] = value

    def _around(self, storage: Storage, view: Geometry, dtype: torch.dtype) -> Block | None:
        """Return the stretch that contains a view with gaps as a block; None without one.

        A stretch that begins where something was written is preferred.
        """
        start = view.offset
        before = storage.starts[: bisect_right(storage.starts, start)]
        # The rows of the view may begin where the value begins from which a piece was cut.
        origins = [
            piece.start - piece.begin
            for piece in storage.pieces[max(len(before) - 1, 0) : len(before)]
        ]
        return block(view, [*origins, *before[-1:], 0], storage.held.nbytes() // dtype.itemsize)

    def _take(self, value: int, around: Block, dtype: torch.dtype) -> int:
        """Return the block of a stretch."""
        shape = list(around.stretch)
        for dim, (begin, size) in enumerate(zip(around.begins, around.sizes, strict=True)):
            value = self._slice(value, shape, dim, begin, begin + size, dtype)
            shape[dim] = size
        return value

    def _slice(
        self, value: int, shape: list[int], dim: int, begin: int, end: int, dtype: torch.dtype
    ) -> int:
        if (begin, end) == (0, shape[dim]):
            return value
        return self._tape.one(
            "slice.Tensor",
            (Ref(value), dim, begin, end, 1),
            (*shape[:dim], end - begin, *shape[dim + 1 :]),
            dtype,
        )

    def _insert(self, value: int, inner: int, around: Block, dtype: torch.dtype) -> int:
        """Return a stretch with its block replaced.

        From the innermost dimension outwards it joins what lies before, the new block, and what
        lies behind.
        """
        levels: list[tuple[int, int, list[int]]] = []
        shape = list(around.stretch)
        for dim, (begin, size) in enumerate(zip(around.begins, around.sizes, strict=True)):
            levels.append((dim, value, list(shape)))
            value = self._slice(value, shape, dim, begin, begin + size, dtype)
            shape[dim] = size
        inner = self._viewed(inner, tuple(shape), dtype)
        for dim, outer, sizes in reversed(levels):
            begin, end = around.begins[dim], around.begins[dim] + around.sizes[dim]
            parts = [inner]
            if begin:
                parts.insert(0, self._slice(outer, sizes, dim, 0, begin, dtype))
            if end < sizes[dim]:
                parts.append(self._slice(outer, sizes, dim, end, sizes[dim], dtype))
            if len(parts) > 1:
                inner = self._tape.one(
                    "cat.default", (tuple(map(Ref, parts)), dim), tuple(sizes), dtype
                )
        return inner

    def _places(self, view: Geometry) -> int:
        if view.elements > GATHERED:
            raise UnsupportedError(
                f"{self._tape.where()}: a view of irregular strides {view.stride} with "
                f"{view.elements} elements"
            )
        with _disable_current_modes():
            places = torch.tensor(view.offsets(), dtype=torch.int64).reshape(view.shape)
        return self._tape.constant(places)

    def _gather(self, storage: Storage, view: Geometry, dtype: torch.dtype) -> int:
        start, stop = view.extent
        flat = self._read(storage, contiguous((stop - start,), start), dtype)
        return self._tape.one(
            "index.Tensor", (Ref(flat), (Ref(self._places(view)),)), view.shape, dtype
        )

    def _scatter(self, storage: Storage, view: Geometry, value: int, dtype: torch.dtype) -> None:
        start, stop = view.extent
        if len(set(view.offsets())) < view.elements:
            raise UnsupportedError(
                f"{self._tape.where()}: a write to a view that shows elements several times"
            )
        row = contiguous((stop - start,), start)
        flat = self._read(storage, row, dtype)
        changed = self._tape.one(
            "index_put.default",
            (Ref(flat), (Ref(self._places(view)),), Ref(value), False),
            row.shape,
            dtype,
        )
        self._write(storage, row, changed, dtype)
