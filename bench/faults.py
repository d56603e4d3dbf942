"""Mistakes at one place of Llama-3 405B and DeepSeek-V3 671B at full scale.

It measures whether they are caught, where, and in what time. ``python bench/faults.py [--only TEXT]
[--write]`` checks the right plan of both models, and each of the mistakes of
``tests/programs/frontier_faults.py``; every line is a separate process. ``--write`` puts the table
into ``docs/frontier.md``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from frontier import written
from pairs import KIB, MIB

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.programs.configuration import read_configuration

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from programs.frontier_faults import Fault, dense, not_rescaled, wrong_expert  # noqa: E402  beside the tests, which use the same mistakes

CASES: dict[str, tuple[str, tuple[str, ...], dict[str, Fault]]] = {
    "Llama-3 405B": ("llama3-405b", (), dense(20, {"dp": 37}, 11)),
    "Llama-3 405B, ring of 2": (
        "llama3-405b",
        ("cp=2", "dp=32"),
        {"missing rescale": not_rescaled(20, {"dp": 7})},
    ),
    "DeepSeek-V3 671B": (
        "deepseek-v3",
        (),
        dense(20, {"dp": 3, "dp_inner": 6}, 11, "loss.tokens")
        | {"wrong expert": wrong_expert(20, {"pp": 2, "dp": 3}, 11)},
    ),
}
HEAD = (
    "| plan | mistake | place | verdict | operator named | cause | ranks named | processor "
    "seconds | peak MiB |",
    "|---|---|---|---|---|---|---|---|---|",
)


def line(model: str, what: str) -> str:
    """Check one plan, right or wrong, and return its line."""
    file, changes, faults = CASES[model]
    fault = faults.get(what)
    configuration = read_configuration(ROOT / "plans" / f"{file}.toml", changes)
    reference, parallel = configuration.reference(), configuration.parallel()
    wrong = parallel if fault is None else fault.put(parallel)[0]
    start = time.process_time()
    report = check(reference, wrong, Options(seed=1, witness_directory=None))
    seconds = time.process_time() - start
    memory = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        * (1 if sys.platform == "darwin" else KIB)
        / MIB
    )
    finding = report.findings[0] if report.findings else None
    place = (
        ""
        if fault is None
        else f"`{fault.identity}`, {', '.join(f'{axis} {at}' for axis, at in fault.place.items())}"
    )
    said = (
        ("", "", "")
        if finding is None
        else (f"`{finding.operator}`", finding.code, str(len(finding.ranks)))
    )
    cells = (model, what, place, report.verdict, *said, f"{seconds:.1f}", f"{memory:.0f}")
    return f"| {' | '.join(cells)} |"


def table(only: str) -> Iterator[str]:
    """Yield the lines of the table as they are measured."""
    yield from HEAD
    context = multiprocessing.get_context("spawn")
    for model, (_, _, faults) in CASES.items():
        for what in ("none", *faults):
            if only in f"{model}: {what}":
                with context.Pool(1) as alone:
                    yield alone.apply(line, (model, what))


def main() -> None:
    """Measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(
        description="Mistakes at one place of plans of thousands of ranks."
    )
    parser.add_argument(
        "--only", default="", help="only lines whose plan and mistake hold this text"
    )
    parser.add_argument("--write", action="store_true", help="write docs/frontier.md")
    options = parser.parse_args()
    lines = []
    for text in table(options.only):
        print(text, flush=True)
        lines.append(text)
    if options.write:
        written(lines, "faults")


if __name__ == "__main__":
    main()
