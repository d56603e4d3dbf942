"""Dimensions and their ties: union-find over scaling classes.

All dimensions of a *scaling class* shrink by one linear map. Let ``unit`` be the greatest common
divisor of all sizes and positions in the class, and ``s`` the small size of one unit: n becomes ``n
/ unit * s``. Equal segments stay equal; order, the number of shards and divisibility are kept. A
boundary that is off by one makes the unit 1, so that the class stays whole.

A class may be *split*: every member is an outer dimension times one inner dimension (row-major, the
inner varies fastest), and positions are multiples of the inner size. Two splits of one class are
refined in common. If they cannot be, the class and all its factors are *rigid*: they keep their
full size.

>>> system = AxisSystem()
>>> whole, shard = system.dimension(4096), system.dimension(1024)
>>> system.tie(shard, whole, offset=2048)
>>> sizes = system.solve()
>>> sizes.size(whole) == 4 * sizes.size(shard) < 64
True
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from math import prod

from pitcheck.algebra.dimensions.scaling_class import Dimension, ScalingClass, Use
from pitcheck.algebra.dimensions.size_choice import LEAST, Sizes, choose_units, smallest_units


class AxisSystem:
    """All dimensions of a stage and their ties."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._classes: dict[int, ScalingClass] = {}
        self._literals: set[int] = set()
        self.repeated: list[Dimension] = []
        """The dimensions along which a number other than 0 is repeated."""
        self._counts: set[int] = set()
        self._extents: list[tuple[Dimension, ...]] = []
        self._mixing = True
        self.decides = False
        """True if a number counted along some dimension decides something."""

    # --- making dimensions
    def dimension(self, size: int, fixed: str = "", copies: bool = False) -> Dimension:
        """Return a new dimension in a new class.

        ``fixed`` is the reason why it keeps its size, "" if it need not.
        """
        node = Dimension(len(self._parent), int(size), copies)
        self._parent.append(node.number)
        self._classes[node.number] = ScalingClass([node], rigid=fixed)
        return node

    def product(self, outer: Dimension, inner: Dimension) -> Dimension:
        """Return the dimension of ``outer`` times ``inner`` elements, the inner varying fastest.

        If the outer one numbers the members of a stack, the result is that many segments of the
        inner one's class, as a concatenation is.
        """
        if outer.size == 1:
            return inner
        if inner.size == 1:
            return outer
        result = self.dimension(outer.size * inner.size)
        if outer.copies:
            self._union(result, inner)
        else:
            own = self.class_of(result)
            own.inner, own.outer = inner, {result: outer}
        return result

    def places(self) -> Dimension:
        """Return a dimension without a size, for places along a dimension that is not known yet."""
        node = self.dimension(0)
        self.index(node)
        return node

    # --- ties
    def tie(self, node: Dimension, whole: Dimension, offset: int = 0) -> None:
        """Say that ``node`` is the interval ``[offset, offset + node.size)`` of ``whole``.

        Both are in one class then, and both ends of the interval are positions in it.
        """
        if node.size == whole.size == 1:
            return
        self._union(node, whole)
        if node.size != whole.size or offset:
            self.position(whole, offset)
            self.position(whole, offset + node.size)

    def tie_segments(self, node: Dimension, whole: Dimension, offsets: Sequence[int]) -> None:
        """Say that ``node`` is each of the intervals of ``whole`` that begin at ``offsets``."""
        self.tie(node, whole, offsets[0])
        if node.size == whole.size == 1 or len(offsets) == 1:
            return
        own = self.class_of(whole)
        ends = {end for offset in offsets for end in (offset, offset + node.size)}
        if own.inner is None and not own.rigid:
            own.positions |= ends - {0, whole.size}
            return
        for end in ends:
            self.position(whole, end)

    def position(self, node: Dimension, offset: int) -> None:
        """Say that ``offset`` is a boundary along ``node``."""
        own = self.class_of(node)
        if own.rigid or offset in (0, node.size):
            return
        if own.inner is None:
            own.positions.add(offset)
        elif offset % own.inner.size == 0:
            self.position(own.outer[node], offset // own.inner.size)
        else:
            self.fix(node, f"the boundary {offset} cuts a factor of size {own.inner.size}")

    def fix(self, node: Dimension, reason: str = "its size is given") -> None:
        """Keep the class of ``node``, and all its factors, at full size."""
        queue = [node]
        while queue:
            own = self.class_of(queue.pop())
            if own.rigid:
                continue
            queue.extend(own.factors())
            own.rigid, own.inner, own.outer = reason, None, {}

    def decide(self, node: Dimension) -> None:
        """Say that a number counted along ``node`` decides something.

        Fewer elements could change it.
        """
        self.decides = True
        self.fix(node, "a number counted along it decides something")

    def mark_permuted(self, node: Dimension) -> None:
        """Say that elements along ``node`` change places (flip, roll, interleaving, all-to-all).

        A unit of its class has at least 5 elements then.
        """
        for own in self._with_factors(node):
            own.permuted = own.roomy = True

    def _with_factors(self, node: Dimension) -> Iterator[ScalingClass]:
        """Yield the class of a dimension and those of its factors, at any depth."""
        queue = [node]
        seen: set[int] = set()
        while queue:
            root = self._root(queue.pop())
            if root not in seen:
                seen.add(root)
                yield self._classes[root]
                queue.extend(self._classes[root].factors())

    def mix(self, node: Dimension) -> None:
        """Say that an operator combines, cuts, joins, views or counts elements along ``node``.

        The result at one place depends on others then.
        """
        if self._mixing:
            self.class_of(node).mixed = True

    def use(self, node: Dimension, use: Use) -> None:
        """Say how places along ``node`` meet, or may."""
        if self._mixing:
            self.class_of(node).uses |= use

    @contextmanager
    def described(self) -> Iterator[None]:
        """Tie dimensions in this context without mixing them.

        Values are described, not computed.
        """
        before, self._mixing = self._mixing, False
        try:
            yield
        finally:
            self._mixing = before

    def index(self, node: Dimension) -> None:
        """Say that integers are places along ``node``.

        They shrink with it: each segment's first and last place become the small segment's.
        """
        own = self.class_of(node)
        if own.inner is not None:
            self.fix(node, "it is indexed by values and split into factors")
            own = self.class_of(node)
        own.indexed = own.mixed = True

    def share(self, node: Dimension, other: Dimension) -> None:
        """Say that the same integers are places along both, so that both shrink by one map."""
        self._union(node, other)
        self.index(node)

    def _hand_down(self, own: ScalingClass) -> None:
        """Say of the factors of a class what is said of the class."""
        for factor in own.factors():
            inner = self.class_of(factor)
            inner.uses |= own.uses
            inner.mixed = inner.mixed or Use.UNWEIGHTED in own.uses
            self._hand_down(inner)

    def is_batch(self, node: Dimension) -> bool:
        """Return True if every element along ``node`` is computed by itself, by the same operators.

        Fewer of them show as much.
        """
        own = self.class_of(node)
        return not (own.mixed or own.rigid or own.permuted or own.factor) and own.inner is None

    def add_literal(self, number: Fraction | float) -> None:
        """Say that a number enters the computation.

        It may mean a dimension of that size, of one more (a count less one), or of its square.
        """
        if isinstance(number, Fraction):
            for part in (abs(number.numerator), number.denominator):
                self._literals |= {part, part + 1, part * part} if part > 2 else set()
                self._counts |= (
                    {part, part + 1, part * part, 2 * part, part // 2 if part % 2 == 0 else part}
                    if part > 1
                    else set()
                )

    def add_extent(self, nodes: Sequence[Dimension]) -> None:
        """Say that elements are counted along ``nodes`` together.

        A literal may be that count, or one less, its root, its half or its double. A counted extent
        is taken to be meant more often than other dimensions: 1/2 may be 1 / sqrt(4), the scale of
        attention, and 1/24 the 2/48 of the derivative of a mean of squares.
        """
        self._extents.append(tuple(nodes))

    def repeat(self, node: Dimension) -> None:
        """Say that a number other than 0 is repeated along a dimension: its sum is a count."""
        self.repeated.append(node)

    # --- factors
    def factor(self, node: Dimension, size: int) -> tuple[Dimension, Dimension]:
        """Return ``node`` as (outer, inner) with an inner dimension of ``size``, which divides it.

        Its class is split; if it cannot be, it becomes rigid.
        """
        if size == 1:
            return node, self.dimension(1)
        if size == node.size:
            return self.dimension(1), node
        own = self.class_of(node)
        if not own.rigid and own.inner is None and not self._split(own, size):
            self.fix(node, f"it is not made of whole factors of size {size}")
        found = None if own.rigid else self._refactor(own, node, size)
        if found is not None:
            return found
        self.fix(node, f"its factorisations have no common refinement with a factor of size {size}")
        return self.dimension(node.size // size, fixed=own.rigid), self.dimension(
            size, fixed=own.rigid
        )

    def _refactor(
        self, own: ScalingClass, node: Dimension, size: int
    ) -> tuple[Dimension, Dimension] | None:
        """Return (outer, inner) of a member of a split class.

        Return None if the inner sizes do not divide one another.
        """
        if own.inner is None:
            return None
        held = own.inner.size
        if held == size:
            return own.outer[node], own.inner
        if size % held == 0:
            outer, middle = self.factor(own.outer[node], size // held)
            return outer, self.product(middle, own.inner)
        if held % size == 0:
            middle, inner = self.factor(own.inner, size)
            return self.product(own.outer[node], middle), inner
        return None

    def _split(self, own: ScalingClass, size: int) -> bool:
        """Split a class without factors.

        Return False if a size or position is not a multiple of ``size``, or integers are places
        along the class.
        """
        if own.indexed or any(n % size for n in (*own.positions, *(m.size for m in own.members))):
            return False
        own.inner = self.dimension(size)
        own.outer = {m: self.dimension(m.size // size) for m in own.members}
        first, *others = own.outer.values()
        for other in others:
            self._union(other, first)
        outer_class = self.class_of(first)
        outer_class.positions |= {p // size for p in own.positions}
        inner_class = self.class_of(own.inner)
        outer_class.permuted = inner_class.permuted = own.permuted
        outer_class.roomy = inner_class.roomy = own.roomy
        outer_class.factor = inner_class.factor = True
        outer_class.beside.append(own.inner)
        own.positions = set()
        return True

    def joins_in_order(self, nodes: Sequence[Dimension]) -> bool:
        """Return True if joining ``nodes`` to one dimension leaves elements in place.

        Either none is a factor, or all are factors that were split off in this order.
        """
        if not any(self.class_of(n).factor for n in nodes):
            return True
        return all(
            any(self._root(inner) == self._root(b) for inner in self.class_of(a).beside)
            for a, b in pairwise(nodes)
        )

    # --- union-find
    def class_of(self, node: Dimension) -> ScalingClass:
        """Return the class that ``node`` belongs to."""
        return self._classes[self._root(node)]

    def classes(self) -> list[tuple[int, ScalingClass]]:
        """Return all classes with their numbers, in the order of their first dimensions."""
        return sorted(
            ((root, own) for root, own in self._classes.items()),
            key=lambda pair: pair[1].members[0].number,
        )

    def number_of(self, node: Dimension) -> int:
        """Return the number of the class that ``node`` belongs to."""
        return self._root(node)

    def partition(self) -> tuple[int, ...]:
        """Return the number of the class of every dimension, in the order of dimensions."""
        return tuple(self._find(number) for number in range(len(self._parent)))

    def _root(self, node: Dimension) -> int:
        return self._find(node.number)

    def _find(self, number: int) -> int:
        root = number
        while self._parent[root] != root:
            self._parent[root] = self._parent[self._parent[root]]
            root = self._parent[root]
        return root

    def _union(self, a: Dimension, b: Dimension) -> None:
        queue = [(a, b)]
        while queue:
            one, other = queue.pop()
            if (
                self._root(one) == self._root(other)
                or self._is_segment(one, other)
                or self._is_segment(other, one)
            ):
                continue
            self._agree(one, other, queue)
            if self._root(one) != self._root(other):
                self._link(one, other, queue)

    def _is_segment(self, node: Dimension, whole: Dimension) -> bool:
        """Return True if ``node`` is one segment of ``whole``: the inner factor of its class.

        An example is one head of several. Return True also if it can only be that. Then it shrinks
        with that factor, and the outer factor keeps its segments of one.
        """
        own, other = self.class_of(whole), self.class_of(node)
        if own.inner is None or own.rigid or own.inner.size != node.size:
            return False
        if self._root(own.inner) != self._root(node):
            if (
                other.rigid
                or other.inner is not None
                or not any(
                    n % node.size for n in (*other.positions, *(m.size for m in other.members))
                )
            ):
                return False
            self._union(node, own.inner)
        self.position(whole, node.size)
        return True

    def _agree(self, a: Dimension, b: Dimension, queue: list[tuple[Dimension, Dimension]]) -> None:
        """Bring two classes to one form: both rigid, both without factors, or both split.

        Split classes then have inner factors of one size.
        """
        first, second = self.class_of(a), self.class_of(b)
        if first.rigid or second.rigid:
            reason = first.rigid or second.rigid
        elif first.inner is None and second.inner is None:
            return
        elif self._contains(a, b) or self._contains(b, a):
            reason = "it would be a factor of itself"
        elif self._align(first, second, queue):
            return
        else:
            reason = "its factorisations have no common refinement"
        self.fix(a, reason)
        self.fix(b, reason)

    def _align(
        self, first: ScalingClass, second: ScalingClass, queue: list[tuple[Dimension, Dimension]]
    ) -> bool:
        if first.inner is None:
            return second.inner is not None and self._split(first, second.inner.size)
        if second.inner is None:
            return self._split(second, first.inner.size)
        if first.inner.size == second.inner.size:
            return True
        coarse, fine = (first, second) if first.inner.size > second.inner.size else (second, first)
        return fine.inner is not None and self._refine(coarse, fine.inner.size, queue)

    def _refine(
        self, own: ScalingClass, size: int, queue: list[tuple[Dimension, Dimension]]
    ) -> bool:
        """Move the outer part of a class's inner factor outwards, leaving a factor of ``size``.

        Return False if it does not divide.
        """
        if own.inner is None or own.inner.size % size:
            return False
        middle, inner = self.factor(own.inner, size)
        own.inner = inner
        own.outer = {m: self.product(outer, middle) for m, outer in own.outer.items()}
        first, *others = own.outer.values()
        queue.extend((first, other) for other in others)
        return True

    def _link(self, a: Dimension, b: Dimension, queue: list[tuple[Dimension, Dimension]]) -> None:
        """Join two classes of one form."""
        keep, drop = sorted((self._root(a), self._root(b)))
        kept, dropped = self._classes[keep], self._classes.pop(drop)
        self._parent[drop] = keep
        if kept.inner is not None and dropped.inner is not None:
            queue.append((kept.inner, dropped.inner))
            queue.append((next(iter(kept.outer.values())), next(iter(dropped.outer.values()))))
        kept.take(dropped)

    def _contains(self, whole: Dimension, part: Dimension) -> bool:
        """Return True if the class of ``part`` is a factor, at any depth, of that of ``whole``."""
        wanted = self._root(part)
        queue, seen = self.class_of(whole).factors(), set()
        while queue:
            root = self._root(queue.pop())
            if root == wanted:
                return True
            if root not in seen:
                seen.add(root)
                queue.extend(self._classes[root].factors())
        return False

    # --- sizes
    def full(self) -> Sizes:
        """Return every dimension at its full size."""
        return Sizes(self, {})

    def shrink(self, least: int, *, loose: bool = False) -> Sizes:
        """Return sizes with ``least`` elements a segment, one more if they change places.

        Different classes may get the same size. ``loose``: dimensions that a literal may mean
        shrink, too. A count that is held against a literal differs from it then. Call this once
        all ties are made.
        """
        self._settle(loose=loose)
        return Sizes(self, smallest_units(self, least))

    def solve(
        self,
        variant: int = 0,
        roomy: Iterable[Dimension] = (),
        least: int = LEAST,
        needed: Mapping[int, int] | None = None,
        avoided: Collection[int] = (),
    ) -> Sizes:
        """Return small sizes, once all ties are made.

        Every ``variant`` (0, 1, ...) has other sizes. ``roomy`` dimensions have as many elements in
        a unit as if they changed places. No unit has fewer than ``least`` elements, nor fewer than
        are ``needed`` of its class, by its number. No reduced size is one of ``avoided``.
        """
        for own in (own for node in roomy for own in self._with_factors(node)):
            own.roomy = True
        self._settle()
        literals = self._literals.union(avoided)
        return Sizes(self, choose_units(self, literals, self._extents, variant, least, needed))

    def _settle(self, *, loose: bool = False) -> None:
        """Mark the factors of permuted classes; fix dimensions that a literal may mean.

        ``loose``: those are not fixed.
        """
        if not loose:
            self._fix_literals()
        for _, own in self.classes():
            self._hand_down(own)
            for each in self._with_factors(own.members[0]) if own.roomy else ():
                each.permuted, each.roomy = each.permuted or own.permuted, True
            if own.roomy and own.indexed:
                self.fix(own.members[0], "it is indexed by values, and its elements change places")

    def _fix_literals(self) -> None:
        """Fix dimensions that a literal may mean."""
        for _, own in self.classes():
            hit = next((m.size for m in own.members if m.size in self._literals), None)
            # A formula cannot name the size of a batch dimension: nothing done along it depends on
            # the number of elements.
            if hit is not None and not self.is_batch(own.members[0]):
                self.fix(own.members[0], f"the literal {hit} may be this dimension")
        for nodes in self._extents:
            count = prod(n.size for n in nodes)
            if count in self._counts:
                for node in nodes:
                    self.fix(
                        node,
                        f"a literal may be {count}, the number of elements along "
                        f"it{' and others' if len(nodes) > 1 else ''}",
                    )
