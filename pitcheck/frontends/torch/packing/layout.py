"""The layout of a packing: which document lies where in which sequence of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pitcheck.errors import UsageError
from pitcheck.frontends.torch.packing.boundaries import Row, boundaries, parts_of, shortened
from pitcheck.frontends.torch.program import Input, Packing, Spec


@dataclass(frozen=True)
class Document:
    """A document: its sequence, its place there from ``start`` on, and its number of tokens.

    It takes ``room`` tokens of the sequence, those of its padding included.
    """

    row: int
    start: int
    length: int
    room: int


@dataclass(frozen=True)
class Layout:
    """The documents of a batch of ``rows`` sequences of ``size`` tokens, sequence by sequence.

    - ``nested``: the packing lists its sequences, so that what follows from it does, too.
    - ``batched``: tensors of tokens have a dimension of sequences.
    - ``multiple``: the room of each document is a multiple of it.
    """

    rows: int
    size: int
    documents: tuple[Document, ...]
    nested: bool
    batched: bool
    multiple: int = 1

    def of_row(self, row: int) -> list[Document]:
        """Return the documents of a sequence."""
        return [document for document in self.documents if document.row == row]

    def alone(self, document: Document) -> Layout:
        """Return the layout of a batch that has nothing but one document."""
        own = Document(0, 0, document.length, document.length)
        return replace(self, rows=1, size=own.length, documents=(own,), multiple=1)

    def name(self) -> str:
        """Return the lengths in words, such as "documents of 5, 7, 4 tokens"."""
        said = " | ".join(
            ", ".join(str(document.length) for document in self.of_row(row))
            for row in range(self.rows)
        )
        padding = self.rows * self.size - sum(each.length for each in self.documents)
        said = f"documents of {said} tokens"
        if padding:
            said += f" and {padding} of padding"
        if self.nested and self.rows == 1:
            said += ", listed by sequence"
        return said + (f", in multiples of {self.multiple}" if self.multiple > 1 else "")

    def earlier(self) -> Layout:
        """Return another layout with as many documents, for the call before the recorded one.

        What a program has kept of the earlier batch is then wrong. A sequence whose documents fit
        in no other way stays.
        """
        documents: list[Document] = []
        for row in range(self.rows):
            own = [document.length for document in self.of_row(row)]
            tried = (own[::-1], own[1:] + own[:1], [own[0] - 1, *own[1:-1], own[-1] + 1])
            found = [_placed(row, each, self.multiple) for each in tried if each != own]
            fitting = [each for each in found if self._fits(each)]
            documents += (fitting or [self.of_row(row)])[0]
        return replace(self, documents=tuple(documents))

    def _fits(self, documents: Sequence[Document]) -> bool:
        last = documents[-1]
        return last.start + last.room <= self.size and min(each.length for each in documents) > 0

    def packing(self) -> Packing:
        """Return the packing that has this layout alone."""
        lengths = tuple(
            tuple(document.length for document in self.of_row(row)) for row in range(self.rows)
        )
        return Packing(lengths if self.nested else lengths[0], self.multiple)


def layouts(spec: Spec) -> list[Layout]:
    """Return the layout of every packing of a specification; those that are equal once.

    Raises UsageError for packings that do not fit the batch, and for a batch without tokens.
    """
    rows, size, batched = _tokens(spec)
    found = (
        _layout(packing, lengths, rows, size, batched)
        for packing in spec.packings
        for lengths in _lengths(packing, spec, rows, size)
    )
    return list(dict.fromkeys(found))


def _tokens(spec: Spec) -> tuple[int, int, bool]:
    """Return the number of sequences, their tokens, and True if they have their own dimension."""
    found = {name: given for name, given in spec.batch.items() if given.tokens is not None}
    sizes = {name: _sizes(name, given) for name, given in found.items()}
    if not sizes:
        raise UsageError(
            "the specification has packings, but no input says along which dimension its tokens "
            "lie; write Input(..., tokens=1)"
        )
    first, expected = next(iter(sizes.items()))
    for name, own in sizes.items():
        if own[:2] != expected[:2]:
            raise UsageError(
                f"batch[{name!r}] has {own[0]} sequences of {own[1]} tokens, but batch[{first!r}] "
                f"has {expected[0]} of {expected[1]}; they are packed together"
            )
    return expected[0], expected[1], any(own[2] for own in sizes.values())


def _sizes(name: str, given: Input) -> tuple[int, int, bool]:
    if given.tokens not in (0, 1) or given.tokens >= len(given.shape):
        raise UsageError(
            f"batch[{name!r}] of shape {given.shape} has tokens={given.tokens}; tokens lie along "
            f"dimension 1 of a batch of sequences, or along dimension 0 of one sequence"
        )
    if given.packed:
        raise UsageError(
            f"batch[{name!r}] is {given.packed!r} of the packing, which says its tokens; leave "
            f"tokens={given.tokens} out"
        )
    rows = given.shape[0] if given.tokens else 1
    return rows, given.shape[given.tokens], given.tokens == 1


def _layout(
    packing: Packing, lengths: Sequence[Row], rows: int, size: int, batched: bool
) -> Layout:
    """Return the layout of lengths, one tuple for each sequence."""
    documents: list[Document] = []
    for row, own in enumerate(lengths):
        documents += _placed(row, own, packing.multiple)
        taken = documents[-1].start + documents[-1].room
        if taken > size:
            raise UsageError(
                f"documents of {', '.join(map(str, own))} tokens take {taken}, but a sequence has "
                f"{size}; make them shorter"
            )
    nested = _nested(packing, rows)
    return Layout(rows, size, tuple(documents), nested, batched, packing.multiple)


def _placed(row: int, lengths: Sequence[int], multiple: int) -> list[Document]:
    """Return documents one after another, each of which takes a multiple of tokens."""
    documents: list[Document] = []
    start = 0
    for length in lengths:
        room = -(-length // multiple) * multiple
        documents.append(Document(row, start, length, room))
        start += room
    return documents


def _nested(packing: Packing, rows: int) -> bool:
    return rows > 1 or any(not isinstance(each, int) for each in packing.lengths or ())


def _lengths(packing: Packing, spec: Spec, rows: int, size: int) -> Iterator[list[Row]]:
    """Yield the lengths that a packing states, or those of the packings that it stands for."""
    _check(packing)
    if packing.lengths is not None:
        given = tuple(packing.lengths)
        nested = [_row(each) for each in given] if _nested(packing, 1) else [_row(given)]
        if len(nested) != rows:
            raise UsageError(
                f"the packing {list(given)} is of {len(nested)} sequences, but the batch has "
                f"{rows}; give a list of lengths for each"
            )
        yield nested
        return
    edges = parts_of(spec) if packing.parts is None else packing.parts
    whole = list(dict.fromkeys(boundaries(size // packing.multiple, edges, packing.seed)))
    for first in range(len(whole)):
        chosen = [whole[(first + row) % len(whole)] for row in range(rows)]
        yield [shortened(own, packing.multiple) for own in chosen]


def _check(packing: Packing) -> None:
    for name, number in (("multiple", packing.multiple), ("parts", packing.parts)):
        if number is not None and number < 1:
            raise UsageError(f"a packing has {name}={number}; it must be at least 1")


def _row(lengths: object) -> Row:
    if not isinstance(lengths, Sequence) or not all(
        type(each) is int and each > 0 for each in lengths
    ):
        raise UsageError(f"a packing has lengths {lengths!r}; each must be an integer above 0")
    if not lengths:
        raise UsageError("a packing has a sequence without documents; give at least one length")
    return tuple(lengths)
