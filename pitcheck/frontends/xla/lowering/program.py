"""The instructions of a computation, one after the other, with loops unrolled and calls inlined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from pitcheck.errors import BudgetError, PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.arrays import (
    Array,
    Copies,
    Tuple,
    Value,
    arrays_of,
    shape_of,
    uniform_of,
)
from pitcheck.frontends.xla.lowering.asynchronous import DONE, done, pending, started
from pitcheck.frontends.xla.lowering.branches import meeting_in, taken
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.collectives import collective, partition
from pitcheck.frontends.xla.lowering.elementwise import elementwise
from pitcheck.frontends.xla.lowering.extreme_places import extreme_with_place
from pitcheck.frontends.xla.lowering.indexed.operators import indexed
from pitcheck.frontends.xla.lowering.loops.common import Loop, iterations_of
from pitcheck.frontends.xla.lowering.loops.counted import by_operators
from pitcheck.frontends.xla.lowering.loops.induction import Induction, NotFoldedError
from pitcheck.frontends.xla.lowering.loops.trip_counts import check_trip_count
from pitcheck.frontends.xla.lowering.manual.branches import branches_of, merged
from pitcheck.frontends.xla.lowering.manual.collectives import manual_collective, manual_partition
from pitcheck.frontends.xla.lowering.manual.knots import KNOTS, knotted
from pitcheck.frontends.xla.lowering.manual.shards import full_of, manual_groups, shards_of
from pitcheck.frontends.xla.lowering.orders import ordered
from pitcheck.frontends.xla.lowering.random.generators import random_bits
from pitcheck.frontends.xla.lowering.reductions import reduced
from pitcheck.frontends.xla.lowering.structure import structural
from pitcheck.frontends.xla.lowering.windows.convolutions import convolution
from pitcheck.frontends.xla.lowering.windows.selections import selections
from pitcheck.frontends.xla.lowering.windows.window_reductions import window_reductions
from pitcheck.frontends.xla.text.module import Computation, Instruction
from pitcheck.frontends.xla.text.opcodes import OPCODES
from pitcheck.frontends.xla.text.rounded_literals import meant
from pitcheck.frontends.xla.text.shapes import ArrayShape, leaves
from pitcheck.frontends.xla.text.sharding import Sharding

MOST_ITERATIONS = 4096
"""The iterations of a loop that are followed one by one."""
MOST_INSTRUCTIONS = 1 << 22
"""The instructions that are followed, those of loops, calls and branches each time anew."""
DEEPEST = 100
"""The calls within each other that are followed."""
MOST_WAYS = 1 << 12
"""The ways through conditionals within each other that are followed, where inputs choose."""


@dataclass(frozen=True)
class _Place:
    """The place of an instruction: its computation, and the loop iterations around it."""

    computation: Computation
    path: str


Arithmetic = Callable[[Building, Instruction, Sequence[Array]], Value | None]
_ARITHMETIC: Sequence[Arithmetic] = (
    elementwise,
    structural,
    reduced,
    extreme_with_place,
    ordered,
    window_reductions,
    selections,
    convolution,
    indexed,
    collective,
    started,
    random_bits,
)


class Run:
    """The lowering of one module's computations into a building.

    In a program that is not partitioned yet, what lies between SPMDFullToShardShape and
    SPMDShardToFullShape is lowered once for each partition.
    """

    def __init__(self, building: Building, induction: Induction) -> None:
        self._b = building
        self._induction = induction
        self._depth = 0
        self._followed = 0
        self._sizes: dict[str, int] = {}
        self._calls: dict[str, int] = {}
        self._split = 0
        """The conditionals around, of whose branches devices take different ones."""
        self._ways = 1
        """The ways through the conditionals around, as far as inputs choose their branches."""

    def computation(self, computation: Computation, given: Sequence[Value], path: str) -> Value:
        """Return the result of a computation. ``path`` names the loop iterations around it.

        Raises:
            UnsupportedError: an instruction has no meaning in a plan.
            PlanError: the program contradicts itself.
            BudgetError: it is too large.
        """
        self._depth += 1
        if self._depth > DEEPEST:
            raise BudgetError(f"{self._b.module.file}: more than {DEEPEST} calls within each other")
        self._followed += self._size(computation)
        self._check_followed(self._called(computation))
        values: dict[str, Value] = dict(zip(computation.parameters, given, strict=True))
        place = _Place(computation, path)
        for name, instruction in computation.instructions.items():
            self._b.at(instruction, path)
            if name not in values:
                values[name] = self._result(
                    instruction, [values[operand] for operand in instruction.operands], place
                )
            self._check_manual(instruction, values[name])
        self._depth -= 1
        return values[computation.root]

    def _check_followed(self, more: int = 0) -> None:
        """Check that so many instructions, and ``more``, may be followed. Raises BudgetError."""
        if self._followed + more > MOST_INSTRUCTIONS:
            raise BudgetError(
                f"{self._b.module.file}: more than {MOST_INSTRUCTIONS} instructions, with those of "
                f"loops, calls and branches counted each time, and each array of a tuple"
            )

    def _called(self, computation: Computation, depth: int = 0) -> int:
        """Return the size of all that a computation calls once, with what that calls."""
        if computation.name not in self._calls and depth < DEEPEST:
            computations = self._b.module.computations
            self._calls[computation.name] = sum(
                self._size(computations[name]) + self._called(computations[name], depth + 1)
                for instruction in computation.instructions.values()
                if instruction.opcode == "call"
                for name in instruction.calls
            )
        return self._calls.get(computation.name, 0)

    def _size(self, computation: Computation) -> int:
        """Return the number of arrays that instructions give; a tuple of none counts, too."""
        if computation.name not in self._sizes:
            self._sizes[computation.name] = sum(
                max(1, sum(1 for _ in leaves(instruction.shape)))
                for instruction in computation.instructions.values()
            )
        return self._sizes[computation.name]

    def _result(self, instruction: Instruction, given: Sequence[Value], place: _Place) -> Value:
        control = _CONTROL.get(instruction.opcode)
        if control is not None:
            return control(self, instruction, given, place)
        if self._split and OPCODES[instruction.opcode].meets:
            raise unsupported(self._b, "a collective in a branch that not all devices take")
        arrays = [each for each in given if isinstance(each, Array)]
        copies = [each for each in given if isinstance(each, Copies)]
        groups = self._groups(instruction)
        if groups is not None and all(each.groups == groups for each in copies):
            if len(copies) == len(given):
                found = self._manual(instruction, copies, groups, place.path)
                return self._checked(instruction, found)
        elif len(arrays) == len(given):
            return self._checked(instruction, self._computed(instruction, arrays))
        if copies or groups is not None:
            raise unsupported(self._b, "a manual region that is entered or left without its border")
        raise self._meaningless(instruction)

    def _computed(self, instruction: Instruction, arrays: Sequence[Array]) -> Value:
        for lower in _ARITHMETIC:
            found = lower(self._b, instruction, arrays)
            if found is not None:
                return found
        raise self._meaningless(instruction)

    def _meaningless(self, instruction: Instruction) -> UnsupportedError:
        return UnsupportedError(
            f"{self._b.place}: the operator {instruction.opcode} has no meaning in a plan"
        )

    # --- manual regions
    @property
    def _devices(self) -> int:
        """The devices of a manual region; 0 in a program that is partitioned."""
        partitions = self._b.module.header.partitions
        return partitions if partitions > self._b.devices else 0

    def _groups(self, instruction: Instruction) -> tuple[int, ...] | None:
        """Return the groups of devices that hold one array of a result; None outside of regions."""
        stated = {manual_groups(each, self._devices) for each in _shardings(instruction)}
        return stated.pop() if len(stated) == 1 else None

    def _manual(
        self,
        instruction: Instruction,
        given: Sequence[Copies],
        groups: tuple[int, ...],
        path: str,
    ) -> Value:
        """Return what each device computes of its arrays; of the same ones, the same."""
        joint = manual_collective(self._b, instruction, given) if given else None
        if joint is not None:
            return joint
        found: dict[tuple[Array, ...], Value] = {}
        results: list[Value] = []
        operands = [tuple(x.arrays[device] for x in given) for device in range(self._devices)]
        # A number of each device is made by its operator in a partitioned program.
        with by_operators(self._b, asked=len(set(operands)) > 1):
            for device, arrays in enumerate(operands):
                if arrays not in found:
                    self._b.at(instruction, f"{path}, device {device}")
                    found[arrays] = self._computed(instruction, arrays)
                results.append(found[arrays])
        self._b.at(instruction, path)
        each = _of_each(self._b, results, groups)
        if instruction.opcode in KNOTS and isinstance(each, Copies):
            return knotted(self._b, each)
        return each

    def _check_manual(self, instruction: Instruction, found: Value) -> None:
        """Raise UnsupportedError unless the arrays of a region are those stated to be manual.

        XLA lays out again what crosses the border elsewhere than at the two custom calls.
        """
        if not self._devices:
            return
        stated = _shardings(instruction)
        for array, sharding in zip(arrays_of(found), stated, strict=True):
            groups = array.groups if isinstance(array, Copies) else None
            if groups != manual_groups(sharding, self._devices):
                raise unsupported(
                    self._b, "a manual region that is entered or left without its border"
                )

    def _checked(self, instruction: Instruction, found: Value) -> Value:
        """Return a value whose shape is the one that is stated."""
        if shape_of(found) != instruction.shape:
            raise PlanError(
                f"the result is stated to be {instruction.shape}; by its operands it is "
                f"{shape_of(found)}",
                self._b.place,
            )
        return found

    # --- tuples
    def _tuple(self, _: Instruction, given: Sequence[Value], __: _Place) -> Value:
        return Tuple(tuple(given))

    def _element(self, instruction: Instruction, given: Sequence[Value], _: _Place) -> Value:
        whole = given[0]
        if not isinstance(whole, Tuple):
            raise unsupported(self._b, "an element of what is no tuple")
        return whole.elements[instruction.get("index", 0)]

    def _same(self, _: Instruction, given: Sequence[Value], __: _Place) -> Value:
        return given[0]

    def _constant(self, instruction: Instruction, _: Sequence[Value], __: _Place) -> Value:
        literal = instruction.literal
        if literal is None:
            raise unsupported(self._b, "a constant without numbers")
        element = literal.shape.element
        numbers = {n: meant(n, element) for n in literal.elements if isinstance(n, Fraction)}
        elements = [numbers[n] if isinstance(n, Fraction) else n for n in literal.elements]
        constant = self._b.constant(literal.shape, elements)
        groups = self._groups(instruction)
        if groups is not None:
            return Copies((constant,) * self._devices, groups)
        return constant

    def _partition(self, instruction: Instruction, _: Sequence[Value], __: _Place) -> Value:
        if not isinstance(instruction.shape, ArrayShape):
            raise unsupported(self._b, "partition-id that is no number")
        groups = self._groups(instruction)
        if groups is not None:
            return manual_partition(self._b, instruction.shape, groups)
        return partition(self._b, instruction.shape)

    # --- calls
    def _call(self, instruction: Instruction, given: Sequence[Value], place: _Place) -> Value:
        called = self._b.module.computations[instruction.calls[0]]
        return self.computation(called, given, place.path)

    def _while(self, instruction: Instruction, given: Sequence[Value], place: _Place) -> Value:
        """Return the state after a loop whose number of iterations is known."""
        loop = self._induction.loop_at((place.computation.name, instruction.name))
        if loop is not None:
            return self._any_iteration(loop, instruction, given[0], place)
        module = self._b.module
        condition = module.computations[str(instruction.attributes["condition"])]
        body = module.computations[str(instruction.attributes["body"])]
        state = given[0]
        count = iterations_of(module, (place.computation.name, instruction.name), state)
        before = self._followed
        for number in range(MOST_ITERATIONS):
            inner = f"{place.path}, {instruction.name} {number}"
            more = self.computation(condition, (state,), inner)
            self._b.at(instruction, place.path)
            goes_on = uniform_of(more)
            if not isinstance(goes_on, bool):
                raise unsupported(self._b, "a loop whose number of iterations depends on inputs")
            if not goes_on:
                check_trip_count(self._b, instruction, number)
                return state
            state = self.computation(body, (state,), inner)
            if not number and count is not None:
                # The others are as long, as a rule: nobody waits for what will be refused.
                self._check_followed((count - 1) * (self._followed - before))
        raise BudgetError(f"{self._b.place}: the loop has more than {MOST_ITERATIONS} iterations")

    def _any_iteration(
        self, loop: Loop, instruction: Instruction, initial: Value, place: _Place
    ) -> Value:
        """Return the state after a loop of which one iteration is followed, in any state.

        Raises NotFoldedError if that has no meaning.
        """
        body = self._b.module.computations[str(instruction.attributes["body"])]
        try:
            entered = self._induction.entered(loop, initial)
            check_trip_count(self._b, instruction, loop.limit - entered.start)
            path = f"{place.path}, {instruction.name}"
            following = self.computation(body, (entered.state,), path)
            self._b.at(instruction, place.path)
            return self._induction.left(entered, following)
        except NotFoldedError:
            raise
        except (PlanError, UnsupportedError) as error:
            raise NotFoldedError(loop, error) from error

    def _conditional(
        self, instruction: Instruction, given: Sequence[Value], place: _Place
    ) -> Value:
        """Return the result of the branch that is taken, of all if that is not known."""
        choice, *operands = given
        branches = branches_of(choice, len(instruction.calls))
        if branches is None:
            return self._any_branch(instruction, choice, operands, place)
        self._split += len(branches) > 1
        results = {
            branch: self._branch(instruction, operands, branch, place.path)
            for branch in sorted(set(branches))
        }
        self._b.at(instruction, place.path)
        self._split -= len(branches) > 1
        if len(branches) > 1:
            return merged(self._b, branches, results)
        return results[branches[0]]

    def _any_branch(
        self, instruction: Instruction, choice: Value, operands: Sequence[Value], place: _Place
    ) -> Value:
        """Return the result of a branch that inputs choose."""
        names = instruction.calls
        for name in names:
            met = meeting_in(self._b.module, self._b.module.computations[name])
            if met is not None:
                raise unsupported(
                    self._b, f"a conditional whose branch depends on inputs, with {met} in it,"
                )
        self._ways *= len(names)
        if self._ways > MOST_WAYS:
            raise BudgetError(
                f"{self._b.place}: more than {MOST_WAYS} ways lead through conditionals within "
                f"each other whose branches depend on inputs; each would be followed"
            )
        results = [
            self._branch(instruction, operands, branch, place.path) for branch in range(len(names))
        ]
        self._ways //= len(names)
        self._b.at(instruction, place.path)
        if not isinstance(choice, Array):
            raise unsupported(self._b, "a conditional in a manual region that inputs choose in")
        return taken(self._b, choice, results)

    def _branch(
        self, instruction: Instruction, operands: Sequence[Value], branch: int, path: str
    ) -> Value:
        called = self._b.module.computations[instruction.calls[branch]]
        inner = f"{path}, {instruction.name} branch {branch}"
        return self.computation(called, (operands[branch],), inner)

    # --- halves of operators
    def _async_start(
        self, instruction: Instruction, given: Sequence[Value], place: _Place
    ) -> Value:
        """Return the operands and the result of a computation that starts."""
        result = self._call(instruction, given, place)
        self._b.at(instruction, place.path)
        elements = Tuple(tuple(given)), result
        return self._checked(instruction, pending(self._b, instruction, elements, result))

    def _done(self, instruction: Instruction, given: Sequence[Value], _: _Place) -> Value:
        return self._checked(instruction, done(self._b, instruction, given[0]))

    def _custom_call(
        self, instruction: Instruction, given: Sequence[Value], place: _Place
    ) -> Value:
        target = str(instruction.attributes["custom_call_target"])
        if len(given) == 1:
            if target == "Sharding":
                return self._checked(instruction, given[0])
            if self._devices:
                found = self._border(target, instruction, given[0], place)
                if found is not None:
                    return self._checked(instruction, found)
        raise unsupported(self._b, f"the custom call {target}")

    def _border(
        self, target: str, instruction: Instruction, given: Value, place: _Place
    ) -> Value | None:
        """Return the shards of a full array, or the full array of shards; None for other calls."""
        shape = instruction.shape
        if isinstance(given, Tuple) or not isinstance(shape, ArrayShape):
            return None
        if instruction.get("backend_config", ""):
            # It may leave the sharding of some dimensions to the compiler.
            raise unsupported(self._b, f"{target} with backend_config")
        before = place.computation.instructions[instruction.operands[0]].sharding
        after = instruction.sharding
        if target == "SPMDFullToShardShape":
            return shards_of(self._b, given, before, after, shape.dimensions, self._devices)
        if target == "SPMDShardToFullShape" and isinstance(given, Copies):
            return full_of(self._b, given, before, after, shape.dimensions)
        return None


def _of_each(b: Building, results: Sequence[Value], groups: tuple[int, ...]) -> Value:
    """Return the results of all devices as one value."""
    arrays = [each for each in results if isinstance(each, Array)]
    if len(arrays) == len(results):
        return Copies(tuple(arrays), groups)
    tuples = [each.elements for each in results if isinstance(each, Tuple)]
    if len(tuples) < len(results):
        raise unsupported(b, "a region within a manual region that one operator makes")
    rows = zip(*tuples, strict=True)
    return Tuple(tuple(_of_each(b, row, groups) for row in rows))


def _shardings(instruction: Instruction) -> tuple[Sharding | None, ...]:
    """Return the sharding that is stated of each array of the result."""
    stated = instruction.sharding
    count = sum(1 for _ in leaves(instruction.shape))
    # A tuple of nothing may state a sharding all the same.
    return stated[:count] if isinstance(stated, tuple) else (stated,) * count


_Control = Callable[[Run, Instruction, Sequence[Value], _Place], Value]
_CONTROL: Mapping[str, _Control] = MappingProxyType(
    {
        "tuple": Run._tuple,
        "get-tuple-element": Run._element,
        "opt-barrier": Run._same,
        "constant": Run._constant,
        "partition-id": Run._partition,
        "call": Run._call,
        "while": Run._while,
        "conditional": Run._conditional,
        "async-start": Run._async_start,
        "async-update": Run._same,
        **dict.fromkeys(DONE, Run._done),
        "custom-call": Run._custom_call,
    }
)
