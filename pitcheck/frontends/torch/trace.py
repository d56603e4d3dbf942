"""The trace of one rank: one training step as pure functions of values.

It has every operator, collective and result of the step. Operators that write in place, and views,
are gone: a write to a storage makes a new value, and a read of a view gives the value that the view
has by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal as OneOf
from typing import cast

import msgspec

from pitcheck.base.dtypes import DType

Role = OneOf["input", "parameter", "buffer", "optimizer_state", "gradient", "kept", "constant"]
"""The roles of the values with which a step starts.

A "gradient" is one that the call before left; a "kept" tensor is any other that it left.
"""
LEFT = "old grad:"
"""The prefix of the names of gradients that the call before left."""
AGAIN = " again"
"""What follows the name of a router if its scores are computed once more."""
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
"""The operators of communication, with their arguments:

- ``all_reduce`` (x, reduction): the reduction is "sum", "avg", "max", "min" or "product".
- ``all_gather`` (x,): the members' tensors joined along dimension 0.
- ``reduce_scatter`` (x, reduction): every member gets an equal part of dimension 0 of the sum.
- ``all_to_all`` (x, sizes sent, sizes received): parts of dimension 0; None for equal parts.
- ``broadcast`` (x, root): the operand of the member at place ``root`` of the group.
- ``send`` (x, peer, tag): to global rank ``peer``; has no output.
- ``receive`` (peer, tag): from global rank ``peer``.
- ``barrier`` (): nobody goes on before all members have come here; has no output.
- ``wait`` (x,): the value of ``x`` that may be read from here on.

The ``group`` of the event says which rank is which. An asynchronous collective stands where it is
launched, and a ``wait`` of its result where it is waited for. A send that was ``launched`` is
waited for by a ``wait`` of the value that it sends; this one has no output.
"""


class Ref(msgspec.Struct, frozen=True, tag="ref"):
    """An operand that is a value, by its number in :attr:`Trace.values`."""

    value: int


Item = Ref | bool | int | float | str | None
Argument = Item | tuple[Item | tuple[Item, ...], ...]
"""An operand: a value, a literal, or a list of them, at most a list of lists.

A dtype is its name ("float32"). Devices, layouts, memory formats and generators are None.
"""


Complex = OneOf["complex64", "complex128"]
"""The dtypes of complex numbers, which plans do not know.

