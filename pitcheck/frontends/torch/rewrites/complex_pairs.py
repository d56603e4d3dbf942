"""Complex numbers as pairs of real ones.

Plans know real numbers only, so a complex tensor becomes a real one with a further last dimension
of size 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.tape import Kind, Tape
from pitcheck.frontends.torch.trace import Argument, Event, Item, Ref, operands

REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def in_real_numbers(events: Sequence[Event], tape: Tape) -> list[Event]:
    """Return the same events without complex values.

    Raises UnsupportedError for an operator that is not known for them.
    """
    return _Pairs(tape).run(events)


class _Pairs:
    """The rewriting of events. The pair of a complex value is the real value that stands for it."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._pair: dict[int, int] = {}
        self._events: list[Event] = []
        self._now: Event

    def run(self, events: Sequence[Event]) -> list[Event]:
        """Return the events with all those that use complex values rewritten."""
        for event in events:
            if any(map(self._is_complex, (*operands(event.arguments), *event.tensors))):
                self._now = event
                self._rewrite(event)
            else:
                self._events.append(event)
        return self._events

    def _is_complex(self, number: int) -> bool:
        return self._tape.kinds[number].dtype in REAL

    def _rewrite(self, event: Event) -> None:
        handler = HANDLERS.get(event.operator)
        (output,) = event.outputs if len(event.outputs) == 1 else (None,)
        if handler is None or output is None:
            raise UnsupportedError(
                f"{event.source}: {event.operator} of complex numbers is not known; write it with "
                f"real ones"
            )
        value = handler(self, *event.arguments)
        if self._is_complex(output):
            self._pair[output] = value
        else:
            shape = self._tape.kinds[output].shape
            self._events.append(
                Event(
                    "view.default",
                    (Ref(value), shape),
                    (output,),
                    (),
                    event.source,
                    event.module,
                    event.backward,
                )
            )

    def new(
        self, operator: str, arguments: tuple[Argument, ...], shape: Sequence[int], like: int
    ) -> int:
        """Record an event in the place of the one that is rewritten; return its value."""
        self._tape.kinds.append(Kind(tuple(shape), self._tape.kinds[like].dtype))
        number = len(self._tape.kinds) - 1
        now = self._now
        self._events.append(
            Event(operator, arguments, (number,), (), now.source, now.module, now.backward)
        )
        return number

    def shape(self, value: int) -> tuple[int, ...]:
        """Return the shape of a real value."""
        return self._tape.kinds[value].shape

    def pair(self, argument: Argument) -> int:
        """Return the pair of a complex operand.

        Raises UnsupportedError for complex numbers that no known operator has made.
        """
        if not isinstance(argument, Ref) or argument.value not in self._pair:
            raise UnsupportedError(
                f"{self._now.source}: {self._now.operator} of complex numbers that are not made "
                f"by polar, complex or view_as_complex"
            )
        return self._pair[argument.value]

    def out_shape(self) -> tuple[int, ...]:
        """Return the shape of the rewritten event's output, as pairs."""
        (output,) = self._now.tensors
        kind = self._tape.kinds[output]
        return (*kind.shape, 2) if kind.dtype in REAL else kind.shape

    def halves(self, pair: int) -> tuple[int, int]:
        """Return the real and imaginary parts of a pair, with a last dimension of size 1."""
        *rest, _ = self.shape(pair)
        first, second = (
            self.new("slice.Tensor", (Ref(pair), len(rest), place, place + 1, 1), (*rest, 1), pair)
            for place in (0, 1)
        )
        return first, second

    def joined(self, first: int, second: int) -> int:
        """Return the pair of two parts."""
        *rest, _ = self.shape(first)
        return self.new("cat.default", ((Ref(first), Ref(second)), len(rest)), (*rest, 2), first)

    def term(self, operator: str, left: int, right: int) -> int:
        """Return the result of an elementwise operator on two real values."""
        shape: tuple[int, ...] = torch.broadcast_shapes(self.shape(left), self.shape(right))
        arguments: tuple[Argument, ...] = (
            (Ref(left), Ref(right)) if operator == "mul.Tensor" else (Ref(left), Ref(right), 1)
        )
        return self.new(operator, arguments, shape, left)

    def column(self, argument: Argument) -> int:
        """Return a real operand with a further last dimension of size 1."""
        value = cast(Ref, argument).value
        shape = (*self.shape(value), 1)
        return self.new("view.default", (Ref(value), shape), shape, value)


def _polar(to: _Pairs, radius: Argument, angle: Argument) -> int:
    r, t = to.column(radius), to.column(angle)
    parts = [
        to.term("mul.Tensor", r, to.new(name, (Ref(t),), to.shape(t), t))
        for name in ("cos.default", "sin.default")
    ]
    return to.joined(*parts)


def _complex(to: _Pairs, real: Argument, imaginary: Argument) -> int:
    return to.joined(to.column(real), to.column(imaginary))


