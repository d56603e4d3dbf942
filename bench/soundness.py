"""Random formulas with a rewriting that is right, and one that is wrong in one place.

It measures whether a check tells them. ``python bench/soundness.py [--pairs N] [--seed S] [--jobs
J] [--write]`` makes N formulas. Each is checked against a formula that is rewritten in several
places by rules that are right, and against the same with one mistake. Mistakes show at the full
size only, or at rare numbers: a place beyond every reduced size, another threshold, another count,
another domain. Whether a mistake changes a value is judged by running both formulas on float64 at
full size, by code that the check does not use. ``--write`` writes the page ``docs/soundness.md``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from random_formulas.pairs import Outcome, outcomes  # noqa: E402  beside the tests, which use the same formulas

PAGE = ROOT / "docs" / "soundness.md"


def table(found: list[Outcome]) -> Iterator[str]:
    """Yield the lines of the table: one for each mistake, and one for none."""
    yield "| mistake | pairs | unequal | mismatch | open | estimate | equivalent | no effect seen |"
    yield "|---|---|---|---|---|---|---|---|"
    for mistake in sorted({each.mistake for each in found}):
        own = [each for each in found if each.mistake == mistake]
        unequal = [each for each in own if each.differs]
        counted = unequal if mistake else own
        verdicts = Counter(each.verdict for each in counted)
        estimates = sum(each.estimate for each in counted)
        yield (
            f"| {mistake or 'none (right)'} | {len(own)} | {len(unequal)} | "
            f"{verdicts['mismatch']} | {verdicts['inconclusive']} | {estimates} | "
            f"{verdicts['equivalent'] - estimates} | {len(own) - len(unequal)} |"
        )


def main() -> int:
    """Check pairs, print what went wrong and the table; return 1 if something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.pairs)
    found: list[Outcome] = []
    bad = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for each in pool.map(outcomes, seeds, chunksize=8):
            found.extend(each)
            for outcome in each:
                if outcome.wrong:
                    bad += 1
                    print(f"{outcome.wrong}: {outcome}", flush=True)
    right = [each for each in found if not each.mistake]
    unproven = Counter(f"{e.code} {e.title[:90]}" for e in right if e.verdict == "inconclusive")
    for reason, count in unproven.most_common(20):
        print(f"open: {count} {reason}")
    lines = list(table(found))
    print("\n".join(lines))
    print(f"{sum(e.seconds for e in found):.0f} processor seconds, {bad} wrong")
    if options.write:
        PAGE.write_text(page(lines, options.pairs), encoding="utf-8")
    return 1 if bad else 0


def page(lines: list[str], pairs: int) -> str:
    """Return the page of a run."""
    return "\n".join(
        [
            "# Soundness, measured on random formulas",
            "",
            *(__doc__ or "").strip().splitlines()[2:],
            "",
            f"The last run had {pairs} formulas.",
            "",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
