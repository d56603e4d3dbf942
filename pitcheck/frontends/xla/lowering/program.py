"""The instructions of a computation, one after the other, with loops unrolled and calls inlined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from pitcheck.errors import BudgetError, PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.arrays import Array, Tuple, Value, shape_of
from pitcheck.frontends.xla.lowering.asynchronous import DONE, done, pending, started
from pitcheck.frontends.xla.lowering.branches import meeting_in, taken
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.collectives import collective, partition
from pitcheck.frontends.xla.lowering.elementwise import elementwise
from pitcheck.frontends.xla.lowering.extreme_places import extreme_with_place
from pitcheck.frontends.xla.lowering.indexed.operators import indexed
from pitcheck.frontends.xla.lowering.orders import ordered
from pitcheck.frontends.xla.lowering.reductions import reduced
from pitcheck.frontends.xla.lowering.structure import structural
from pitcheck.frontends.xla.lowering.windows.convolutions import convolution
from pitcheck.frontends.xla.lowering.windows.selections import selections
from pitcheck.frontends.xla.lowering.windows.window_reductions import window_reductions
from pitcheck.frontends.xla.text.module import Computation, Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape

MOST_ITERATIONS = 4096
"""The iterations of a loop that are followed one by one."""
MOST_INSTRUCTIONS = 1 << 22
"""The instructions that are followed, those of loops, calls and branches each time anew."""
DEEPEST = 100
"""The calls within each other that are followed."""

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
)


class Run:
    """The lowering of one module's computations into a building."""

    def __init__(self, building: Building) -> None:
        self._b = building
        self._depth = 0
        self._followed = 0

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
        self._followed += len(computation.instructions)
        if self._followed > MOST_INSTRUCTIONS:
            raise BudgetError(
                f"{self._b.module.file}: more than {MOST_INSTRUCTIONS} instructions, with those of "
                f"loops, calls and branches counted each time"
            )
        values: dict[str, Value] = dict(zip(computation.parameters, given, strict=True))
        for name, instruction in computation.instructions.items():
            if name not in values:
                self._b.at(instruction, path)
                values[name] = self._result(
                    instruction, [values[operand] for operand in instruction.operands], path
                )
        self._depth -= 1
        return values[computation.root]

    def _result(self, instruction: Instruction, given: Sequence[Value], path: str) -> Value:
        control = _CONTROL.get(instruction.opcode)
        if control is not None:
            return control(self, instruction, given, path)
        arrays = [each for each in given if isinstance(each, Array)]
        if len(arrays) == len(given):
            for lower in _ARITHMETIC:
                found = lower(self._b, instruction, arrays)
                if found is not None:
                    return self._checked(instruction, found)
        raise UnsupportedError(
            f"{self._b.place}: the operator {instruction.opcode} has no meaning in a plan"
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
    def _tuple(self, _: Instruction, given: Sequence[Value], __: str) -> Value:
        return Tuple(tuple(given))

    def _element(self, instruction: Instruction, given: Sequence[Value], _: str) -> Value:
        whole = given[0]
        if not isinstance(whole, Tuple):
            raise unsupported(self._b, "an element of what is no tuple")
        return whole.elements[instruction.get("index", 0)]

    def _same(self, _: Instruction, given: Sequence[Value], __: str) -> Value:
        return given[0]

    def _constant(self, instruction: Instruction, _: Sequence[Value], __: str) -> Value:
        literal = instruction.literal
        if literal is None:
            raise unsupported(self._b, "a constant without numbers")
        return self._b.constant(literal.shape, literal.elements)

    def _partition(self, instruction: Instruction, _: Sequence[Value], __: str) -> Value:
        if not isinstance(instruction.shape, ArrayShape):
            raise unsupported(self._b, "partition-id that is no number")
        return partition(self._b, instruction.shape)

    # --- calls
    def _call(self, instruction: Instruction, given: Sequence[Value], path: str) -> Value:
        called = self._b.module.computations[instruction.calls[0]]
        return self.computation(called, given, path)

    def _while(self, instruction: Instruction, given: Sequence[Value], path: str) -> Value:
        """Return the state after a loop whose number of iterations is known."""
        module = self._b.module
        condition = module.computations[str(instruction.attributes["condition"])]
        body = module.computations[str(instruction.attributes["body"])]
        state = given[0]
        for number in range(MOST_ITERATIONS):
            inner = f"{path}, {instruction.name} {number}"
            more = self.computation(condition, (state,), inner)
            self._b.at(instruction, path)
            goes_on = more.uniform if isinstance(more, Array) else None
            if not isinstance(goes_on, bool):
                raise unsupported(self._b, "a loop whose number of iterations depends on inputs")
            if not goes_on:
                return state
            state = self.computation(body, (state,), inner)
        raise BudgetError(f"{self._b.place}: the loop has more than {MOST_ITERATIONS} iterations")

    def _conditional(self, instruction: Instruction, given: Sequence[Value], path: str) -> Value:
        """Return the result of the branch that is taken, of all if that is not known."""
        choice, *operands = given
        number = choice.uniform if isinstance(choice, Array) else None
        names = instruction.calls
        if isinstance(number, bool):
            return self._branch(instruction, operands, 0 if number else 1, path)
        if isinstance(number, int):
            place = number if 0 <= number < len(names) else len(names) - 1
            return self._branch(instruction, operands, place, path)
        for name in names:
            met = meeting_in(self._b.module, self._b.module.computations[name])
            if met is not None:
                raise unsupported(
                    self._b, f"a conditional whose branch depends on inputs, with {met} in it,"
                )
        results = [self._branch(instruction, operands, place, path) for place in range(len(names))]
        self._b.at(instruction, path)
        if not isinstance(choice, Array):
            raise unsupported(self._b, "a conditional that chooses by a tuple")
        return taken(self._b, choice, results)

    def _branch(
        self, instruction: Instruction, operands: Sequence[Value], place: int, path: str
    ) -> Value:
        called = self._b.module.computations[instruction.calls[place]]
        inner = f"{path}, {instruction.name} branch {place}"
        return self.computation(called, (operands[place],), inner)

    # --- halves of operators
    def _async_start(self, instruction: Instruction, given: Sequence[Value], path: str) -> Value:
        """Return the operands and the result of a computation that starts."""
        result = self._call(instruction, given, path)
        self._b.at(instruction, path)
        elements = Tuple(tuple(given)), result
        return self._checked(instruction, pending(self._b, instruction, elements, result))

    def _done(self, instruction: Instruction, given: Sequence[Value], _: str) -> Value:
        return self._checked(instruction, done(self._b, instruction, given[0]))

    def _custom_call(self, instruction: Instruction, given: Sequence[Value], _: str) -> Value:
        target = str(instruction.attributes["custom_call_target"])
        if target == "Sharding" and len(given) == 1:
            return self._checked(instruction, given[0])
        raise unsupported(self._b, f"the custom call {target}")


_Control = Callable[[Run, Instruction, Sequence[Value], str], Value]
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
