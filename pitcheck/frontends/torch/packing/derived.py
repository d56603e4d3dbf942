"""Integers that follow from a packing: positions, ids of documents, masks, running sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

from pitcheck.base.nearest import nearest
from pitcheck.errors import UsageError
from pitcheck.frontends.torch.packing.layout import Document, Layout, layouts
from pitcheck.frontends.torch.program import Input, Spec


def packed_batch(spec: Spec, layout: Layout) -> dict[str, Input]:
    """Return the batch, in which all that follows from the packing has its values."""
    return {
        name: derived(name, given, layout) if given.packed else given
        for name, given in spec.batch.items()
    }


def call_before(spec: Spec) -> Spec:
    """Return the specification of the call before the recorded one, which has another packing.

    Specifications without packings are returned as they are.
    """
    if not spec.packings:
        return spec
    (layout,) = layouts(spec)
    other = layout.earlier()
    return replace(spec, batch=packed_batch(spec, other), packings=(other.packing(),))


def derived(name: str, given: Input, layout: Layout) -> Input:
    """Return the input ``batch[name]`` with the values and the shape that follow from a packing.

    Raises UsageError for something that no packing has, and for another number of elements.
    """
    if given.packed not in KINDS:
        raise UsageError(
            f"batch[{name!r}] is {given.packed!r} of the packing; it has {', '.join(KINDS)}"
            f"{nearest(given.packed, tuple(KINDS))}"
        )
    kind = KINDS[given.packed]
    values, shape = tuple(kind.values(layout)), kind.shape(layout)
    if given.shape and prod(given.shape) != len(values):
        raise UsageError(
            f"batch[{name!r}] has shape {given.shape}, but {given.packed!r} of the packing has "
            f"{len(values)} elements; leave the shape out ({shape}) or give one of as many"
        )
    dtype = kind.dtype if given.dtype == "float32" else given.dtype
    return replace(given, shape=given.shape or shape, dtype=dtype, values=values)


def of_document(name: str, given: Input, layout: Layout, document: Document) -> Input:
    """Return what follows from a packing as the input ``batch[name]`` of one document alone.

    Raises UsageError for a stated shape that names no shape of a document.
    """
    alone = layout.alone(document)
    stated = given.shape != KINDS[given.packed].shape(layout)
    shape = _cut(given.shape, layout, alone) if stated else ()
    return derived(name, replace(given, shape=shape), alone)


def index_of(given: Input, document: Document) -> tuple[slice, ...]:
    """Return the index of a document's part of an input that has ``tokens``."""
    along = slice(document.start, document.start + document.length)
    return (slice(document.row, document.row + 1), along) if given.tokens else (along,)


def _cut(shape: tuple[int, ...], layout: Layout, alone: Layout) -> tuple[int, ...]:
    """Return the shape of a document's part of something that has the shape of a whole batch."""
    return tuple(
        alone.size if size == layout.size else 1 if place == 0 and size == layout.rows else size
        for place, size in enumerate(shape)
    )


@dataclass(frozen=True)
class Kind:
    """Integers that follow from a packing: dtype, values, row-major, and shape."""

    dtype: str
    values: Callable[[Layout], Iterator[int]]
    shape: Callable[[Layout], tuple[int, ...]]


def _per_token(
    of: Callable[[Document, int], int], padding: int
) -> Callable[[Layout], Iterator[int]]:
    """Return what yields a value for each token, given its document and its place in it."""

    def values(layout: Layout) -> Iterator[int]:
        found = [padding] * (layout.rows * layout.size)
        for document in layout.documents:
            first = document.row * layout.size + document.start
            for place in range(document.length):
                found[first + place] = of(document, place)
        yield from found

    return values


def _document_ids(layout: Layout) -> list[int]:
    """Return for each token the number of its document in its sequence, -1 for padding."""
    numbers = {
        document: number
        for row in range(layout.rows)
        for number, document in enumerate(layout.of_row(row))
    }
    return list(_per_token(lambda document, _: numbers[document], -1)(layout))


def _seen(layout: Layout, causal: bool) -> Iterator[int]:
    """Yield for each pair of tokens of a sequence if the first sees the second.

    Padding sees itself alone, so that no token sees nothing.
    """
    ids = _document_ids(layout)
    for row in range(layout.rows):
        own = ids[row * layout.size : (row + 1) * layout.size]
        for query, document in enumerate(own):
            for key, other in enumerate(own):
                same = document == other and document >= 0 and (key <= query or not causal)
                yield int(same or query == key)


def _ends(of: Callable[[Document], int]) -> Callable[[Layout], Iterator[int]]:
    """Return what yields running sums over the documents of each sequence, from 0 on.

    Sequences of fewer documents repeat their last sum.
    """

    def values(layout: Layout) -> Iterator[int]:
        for row in range(layout.rows):
            sums = [0, *accumulate(of(document) for document in layout.of_row(row))]
            yield from sums + [sums[-1]] * (_most(layout) + 1 - len(sums))

    return values


def _lengths_of(layout: Layout) -> Iterator[int]:
    for row in range(layout.rows):
        own = [document.length for document in layout.of_row(row)]
        yield from own + [0] * (_most(layout) - len(own))


def _most(layout: Layout) -> int:
    return max(len(layout.of_row(row)) for row in range(layout.rows))


def _tokens_shape(layout: Layout) -> tuple[int, ...]:
    return (layout.rows, layout.size) if layout.batched else (layout.size,)


def _pairs_shape(layout: Layout) -> tuple[int, ...]:
    return (*_tokens_shape(layout), layout.size)


def _documents_shape(layout: Layout, more: int) -> tuple[int, ...]:
    most = _most(layout) + more
    return (layout.rows, most) if layout.nested else (most,)


def _ends_shape(layout: Layout) -> tuple[int, ...]:
    return _documents_shape(layout, 1)


KINDS: Mapping[str, Kind] = {
    "position_ids": Kind("int64", _per_token(lambda _, place: place, 0), _tokens_shape),
    "document_ids": Kind("int64", lambda layout: iter(_document_ids(layout)), _tokens_shape),
    "token_mask": Kind("bool", _per_token(lambda *_: 1, 0), _tokens_shape),
    "next_token_mask": Kind(
        "bool", _per_token(lambda document, place: place + 1 < document.length, 0), _tokens_shape
    ),
    "cu_seqlens": Kind("int64", _ends(lambda document: document.length), _ends_shape),
    "cu_seqlens_padded": Kind("int64", _ends(lambda document: document.room), _ends_shape),
    "lengths": Kind("int64", _lengths_of, lambda layout: _documents_shape(layout, 0)),
    "max_seqlen": Kind(
        "int64", lambda layout: iter([max(each.length for each in layout.documents)]), lambda _: ()
    ),
    "same_document_mask": Kind("bool", lambda layout: _seen(layout, False), _pairs_shape),
    "causal_mask": Kind("bool", lambda layout: _seen(layout, True), _pairs_shape),
}
"""Everything that follows from a packing, by its name in ``Input.packed``."""
