"""What one rank executed, as pure functions of values: every operator, collective and result of one
training step.

In-place operators and views are gone: what is written to a storage is a new value, and a read of a
view gives the value that it has by then.
"""

from __future__ import annotations

from typing import Literal as OneOf

import msgspec

from pitcheck.base.dtypes import DType

Role = OneOf["input", "parameter", "buffer", "optimizer_state", "gradient", "kept", "constant"]
"""A gradient that the call before left, and any other tensor that it left for this one, are given,
too.
"""
LEFT = "old grad:"
"""What the gradient that the call before left is called, before the name of its parameter."""
Intervals = tuple[tuple[int, int], ...]
COLLECTIVES = frozenset(
    {
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "broadcast",
        "barrier",
        "send",
        "receive",
        "wait",
    }
)
"""The operators of communication, whose ``group`` is set."""


class Ref(msgspec.Struct, frozen=True, tag="ref"):
    """An operand that is a value, by its number in :attr:`Trace.values`."""

    value: int


Item = Ref | bool | int | float | str | None
Argument = Item | tuple[Item | tuple[Item, ...], ...]
"""An operand: a value, a literal, or a list of them, at most a list of lists. A dtype is its name
("float32"); devices, layouts, memory formats and generators are None."""


Complex = OneOf["complex64", "complex128"]
"""Dtypes of pairs of numbers, of which a plan knows nothing: there such a value is a tensor of real
numbers with one dimension more, of size 2, at the end.
"""


class Value(msgspec.Struct, frozen=True):
    """A tensor that is computed once; shape on this rank."""

    shape: tuple[int, ...]
    dtype: DType | Complex


class Event(msgspec.Struct, frozen=True):
    """One operator.

    ``operator``: an ATen overload without its namespace and without the mark of writing in place
    ("add.Tensor", "_softmax.default", "split_with_sizes.default"), or a collective: "all_reduce",
    "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier", "send", "receive", "wait".
    ``arguments``: all of the schema's, in its order, defaults filled in, but for those that only
    say where the result is stored (``out``); of a collective see
    :mod:`pitcheck.frontends.torch.trace_collectives`. ``outputs``: numbers of values, None for a
    result that is no tensor. ``group``: global ranks of a collective, in the group's order.
    ``source``: "file:line" of the user's code; of a backward operator that of its forward one.
    ``module``: path of the module that runs, "" outside.
    """

    operator: str
    arguments: tuple[Argument, ...]
    outputs: tuple[int | None, ...]
    group: tuple[int, ...] = ()
    source: str = ""
    module: str = ""
    backward: bool = False
    batch: int | None = None
    """Of a send or receive that was launched together with others: the number of that batch."""
    communicator: str = ""
    """Of communication: the name of the process group, which tells those of the same
    ranks apart.
    """
    launched: bool = False
    """Of a send: its tensor is in use until the next "wait" without an output for that value."""

    @property
    def meets(self) -> bool:
        """Whether other ranks have to do with it, so that it matters even where nobody reads a
        result.

        What nobody waits for would be taken to block.
        """
        return bool(self.group) or self.operator == "wait"


class Given(msgspec.Struct, frozen=True):
    """A value that the step starts with.

    ``name``: of a parameter or buffer its name in the model, of an input its key in the batch, of
    optimizer state "exp_avg:NAME OF THE PARAMETER". ``whole``: the shape of the whole tensor;
    ``box``: per dimension the intervals of it that this rank holds, joined. Both empty where
    nothing tells; ``box`` alone where the user says it. ``number``: what fills a constant tensor;
    ``integers``: the elements, row-major, of an integer or bool tensor that is known.
    """

    value: int
    role: Role
    name: str
    whole: tuple[int, ...] = ()
    box: tuple[Intervals, ...] = ()
    number: float | None = None
    integers: tuple[int, ...] | None = None
    idle: bool = False
    """Nothing here reads it: it is there because what becomes of it may be compared, or because the
    other program reads it.
    """


class Result(msgspec.Struct, frozen=True):
    """A value that the step ends with: the "loss" and other named outputs, the gradient of a
    parameter, or the new value of a parameter or of state.

    ``whole`` and ``box`` as of :class:`Given`; ``partial``: global ranks over which the values are
    terms of a sum.
    """

    value: int
    kind: OneOf["output", "gradient", "updated"]
    name: str
    whole: tuple[int, ...] = ()
    box: tuple[Intervals, ...] = ()
    partial: tuple[int, ...] = ()
    asked: bool = True
    """Compared in any case; else only where the other program asks: the step leaves it as it was,
    or nothing is made of it.
    """
    own: bool = False
    """Nothing else is made of it: where the other program has none, it is this one's own affair."""


class Number(msgspec.Struct, frozen=True):
    """A tensor that a step leaves for the next and whose numbers are known, as that of the
    optimizer's step. ``text``: its dtype, shape and numbers.
    """

    name: str
    text: str
    source: str = ""


class Trace(msgspec.Struct, frozen=True):
    """One training step of one rank. ``assumptions``: sentences that belong into the report.
    ``numbers``: known ones that the step has changed.

    ``accumulated``: of a step that changes no parameter, those to whose gradients it adds; these
    are then taken to be zeroed before the call.
    """

    rank: int
    values: tuple[Value, ...]
    events: tuple[Event, ...]
    given: tuple[Given, ...]
    results: tuple[Result, ...]
    assumptions: tuple[str, ...] = ()
    numbers: tuple[Number, ...] = ()
    accumulated: tuple[str, ...] = ()


def operands(arguments: tuple[Argument, ...]) -> list[int]:
    """The values among arguments, those in lists, too."""
    found: list[int] = []
    for argument in arguments:
        if isinstance(argument, Ref):
            found.append(argument.value)
        elif isinstance(argument, tuple):
            found.extend(operands(argument))
    return found
