"""Mutations of what an operator does: slices, offsets, axes, constants, masks, the function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from msgspec.structs import replace

from pitcheck.mutation.edits import Edit, with_attribute, with_operand
from pitcheck.mutation.facts import Facts
from pitcheck.ops.declaration import OperatorKind
from pitcheck.ops.registry import (
    BACKWARD,
    BACKWARD_ATTRIBUTES,
    declared,
    kinds_with,
    operator_kind,
    random_kinds,
)
from pitcheck.ops.traits import Trait
from pitcheck.plan.model import Number, Operator, Table

Found = Iterator[tuple[str, Edit]]
POSITIONS = frozenset({"position", "index", "root"})
AXES = frozenset({"axis", "dim0", "dim1", "split_axis", "concat_axis"})
CONSTANTS = frozenset(
    {
        "eps",
        "exponent",
        "alpha",
        "value",
        "max",
        "min",
        "scale",
        "probability",
        "beta",
        "diagonal",
        "dims",
    }
)
OTHER_TEXTS: Mapping[tuple[str, object], object] = {
    ("convention", "half"): "interleaved",
    ("convention", "interleaved"): "half",
    ("approximate", "tanh"): "none",
    ("approximate", "none"): "tanh",
    ("is_causal", True): False,
    ("is_causal", False): True,
    ("keepdim", True): False,
    ("largest", True): False,
    ("descending", True): False,
}


def slices(facts: Facts, operator: Operator) -> Found:
    """Yield other elements of the same tensor."""
    start, stop, axis = (operator.attributes.get(name) for name in ("start", "stop", "axis"))
    source = operator.inputs[0] if operator.inputs else None
    if (
        isinstance(start, int)
        and isinstance(stop, int)
        and isinstance(axis, int)
        and isinstance(source, str)
    ):
        size = facts.tensors[source].shape[axis]
        for by in (-1, 1):
            if start + by >= 0 and stop + by <= size:
                yield (
                    f"{abs(by)} element {'earlier' if by < 0 else 'later'}",
                    _between(start + by, stop + by),
                )
    for name, value in operator.attributes.items():
        if name in POSITIONS:
            yield from _places(name, value)
    before, after = operator.attributes.get("before"), operator.attributes.get("after")
    if before != after:
        yield (
            "padded at the other end",
            lambda o: (
                replace(o, attributes={**o.attributes, "before": after or 0, "after": before or 0}),
            ),
        )
    shift = operator.attributes.get("shift")
    if isinstance(shift, int):
        yield "rolled the other way", lambda o: (with_attribute(o, "shift", -shift),)


def _between(start: int, stop: int) -> Edit:
    return lambda o: (replace(o, attributes={**o.attributes, "start": start, "stop": stop}),)


def _places(name: str, value: Any) -> Found:
    if isinstance(value, Table):
        yield from _tables(name, value)
    elif isinstance(value, int):
        yield f"{name} {abs(value - 1)} instead of {value}", _set(name, abs(value - 1))


def _tables(name: str, table: Table) -> Found:
    if len(set(table.values)) > 1:
        yield (
            f"{name} of the next one",
            _set(name, Table(table.over, (*table.values[1:], table.values[0]))),
        )
        yield f"{name} of the first for all", _set(name, table.values[0])


def _set(name: str, value: Any) -> Edit:
    return lambda o: (with_attribute(o, name, value),)


def offsets(facts: Facts, operator: Operator) -> Found:
    """Yield places that are counted from elsewhere."""
    del facts
    offset = operator.attributes.get("offset")
    if operator.kind in random_kinds() or offset is None:
        return
    yield from _moved(offset)


def _moved(offset: Any) -> Found:
    if isinstance(offset, Table):
        yield from _tables("offset", offset)
        whole = [int(str(value)) for value in offset.values]
        yield (
            "offset one more",
            _set("offset", Table(offset.over, tuple(value + 1 for value in whole))),
        )
        yield (
            "the last offset one more",
            _set("offset", Table(offset.over, (*whole[:-1], whole[-1] + 1))),
        )
    elif isinstance(offset, int):
        yield "offset one more", _set("offset", offset + 1)


def random_state(facts: Facts, operator: Operator) -> Found:
    """Yield other random draws."""
    del facts
    if operator.kind in random_kinds():
        stream = operator.attributes.get("stream")
        yield "another stream", _set("stream", f"{stream}'")
        yield from _moved(operator.attributes.get("offset", 0))
        start = operator.attributes.get("start")
        if isinstance(start, Table):
            yield from _tables("start", start)


def axes(facts: Facts, operator: Operator) -> Found:
    """Yield the same operation along another dimension."""
    source = operator.inputs[0] if operator.inputs else None
    rank = len(facts.tensors[source].shape) if isinstance(source, str) else 0
    for name, value in operator.attributes.items():
        if name in AXES and isinstance(value, int) and rank > 1:
            for other in sorted({(value - 1) % rank, (value + 1) % rank} - {value % rank}):
                yield f"{name} {other} instead of {value}", _set(name, other)
        elif (
            name == "axes"
            and isinstance(value, tuple)
            and len(value) == 1
            and rank > 1
            and isinstance(value[0], int)
        ):
            other = (value[0] - 1) % rank
            yield f"axes {other} instead of {value[0]}", _set(name, (other,))
        elif name == "permutation" and isinstance(value, tuple) and len(value) > 1:
            yield (
                "the last two dimensions exchanged",
                _set(name, (*value[:-2], value[-1], value[-2])),
            )
        elif (
            name == "sizes"
            and operator.kind.removesuffix(BACKWARD) in kinds_with(Trait.KEEPS_ORDER)
            and isinstance(value, tuple)
            and len(value) > 2
        ):
            yield "the last two sizes exchanged", _set(name, (*value[:-2], value[-1], value[-2]))


def constants(facts: Facts, operator: Operator) -> Found:
    """Yield other numbers."""
    del facts
    for place, operand in enumerate(operator.inputs):
        if isinstance(operand, Number):
            for what, value in _others(operand.value):
                yield f"operand {place} {what}", _literal(place, value)
    for name, attribute in operator.attributes.items():
        if (
            name in CONSTANTS
            and isinstance(attribute, (int, float, str))
            and not isinstance(attribute, bool)
        ):
            if name in ("dims", "diagonal"):
                yield f"{name} one more", _set(name, int(attribute) + 1)
                continue
            for what, value in _others(attribute):
                yield f"{name} {what}", _set(name, value)


def _literal(place: int, value: int | float | str) -> Edit:
    return lambda o: (with_operand(o, place, Number(value)),)


def _others(value: int | float | str) -> Iterator[tuple[str, int | float | str]]:
    if isinstance(value, str) and ("inf" in value or value == "nan"):
        yield "0 instead of infinite", 0
        return
    if isinstance(value, str) and "sqrt(" in value:
        yield "negated", value[1:] if value.startswith("-") else f"-{value}"
        return
    exact = Fraction(value)
    yield "doubled" if exact else "1 instead of 0", str(2 * exact) if exact else 1
    if exact:
        yield "negated", str(-exact)
    if isinstance(value, int):
        yield "one more", value + 1


def other_attributes(facts: Facts, operator: Operator) -> Found:
    """Yield another way of doing the same."""
    del facts
    for name, value in operator.attributes.items():
        if not isinstance(value, (Table, tuple)) and (name, value) in OTHER_TEXTS:
            other = OTHER_TEXTS[name, value]
            yield f"{name} {other} instead of {value}", _set(name, other)
    if operator.group is None and operator.attributes.get("reduction") in ("mean", "sum"):
        mine = operator.attributes["reduction"]
        yield f"reduction other than {mine}", _set("reduction", "sum" if mine == "mean" else "mean")


def masks(facts: Facts, operator: Operator) -> Found:
    """Yield other masked elements."""
    known = declared(operator.kind)
    if known is None:
        return
    if _decides(known) and known.mistaken_for:
        negation = operator_kind(known.mistaken_for).copies
        label = "not negated" if negation else f"{known.mistaken_for} instead of {known.name}"
        yield label, _of_kind(known.mistaken_for)
    if known.masked is not None:
        mask, kept = (operator.inputs[place] for place in (*known.conditions, known.masked))
        if (
            isinstance(mask, str)
            and isinstance(kept, str)
            and facts.tensors[kept].shape == facts.tensors[operator.outputs[0]].shape
        ):
            yield (
                "nothing masked",
                lambda o: (replace(o, kind="identity", inputs=(kept,), attributes={}),),
            )
    diagonal = operator.attributes.get("diagonal", 0)
    if "diagonal" in known.attributes and isinstance(diagonal, int):
        yield "one diagonal further", _set("diagonal", diagonal + 1)


def functions(facts: Facts, operator: Operator) -> Found:
    """Yield another operator of the same form."""
    del facts
    plain = operator.kind.removesuffix(BACKWARD)
    known = declared(plain)
    if known is not None and known.mistaken_for and not _decides(known) and operator.group is None:
        other = known.mistaken_for + operator.kind[len(plain) :]
        accepted = {*operator_kind(other).attributes, *BACKWARD_ATTRIBUTES}
        kept = {name: value for name, value in operator.attributes.items() if name in accepted}
        yield (
            f"{other} instead of {operator.kind}",
            lambda o: (replace(o, kind=other, attributes=kept),),
        )


def _decides(kind: OperatorKind) -> bool:
    """Return True for comparisons and logic: each element is true or false."""
    return kind.in_place and kind.derivative is None


def _of_kind(kind: str) -> Edit:
    return lambda o: (replace(o, kind=kind),)
