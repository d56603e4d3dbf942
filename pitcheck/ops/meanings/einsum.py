"""Sums of products over named indices (Einstein's convention), as products of matrices.

An operand's dimensions are named by letters; indices that are not in the result are summed over.
Operands are joined two at a time. The gradient of an operand is the same sum with the result's
gradient in the operand's place.

>>> from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
>>> from pitcheck.ops.registry import evaluate
>>> axes = AxisAlgebra(AxisSystem())
>>> x, w = axes.tensor((2, 5, 8)), axes.tensor((4, 8))
>>> evaluate(axes, "einsum", [x, w], {"equation": "bsh,oh->bso"})[0].shape
(2, 5, 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pitcheck.errors import ShapeError, UnsupportedError
from pitcheck.ops.declaration import Attributes
from pitcheck.ops.declare import MANY, Lazy, Local, declare
from pitcheck.ops.term import Term, needed
from pitcheck.ops.traits import Trait


def _parse(equation: str, count: int) -> tuple[list[str], str]:
    """Return the index names of every operand, and those of the result."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    if not arrow:
        raise UnsupportedError(
            f"the equation {equation!r} does not name its result; write '->' and the result's "
            f"indices"
        )
    if len(operands) != count:
        raise ShapeError(f"the equation {equation!r} has {len(operands)} operands, not {count}")
    for names in (*operands, result):
        if not all(c.isalpha() for c in names) or len(set(names)) != len(names):
            raise UnsupportedError(
                f"the indices {names!r} in {equation!r} have no meaning here: they are letters, "
                f"each once"
            )
    if not set(result) <= set("".join(operands)):
        raise ShapeError(f"the result of {equation!r} has an index that no operand has")
    return operands, result


def _sizes(operands: Sequence[str], terms: Sequence[Term]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for names, term in zip(operands, terms, strict=True):
        if len(names) != term.ndim:
            raise ShapeError(
                f"the indices {names!r} do not name the {term.ndim} dimensions of an operand of "
                f"shape {term.shape}"
            )
        for name, size in zip(names, term.shape, strict=True):
            if sizes.setdefault(name, size) != size:
                raise ShapeError(
                    f"the index {name!r} has size {sizes[name]} in one operand and {size} in "
                    f"another"
                )
    return sizes


def _arranged(term: Term, names: str, wanted: str) -> Term:
    """Sum over the indices that are not wanted, and put the others in the wanted order."""
    summed = [i for i, name in enumerate(names) if name not in wanted]
    left = [name for name in names if name in wanted]
    return (
        term.sum(summed).permute([left.index(name) for name in wanted])
        if left
        else term.sum(summed)
    )


def _joined(a: Term, a_names: str, b: Term, b_names: str, kept: str) -> tuple[Term, str]:
    """Return the product of two operands, summed over the indices not ``kept``.

    Returns:
        The product, and its index names.
    """
    both = [n for n in a_names if n in b_names]
    batch = "".join(n for n in both if n in kept)
    inner = "".join(n for n in both if n not in kept)
    rows = "".join(n for n in a_names if n not in b_names and n in kept)
    columns = "".join(n for n in b_names if n not in a_names and n in kept)
    sizes = {**dict(zip(a_names, a.shape, strict=True)), **dict(zip(b_names, b.shape, strict=True))}
    shapes = {group: tuple(sizes[n] for n in group) for group in (batch, rows, inner, columns)}
    left = _arranged(a, a_names, batch + rows + inner).reshape(
        (*shapes[batch], prod(shapes[rows]), prod(shapes[inner]))
    )
    right = _arranged(b, b_names, batch + inner + columns).reshape(
        (*shapes[batch], prod(shapes[inner]), prod(shapes[columns]))
    )
    return (left @ right).reshape(
        shapes[batch] + shapes[rows] + shapes[columns]
    ), batch + rows + columns


def contract(operands: Sequence[str], terms: Sequence[Term], result: str) -> Term:
    """Return the sum of products of ``terms`` over all indices not in ``result``.

    ``operands`` has the names of the dimensions of each term, ``result`` those of the result.
    """
    term, names = terms[0], operands[0]
    for i in range(1, len(terms)):
        kept = result + "".join(operands[i + 1 :])
        term, names = _joined(term, names, terms[i], operands[i], kept)
    return _arranged(term, names, result)


def _einsum(inputs: list[Term], attributes: Attributes) -> list[Term]:
    operands, result = _parse(needed(attributes, "equation"), len(inputs))
    _sizes(operands, inputs)
    return [contract(operands, inputs, result)]


def _einsum_backward(local: Local) -> Sequence[Lazy | None]:
    operands, result = _parse(local.attributes["equation"], len(local.inputs))
    sizes = _sizes(operands, local.inputs)

    def gradient(position: int) -> Lazy:
        others = [i for i in range(len(operands)) if i != position]
        names = [result, *(operands[i] for i in others)]
        here = operands[position]
        present = "".join(n for n in here if n in "".join(names))

        def compute() -> Term:
            found = contract(names, [local.dy, *(local.inputs[i] for i in others)], present)
            spread = found.reshape(tuple(sizes[n] if n in present else 1 for n in here))
            return spread.expand(tuple(sizes[n] for n in here))

        return compute

    return [gradient(i) for i in range(len(operands))]


OPERATORS = (
    declare(
        "einsum",
        _einsum,
        _einsum_backward,
        inputs=(1, MANY),
        attributes={"equation": "value"},
        required=("equation",),
        traits=(Trait.MULTILINEAR, Trait.CONTRACTS, Trait.MULTIPLIES_MATRICES),
        derives_from_inputs=True,
        doc='The sum of products that `equation` names, e.g. "bsh,oh->bso": indices are letters, '
        "once per operand; those not in the result are summed.",
    ),
)
