"""Bounds on the size of a plan, checked before anything is allocated by it."""

from __future__ import annotations

from collections.abc import Iterator

from pitcheck.plan.model import MICROBATCH_AXIS, Plan, attribute_values
from pitcheck.plan.rules.violations import Violation

MAX_RANKS = 1 << 20
MAX_COORDINATES = 1 << 26
MAX_AXES = 32
MAX_BITS = 1024
"""The bits of the largest integer that an attribute may be."""
MAX_ELEMENTS = 1 << 52
"""The largest tensor on paper: the attention scores of a whole batch of long sequences. Evaluated
tensors are smaller, and bounded by the memory allowed.
"""


def check_sizes(plan: Plan) -> Iterator[Violation]:
    """Yield PIT001 for the mesh and the number of micro-batches, PIT003 for tensor shapes.

    A mesh that passes has 1 to 32 distinct axes and at most 2^20 ranks and 2^26 coordinates, so
    that masks over it fit into memory.
    """
    yield from _check_mesh(plan)
    right: set[tuple[int, ...]] = set()
    for number, tensor in enumerate(plan.tensors):
        if tensor.shape not in right:
            found = list(_check_shape(f"tensors[{number}].shape", tensor.name, tensor.shape))
            yield from found
            if not found:
                right.add(tensor.shape)
    for operator in plan.operators:
        for name, attribute in operator.attributes.items():
            for value in attribute_values(attribute):
                yield from _check_number(f"operators[{operator.id}].attributes.{name}", value)


def mesh_violations(plan: Plan) -> list[Violation]:
    """Return the violations without which no coordinates exist."""
    return list(_check_mesh(plan))


def _check_mesh(plan: Plan) -> Iterator[Violation]:
    if len(plan.mesh) > MAX_AXES:
        yield Violation("PIT001", "mesh", f"{len(plan.mesh)} axes; at most {MAX_AXES} are possible")
        return
    ranks = 1
    seen: set[str] = set()
    for number, axis in enumerate(plan.mesh):
        place = f"mesh[{number}]"
        if axis.name in seen:
            yield Violation(
                "PIT001", f"{place}.name", f"axis {axis.name!r} stands twice in the mesh"
            )
        if axis.name == MICROBATCH_AXIS or not axis.name:
            yield Violation(
                "PIT001",
                f"{place}.name",
                f"an axis cannot be called {axis.name!r}; 'mb' is the micro-batch, give the axis "
                f"another name",
            )
        if axis.size < 1:
            yield Violation(
                "PIT001",
                f"{place}.size",
                f"axis {axis.name!r} has size {axis.size}; a size is at least 1",
            )
        seen.add(axis.name)
        ranks *= max(axis.size, 1)
    if ranks > MAX_RANKS:
        yield Violation(
            "PIT001",
            "mesh",
            f"the mesh has {_short(ranks)} ranks; at most {MAX_RANKS} are possible",
        )
    if plan.microbatches < 1:
        yield Violation(
            "PIT001", "microbatches", f"{plan.microbatches} micro-batches; there is at least 1"
        )
    if ranks * plan.microbatches > MAX_COORDINATES:
        yield Violation(
            "PIT001",
            "microbatches",
            f"{_short(ranks * plan.microbatches)} coordinates (ranks x micro-batches); at most "
            f"{MAX_COORDINATES}",
        )


def _check_shape(place: str, name: str, shape: tuple[int, ...]) -> Iterator[Violation]:
    elements = 1
    for dim, size in enumerate(shape):
        if size <= 0:
            what = "is empty" if size == 0 else "has a negative size"
            yield Violation(
                "PIT003",
                f"{place}[{dim}]",
                f"dimension {dim} of {name!r} {what} ({_short(size)}); every size is at least 1",
                tensor=name,
            )
            return
        elements *= size
        if elements > MAX_ELEMENTS:
            yield Violation(
                "PIT003",
                place,
                f"{name!r} of shape {_short_shape(shape)} has more than 2^52 elements",
                tensor=name,
            )
            return
    if len(shape) > MAX_AXES:
        yield Violation(
            "PIT003",
            place,
            f"{name!r} has {len(shape)} dimensions; at most {MAX_AXES} are possible",
            tensor=name,
        )


def _check_number(place: str, value: object) -> Iterator[Violation]:
    """Yield PIT001 for an integer beyond every floating-point type: it may not be printable."""
    if isinstance(value, tuple):
        for each in value:
            yield from _check_number(place, each)
    elif isinstance(value, int) and value.bit_length() > MAX_BITS:
        yield Violation("PIT001", place, f"{_short(value)} is beyond every floating-point type")


def _short(number: int) -> str:
    """Return a number in print; beyond 64 bits only its size, since printing may be refused."""
    return str(number) if number.bit_length() <= 64 else f"a number of {number.bit_length()} bits"


def _short_shape(shape: tuple[int, ...]) -> str:
    return (
        "(" + ", ".join(_short(size) for size in shape[:8]) + (", ...)" if len(shape) > 8 else ")")
    )
