"""The process that tries programs: reads them as JSON lines, and writes a line for each.

XLA may abort it: then the program whose line is missing is the one.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hunt.judging import (
    AGREES,
    BAD,
    FAILED,
    FALSE_ALARM,
    LATER,
    MISSED,
    OPEN,
    UNUSABLE,
    WRONG,
    classified,
    computations_of,
    executor_sees,
    texts_of,
    verdict_of,
)
from hunt.programs import Program, from_json
from hunt.running import (
    Array,
    difference,
    difference_in_further_draws,
    forget,
    lowered,
    plain_results,
    results_of,
)
from pitcheck.errors import UnsupportedError

KEPT = 100
"""Programs after which JAX forgets what it has compiled."""
LATER_PASS = "algsimp"
"""A pass behind the partitioner that gives wrong numbers (docs/upstream/xla_slice_of_slice.md)."""
DUMPING = {
    "xla_dump_hlo_pass_re": "spmd.*",
    "xla_dump_hlo_module_re": ".*",
    "xla_dump_hlo_as_text": True,
    "xla_dump_large_constants": True,
}


def tried(program: Program, seconds: float, *, checked: bool) -> dict[str, Any]:
    """Run a program, and check its texts if asked for. Return the class, and why."""
    try:
        expected = plain_results(program)
    except Exception as error:
        return {"class": UNUSABLE, "reason": _first_line(error)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            compiled = lowered(program).compile({**DUMPING, "xla_dump_to": name} if checked else {})
            found = results_of(compiled, program)
        except Exception as error:
            return {"class": FAILED, "reason": _first_line(error)}
        differs = difference(expected, found)
        record: dict[str, Any] = {"difference": str(differs) if differs else ""}
        if not checked:
            return record | {"class": MISSED if differs else OPEN, "verdict": "", "reason": ""}
        try:
            texts = texts_of(folder)
        except UnsupportedError as error:
            return record | {"class": MISSED if differs else AGREES, "reason": str(error)}
        verdict = verdict_of(*texts, seconds)
        record |= {
            "class": classified(verdict, differs=differs is not None),
            "verdict": verdict.verdict,
            "reason": verdict.reason[:300],
            "short": verdict.short_reason,
        }
        if record["class"] == FALSE_ALARM:
            # A factor that is zero by chance hides a fault.
            differs = difference_in_further_draws(compiled, program)
            record["class"] = classified(verdict, differs=differs is not None)
            record["difference"] = f"in other draws: {differs}" if differs else ""
        if record["class"] == WRONG and _is_right_without_later_pass(program, expected, texts):
            record["class"] = LATER
        if record["class"] in BAD:
            record["executor"] = executor_sees(*texts, seconds)
        return record


def _is_right_without_later_pass(
    program: Program, expected: Sequence[Array], texts: tuple[str, str]
) -> bool:
    """Return True if a program that is partitioned as before gives the numbers of one device.

    Return False, too, if XLA fails without the pass: nothing excuses the verdict then.
    """
    with tempfile.TemporaryDirectory() as name:
        options = {**DUMPING, "xla_dump_to": name, "xla_disable_hlo_passes": LATER_PASS}
        try:
            compiled = lowered(program).compile(options)
            found = results_of(compiled, program)
        except Exception:
            return False
        again = texts_of(Path(name))
        same = [*map(computations_of, texts)] == [*map(computations_of, again)]
        return same and difference(expected, found) is None


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0][:300]


def main(seconds: str, checked: str) -> None:
    """Try the programs on standard input."""
    for number, line in enumerate(sys.stdin):
        record = tried(from_json(json.loads(line)), float(seconds), checked=checked == "checked")
        print(json.dumps(record), flush=True)
        if number % KEPT == KEPT - 1:
            forget()


if __name__ == "__main__":
    main(*sys.argv[1:])
