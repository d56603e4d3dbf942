"""Terms in a few words: arithmetic, reductions and moves, of which formulas are made."""

from __future__ import annotations

from collections.abc import Sequence

from random_formulas.term import BOOL, FLOAT, INT, Operand, Term, number, op


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which shapes broadcast."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


def two(kind: str, a: Operand, b: Operand) -> Term:
    """Return an operator with two operands that broadcast."""
    terms = [each for each in (a, b) if isinstance(each, Term)]
    dtype = FLOAT if any(each.dtype == FLOAT for each in terms) else terms[0].dtype
    if kind in ("eq", "ne", "lt", "le", "gt", "ge"):
        dtype = BOOL
    return op(kind, a, b, shape=broadcast(*(t.shape for t in terms)), dtype=dtype)


def add(a: Operand, b: Operand) -> Term:
    """Return a + b."""
    return two("add", a, b)


def sub(a: Operand, b: Operand) -> Term:
    """Return a - b."""
    return two("sub", a, b)


def mul(a: Operand, b: Operand) -> Term:
    """Return a * b."""
    return two("mul", a, b)


def div(a: Operand, b: Operand) -> Term:
    """Return a / b."""
    return two("div", a, b)


def where(condition: Term, a: Operand, b: Operand) -> Term:
    """Return a where the condition holds, else b."""
    terms = [e for e in (a, b) if isinstance(e, Term)]
    shape = broadcast(condition.shape, *(t.shape for t in terms))
    return op("where", condition, a, b, shape=shape, dtype=terms[0].dtype)


def reduced(kind: str, x: Term, axis: int, *, keepdim: bool = True) -> Term:
    """Return a reduction along one axis."""
    shape = list(x.shape)
    if keepdim:
        shape[axis] = 1
    else:
        del shape[axis]
    return op(kind, x, shape=tuple(shape), axes=(axis,), keepdim=keepdim)


def part(x: Term, axis: int, start: int, stop: int) -> Term:
    """Return the elements from ``start`` to below ``stop`` along an axis."""
    shape = list(x.shape)
    shape[axis] = stop - start
    return op("slice", x, shape=tuple(shape), axis=axis, start=start, stop=stop)


def joined(parts: Sequence[Term], axis: int) -> Term:
    """Return parts joined along an axis; a single one is itself."""
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].shape)
    shape[axis] = sum(each.shape[axis] for each in parts)
    return op("cat", *parts, shape=tuple(shape), axis=axis)


def places(x: Term, axis: int) -> Term:
    """Return 0, 1, ... along an axis of x, shaped to broadcast against x."""
    line = op("positions", x, shape=(x.shape[axis],), dtype=INT, axis=axis)
    shape = [1] * len(x.shape)
    shape[axis] = x.shape[axis]
    if tuple(shape) == line.shape:
        return line
    return op("reshape", line, shape=tuple(shape), sizes=tuple(shape))


def literal(value: float | str) -> Operand:
    """Return a literal operand."""
    return number(value)