A plan has such a value as a tensor of real numbers with a further last dimension of size 2.
"""


class Value(msgspec.Struct, frozen=True):
    """A tensor that is computed once, with its shape on this rank."""

    shape: tuple[int, ...]
    dtype: DType | Complex


class Event(msgspec.Struct, frozen=True):
    """One operator or collective.

    - ``operator``: an ATen overload without its namespace and without the mark of writing in place
      ("add.Tensor", "_softmax.default"), or one of ``COLLECTIVES``.
    - ``arguments``: all of the schema's, in its order, with defaults filled in. Those that only say
      where the result is stored (``out``) are left out.
    - ``outputs``: numbers of values; None for a result that is no tensor.
    - ``group``: the global ranks of a collective, in the group's order.
    - ``source``: "file:line" of the user's code. A backward operator has that of its forward one.
    - ``module``: the path of the module that runs; "" outside of all modules.
    - ``batch``: the number of the batch with which a send or receive was launched; None if it was
      launched alone.
    - ``communicator``: the name of the process group. It distinguishes groups of the same ranks.
    - ``launched``: True for a send whose tensor is in use until the next "wait" for that value.
    - ``call``: the number of calls of the module so far, with the one that runs; a backward
      operator has that of its forward one. 0 outside of all modules.
    """

    operator: str
    arguments: tuple[Argument, ...]
    outputs: tuple[int | None, ...]
    group: tuple[int, ...] = ()
    source: str = ""
    module: str = ""
    backward: bool = False
    batch: int | None = None
    communicator: str = ""
    launched: bool = False
    call: int = 0

    @property
    def tensors(self) -> tuple[int, ...]:
        """Return the numbers of the outputs that are tensors."""
        return tuple(number for number in self.outputs if number is not None)

    @property
    def meets(self) -> bool:
        """Return True if other ranks take part, so that the event stays even if nobody reads it.

        A wait belongs to it: communication that nobody waits for would be taken to block.
        """
        return bool(self.group) or self.operator == "wait"


class Given(msgspec.Struct, frozen=True):
    """A value that the step starts with.

    - ``name``: the name of a parameter or buffer in the model, the key of an input in the batch, or
      "exp_avg:PARAMETER" for the state of an optimizer.
    - ``whole``: the shape of the whole tensor.
    - ``box``: for each dimension of the whole, the intervals that this rank holds, joined. Both are
      empty if nothing tells them; ``box`` alone is set if the user states it.
    - ``number``: the number that fills a constant tensor.
    - ``integers``: the elements, row-major, of an integer or bool tensor that is known.
    - ``idle``: nothing in this trace reads the value. It is there because its new value may be
      compared, or because the other program reads it.
    """

    value: int
    role: Role
    name: str
    whole: tuple[int, ...] = ()
    box: tuple[Intervals, ...] = ()
    number: float | None = None
    integers: tuple[int, ...] | None = None
    idle: bool = False


class Result(msgspec.Struct, frozen=True):
    """A value that the step ends with.

    It is an output (such as "loss"), the gradient of a parameter, or the new value of a parameter
    or of state. "scores" are what a router chooses from, by the name of the router in the
    reference; a further pass over the same tokens has " again" or " again 2" appended.

    - ``whole`` and ``box``: as of :class:`Given`.
    - ``partial``: the global ranks whose values are terms of a sum; empty if there is one term.
    - ``asked``: the result is compared in any case. Otherwise it is compared only if the other
      program asks for it: the step leaves it unchanged, or nothing is made of it.
    - ``own``: nothing else is made of it, so that the other program need not have it.
    """

    value: int
    kind: OneOf["output", "gradient", "updated", "scores"]
    name: str
    whole: tuple[int, ...] = ()
    box: tuple[Intervals, ...] = ()
    partial: tuple[int, ...] = ()
    asked: bool = True
    own: bool = False


class Number(msgspec.Struct, frozen=True):
    """A tensor with known numbers that a step leaves for the next, such as a count of steps.

    - ``text``: its dtype, shape and numbers.
    - ``value``: its shape and dtype.
    - ``filled``: the number that all of its elements are; None if they differ.
    """

    name: str
    text: str
    value: Value
    filled: float | int | None = None
    source: str = ""


class Beginning(msgspec.Struct, frozen=True):
    """A tensor as construction leaves it, before the first call of the step.

    - ``box``: as of :class:`Given`.
    - ``text``: the same for two tensors if the same operators have made them of the same numbers;
      "" if that cannot be told.
    - ``state``: the tensor is the state of an optimizer.
    - ``constant``: it depends on no random draw.
    - ``filled``: it is known, and not zero.
    """

    name: str
    shape: tuple[int, ...]
    box: tuple[Intervals, ...]
    text: str
    source: str
    state: bool
    constant: bool
    filled: bool


class Router(msgspec.Struct, frozen=True):
    """A router of the reference whose choice a routing says.

    ``tokens`` are the numbers of the tokens, by the rows of its scores in all of its calls. ``k``
    of ``experts`` are chosen, those of the greatest scores if ``largest``.
    """

    name: str
    experts: int
    k: int
    largest: bool
    tokens: tuple[int, ...]


class Trace(msgspec.Struct, frozen=True):
    """One training step of one rank.

    - ``assumptions``: sentences for the report.
    - ``numbers``: the known numbers that the step has changed.
    - ``accumulated``: if the step changes no parameter, the names of those to whose gradients it
      adds. Their gradients are taken to be zeroed before the call.
    - ``scattered``: the parameters of whose gradients each rank is said to have some elements.
    - ``beginnings``: what construction leaves, which the first call begins with.
    - ``routers``: the routers whose choices are those of a routing, in the order of their calls.
    """

    rank: int
    values: tuple[Value, ...]
    events: tuple[Event, ...]
    given: tuple[Given, ...]
    results: tuple[Result, ...]
    assumptions: tuple[str, ...] = ()
    numbers: tuple[Number, ...] = ()
    accumulated: tuple[str, ...] = ()
    scattered: tuple[str, ...] = ()
    routers: tuple[Router, ...] = ()
    beginnings: tuple[Beginning, ...] = ()


def operands(arguments: tuple[Argument, ...]) -> list[int]:
    """Return the numbers of the values among arguments, including those in lists, in order."""
    found: list[int] = []
    for argument in arguments:
        if isinstance(argument, Ref):
            found.append(argument.value)
        elif isinstance(argument, tuple):
            found.extend(operands(argument))
    return found


def with_operands(event: Event, numbers: Mapping[int, int]) -> Event:
    """Return an event with other values as its operands."""
    return msgspec.structs.replace(
        event, arguments=tuple(_argument(argument, numbers) for argument in event.arguments)
    )


def renumbered(event: Event, numbers: Mapping[int, int]) -> Event:
    """Return an event with other values as its operands and outputs."""
    outputs = tuple(None if number is None else numbers[number] for number in event.outputs)
    return msgspec.structs.replace(with_operands(event, numbers), outputs=outputs)


def _argument(argument: Argument, numbers: Mapping[int, int]) -> Argument:
    if isinstance(argument, Ref):
        return Ref(numbers[argument.value])
    if isinstance(argument, tuple):
        return tuple(cast(Item, _argument(item, numbers)) for item in argument)
    return argument
