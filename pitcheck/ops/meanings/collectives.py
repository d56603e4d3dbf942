"""Collectives and other communication.

The single input of a collective is the stack of the tensors of the group's members: (members,
*shape), in the group's order. ``position`` is the place of the member whose result is computed; the
lowering of a plan sets it. Axes are those of one member's tensor. A backward pass states its
collectives itself, so they have no derivative.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.ops.registry import evaluate
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> stack = reals.integers(np.array([[[[1, 2], [3, 4]]]]))
>>> evaluate(reals, "reduce_scatter", [stack], {"axis": 0, "position": 1})[0].data[0, 0, 0].tolist()
[6]
"""

from __future__ import annotations

from pitcheck.errors import ShapeError, UnsupportedError
from pitcheck.ops.declaration import AttributeRole, Attributes, OperatorKind
from pitcheck.ops.declare import Formula, declare
from pitcheck.ops.term import Term, flag, needed, normalise
from pitcheck.ops.traits import Communication, Condition, Trait

_EVENT: dict[str, AttributeRole] = {
    "async": "value",
    "tag": "value",
    "batch": "value",
    "protocol": "value",
}
"""The attributes by which a communication is matched and ordered; they do not change its result."""

REDUCTIONS = ("sum", "avg", "max", "min", "product")


def _reduced(stack: Term, attributes: Attributes) -> Term:
    """Return the members' tensors combined; avg divides by the number of members."""
    reduction = attributes.get("reduction", "sum")
    if reduction == "sum":
        return stack.sum(0)
    if reduction == "avg":
        return stack.mean(0)
    if reduction in ("max", "min") and stack.kind == "bool":
        return ~_some(~stack) if reduction == "min" else _some(stack)
    if reduction in ("max", "min"):
        return stack.maximum_over(0, least=reduction == "min")
    if reduction == "product":
        return _product(stack)
    raise UnsupportedError(
        f"the reduction {reduction!r} has no meaning here; known are {', '.join(REDUCTIONS)}"
    )


def _some(stack: Term) -> Term:
    """Return True if a member's truth is true."""
    return stack.cast("int").sum(0).compare("gt", 0)


def _product(stack: Term) -> Term:
    result = stack.select(0, 0)
    for member in range(1, stack.shape[0]):
        result = result * stack.select(0, member)
    return result


def _member_axis(stack: Term, axis: int) -> int:
    return normalise(axis, stack.ndim - 1)


def _position(stack: Term, attributes: Attributes, name: str) -> int:
    position = int(needed(attributes, name))
    if not 0 <= position < stack.shape[0]:
        raise ShapeError(f"{name} {position} is outside a group of {stack.shape[0]} members")
    return position


