"""Random meshes, shardings, shapes and arguments."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from random import Random

from hunt.programs import FLOAT, Argument, Axes, Shape, Spec, Step

MESHES = ((2,), (4,), (8,), (2, 2), (4, 2), (2, 4), (2, 2, 2))
SIZES = (1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 12)
MOST_ELEMENTS = 1024


class Draw:
    """Random choices, with the arguments and steps that have been drawn."""

    def __init__(self, random: Random) -> None:
        self.random = random
        sizes = random.choice(MESHES)
        self.mesh = tuple((name, size) for name, size in zip("abc", sizes, strict=False))
        self.used = self._axes_in_use()
        self.order = self._order(prod(sizes))
        self.arguments: list[Argument] = []
        self.steps: list[Step] = []

    def _axes_in_use(self) -> Axes:
        """Return the axes that shardings may name: often not all."""
        names = [name for name, _ in self.mesh]
        if len(names) > 1 and self.random.random() < 0.4:
            names.remove(self.random.choice(names))
        return tuple(names)

    def _order(self, devices: int) -> tuple[int, ...]:
        order = list(range(devices))
        if self.random.random() < 0.15:
            self.random.shuffle(order)
        return tuple(order)

    def chance(self, share: float) -> bool:
        """Return True with a probability."""
        return self.random.random() < share

    def shape(self, rank: int | None = None) -> Shape:
        """Return a shape of a rank, drawn if it is not given, with few elements."""
        rank = self.random.choice((1, 2, 2, 2, 3, 3, 4)) if rank is None else rank
        while True:
            found = tuple(self.random.choice(SIZES) for _ in range(rank))
            if prod(found) <= MOST_ELEMENTS:
                return found

    def spec(self, shape: Shape, *, even: bool) -> Spec:
        """Return a sharding; with ``even``, one that divides each dimension."""
        sizes = dict(self.mesh)
        free = list(self.used)
        self.random.shuffle(free)
        parts: list[list[str]] = [[] for _ in shape]
        for axis in free:
            if self.chance(0.1):
                continue
            fitting = [
                number
                for number, size in enumerate(shape)
                if size > 1
                and not (
                    even and size % (prod(sizes[each] for each in parts[number]) * sizes[axis])
                )
            ]
            if fitting:
                parts[self.random.choice(fitting)].append(axis)
        return tuple(map(tuple, parts))

    def argument(self, shape: Shape, kind: str = FLOAT, bound: int = 0) -> str:
        """Add an argument and return its name."""
        name = f"x{len(self.arguments)}"
        self.arguments.append(Argument(name, shape, kind, bound, self.spec(shape, even=True)))
        return name

    def value(self, least_rank: int = 1, most_rank: int = 5) -> tuple[str, Shape]:
        """Return a floating-point value of some rank: mostly the last one, or a new argument."""
        found: list[tuple[str, Shape]] = [(s.name, s.shape) for s in self.steps]
        found += [(a.name, a.shape) for a in self.arguments if a.kind == FLOAT]
        found = [each for each in found if least_rank <= len(each[1]) <= most_rank]
        if self.steps and found and found[-1][0] != self.steps[-1].name:
            last = self.steps[-1]
            if (last.name, last.shape) in found and self.chance(0.7):
                return last.name, last.shape
        if found and self.chance(0.8):
            return self.random.choice(found)
        shape = self.shape(self.random.randint(least_rank, min(most_rank, max(least_rank, 3))))
        return self.argument(shape), shape

    def like(self, shape: Shape) -> str:
        """Return a value of a shape: one that exists, or a new argument."""
        found = [a.name for a in self.arguments if a.shape == shape and a.kind == FLOAT]
        found += [step.name for step in self.steps if step.shape == shape]
        if found and self.chance(0.3):
            return self.random.choice(found)
        return self.argument(shape)

    def step(self, operator: str, source: str, inputs: Sequence[str], shape: Shape) -> None:
        """Add a step, often with a sharding, which need not divide its dimensions."""
        spec = self.spec(shape, even=self.chance(0.4)) if self.chance(0.45) else None
        name = f"v{len(self.steps)}"
        self.steps.append(Step(name, source, tuple(inputs), shape, operator, spec))
