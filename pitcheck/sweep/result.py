"""The result of one configuration of a sweep."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal as OneOf

import msgspec

from pitcheck.report.report import Report
from pitcheck.sweep.planned import Planned

Status = OneOf[
    "as expected",
    "unchanged",
    "unexpected",
    "skipped",
    "crashed",
    "out of time",
    "out of memory",
    "not probed",
]
GOOD: frozenset[Status] = frozenset({"as expected", "unchanged", "skipped"})
"""The statuses that nobody has to look at."""
WITHOUT_REPORT: frozenset[Status] = frozenset(
    {"unexpected", "skipped", "crashed", "out of time", "out of memory", "not probed"}
)
"""The statuses that a result without a report may have."""
CAUGHT = frozenset({"mismatch", "invalid"})
"""The verdicts on a plan with a planted fault that notice it."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a configuration: checked, left out, or broken off.

    ``verdict`` is "" if there is none, and ``report`` None. ``said`` is one line on what was
    planted, why the configuration was left out, or how its process ended. ``seconds`` are those of
    the process; ``memory_mb`` is the peak of it and of all that it started, 0 if that is not known.
    ``inputs`` is a number for all that the verdict depends on, "" if that is not known. ``code`` is
    the version of pitcheck's code in its process. ``configuration`` is a number for what was
    checked, "" in results of earlier versions. ``lost`` says what became of each worker of a
    cluster that died with the configuration before.
    """

    name: str
    status: Status
    verdict: str = ""
    expect: str
    seed: int
    said: str = ""
    seconds: float = 0.0
    memory_mb: float = 0.0
    inputs: str = ""
    code: str = ""
    lost: tuple[str, ...] = ()
    configuration: str = ""
    report: Report | None = None

    @property
    def proven(self) -> bool:
        """True if the verdict is known and is the one that was expected."""
        return self.status in ("as expected", "unchanged") and bool(self.verdict)

    @property
    def good(self) -> bool:
        """True if nobody has to look at it."""
        return self.status in GOOD


def number_of(planned: Planned) -> str:
    """Return a number, in hexadecimal, that two different configurations do not share."""
    return blake2b(msgspec.json.encode(planned), digest_size=16).hexdigest()


def is_right(planned: Planned, verdict: str) -> bool:
    """Return True if a verdict on a configuration is the expected one."""
    return verdict in CAUGHT if planned.probe else verdict == planned.expect


def of_report(
    planned: Planned, report: Report, said: str, *, out_of_memory: bool = False
) -> Result:
    """Return the result of a configuration that was checked."""
    right = is_right(planned, report.verdict)
    failed = any(finding.code == "PIT900" for finding in report.findings)
    status: Status = (
        "as expected" if right and report.exit_code in _codes(planned) else "unexpected"
    )
    if failed:
        status = "crashed"
    elif out_of_memory:
        status = "out of memory"
    first = report.findings[0].title if report.findings else ""
    return Result(
        name=planned.name,
        status=status,
        verdict=report.verdict,
        expect=planned.expect,
        seed=report.seed,
        said=said or first,
        configuration=number_of(planned),
        report=report,
    )


def _codes(planned: Planned) -> Sequence[int]:
    """Return the exit codes that a good check has: a broken precision rule has one of its own."""
    return range(6) if planned.probe or planned.expect != "equivalent" else (0,)


def without_report(planned: Planned, seed: int, status: Status, said: str) -> Result:
    """Return the result of a configuration that was not checked to the end."""
    return Result(
        name=planned.name,
        status=status,
        expect=planned.expect,
        seed=seed,
        said=said,
        configuration=number_of(planned),
    )


def seed_of(seed: int, name: str) -> int:
    """Return the seed of a configuration, from that of its sweep: 63 bits."""
    digest = blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def command(planned: Planned, seed: int) -> str:
    """Return the command that checks a configuration again, with the same seed.

    A planted fault is told by the sweep alone: its command checks the plan without it.
    """
    words = ["pitcheck", "check", *planned.sources]
    for assignment in planned.assignments:
        words += ["--set", assignment]
    for name, value in planned.options.items():
        words += [f"--{name.replace('_', '-')}", value]
    return shlex.join([*words, "--seed", str(seed)])
