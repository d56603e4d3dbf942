"""The checks that the golden file has, each with a name that stays.

These are the zoo, a planner's files, a pair for every code, plans that read memory nobody has
written to, stages that must be widened, known bugs, and mutants of the zoo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from bugs.record import Built
from bugs.table import BUGS
from engine.unwritten_plans import RIGHT, WRONG
from explain.message_plans import PAIRS as CODES
from support.planner_plans import SHIPPED, SLOW_OF_PLANNER
from support.planner_plans import plans as plans_of_planner
from support.planner_plans import rows as rows_of_planner
from zoo.pairs import Pair, builders, pair, without_hints

from golden.account import Account, account
from golden.compare import SEED
from golden.widened import PAIRS as WIDENED
from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.mutation.kinds import KINDS
from pitcheck.mutation.mutants import Mutant, mutants

PER_PAIR = 4
"""Mutants of every pair that are compared in CI."""
NIGHTLY_PER_PAIR = 12
"""Mutants of every pair at night, those of CI among them."""


@dataclass(frozen=True)
class Row:
    """A check by name; ``nightly`` ones are not compared in CI.

    ``by_test``: True if a test of CI that makes this check anyway compares its report.
    """

    name: str
    plans: Callable[[], Pair]
    nightly: bool = False
    by_test: bool = False

    def account(self) -> Account:
        """Run the check. A crash of the checker is an account, too (PIT900)."""
        reference, parallel = self.plans()
        return account(checked([lambda: [reference], lambda: [parallel]], Options(seed=SEED)))


def rows() -> Mapping[str, Row]:
    """Return every row by its name, in the order of the file. Raises ValueError for a name that
    stands twice.
    """
    found: dict[str, Row] = {}
    for row in (*_zoo(), *_planner(), *_codes(), *_memory(), *_widened(), *_bugs(), *_mutants()):
        if row.name in found:
            raise ValueError(f"the golden file has two rows {row.name!r}")
        found[row.name] = row
    return found


def _zoo() -> Iterator[Row]:
    """Yield every pair, with the lineage that its parallel plan states and without.

    The tests of the zoo compare them.
    """
    for name in builders():
        yield Row(f"zoo {name}", partial(pair, name), by_test=True)
        yield Row(f"zoo {name}, no lineage", partial(_unstated, partial(pair, name)), by_test=True)


def _planner() -> Iterator[Row]:
    """Yield what a planner wrote: right and wrong plans, those whose explanation takes seconds at
    night. Right ones without lineage, too.
    """
    for row in rows_of_planner():
        if row.folder != SHIPPED:
            continue
        yield Row(
            f"planner {row.name}",
            partial(plans_of_planner, row),
            nightly=row.name in SLOW_OF_PLANNER,
            by_test=row.name not in SLOW_OF_PLANNER,
        )
        if row.right:
            yield Row(
                f"planner {row.name}, no lineage",
                partial(_unstated, partial(plans_of_planner, row)),
                nightly="llama" in row.reference,
            )


def _codes() -> Iterator[Row]:
    """Yield a pair for every code of a finding."""
    for code, plans in CODES.items():
        yield Row(f"code {code}", plans)


def _memory() -> Iterator[Row]:
    """Yield plans that read memory nobody has written to: harmless ones, then wrong ones."""
    for kind, pairs in (("harmless", RIGHT), ("wrong", WRONG)):
        for name, plans in pairs.items():
            yield Row(f"memory {kind}, {name}", partial(_made, plans))


def _widened() -> Iterator[Row]:
    """Yield pairs in which a stage is merged with those before it."""
    for name, plans in WIDENED.items():
        yield Row(f"widened {name}", plans)


def _made(plans: Pair) -> Pair:
    return plans


def _unstated(plans: Callable[[], Pair]) -> Pair:
    reference, parallel = plans()
    return reference, without_hints(parallel)


def _bugs() -> Iterator[Row]:
    """Yield the buggy code in every configuration of the known bugs. Of whole models, which take
    seconds each: in the first one, at night.
    """
    for name, bug in BUGS.items():
        for place, (where, setting) in enumerate({**bug.shows, **bug.silent}.items()):
            of_model = isinstance(setting, Built)
            if place == 0 or not of_model:
                # The tests of the known bugs check the first configuration in CI.
                yield Row(
                    f"bug {name}, {where}",
                    setting.wrong,
                    nightly=of_model,
                    by_test=place == 0 and not of_model,
                )
                yield Row(f"bug {name}, {where}, right", setting.right, nightly=True)


def _mutants() -> Iterator[Row]:
    """Yield mutants of every pair, every second one without lineage. The kinds take turns along the
    pairs, so that each is there.
    """
    for number, name in enumerate(builders()):
        turn = PER_PAIR * number % len(KINDS)
        for place, mutant in enumerate(
            mutants(pair(name)[1], NIGHTLY_PER_PAIR, SEED, (*KINDS[turn:], *KINDS[:turn]))
        ):
            stated = place % 2 == 0
            title = f"mutant {name}, {mutant.name}{'' if stated else ', no lineage'}"
            yield Row(title, partial(_mutated, name, mutant, stated), nightly=place >= PER_PAIR)


def _mutated(name: str, mutant: Mutant, stated: bool) -> Pair:
    return pair(name)[0], mutant.plan if stated else without_hints(mutant.plan)
