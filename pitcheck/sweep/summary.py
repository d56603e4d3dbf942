"""The results of a sweep in numbers and lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import Result, Status, command

WRONG, OPEN = 1, 3
"""The exit codes of a sweep: something is wrong, or something is not known."""
UNKNOWN: frozenset[Status] = frozenset({"crashed", "out of time", "out of memory", "not probed"})
"""The statuses of configurations of which nothing is known."""


@dataclass(frozen=True)
class Summary:
    """The numbers of a sweep. ``bad`` has the results that somebody has to look at.

    ``missing`` is the number of configurations without a result.
    """

    statuses: Mapping[Status, int]
    missing: int
    probes: int
    caught: int
    bad: tuple[Result, ...]

    @property
    def good(self) -> bool:
        """True if nobody has to look at anything: every planted fault was noticed, too."""
        return not self.bad and not self.missing and self.checked

    @property
    def checked(self) -> bool:
        """True if some configuration was not left out as an impossible one."""
        return sum(self.statuses.values()) > self.statuses.get("skipped", 0)

    @property
    def exit_code(self) -> int:
        """Return 0 if the sweep is good, 3 if something is not known, and 1 if it is wrong."""
        if self.good:
            return 0
        unknown = all(each.status in UNKNOWN or each.verdict == "inconclusive" for each in self.bad)
        return OPEN if unknown else WRONG

    def sentence(self) -> str:
        """Return the line that a sweep ends with."""
        done = sum(self.statuses.values())
        said = ", ".join(f"{n} {status}" for status, n in self.statuses.items()) or "none done"
        missing = f", {self.missing} not run" if self.missing else ""
        nothing = "" if self.checked else "; nothing was checked"
        probed = f"; {self.caught} of {self.probes} planted faults caught" if self.probes else ""
        head = f"{'good' if self.good else 'NOT GOOD'}: {done} configurations, {said}"
        return f"{head}{missing}{probed}{nothing}"


def summary(planned: Sequence[Planned], results: Iterable[Result]) -> Summary:
    """Return the summary of the results of some configurations."""
    probes = {each.name for each in planned if each.probe}
    statuses: Counter[Status] = Counter()
    caught = 0
    bad = []
    for result in results:
        statuses[result.status] += 1
        caught += result.name in probes and result.proven
        if not result.good:
            bad.append(result)
    missing = len(planned) - statuses.total()
    return Summary(dict(statuses.most_common()), missing, len(probes), caught, tuple(bad))


def line(result: Result) -> str:
    """Return the line of a result."""
    verdict = f" {result.verdict}" if result.verdict else ""
    said = f": {result.said}" if result.said and not (result.good and result.verdict) else ""
    lost = f" ({lost_workers(result)})" if result.lost else ""
    return f"{result.status:13s} {result.seconds:7.1f} s  {result.name}{verdict}{said}{lost}"


def lost_workers(result: Result) -> str:
    """Return how many workers of a cluster died with a configuration, and what became of them."""
    count = len(result.lost)
    return f"{count} worker{'s' * (count > 1)} died with it: {'; '.join(result.lost)}"


def what_to_do(planned: Sequence[Planned], found: Summary) -> Iterator[str]:
    """Yield, for each result that somebody has to look at, its line and how to repeat it."""
    by_name = {each.name: each for each in planned}
    for result in found.bad:
        yield line(result)
        yield f"    again: {command(by_name[result.name], result.seed)}"
