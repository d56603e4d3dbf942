"""The tensors of nnScaler's objects: parts (``IRSubTensor``) of a whole (``IRFullTensor``).

Many parts share one whole, one box and one dtype. Each is read and checked once.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import msgspec

from pitcheck.base.dtypes import DType
from pitcheck.errors import PlanError
from pitcheck.frontends.nnscaler.objects import (
    class_of,
    dtype_of,
    field,
    has,
    integer,
    integers,
    items,
    shown,
    text,
)
from pitcheck.frontends.nnscaler.pickles import Stub

_FIELDS = (
    "_full_tensor",
    "_shape",
    "_indmap",
    "_valmap",
    "_dtype",
    "_is_attr",
    "_is_grad",
    "_requires_grad",
)
_read_fields = itemgetter(*_FIELDS)


class SubTensor(msgspec.Struct, frozen=True, gc=False):
    """A part of a tensor on a device.

    - ``box``: (start, stop) per dimension of the whole, whose shape is ``whole``.
    - ``term``: (i, n) for term i of n that add up.
    - ``full``: the id of the whole.
    """

    id: int
    full: int
    name: str
    shape: tuple[int, ...]
    whole: tuple[int, ...]
    dtype: DType
    box: tuple[tuple[int, int], ...]
    term: tuple[int, int]
    attribute: bool
    gradient: bool
    loss: bool
    trainable: bool


class _Whole(msgspec.Struct, frozen=True, gc=False):
    """A full tensor."""

    id: int
    name: str
    shape: tuple[int, ...]
    loss: bool


def is_tensor(value: object) -> bool:
    """Return True if an operand is a tensor (and not a number or another object)."""
    return isinstance(value, Stub) and type(value).origin[1] == "IRSubTensor"


def tensor_id(value: object) -> int:
    """Return the id of a sub-tensor: two with one id are one tensor."""
    return integer(value, "_id")


def gradient_id(value: object) -> int | None:
    """Return the id of the gradient of a sub-tensor; None if it has none."""
    gradient = field(value, "_grad")
    return tensor_id(gradient) if is_tensor(gradient) else None


class Tensors:
    """A reader of the sub-tensors of one pickle.

    Its objects must live as long as this reader, which knows them by their identity.
    """

    def __init__(self) -> None:
        self._wholes: dict[int, _Whole] = {}
        self._boxes: dict[int, tuple[tuple[int, int], ...]] = {}
        self._terms: dict[int, tuple[int, int]] = {}
        self._dtypes: dict[int, DType] = {}

    def read(self, value: object) -> SubTensor:
        """Return a sub-tensor with the fields of its full tensor.

        Raises PlanError for a field that is missing, of another type, or that contradicts the
        shape.
        """
        if not is_tensor(value):
            raise PlanError(f"{shown(value)} where an IRSubTensor is needed")
        full, sizes, place, share, said, attribute, gradient, trainable = _fields(value)
        whole = self._wholes.get(id(full)) or self._whole(full)
        box = self._boxes.get(id(place)) or self._box(place)
        term = self._terms.get(id(share)) or self._term(share, whole.name)
        dtype = self._dtypes.get(id(said)) or self._dtype(said, whole.name)
        shape = integers(sizes, "_shape")
        if not len(box) == len(shape) == len(whole.shape) or (shape and min(shape) < 0):
            raise PlanError(
                f"{whole.name!r} has shape {shape}, the box {box} and a full shape {whole.shape}, "
                f"which do not fit",
                "._indmap",
            )
        return SubTensor(
            tensor_id(value),
            whole.id,
            whole.name,
            shape,
            whole.shape,
            dtype,
            box,
            term,
            attribute is True,
            gradient is True,
            whole.loss,
            trainable is True,
        )

    def read_all(self, things: list[Any] | tuple[Any, ...]) -> tuple[SubTensor, ...]:
        """Return those of ``things`` that are tensors."""
        return tuple([self.read(thing) for thing in things if is_tensor(thing)])

    def full_id(self, value: object) -> int:
        """Return the id of the full tensor of a sub-tensor."""
        full = field(value, "_full_tensor")
        known = self._wholes.get(id(full))
        return integer(full, "_id") if known is None else known.id

    def _whole(self, full: object) -> _Whole:
        loss = has(full, "_is_loss") and field(full, "_is_loss") is True
        found = _Whole(
            integer(full, "_id"),
            text(full, "name"),
            integers(field(full, "_shape"), "_full_tensor._shape"),
            loss,
        )
        self._wholes[id(full)] = found
        return found

    def _box(self, place: object) -> tuple[tuple[int, int], ...]:
        found = self._boxes[id(place)] = tuple(
            [_interval(pair) for pair in items(place, "_indices")]
        )
        return found

    def _term(self, share: object, name: str) -> tuple[int, int]:
        term = integers(field(share, "_weight"), "_valmap._weight")
        if len(term) != 2 or not 0 <= term[0] < term[1]:
            raise PlanError(f"{name!r} is term {term}, not (i, n) with 0 <= i < n", "._valmap")
        found = self._terms[id(share)] = (term[0], term[1])
        return found

    def _dtype(self, said: object, name: str) -> DType:
        found = self._dtypes[id(said)] = dtype_of(said, name)
        return found


def _fields(value: Any) -> tuple[Any, ...]:
    """Return the fields that ``_FIELDS`` names. Raises PlanError if one is missing."""
    try:
        found: tuple[Any, ...] = _read_fields(value.__dict__)
    except KeyError as error:
        raise PlanError(f"{class_of(value)} has no field {error}", f".{error.args[0]}") from None
    return found


def _interval(value: object) -> tuple[int, int]:
    pair = integers(value, "_indmap")
    if len(pair) != 2:
        raise PlanError(f"{pair} is no (start, stop)", "._indmap")
    return pair
