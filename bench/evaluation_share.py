"""The share of a check that a GPU could take over: evaluations of stages over residues.

``python bench/evaluation_share.py [PLAN]`` checks a shipped configuration at reduced shapes with
NumPy in one process, and prints the seconds of all evaluations beside those of the whole check, the
baseline.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from pitcheck.base.options import Options
from pitcheck.commands.reading import read_pair
from pitcheck.engine.check import check
from pitcheck.prove import stage_trials

PLANS = Path(__file__).resolve().parent.parent / "plans"


class Timed:
    """An evaluation whose calls are counted, with the seconds that they take."""

    def __init__(self, evaluate: Any) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._evaluate = evaluate

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Evaluate a stage."""
        start = time.perf_counter()
        try:
            return self._evaluate(*given, **named)
        finally:
            self.seconds += time.perf_counter() - start
            self.calls += 1


def main() -> int:
    """Measure and print."""
    name = sys.argv[1] if len(sys.argv) > 1 else "llama3-tiny"
    plans = read_pair(str(PLANS / f"{name}.toml"))
    timed = Timed(stage_trials.evaluate_stage)
    setattr(stage_trials, "evaluate_stage", timed)  # noqa: B010  the type of a function is not Timed's
    start = time.perf_counter()
    report = check(plans[0], plans[1], Options(seed=1, backend="numpy", jobs=1))
    whole = time.perf_counter() - start
    print(
        f"{name}: {report.verdict}; {timed.calls} evaluations {timed.seconds:.2f} s of "
        f"{whole:.2f} s, ratio {timed.seconds / whole:.2f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
