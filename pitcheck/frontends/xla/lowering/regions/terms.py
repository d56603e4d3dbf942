"""Called computations as terms, to be compared with those that a meaning is known of.

Equal terms have one number, so that a computation is compared at a glance however often it reads
its own results.

>>> terms = Terms()
>>> a, b = terms.parameter(0), terms.parameter(1)
>>> terms.compare("LT", a, b) == terms.compare("GT", b, a)
True
>>> terms.either(a, b) == terms.either(b, a), terms.choice(a, a, b) == terms.choice(a, b, a)
(True, False)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pitcheck.frontends.xla.text.module import Computation, Instruction

Key = tuple[str | int, ...]
_TURNED: Mapping[str, str] = MappingProxyType({"GT": "LT", "GE": "LE"})
_ANY_ORDER = frozenset({"and", "or"})
_READ = frozenset({"and", "or", "select", "tuple"})


class Terms:
    """The numbers of terms."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._keys: list[Key] = []

    def of(self, *key: str | int) -> int:
        """Return the number of a term: an operator with the numbers of its operands, or a name."""
        if key not in self._numbers:
            self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return self._numbers[key]

    def key(self, number: int) -> Key:
        """Return the operator of a term, and the numbers of its operands."""
        return self._keys[number]

    def parameter(self, number: int) -> int:
        """Return a parameter of the computation."""
        return self.of("parameter", number)

    def constant(self, value: str) -> int:
        """Return a single number, as Python writes it."""
        return self.of("constant", value)

    def compare(self, direction: str, first: int, second: int, order: str = "") -> int:
        """Return a comparison; the operands of "greater" change places. ``order``: TOTALORDER."""
        if direction in _TURNED:
            direction, first, second = _TURNED[direction], second, first
        if direction in {"EQ", "NE"}:
            first, second = sorted((first, second))
        return self.of("compare", direction, order, first, second)

    def both(self, first: int, second: int) -> int:
        """Return a conjunction."""
        return self.of("and", *sorted((first, second)))

    def either(self, first: int, second: int) -> int:
        """Return a disjunction."""
        return self.of("or", *sorted((first, second)))

    def choice(self, condition: int, first: int, second: int) -> int:
        """Return the first of two terms if a condition holds, else the second."""
        return self.of("select", condition, first, second)

    def result(self, computation: Computation) -> int:
        """Return the term of a computation's result.

        An instruction of which nothing is known is a term that nothing else is equal to.
        """
        found: dict[str, int] = {}
        for name, instruction in computation.instructions.items():
            found[name] = self._read(instruction, [found[each] for each in instruction.operands])
        return found[computation.root]

    def _read(self, instruction: Instruction, operands: list[int]) -> int:
        opcode, literal = instruction.opcode, instruction.literal
        if instruction.parameter is not None:
            return self.parameter(instruction.parameter)
        if literal is not None and len(literal.elements) == 1 and not literal.shape.dimensions:
            return self.constant(str(literal.elements[0]))
        if opcode == "compare":
            order = instruction.get("type", "")
            total = order if order == "TOTALORDER" else ""
            first, second = operands
            return self.compare(instruction.get("direction", "EQ"), first, second, total)
        if opcode in _READ:
            return self.of(opcode, *(sorted(operands) if opcode in _ANY_ORDER else operands))
        return self.of("unknown", len(self._keys))
