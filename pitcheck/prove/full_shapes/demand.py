"""The memory and the work that a stage takes at its sizes, predicted before it is evaluated.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shapes import symbolic_pair
>>> plan = one_operator("exp", [(64, 512)], (64, 512))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
>>> demand_of(symbolic, symbolic.system.full()).drawn
32768
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import isqrt, prod

from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.algebra.residues.array_forms import AT_ONCE
from pitcheck.graph.cuts import Cut
from pitcheck.ops.registry import BACKWARD, divided, has_trait
from pitcheck.ops.traits import Trait
from pitcheck.prove.bounds.supports import converted_values
from pitcheck.stage.batch import Argument, Step
from pitcheck.stage.run_batch import last_uses, touched
from pitcheck.stage.shapes import SymbolicBatch, SymbolicPair
from pitcheck.stage.slabs.summed_inputs import is_large, largest_slab, slabs_of, summed_inputs

LEVELS = 3
"""The residues of a number: the length of the shortest chain of primes."""
WORD = 8
"""The bytes of a residue, an integer or a real number."""
SCRATCH = 2
"""The arrays of the size of its result that an operator holds besides its operands and its result:
products before they are reduced, and quotients of the reduction. This and the next two were
measured with tracemalloc on the stages of a layer of Llama-3 8B.
"""
SCRATCH_OF_FUNCTIONS = 7
"""The same of an operator that computes more than sums and products, in arrays of the size of its
largest tensor.
"""
SCRATCH_OF_ROOTS = 10
"""The same of an operator that takes a root."""
PLAIN = frozenset(
    {
        Trait.MULTILINEAR,
        Trait.CONTRACTS,
        Trait.SQUARES,
        Trait.REARRANGES,
        Trait.CUTS,
        Trait.SELECTS,
        Trait.JOINS,
        Trait.EXTENDS,
        Trait.CARRIES,
        Trait.CONVERTS,
        Trait.ADDS_TERMS,
        Trait.ADDS_ALONG,
    }
)
"""The traits of operators that move numbers, add them up or multiply them once."""
COMPARED = 3
"""The arrays of the size of a target that a comparison holds: the rows of both sides that are
compared, and where they differ.
"""
DRAWN = 4
"""The arrays of the size of an input that are held while it is drawn: words, these joined, and
their residues. Of a large one, so much is held of the words that become residues together.
"""
IN_SLABS = 6
"""The arrays of the size of a slab that are held while an input is summed in slabs: the slab, a
part of it, the result of a step, and what the operator holds besides.
"""
DERIVED = 2
"""The arrays of the size of a parallel input that are held while it is made: its parts, and these
joined.
"""


@dataclass(frozen=True)
class Demand:
    """The memory and the work of one draw of a stage.

    ``held_at_peak``: the words of 8 bytes at the peak, with values dropped after their last reader.
    ``drawn``: the elements drawn. ``moved``: the elements that operators read and write.
    ``multiplied``: the multiply-adds of matrix products. The last three are of one residue of each
    number.
    """

    held_at_peak: int
    drawn: int
    moved: int
    multiplied: int

    def bytes(self, trials: int) -> int:
        """Return the bytes that so many draws together need."""
        return WORD * trials * self.held_at_peak


def demand_of(
    symbolic: SymbolicPair, sizes: Sizes, levels: int = LEVELS, *, in_slabs: bool = False
) -> Demand:
    """Return what one draw of a stage takes at some sizes, with ``levels`` residues of a number.

    ``in_slabs``: large inputs that are only summed are evaluated slab by slab.
    """
    first, second = (_Side(side, sizes, levels) for side in (symbolic.reference, symbolic.parallel))
    compared = [cut for cut in symbolic.cuts if cut.value in second.elements]
    targets = {cut.reference for cut in compared}, {cut.value for cut in compared}
    ends = tuple(
        own & set(side.batch.held) - set(side.batch.inputs)
        for own, side in zip(targets, (first, second), strict=True)
    )
    sources = {cut.value: cut.reference for cut in symbolic.cuts}
    drawn = sum(first.elements[value] for value in first.batch.inputs)
    kept = sum(first.words[value] for value in ends[0] if value in first.words)
    result = sum(second.words[value] for value in ends[1] if value in second.words)
    large = {v: first.shapes[v] for v in first.batch.inputs if in_slabs and first.has_slabs(v)}
    parts = {
        cut.value: large[cut.reference]
        for cut in symbolic.cuts
        if cut.reference in large and cut.value in second.batch.inputs and _are_parts(second, cut)
    }
    made_of = {v: first.words.get(s, 0) for v, s in sources.items()}
    peak = max(
        first.peak(ends[0], {}, large),
        kept + second.peak(ends[1], made_of, parts),
        kept + result + COMPARED * max(kept, result),
    )
    return Demand(
        peak,
        drawn,
        first.moved + second.moved,
        first.multiplied + second.multiplied,
    )


def _are_parts(side: _Side, cut: Cut) -> bool:
    """Return True if every row of a parallel input is a part of the reference tensor.

    Terms of sums and padding are not.
    """
    parts = [cut.parts[number] for number in side.batch.inputs[cut.value].tolist()]
    return all(
        part.terms == 1 and all(start >= 0 for intervals in part.box for start, _ in intervals)
        for part in parts
    )


class _Side:
    """One side of a stage at some sizes: the elements and the words of its values."""

    def __init__(self, side: SymbolicBatch, sizes: Sizes, levels: int) -> None:
        self.batch = batch = side.batch
        self._levels = levels
        self.shapes = {value: side.shape(value, sizes) for value in side.values}
        self.elements = {v: batch.counts[v] * prod(own) for v, own in self.shapes.items()}
        self.words = {v: self._words(v, n) for v, n in self.elements.items()}

    def _words(self, value: int, elements: int) -> int:
        """Return the words that so many elements of a value have."""
        kind = self.batch.graph.values[value].kind
        return elements * self._levels if kind == "field" else elements

    def has_slabs(self, value: int) -> bool:
        """Return True if an input of the reference is drawn in slabs, should it only be summed."""
        info = self.batch.graph.values[value]
        return info.kind == "field" and info.tensor.value is None and is_large(self.shapes[value])

    def peak(
        self, kept: set[int], sources: Mapping[int, int], large: Mapping[int, tuple[int, ...]]
    ) -> int:
        """Return the most words that are held at a time.

        ``sources``: the words of the reference tensor that an input is made from. ``large``: the
        shape of the reference tensor of each input that can be had in slabs.
        """
        needed = kept | converted_values(self.batch)
        ends = last_uses(self.batch, needed)
        live = most = 0
        begun: set[int] = set()
        skipped = self._in_slabs(large, needed)
        for number, step in enumerate(self.batch.steps):
            if number in skipped:
                made = self._made_in_all(step) if skipped[number] else 0
                most = max(most, live + skipped[number] + made)
                live += made
                continue
            for value in touched(step):
                if value in self.batch.inputs and value not in begun:
                    begun.add(value)
                    source = sources.get(value, 0)
                    made = source + DERIVED * self.words[value] if source else self.words[value]
                    most = max(most, live + made, live + self._drawn(source or self.words[value]))
                    live += self._input(value)
            made = self._made_in_all(step)
            most = max(most, live + self._picked(step) + made + self._scratch(step))
            live += made
            live -= sum(self.words[value] for value in ends.get(number, ()))
        return most

    def _in_slabs(
        self, large: Mapping[int, tuple[int, ...]], kept: Collection[int]
    ) -> dict[int, int]:
        """Return the steps that are evaluated in slabs, with the words that are held for a sum."""
        ranks = {value: len(shape) for value, shape in large.items()}
        words: dict[int, int] = {}
        for summed in summed_inputs(self.batch, ranks, kept):
            shape = large[summed.value]
            slab = IN_SLABS * self._words(summed.value, largest_slab(shape))
            sums = len(slabs_of(shape)) * self.words[summed.result]
            words |= dict.fromkeys(summed.steps, 0)
            words[summed.sum] = slab + 2 * sums
        return words

    def _made_in_all(self, step: Step) -> int:
        """Return the words of all results of a step."""
        return sum(self._made(step, output) for output in step.outputs if output is not None)

    def _drawn(self, words: int) -> int:
        """Return the words that are held while an input of so many is drawn."""
        return words + (DRAWN - 1) * min(words, AT_ONCE * self._levels)

    def _input(self, value: int) -> int:
        """Return the words of the rows of an input that are given."""
        rows = self.batch.counts[value]
        return self.words[value] * len(self.batch.inputs[value]) // max(rows, 1)

    def _made(self, step: Step, value: int) -> int:
        """Return the words of the rows that a step writes of a value."""
        return self.words[value] * step.count // max(self.batch.counts[value], 1)

    def _scratch(self, step: Step) -> int:
        """Return the words that an operator holds besides its operands and its result."""
        forward = step.kind.removesuffix(BACKWARD)
        made = max((self._made(step, o) for o in step.outputs if o is not None), default=0)
        if any(has_trait(forward, trait, step.attributes) for trait in PLAIN):
            return SCRATCH * made
        largest = max((made, *(words for _, words in self._read(step))))
        rooted = has_trait(forward, Trait.TAKES_ROOT, step.attributes)
        return largest * (SCRATCH_OF_ROOTS if rooted else SCRATCH_OF_FUNCTIONS)

    def _picked(self, step: Step) -> int:
        """Return the words of operands that are not whole values: rows of these are copied."""
        return sum(
            words
            for argument, words in self._read(step)
            if self.batch.counts[argument.value] > 1
            and argument.rows.size != self.batch.counts[argument.value]
        )

    def _read(self, step: Step) -> Iterator[tuple[Argument, int]]:
        """Yield the operands that a step looks into, with their words."""
        for argument in step.looked_into:
            shape = self.shapes[argument.value]
            yield argument, self._words(argument.value, argument.rows.size * prod(shape))

    @property
    def moved(self) -> int:
        """The elements that operators read and write."""
        return sum(
            sum(words for _, words in self._read(step)) // self._levels
            + sum(self._made(step, o) for o in step.outputs if o is not None) // self._levels
            for step in self.batch.steps
        )

    @property
    def multiplied(self) -> int:
        """The multiply-adds of the matrix products."""
        return sum(map(self._products, self.batch.steps))

    def _products(self, step: Step) -> int:
        """Return the multiply-adds of a step; each gradient of a product takes as many."""
        forward = step.kind.removesuffix(BACKWARD)
        if not has_trait(forward, Trait.MULTIPLIES_MATRICES, step.attributes):
            return 0
        sizes = [words // self._levels // max(step.count, 1) for _, words in self._read(step)]
        if forward != step.kind:
            inputs, _, _ = divided(step.attributes, len(step.inputs))
            sizes = [*sizes[:inputs], sizes[-1]]
        else:
            sizes += [self._made(step, o) // self._levels // step.count for o in step.outputs if o]
        # The sizes of m by k, k by n and their product multiply to the square of m k n.
        each = isqrt(prod(sorted(sizes)[-3:])) if len(sizes) > 2 else 0
        gradients = sum(output is not None for output in step.outputs)
        return each * step.count * (gradients if forward != step.kind else 1)