def _joined(stack: Term, axis: int) -> Term:
    """Return the members' tensors concatenated along ``axis``."""
    moved = stack.move(0, axis)
    shape = moved.shape
    return moved.reshape((*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def _all_reduce(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [_reduced(inputs[0], attributes)]


def _reduce(inputs: list[Term], attributes: Attributes) -> list[Term]:
    _position(inputs[0], attributes, "root")
    return [_reduced(inputs[0], attributes)]


def _scan(inputs: list[Term], attributes: Attributes) -> list[Term]:
    stack = inputs[0]
    if attributes.get("reduction", "sum") == "avg":
        raise UnsupportedError("the reduction 'avg' has no meaning here in a scan")
    position = _position(stack, attributes, "position")
    reverse = flag(attributes, "reverse")
    start, stop = (position, stack.shape[0]) if reverse else (0, position + 1)
    return [_reduced(stack.slice(0, start, stop), attributes)]


def _reduce_scatter(inputs: list[Term], attributes: Attributes) -> list[Term]:
    stack = inputs[0]
    axis = _member_axis(stack, needed(attributes, "axis"))
    position = _position(stack, attributes, "position")
    # The part comes first, so that no rank adds up the parts of others.
    return [_reduced(stack.part(axis + 1, stack.shape[0], position), attributes)]


def _all_gather(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [_joined(inputs[0], _member_axis(inputs[0], needed(attributes, "axis")))]


def _gather(inputs: list[Term], attributes: Attributes) -> list[Term]:
    _position(inputs[0], attributes, "root")
    return _all_gather(inputs, attributes)


def _broadcast(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].select(0, _position(inputs[0], attributes, "root"))]


def _scatter(inputs: list[Term], attributes: Attributes) -> list[Term]:
    stack = inputs[0]
    axis = _member_axis(stack, needed(attributes, "axis"))
    root = stack.select(0, _position(stack, attributes, "root"))
    return [root.part(axis, stack.shape[0], _position(stack, attributes, "position"))]


def _all_to_all(inputs: list[Term], attributes: Attributes) -> list[Term]:
    stack = inputs[0]
    split = _member_axis(stack, needed(attributes, "split_axis"))
    concat = _member_axis(stack, needed(attributes, "concat_axis"))
    return [
        _joined(
            stack.part(split + 1, stack.shape[0], _position(stack, attributes, "position")), concat
        )
    ]


def _accumulate(inputs: list[Term], _: Attributes) -> list[Term]:
    return [inputs[0].sum(0)]


def _copy(inputs: list[Term], _: Attributes) -> list[Term]:
    return inputs


def _is_sum(attributes: Attributes) -> bool:
    return bool(attributes.get("reduction", "sum") == "sum")


def _is_linear(attributes: Attributes) -> bool:
    return attributes.get("reduction", "sum") in ("sum", "avg")


def _is_extreme(attributes: Attributes) -> bool:
    return attributes.get("reduction", "sum") in ("max", "min")


_SUM: dict[Trait, Condition] = {Trait.ADDS_TERMS: _is_linear, Trait.ROUNDS_NOTHING: _is_extreme}
"""The traits of every reduction, by its attribute."""
_FOR_ALL: dict[Trait, Condition] = {**_SUM, Trait.TOTAL: _is_linear, Trait.ADDS_MEMBERS: _is_sum}
"""The traits of reductions whose result several members have."""
_MOVED = (Trait.CARRIES, Trait.ROUNDS_NOTHING)
_REDUCTION: dict[str, AttributeRole] = {"reduction": "value"}


def _collective(
    name: str,
    formula: Formula,
    required: dict[str, AttributeRole],
    doc: str,
    *,
    optional: dict[str, AttributeRole] | None = None,
    traits: tuple[Trait, ...],
    reductions: dict[Trait, Condition] | None = None,
    in_place: bool = False,
    reads_root: bool = False,
    gives_root: bool = False,
    divided_axis: str = "",
) -> OperatorKind:
    """Return a collective.

    ``reductions`` are the traits that depend on its attribute ``reduction``. It has that attribute
    only if they are given.
    """
    return declare(
        name,
        formula,
        attributes={
            **required,
            **(optional or {}),
            **({} if reductions is None else _REDUCTION),
            **_EVENT,
        },
        required=tuple(a for a in required if a != "position"),
        collective=True,
        in_place=in_place,
        reads_root=reads_root,
        gives_root=gives_root,
        traits=traits,
        conditional=reductions,
        communication=Communication.COLLECTIVE,
        divided_axis=divided_axis,
        doc=doc,
    )


OPERATORS = (
    _collective(
        "all_reduce",
        _all_reduce,
        {},
        "The sum (`reduction`: sum, avg, max, min, product) of the members' tensors; avg divides "
        "by the number of members. Of truths max is or, min is and.",
        traits=(Trait.KEEPS_SIZES, Trait.LEAVES_OTHER_AXES, Trait.KEEPS_POSITIVE),
        reductions={**_FOR_ALL, Trait.ADDS_PLAINLY: _is_sum},
        in_place=True,
    ),
    _collective(
        "reduce",
        _reduce,
        {"root": "value"},
        "As all_reduce; only the member at place `root` has the result. The others' results "
        "are memory that nobody has written to.",
        traits=(Trait.KEEPS_SIZES,),
        reductions=_SUM,
        in_place=True,
        gives_root=True,
    ),
    _collective(
        "scan",
        _scan,
        {"position": "value"},
        "As all_reduce without avg, over the members up to its own place, itself included; with "
        "`reverse` from its own place on, which is the gradient of a sum.",
        optional={"reverse": "value"},
        traits=(Trait.KEEPS_SIZES, Trait.LEAVES_OTHER_AXES, Trait.KEEPS_POSITIVE),
        reductions={**_SUM, Trait.TOTAL: _is_sum},
    ),
    _collective(
        "reduce_scatter",
        _reduce_scatter,
        {"axis": "axis", "position": "value"},
        "As all_reduce, cut along `axis` into as many equal parts as there are members; a member "
        "gets the part at its place.",
        traits=(Trait.LEAVES_OTHER_AXES, Trait.KEEPS_POSITIVE),
        reductions=_FOR_ALL,
        divided_axis="axis",
    ),
    _collective(
        "all_gather",
        _all_gather,
        {"axis": "axis"},
        "The members' tensors joined along `axis` in the group's order.",
        traits=(*_MOVED, Trait.LEAVES_OTHER_AXES, Trait.TOTAL, Trait.KEEPS_POSITIVE),
    ),
    _collective(
        "gather_to",
        _gather,
        {"axis": "axis", "root": "value"},
        "As all_gather; only the member at place `root` has the result. The others' results "
        "are memory that nobody has written to.",
        traits=_MOVED,
        gives_root=True,
    ),
    _collective(
        "broadcast",
        _broadcast,
        {"root": "value"},
        "The tensor of the member at place `root`; those of the others are not read.",
        traits=(*_MOVED, Trait.KEEPS_SIZES),
        in_place=True,
        reads_root=True,
    ),
    _collective(
        "scatter_from",
        _scatter,
        {"axis": "axis", "root": "value", "position": "value"},
        "The tensor of the member at place `root`, cut along `axis` into equal parts; a member "
        "gets the part at its place. Those of the others are not read.",
        traits=_MOVED,
        divided_axis="axis",
        reads_root=True,
    ),
    _collective(
        "all_to_all",
        _all_to_all,
        {"split_axis": "axis", "concat_axis": "axis", "position": "value"},
        "Every member's tensor is cut along `split_axis` into equal parts; a member gets the "
        "parts at its place, joined along `concat_axis`.",
        traits=_MOVED,
        divided_axis="split_axis",
    ),
    declare(
        "accumulate",
        _accumulate,
        attributes={"microbatches": "value"},
        collective=True,
        traits=(
            Trait.KEEPS_SIZES,
            Trait.ADDS_TERMS,
            Trait.ADDS_MEMBERS,
            Trait.ADDS_PLAINLY,
            Trait.TOTAL,
            Trait.KEEPS_POSITIVE,
        ),
        doc="The sum over micro-batches (those in `microbatches`; all by default), which arrive "
        "stacked.",
    ),
    declare(
        "send",
        _copy,
        attributes={"peer": "value", **_EVENT},
        order_only=True,
        communication=Communication.SEND,
        doc="x, on its way to rank `peer`.",
    ),
    declare(
        "receive",
        _copy,
        attributes={"peer": "value", **_EVENT},
        communication=Communication.RECEIVE,
        doc="The tensor that the matching send of rank `peer` reads.",
    ),
    declare(
        "barrier",
        _copy,
        inputs=(0, 0),
        attributes={"async": "value"},
        order_only=True,
        communication=Communication.BARRIER,
        doc="Nothing; no member goes on before all have come here.",
    ),
    declare(
        "wait",
        _copy,
        attributes={"of": "value"},
        copies=True,
        order_only=True,
        traits=(Trait.KEEPS_ORDER, Trait.ROUNDS_NOTHING),
        communication=Communication.WAIT,
        doc="x, once the asynchronous operator that makes it is complete. Without an output it "
        "waits for asynchronous sends of x (for those in `of`).",
    ),
)