def _product(to: _Pairs, left: Argument, right: Argument) -> int:
    complex_ones = [isinstance(side, Ref) and to._is_complex(side.value) for side in (left, right)]
    if not all(complex_ones):
        pair, other = (to.pair(left), right) if complex_ones[0] else (to.pair(right), left)
        factor: Argument = Ref(to.column(other)) if isinstance(other, Ref) else other
        return to.new("mul.Tensor", (Ref(pair), factor), to.out_shape(), pair)
    (a, b), (c, d) = to.halves(to.pair(left)), to.halves(to.pair(right))
    real = to.term("sub.Tensor", to.term("mul.Tensor", a, c), to.term("mul.Tensor", b, d))
    imaginary = to.term("add.Tensor", to.term("mul.Tensor", a, d), to.term("mul.Tensor", b, c))
    return to.joined(real, imaginary)


def _conjugate(to: _Pairs, z: Argument) -> int:
    real, imaginary = to.halves(to.pair(z))
    return to.joined(real, to.new("neg.default", (Ref(imaginary),), to.shape(imaginary), imaginary))


def _sum_of_two(to: _Pairs, left: Argument, right: Argument, alpha: Argument) -> int:
    first = to.pair(left)
    return to.new(to._now.operator, (Ref(first), Ref(to.pair(right)), alpha), to.out_shape(), first)


def _of_size(to: _Pairs, z: Argument, size: Argument, *rest: Argument) -> int:
    pair = to.pair(z)
    operator = "view.default" if to._now.operator == "_unsafe_view.default" else to._now.operator
    return to.new(
        operator, (Ref(pair), (*cast(tuple[Item, ...], size), 2), *rest), to.out_shape(), pair
    )


def _along(places: int, more: int = 0) -> Callable[..., int]:
    """Return the handler of an operator whose first arguments behind the tensor are dimensions.

    ``places`` is the number of these arguments, ``more`` the number of dimensions that the operator
    adds before it counts them.
    """

    def handle(to: _Pairs, z: Argument, *rest: Argument) -> int:
        pair = to.pair(z)
        rank = len(to.shape(pair)) - 1 + more
        dims = tuple(cast(int, dim) % rank for dim in rest[:places])
        return to.new(to._now.operator, (Ref(pair), *dims, *rest[places:]), to.out_shape(), pair)

    return handle


def _permuted(to: _Pairs, z: Argument, dims: Argument) -> int:
    pair = to.pair(z)
    rank = len(to.shape(pair)) - 1
    order = (*(cast(int, dim) % rank for dim in cast(tuple[Item, ...], dims)), rank)
    return to.new("permute.default", (Ref(pair), order), to.out_shape(), pair)


def _summed(to: _Pairs, z: Argument, dims: Argument, keep: Argument, _: Argument) -> int:
    pair = to.pair(z)
    rank = len(to.shape(pair)) - 1
    over = tuple(cast(int, dim) % rank for dim in cast(tuple[Item, ...], dims))
    return to.new("sum.dim_IntList", (Ref(pair), over, keep, None), to.out_shape(), pair)


def _cat(to: _Pairs, parts: Argument, dim: Argument) -> int:
    pairs = [to.pair(part) for part in cast(tuple[Argument, ...], parts)]
    rank = len(to.shape(pairs[0])) - 1
    return to.new(
        "cat.default", (tuple(map(Ref, pairs)), cast(int, dim) % rank), to.out_shape(), pairs[0]
    )


def _indexed(to: _Pairs, z: Argument, indices: Argument) -> int:
    pair = to.pair(z)
    return to.new("index.Tensor", (Ref(pair), indices), to.out_shape(), pair)


def _gathered(to: _Pairs, z: Argument, dim: Argument, index: Argument, *_: Argument) -> int:
    """Gather both parts by the same places: the index is repeated along the last dimension."""
    pair, places = to.pair(z), cast(Ref, index).value
    rank, both = len(to.shape(pair)) - 1, (*to.shape(places), 2)
    column = to.new("unsqueeze.default", (Ref(places), rank), (*both[:-1], 1), places)
    repeated = to.new("expand.default", (Ref(column), both, False), both, places)
    arguments = (Ref(pair), cast(int, dim) % rank, Ref(repeated), False)
    return to.new("gather.default", arguments, to.out_shape(), pair)


def _itself(to: _Pairs, z: Argument, *_: Argument) -> int:
    return to.pair(z)


def _given(_: _Pairs, x: Argument) -> int:
    return cast(Ref, x).value


HANDLERS: dict[str, Callable[..., int]] = {
    "view_as_complex.default": _given,
    "view_as_real.default": _itself,
    "clone.default": _itself,
    "polar.default": _polar,
    "complex.default": _complex,
    "mul.Tensor": _product,
    "_conj.default": _conjugate,
    "add.Tensor": _sum_of_two,
    "sub.Tensor": _sum_of_two,
    "view.default": _of_size,
    "_unsafe_view.default": _of_size,
    "expand.default": _of_size,
    "slice.Tensor": _along(1),
    "select.int": _along(1),
    "unsqueeze.default": _along(1, 1),
    "transpose.int": _along(2),
    "permute.default": _permuted,
    "sum.dim_IntList": _summed,
    "cat.default": _cat,
    "index.Tensor": _indexed,
    "gather.default": _gathered,
}
