"""The protocol of a frontend, which makes plans of sources in one format.

``docs/write-a-frontend.md`` shows how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pitcheck.errors import UsageError
from pitcheck.plan.model import PairAt, Plan

GROUP = "pitcheck.frontends"
"""The group of entry points under which installed packages name their frontends."""


@dataclass(frozen=True)
class Request:
    """A source as the command line names it.

    ``assignments`` are the settings ``KEY=VALUE`` for frontends that take some. ``jobs`` is the
    number of processes that may be used; None stands for one per processor.
    """

    source: str
    assignments: tuple[str, ...] = ()
    jobs: int | None = None


@dataclass(frozen=True)
class Pair:
    """A pair of plans that a source stands for, one of several if its specification has variants.

    - ``read`` returns the reference and the parallel plan, and raises what a frontend raises.
    - ``again`` makes the pair at another mesh. None: a pair has one mesh.
    - ``variant`` is what tells the pair from the others, in words; "" if there are no variants.
    - ``not_covered`` are sentences on what a proof of this and the other variants leaves open.
    """

    read: Callable[[], Sequence[Plan]]
    again: PairAt | None = None
    variant: str = ""
    not_covered: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """A pair of plans that stands for a source.

    - ``plans`` are the reference and the parallel plan.
    - ``decides``: True if the verdict on them is the verdict on the source. False: a proof of them
      is a proof of the source, and any other verdict says nothing about it.
    - ``states`` names for an input of the reference the outputs that must be as it is taken to be,
      if a proof rests on that: an input may not be infinite, and what it lacks a value at is no
      more than what these outputs do.
    - ``reductions`` are sentences on what the plans leave to a law that a proof of them rests on.
    """

    plans: Sequence[Plan]
    decides: bool = True
    states: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reductions: tuple[str, ...] = ()


def deciding(attempts: Iterator[Attempt]) -> Sequence[Plan]:
    """Return the plans of the last attempt, whose verdict is that on the source."""
    *_, last = attempts
    return last.plans


@dataclass(frozen=True)
class Frontend:
    """A format that pitcheck reads.

    - ``accepts`` names its sources in messages, with an article ("a plan file (.plan.json)").
    - ``recognises`` returns True for the name of a source in this format. It decides by the name
      alone; no file need exist.
    - ``read`` returns the plan of a source, or with ``gives_pair`` the reference and the parallel
      plan. The source of a frontend that gives one plan is a file that exists.
    - ``takes_settings`` says that ``--set KEY=VALUE`` changes what is read.
    - ``in_one_file`` says that the bytes of the file of that name, with the settings, decide what
      is read. The report of a pair that was proven is then remembered, for frontends of pitcheck
      itself: it does not know when the code of others changes.
    - ``again`` returns what makes the pair of a source at other sizes of the mesh axes. It is asked
      once a mistake was found, so that its repair is tried there, too. None: a pair has one mesh.
    - ``attempts`` yields the pairs of plans that stand for a source, or with ``gives_pair`` unset
      for two of this format that cannot be read one without the other, in the order in which they
      are tried. ``read`` gives the plans of the last one. None: there is one pair, that of
      ``read``, or a source is read alone.
    - ``pairs`` returns all pairs of a source that may have variants, each of which is checked; then
      ``read`` refuses a source of several. None: a source stands for one pair.

    ``read``, ``attempts``, ``again`` and ``pairs`` may raise the following errors. Any other
    exception is reported as a bug.

    - PlanError: the source is damaged or contradicts itself.
    - UnsupportedError: it contains something that has no meaning in a plan.
    - BudgetError: it is too large.
    - UsageError: a setting is wrong.
    - OSError: a file cannot be read.
    """

    name: str
    accepts: str
    recognises: Callable[[str], bool]
    read: Callable[[Request], Sequence[Plan]]
    gives_pair: bool = False
    takes_settings: bool = False
    again: Callable[[Request], PairAt] | None = None
    in_one_file: bool = False
    attempts: Callable[[Sequence[Request]], Iterator[Attempt]] | None = None
    pairs: Callable[[Request], Sequence[Pair]] | None = None


def installed() -> Iterator[Frontend]:
    """Yield the frontends of other installed packages, sorted by name.

    Raises UsageError for an entry point that cannot be loaded or is no frontend.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415  only a source of an unknown format pays for it

    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            frontend = point.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the frontend {point.name!r} ({point.value}) cannot be loaded: {error}; repair "
                f"or uninstall its package"
            ) from error
        if not isinstance(frontend, Frontend):
            raise UsageError(
                f"the entry point {point.name!r} ({point.value}) is of type "
                f"{type(frontend).__name__}; it must be a {__name__}.Frontend"
            )
        yield frontend
