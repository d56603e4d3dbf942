"""The honesty of the claimed error bound: wrong plans over tiny primes, where false proofs occur.

It writes ``docs/bound.md``. Run ``python bench/bound.py [--seeds N]`` in a clone, with the test
extra installed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from prove.bound_cases import CASES, TABLES, WEIGHTS, Measured, measure  # noqa: E402

HEAD = """# The error bound, measured

This page holds the printed error bound against measured errors. Two unequal formulas are proven
equal over primes so small that this happens. *Bound* is the largest probability of being wrong that
such a proof claims. *Rate* says how often the proof is wrong, over {seeds} seeds. By chance a rate
may be above its bound, by at most three standard deviations (next column). *Accepted*: nothing was
called proven, so nothing was claimed; the number is the probability that a proof could have
claimed. `h`: a bound that is called heuristic. Cases of *tables* have [functions as
tables](mathematics.md), those of *weights* a weight for each place; their bounds are theorems.

`python bench/bound.py --seeds {seeds}` writes this page. `tests/prove/test_bound.py` holds the same
cases to their bounds.

| case | primes | bound | rate | deviation | rate / bound |  |
|---|---|---|---|---|---|---|
"""

WIDTH = 40
END = """
## The same as a figure

A full bar is the bound; its dark part is the rate.

```text
{bars}
```
"""


def row(measured: Measured) -> str:
    """Return one line of the table."""
    case = measured.case
    claim = f"{measured.bound:.4f}" if measured.proven else f"{case.accepted} accepted"
    ratio = f"{measured.rate / measured.bound:.2f}"
    said = "h" if measured.heuristic else ""
    primes = (
        f"{case.primes[0]} .. {case.primes[-1]}" if case.pool else ", ".join(map(str, case.primes))
    )
    return (
        f"| {case.name} | {primes} | {claim} | {measured.rate:.4f} | "
        f"{measured.sigma:.4f} | {ratio} | {said} |"
    )


def bar(measured: Measured, longest: int) -> str:
    """Return one line of the figure."""
    full = round(WIDTH * min(1.0, measured.rate / measured.bound))
    return f"{measured.case.name:{longest}s} {'█' * full}{'░' * (WIDTH - full)}"


def main() -> None:
    """Measure all cases, print them, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3000)
    seeds = parser.parse_args().seeds
    results = []
    for case in (*CASES, *TABLES, *WEIGHTS):
        results.append(measure(case, seeds))
        print(row(results[-1]), flush=True)
    longest = max(len(case.name) for case in (*CASES, *TABLES, *WEIGHTS))
    table = "\n".join(map(row, results))
    bars = "\n".join(bar(m, longest) for m in results)
    (ROOT / "docs" / "bound.md").write_text(
        HEAD.format(seeds=seeds) + table + "\n" + END.format(bars=bars), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
