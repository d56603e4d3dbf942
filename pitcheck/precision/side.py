"""One plan as the precision rules see it.

It knows which values are one number in several dtypes, and which operators add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from pitcheck.algebra.interface import Kind
from pitcheck.claims.conjecture import VIEWS
from pitcheck.graph.graph import Graph, Node, sources_of
from pitcheck.ops.registry import BACKWARD, communication_of, has_trait, kinds_with
from pitcheck.ops.traits import Communication, Trait

BITS: Mapping[str, int] = {
    "float64": 53,
    "float32": 24,
    "float16": 11,
    "bfloat16": 8,
    "float8_e4m3": 4,
    "float8_e5m2": 3,
}
"""Binary digits of the significand, which decide how much a sum rounds."""

CAST = "cast"
FIELD: Kind = "field"


@dataclass
class Side:
    """The graph of one plan, with answers that are kept."""

    graph: Graph
    _roots: dict[int, int] = field(default_factory=dict)
    _readers: dict[int, list[int]] = field(default_factory=dict)

    def bits(self, value: int) -> int:
        """Return the digits of a floating-point value."""
        return BITS[self.dtype(value)]

    def dtype(self, value: int) -> str:
        """Return the dtype of a value."""
        return self.graph.values[value].tensor.dtype

    def is_float(self, value: int) -> bool:
        """Return True if a value consists of floating-point numbers."""
        return self.graph.values[value].kind == FIELD

    def writers(self, value: int) -> list[Node]:
        """Return the nodes that compute a value."""
        return [self.graph.nodes[number] for number in self.graph.values[value].writers]

    def same(self, value: int) -> int | None:
        """Return the value that another one shows or is cast from, None if it is computed."""
        sources = {_handed_on(node) for node in self.writers(value)}
        source = sources.pop() if len(sources) == 1 else None
        return source if source is not None and source != value and self.is_float(source) else None

    def chain(self, value: int) -> list[int]:
        """Return a value and those it is cast from or shows, down to a computed or given one."""
        found = [value]
        while True:
            source = self.same(found[-1])
            if source is None or source in found:
                return found
            found.append(source)

    def root(self, value: int) -> int:
        """Return the computed or given value that a value is in another dtype or view."""
        if value not in self._roots:
            chain = self.chain(value)
            self._roots.update(dict.fromkeys(chain, chain[-1]))
        return self._roots[value]

    def rounds(self, value: int) -> bool:
        """Return True if a value is rounded where it is computed or cast."""
        return any(
            not is_exact(node)
            or any(self.bits(operand) > self.bits(value) for operand in self.operands(node))
            for node in self.writers(value)
        )

    def is_moved(self, value: int) -> bool:
        """Return True if a value consists of operands, perhaps cast."""
        return all(is_exact(node) for node in self.writers(value))

    def kept_bits(self, value: int) -> float:
        """Return the fewest digits on the way from the computed value to this form of it.

        They are infinite for the computed value itself.
        """
        return min((self.bits(each) for each in self.chain(value)[:-1]), default=inf)

    def operands(self, node: Node) -> Iterator[int]:
        """Yield the floating-point values whose elements a node reads."""
        for place, operand in enumerate(node.inputs):
            if place not in node.unread:
                yield from (
                    source.value for source in sources_of(operand) if self.is_float(source.value)
                )

    def readers(self, value: int) -> list[int]:
        """Return the nodes that read a value."""
        if not self._readers:
            for number, node in enumerate(self.graph.nodes):
                for source in set(self.operands(node)):
                    self._readers.setdefault(source, []).append(number)
        return self._readers.get(value, [])

    def uses(self, value: int) -> set[int]:
        """Return the nodes that compute with a value, in any form, scaled or not."""
        found: set[int] = set()
        seen, waiting = {value}, [value]
        while waiting:
            for number in self.readers(waiting.pop()):
                node = self.graph.nodes[number]
                if _handed_on(node) is None and not is_scaling(node):
                    found.add(number)
                    continue
                further = [
                    output for output in node.outputs if output is not None and output not in seen
                ]
                seen.update(further)
                waiting.extend(further)
        return found


def _handed_on(node: Node) -> int | None:
    """Return the value that a node hands on in another dtype or view, None for any other node."""
    kind = node.kind.removesuffix(BACKWARD)
    if kind != CAST and kind not in VIEWS:
        return None
    operand = node.inputs[-1] if node.kind.endswith(BACKWARD) else node.inputs[0]
    sources = sources_of(operand)
    return sources[0].value if len(sources) == 1 else None


def is_exact(node: Node) -> bool:
    """Return True if a node rounds nothing, except to the dtype of its result."""
    return _handed_on(node) is not None or has_trait(
        node.kind, Trait.ROUNDS_NOTHING, node.attributes
    )


def is_addition(node: Node) -> bool:
    """Return True if a node adds terms up."""
    return has_trait(node.kind, Trait.ADDS_TERMS, node.attributes)


def is_scattered(node: Node) -> bool:
    """Return True if a node adds terms up at places that sizes do not tell."""
    return has_trait(node.kind, Trait.ADDS_WITHIN, node.attributes)


def is_arranged(node: Node) -> bool:
    """Return True if a node's results consist of pieces of its operands and of fixed numbers."""
    return node.kind in kinds_with(
        Trait.CUTS, Trait.SELECTS, Trait.JOINS, Trait.EXTENDS, Trait.CARRIES
    )


def is_reduction(node: Node) -> bool:
    """Return True if a node adds up its operands, or adds up within itself."""
    # A difference is no reduction: it is the one sum that does not keep what is positive. A
    # collective adds up its members even if only its root has a result.
    adds_up = is_addition(node) and (
        has_trait(node.kind, Trait.KEEPS_POSITIVE, node.attributes)
        or communication_of(node.kind) is Communication.COLLECTIVE
    )
    normalizes = node.kind.removesuffix(BACKWARD) in kinds_with(Trait.NORMALIZES)
    return adds_up or is_scattered(node) or normalizes


def is_scaling(node: Node) -> bool:
    """Return True if a node multiplies its only tensor by a number."""
    return (
        has_trait(node.kind, Trait.SCALES, node.attributes)
        and sum(len(sources_of(operand)) for operand in node.inputs) == 1
    )
