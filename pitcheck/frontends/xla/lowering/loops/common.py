"""Loops that both programs have, and that count their iterations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pitcheck.frontends.xla.lowering.arrays import Tuple, Value, uniform_of
from pitcheck.frontends.xla.text.module import Computation, Instruction, Module
from pitcheck.frontends.xla.text.shapes import ArrayShape, TupleShape
from pitcheck.frontends.xla.text.sharding import Form, Sharding, Use

Key = tuple[str, str]
"""The names of a computation and of an instruction in it."""


@dataclass(frozen=True)
class Loop:
    """A loop that is not followed iteration by iteration.

    Attributes:
        name: its name before the program is partitioned.
        counter: the place of the counter in the state. Each iteration adds 1 to it.
        limit: the counter behind the last iteration.
        kept: the places of arrays that no iteration changes.
        further: the places of other integers to which each iteration adds a number, and the number.
        shapes: the whole shape of each array of the state; in a manual region what a device has.
        shardings: how each is distributed.
    """

    name: str
    counter: int
    limit: int
    kept: frozenset[int]
    further: tuple[tuple[int, int], ...]
    shapes: tuple[ArrayShape, ...]
    shardings: tuple[Sharding, ...]

    @property
    def changed(self) -> list[int]:
        """The places of arrays that an iteration changes otherwise than by counting."""
        places = range(len(self.shapes))
        return [place for place in places if place not in self.kept and not self.counts(place)]

    def counts(self, place: int) -> bool:
        """Return True for the counter, and for other integers that count."""
        return place == self.counter or any(place == other for other, _ in self.further)

    @property
    def is_manual(self) -> bool:
        """True in a manual region, where each device has a state that may be any other."""
        return any(sharding.form is Form.MANUAL for sharding in self.shardings)


@dataclass(frozen=True)
class _Counted:
    """A loop of one program that counts its iterations."""

    counter: int
    limit: int
    kept: frozenset[int]
    further: tuple[tuple[int, int], ...]
    shapes: tuple[ArrayShape, ...]


def common_loops(before: Module, after: Module) -> tuple[dict[Key, Loop], dict[Key, Loop]]:
    """Return the loops of each program over which an induction may lead.

    The loops of both are taken to correspond in the order in which they are reached. Nothing rests
    on that: the proof shows it or fails.
    """
    first, second = (list(_loops(module)) for module in (before, after))
    found: tuple[dict[Key, Loop], dict[Key, Loop]] = {}, {}
    if len(first) != len(second):
        return found
    for one, other in zip(first, second, strict=True):
        loop = _common(before, one, after, other)
        if loop is not None:
            for loops, key in zip(found, (one, other), strict=True):
                loops[key] = loop
    return found


def iterations_of(module: Module, key: Key, state: Value) -> int | None:
    """Return how many iterations a loop makes from a state on; None if it does not count them."""
    counted = _counted(module, key)
    if counted is None or not isinstance(state, Tuple):
        return None
    counter = state.elements[counted.counter]
    start = uniform_of(counter)
    return counted.limit - start if isinstance(start, int) else None


def _loops(module: Module) -> Iterator[Key]:
    """Yield the loops of a program, those around others first."""
    seen, stack = {module.entry}, [module.entry]
    while stack:
        computation = module.computations[stack.pop()]
        called: list[str] = []
        for instruction in computation.instructions.values():
            if instruction.opcode == "while":
                yield computation.name, instruction.name
            called += [name for name in instruction.calls if name not in seen]
            seen.update(called)
        stack += reversed(called)


def _common(before: Module, one: Key, after: Module, other: Key) -> Loop | None:
    """Return what two loops have in common; None if that is too little for an induction."""
    whole, part = _counted(before, one), _counted(after, other)
    instruction = before.computations[one[0]].instructions[one[1]]
    shardings = instruction.sharding
    if whole is None or part is None or not isinstance(shardings, tuple):
        return None
    if (whole.counter, whole.limit) != (part.counter, part.limit):
        return None
    stated = [each for each in shardings if each is not None]
    if not len(stated) == len(shardings) == len(whole.shapes) == len(part.shapes):
        return None
    if not (all(map(_says_all, stated)) or _is_region(stated)):
        return None
    found = Loop(
        instruction.name,
        whole.counter,
        whole.limit,
        whole.kept & part.kept,
        tuple(each for each in whole.further if each in part.further),
        whole.shapes,
        tuple(stated),
    )
    # Nothing bounds an integer that iterations change.
    bounded = all(not found.shapes[place].element.is_integer for place in found.changed)
    return found if bounded else None


def _says_all(sharding: Sharding) -> bool:
    """Return True if a sharding says which part of an array each device holds."""
    return sharding.form in {Form.TILED, Form.REPLICATED} and all(
        sharding.count(use) == 1 for use in (Use.MANUAL, Use.UNREDUCED)
    )


def _is_region(shardings: Sequence[Sharding]) -> bool:
    """Return True for the arrays of a manual region, of which each device has one."""
    return all(each.form is Form.MANUAL for each in shardings)


def _counted(module: Module, key: Key) -> _Counted | None:
    """Return how a loop counts its iterations; None if it does not, or its state is nested."""
    instruction = module.computations[key[0]].instructions[key[1]]
    condition = module.computations[str(instruction.attributes["condition"])]
    body = module.computations[str(instruction.attributes["body"])]
    if not isinstance(instruction.shape, TupleShape):
        return None
    shapes = [each for each in instruction.shape.elements if isinstance(each, ArrayShape)]
    if len(shapes) < len(instruction.shape.elements) or body.result.opcode != "tuple":
        return None
    limit = _limit(condition)
    steps = {place: _step(body, place) for place, shape in enumerate(shapes) if _is_count(shape)}
    if limit is None or steps.get(limit[0]) != 1:
        return None
    results = enumerate(body.result.operands)
    kept = frozenset(place for place, name in results if _element(body, name) == place)
    further = ((n, step) for n, step in steps.items() if step is not None and n != limit[0])
    return _Counted(*limit, kept, tuple(further), tuple(shapes))


def _is_count(shape: ArrayShape) -> bool:
    return shape.element.is_integer and not shape.dimensions


def _limit(condition: Computation) -> tuple[int, int] | None:
    """Return the place in the state that a condition compares, and below what it must be."""
    compared = condition.result
    if compared.opcode != "compare" or dict(compared.attributes) != {"direction": "LT"}:
        return None
    first, second = compared.operands
    place, limit = _element(condition, first), _integer(condition.instructions[second])
    return None if place is None or limit is None else (place, limit)


def _step(body: Computation, place: int) -> int | None:
    """Return the number that an iteration adds to an integer of the state; None for other ones."""
    added = body.instructions[body.result.operands[place]]
    if added.opcode != "add":
        return None
    for name, step in (added.operands, added.operands[::-1]):
        if _element(body, name) == place:
            return _integer(body.instructions[step])
    return None


def _element(computation: Computation, name: str) -> int | None:
    """Return the place of an array in the state that a computation is given; None for others."""
    instruction = computation.instructions[name]
    if instruction.opcode != "get-tuple-element" or len(computation.parameters) != 1:
        return None
    if instruction.operands != computation.parameters:
        return None
    return instruction.get("index", 0)


def _integer(instruction: Instruction) -> int | None:
    """Return the number of a constant; None for other instructions."""
    literal = instruction.literal
    if literal is None or not _is_count(literal.shape):
        return None
    number = literal.elements[0]
    return number if isinstance(number, int) else None
