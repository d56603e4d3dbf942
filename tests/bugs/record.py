"""The record of a known bug.

It has the right program, the buggy one, the settings in which the bug shows and those in which the
same code is right, and the cause that a finding should name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol
from unittest.mock import patch

from frontends.torch.replay import difference, truth
from programs.program_cases import Case

from pitcheck.execution.judge import judge_often
from pitcheck.frontends.torch.recording.record import record
from pitcheck.plan.model import Plan
from pitcheck.torch import Spec, capture

Pair = tuple[Plan, Plan]
"""The reference, and a parallel program."""
DRAWS = range(4)
CLOSE = 1e-9


class Setting(Protocol):
    """A configuration: the same model, spread in the same way, by right and by buggy code."""

    def right(self) -> Pair: ...
    def wrong(self) -> Pair: ...

    def changes(self) -> bool:
        """Return True if the buggy code changes an output.

        The arithmetic that decides shares nothing with the checker.
        """


@dataclass(frozen=True)
class Bug:
    """A bug. ``where``: project and number; ``should`` and ``was``: the dataflow; ``codes``: of the
    cause, the best one first, then any that are as right.

    ``says``: what the first finding must name, in any of its texts. ``shows`` and ``silent``:
    configurations by name, the fastest one first; ``slow``: even that is left to the slow tests.
    ``thread``: the address of the public thread that was read.
    """

    where: str
    should: str
    was: str
    codes: tuple[str, ...]
    shows: Mapping[str, Setting]
    silent: Mapping[str, Setting]
    says: tuple[str, ...] = ()
    slow: bool = False
    thread: str = ""


@cache
def built(case: Case) -> Pair:
    """The plans of a case; several bugs share cases."""
    return case.plans()


@dataclass(frozen=True)
class Built:
    """A case of the model builders, and the parallel plan that buggy code builds of it."""

    case: Case
    buggy: Callable[[Case], Plan]

    def right(self) -> Pair:
        return built(self.case)

    def wrong(self) -> Pair:
        return built(self.case)[0], self.buggy(self.case)

    def changes(self) -> bool:
        return not judge_often(*self.wrong(), DRAWS).same


@dataclass(frozen=True)
class Written:
    """Plans written by hand: ``parallel(False)`` is right and ``parallel(True)`` buggy."""

    reference: Callable[[], Plan]
    parallel: Callable[[bool], Plan]

    def right(self) -> Pair:
        return self.reference(), self.parallel(False)

    def wrong(self) -> Pair:
        return self.reference(), self.parallel(True)

    def changes(self) -> bool:
        return not judge_often(*self.wrong(), DRAWS).same


@dataclass(frozen=True)
class Recorded:
    """PyTorch programs, recorded as they run: ``program(False)`` is the pair with the right one,
    ``program(True)`` that with the buggy one.
    """

    program: Callable[[bool], Spec]

    def right(self) -> Pair:
        return capture(self.program(False))

    def wrong(self) -> Pair:
        return capture(self.program(True))

    def changes(self) -> bool:
        """By what torch computes of the recorded operators in float64; of what ranks hold terms of,
        gradients tell.
        """
        spec = self.program(True)
        true = truth(spec)
        compared = {key: value for key, value in true.results.items() if key[0] != "output"}
        return difference(record(spec, "parallel", 1), true.tensors, compared) > CLOSE


def written(
    reference: Callable[[], Plan], parallel: Callable[..., Plan], **sizes: tuple[Any, ...]
) -> dict[str, Written]:
    """Plans written by hand, by name: ``parallel`` gets the values, and whether it is buggy."""
    return {
        name.replace("_", " "): Written(reference, partial(parallel, *values))
        for name, values in sizes.items()
    }


def each(buggy: Callable[[Case], Plan], **cases: Case) -> dict[str, Built]:
    """The same buggy code on cases by name."""
    return {name.replace("_", " "): Built(case, buggy) for name, case in cases.items()}


@dataclass(frozen=True)
class Patched:
    """Builds the parallel plan with functions of the builders replaced: ``by`` their full names."""

    by: Mapping[str, Any] = field(hash=False)

    def __call__(self, case: Case) -> Plan:
        with ExitStack() as stack:
            for name, new in self.by.items():
                stack.enter_context(patch(f"pitcheck.programs.{name}", new))
            return case.plans()[1]
