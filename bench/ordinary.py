"""An ordinary training step in the forms in which people write it, cold and on one processor.

``python bench/ordinary.py [--only TEXT] [--limit SECONDS]`` checks each form in a process of its
own and prints processor seconds, the ratio to the step without clipping, and the verdict.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "bench" / "programs"
BASELINE = "no_clipping"
FORMS = (
    BASELINE,
    "base",
    "eight_layers",
    "foreach",
    "flat_norm",
    "norm_each",
    "interleaved",
    "separate",
    "sgd",
    "adafactor",
    "tied",
    "rms_norm",
    "bias",
    "three_microbatches",
    "three_microbatches_each",
    "no_sequence_parallelism",
)
AROUND_A_RING = ("ring", "all_axes")
"""The forms of ``ring_step.py``: context parallelism alone, and dp=2 x pp=2 x cp=2 x tp=2."""


def checked(form: str, limit: float) -> tuple[float, str]:
    """Return the processor seconds of a check, and the first line that it prints."""
    file = "ring_step.py" if form in AROUND_A_RING else "ordinary_step.py"
    command = [sys.executable, "-m", "pitcheck", "check", f"{PROGRAMS / file}:{form}"]
    options = ["--jobs", "1", "--no-cache", "--seed", "1"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            [*command, *options],
            capture_output=True,
            text=True,
            timeout=limit,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
        lines = [*done.stdout.splitlines(), *done.stderr.splitlines()[-1:], "nothing printed"]
        said = lines[0]
    except subprocess.TimeoutExpired:
        said = f"no verdict after {limit:.0f} s"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, said


def main() -> None:
    """Print a line for each form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the names of forms to check")
    parser.add_argument("--limit", type=float, default=300.0, help="wall seconds for each form")
    options = parser.parse_args()
    print(time.strftime("%Y-%m-%d"), os.cpu_count(), "processors")
    baseline = None
    for form in (*FORMS, *AROUND_A_RING):
        if options.only in form or form == BASELINE:
            seconds, said = checked(form, options.limit)
            baseline = baseline or seconds
            print(f"{form:26} {seconds:7.1f} s  x{seconds / baseline:5.2f}  {said}", flush=True)


if __name__ == "__main__":
    main()
