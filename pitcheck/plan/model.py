"""The plan: an SSA graph over a device mesh, folded over ranks and micro-batches.

One :class:`Operator` record stands for all coordinates (mesh coordinate, micro-batch) at which the
same operator runs. Everything here is immutable data; reading it never runs code. The file format
(``docs/plan-format.md``) is these structs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal as OneOf

import msgspec

from pitcheck.base.dtypes import DType

FORMAT = "pitcheck.plan/1"
MICROBATCH_AXIS = "mb"

Role = OneOf[
    "input", "parameter", "constant", "activation", "gradient", "optimizer_state", "output"
]
Scalar = bool | int | float | str

Box = dict[str, tuple[int, ...]]
"""Values per axis (mesh axes and ``mb``) whose product is a set of coordinates. An absent axis
takes all its values.
"""


class Axis(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A named mesh axis and its size (>= 1)."""

    name: str
    size: int


class Table(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="table"
):
    """A value per coordinate.

    ``values`` is flat, row-major over the axes named in ``over`` (mesh axes and ``mb``).
    """

    over: tuple[str, ...]
    values: tuple[Scalar | tuple[int | tuple[int, ...], ...], ...]


Attribute = bool | int | float | str | None | Table | tuple[int | str | tuple[int, ...], ...]


def attribute_values(attribute: Attribute) -> tuple[Attribute, ...]:
    """Return the values of an attribute over all coordinates: those of a table, or the only one."""
    return attribute.values if isinstance(attribute, Table) else (attribute,)


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The ranks that take part in a collective: the mesh ``axes`` it runs over, or rank lists.

    With ``axes``, ranks that differ only in those axes form one group, ordered row-major by those
    axes in mesh order. With ``ranks``, every list is one group, in the order that gathering and
    scattering follow. A frontend whose framework sorts a group sorts it. ``name`` tells
    communicators of the same ranks apart: each has its separate order of collectives.
    """

    axes: tuple[str, ...] = ()
    ranks: tuple[tuple[int, ...], ...] = ()
    name: str = ""


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The part of reference dimension ``dim`` that a coordinate holds.

    With ``by``, the dimension is cut evenly, row-major over these axes (mesh axes and ``mb``). With
    ``intervals``, there is a list of half-open ``(start, stop)`` intervals of the reference
    dimension per coordinate; their concatenation is the local dimension. A ``(-1, n)`` interval is
    ``n`` free elements (padding), a ``(-2, n)`` interval ``n`` zeros.
    """

    dim: int
    by: tuple[str, ...] = ()
    intervals: Table | None = None


class Lineage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The part of a reference tensor that a parallel tensor holds, per coordinate.

    Dimensions without a shard are whole; coordinates with equal parts are replicas. ``partial``
    names the axes (mesh axes and ``mb``) over whose members the values are terms of a sum
    (``reduction`` "sum") or of a max; ``partial_ranks`` gives rank lists instead. ``scale`` is a
    rational ("1", "1/2"): parallel value = scale * reference value.
    """

    reference: str
    shards: tuple[Shard, ...] = ()
    partial: tuple[str, ...] = ()
    partial_ranks: tuple[tuple[int, ...], ...] = ()
    reduction: OneOf["sum", "max"] = "sum"
    scale: str = "1"


class Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A family of tensors over coordinates: one per rank, and per micro-batch if ``microbatched``.

    ``lineage`` of inputs, parameters and optimizer state is specification; elsewhere it is a hint.
    ``gradient_of`` names the parameter (or other tensor) of the same plan whose gradient this is.
    ``storage`` names the buffer of which this is a version; it lies there row-major from element
    ``offset`` on, counted in elements of its dtype. Without ``storage`` it has a separate buffer.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType = "float32"
    role: Role = "activation"
    microbatched: bool = False
    lineage: Lineage | None = None
    gradient_of: str | None = None
    updated: str | None = None
    """The parameter or state tensor of the same plan whose new value this is at the end of the
    step.
    """
    storage: str | None = None
    offset: int = 0
    value: Scalar | None = None
    """For a ``constant``: the number that fills it."""
    bounds: tuple[int, int] | None = None
    """For an integer input: the half-open range of its values (a vocabulary), e.g. ``(0, 50257)``.
    """


class Use(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="use"):
    """An input taken from a given micro-batch instead of the operator's micro-batch."""

    tensor: str
    microbatch: int


class Number(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="number"
):
    """A literal operand.

    ``value`` is an int, a float, or a string: "1/3", "sqrt(1/2)", "inf", "-inf", "nan".
    """

    value: int | float | str


Operand = str | Use | Number


class Operator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One record: the same operator at all coordinates in ``where``.

    ``where`` is a union of boxes; empty, it stands for all coordinates. ``kind`` is a name from
    ``pitcheck.ops`` or such a name with ``.backward``: the derivative, whose inputs are the forward
    operator's inputs, then its outputs, then the gradients of its outputs, and whose outputs are
    the gradients of the forward inputs ("" if not wanted). An operator runs once per micro-batch if
    an output (without outputs: an input) is microbatched, else once.
    """

    id: str
    kind: str
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: dict[str, Attribute] = {}
    group: Group | None = None
    where: tuple[Box, ...] = ()
    source: str = ""
    module: str = ""


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A block run for one micro-batch (``None``: for none, e.g. the optimizer)."""

    block: str
    microbatch: int | None = None


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The steps, in order, of all ranks in ``where``.

    These are boxes over mesh axes only; empty, they stand for every rank.
    """

    steps: tuple[Step, ...]
    where: tuple[Box, ...] = ()


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A result of the plan that is compared.

    In a reference plan there is ``tensor`` alone. In a parallel plan ``reference`` names the
    reference tensor that ``tensor`` must equal. ``lineage`` says how it is spread if that differs
    from the default (a gradient or updated state: as the parameter it belongs to; any other tensor:
    whole on every rank).
    """

    tensor: str
    reference: str = ""
    lineage: Lineage | None = None


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole plan.

    ``blocks`` maps a block's name to the ids of its operators in order; ``programs`` give every
    rank's order. Without programs every rank runs the operators in the order of the list, each for
    all its micro-batches in ascending order. ``assumptions`` are sentences that the frontend had to
    assume; they go into the report. ``left_out`` are sentences on what the user had left out of the
    program; reports give them as exceptions, beside the verdict. A file without it has no such key.
    ``rounded_literals``: True if each literal was rounded to the dtype of the numbers that it is
    computed with, as in the text of a compiled program. It may stand for another number that rounds
    to the same one.
    """

    mesh: tuple[Axis, ...]
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    outputs: tuple[Output, ...]
    microbatches: int = 1
    blocks: dict[str, tuple[str, ...]] = {}
    programs: tuple[Program, ...] = ()
    name: str = ""
    assumptions: tuple[str, ...] = ()
    format: str = FORMAT
    left_out: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    rounded_literals: bool | msgspec.UnsetType = msgspec.UNSET


PairAt = Callable[[Mapping[str, int]], Sequence[Plan]]
"""A function from the size of every mesh axis to a reference and a parallel plan of that mesh.

It raises PitcheckError if the pair cannot be made at these sizes.
"""
