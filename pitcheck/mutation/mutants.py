"""Mutants of a plan, chosen by a seed.

Kinds are equally frequent, and so are the operators that a kind can change. A mutant is changed at
all coordinates or at some.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pitcheck.base.nearest import nearest
from pitcheck.errors import UsageError
from pitcheck.mutation.causes import RIGHT_CODES
from pitcheck.mutation.edits import Edit, Place, changed_at
from pitcheck.mutation.facts import Facts
from pitcheck.mutation.kinds import KINDS, OF_PLANS, OF_RECORDS
from pitcheck.mutation.outcomes import one_line
from pitcheck.plan.model import MICROBATCH_AXIS, Operator, Plan

ATTEMPTS = 30
"""The number of choices in a row without a new mutant after which a kind is exhausted."""
EVERYWHERE, ONE_AXIS = 0.5, 0.8
"""Bounds of a uniform draw that says where a mutant is changed.

Half are changed at all coordinates, three of ten at one value of an axis, two of ten at one
coordinate.
"""
WITHIN_GROUP = 0.1
"""The share of collectives that are changed for a part of their members, which mostly hangs."""
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Mutant:
    """A plan with one mistake.

    ``kind``: the kind of the mistake; ``operator``: the record or tensor that has it; ``label``:
    what it is; ``place``: its coordinates, all if empty.
    """

    kind: str
    operator: str
    label: str
    place: tuple[tuple[str, int], ...]
    plan: Plan

    @property
    def name(self) -> str:
        """One line with all of these, unique among the mutants of a plan."""
        return one_line(self.kind, self.operator, self.label, dict(self.place))

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes that name the mistake rightly."""
        return RIGHT_CODES[self.kind]


@dataclass(frozen=True)
class _Site:
    """A record or plan that can be changed, and the change."""

    operator: str
    label: str
    edit: Edit | None = None
    whole: Callable[[], Plan] | None = None


def chosen_kinds(names: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of these names, all kinds for no names.

    Raises UsageError for an unknown name.
    """
    for name in names:
        if name not in KINDS:
            raise UsageError(
                f"unknown kind of mutation {name!r}; the kinds are {', '.join(KINDS)}"
                f"{nearest(name, KINDS)}"
            )
    return tuple(dict.fromkeys(names)) or KINDS


def mutants(plan: Plan, count: int, seed: int, kinds: Sequence[str] = KINDS) -> Iterator[Mutant]:
    """Yield at most ``count`` different mutants, the same for the same arguments.

    There are fewer if the plan has no more.
    """
    facts = Facts(plan)
    draw = random.Random(f"mutants {seed}")
    strata = {kind: _strata(facts, kind) for kind in kinds}
    left = [kind for kind in kinds if strata[kind]]
    seen: set[str] = set()
    while left and len(seen) < count:
        for kind in tuple(left):
            mutant = _fresh(facts, kind, strata[kind], draw, seen)
            if mutant is None:
                left.remove(kind)
                continue
            seen.add(mutant.name)
            yield mutant
            if len(seen) == count:
                return


def _strata(facts: Facts, kind: str) -> list[list[_Site]]:
    """Return the sites of a kind, grouped by the kind of operator and by the change.

    Choosing a group first makes rare changes as frequent as common ones.
    """
    found: dict[tuple[str, str], list[_Site]] = {}
    if kind in OF_PLANS:
        for name, label, whole in OF_PLANS[kind](facts):
            found.setdefault(("", _DIGITS.sub("", label.split()[0])), []).append(
                _Site(name, label, whole=whole)
            )
        return list(found.values())
    for operator in facts.plan.operators:
        for label, edit in OF_RECORDS[kind](facts, operator):
            found.setdefault(
                (operator.kind, _DIGITS.sub("", label.partition(" is ")[0])), []
            ).append(_Site(operator.id, label, edit))
    return list(found.values())


def _fresh(
    facts: Facts, kind: str, strata: list[list[_Site]], draw: random.Random, seen: set[str]
) -> Mutant | None:
    """Return a mutant that was not seen before, or None if none is found."""
    for _ in range(ATTEMPTS):
        site = draw.choice(draw.choice(strata))
        place = (
            _place(facts, facts.plan.operators[facts.position[site.operator]], draw)
            if site.edit is not None
            else {}
        )
        plan = _changed(facts.plan, site, place)
        if plan is None or plan == facts.plan:
            continue
        mutant = Mutant(kind, site.operator, site.label, tuple(place.items()), plan)
        if mutant.name not in seen:
            return mutant
    return None


def _changed(plan: Plan, site: _Site, place: Place) -> Plan | None:
    if site.edit is not None:
        return changed_at(plan, site.operator, place, site.edit)
    return None if site.whole is None else site.whole()


def _place(facts: Facts, operator: Operator, draw: random.Random) -> Mapping[str, int]:
    """Return all coordinates ({}), one value of an axis, or a single coordinate."""
    how = draw.random()
    within = draw.random() < WITHIN_GROUP
    grouped = set(operator.group.axes) if operator.group is not None and not within else set()
    axes = [axis for axis in facts.sizes if axis != MICROBATCH_AXIS or facts.repeated(operator)]
    free = [axis for axis in axes if axis not in grouped and len(facts.values(operator, axis)) > 1]
    if how < EVERYWHERE or not free:
        return {}
    chosen = [draw.choice(free)] if how < ONE_AXIS else free
    box = draw.choice(operator.where or ({},))
    return {axis: draw.choice(sorted(box.get(axis, range(facts.sizes[axis])))) for axis in chosen}
