"""A hunt for faults in XLA's partitioner, and in the check of it, with random programs.

``python bench/xla_hunt.py [--seed S] [--count N] [--jobs J] [--seconds T] [--out FILE] [--run-only]
[--minimize] [--keyed] [--show SEED]`` makes N programs from seeds, of operators that the
partitioner treats specially, with random meshes and shardings. Each runs on 8 devices of the
processor and on one, which is the judge. pitcheck checks the texts before and after the
partitioner, T seconds at most for each. ``--run-only`` leaves the checks out. FILE gets a line of
JSON for each program; called again, only seeds that it lacks are tried. ``--minimize`` makes
programs on which XLA disagrees with itself, or that abort it, small, and prints them. With
``--keyed`` the programs take random numbers from keys. It needs JAX.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hunt.generating import program_of
from hunt.judging import ABORTED, BAD, FAULTS
from hunt.processes import Worker
from hunt.programs import Program
from hunt.scripts import script_of
from hunt.shrinking import shrunk

Record = dict[str, Any]
NOTED = frozenset({*FAULTS, *BAD, ABORTED})


def hunted(programs: Sequence[Program], seconds: float, *, checked: bool) -> Iterator[Record]:
    """Yield the record of each program."""
    with Worker(seconds, checked=checked) as worker:
        for program in programs:
            start = time.perf_counter()
            record = worker.tried(program)
            yield {
                "seed": program.seed,
                **record,
                "operators": program.operators,
                "gradient": program.gradient,
                "shardy": program.shardy,
                "seconds": round(time.perf_counter() - start, 2),
            }


def collect(
    programs: Sequence[Program], jobs: int, seconds: float, out: Path, *, checked: bool
) -> None:
    """Try programs in several processes, and add a line for each to a file."""
    parts = [programs[number::jobs] for number in range(jobs)]
    with out.open("a", encoding="utf-8") as file, ThreadPoolExecutor(jobs) as pool:

        def one(part: Sequence[Program]) -> None:
            for record in hunted(part, seconds, checked=checked):
                file.write(json.dumps(record) + "\n")
                file.flush()
                if record["class"] in NOTED:
                    print(_line(record), flush=True)

        list(pool.map(one, parts))


def _line(record: Record) -> str:
    words = (record["class"], f"seed {record['seed']}", ", ".join(record["operators"]))
    more = [str(record.get(key, "")) for key in ("difference", "executor", "reason")]
    return ": ".join([*words, *filter(None, more)])[:400]


def table(records: Sequence[Record]) -> Iterator[str]:
    """Yield the counts of classes, of reasons, and of classes by operator."""
    classes = Counter(record["class"] for record in records)
    yield f"{len(records)} programs, {sum(r['seconds'] for r in records):.0f} s"
    for name, count in classes.most_common():
        yield f"  {count:6} {name}"
    reasons = Counter(
        f"{r['class']}, {r.get('verdict', '')}: {r.get('short') or r['reason'][:100]}"
        for r in records
        if r.get("reason")
    )
    yield "reasons"
    for reason, count in reasons.most_common(40):
        yield f"  {count:6} {reason}"
    yield "operators: programs, of them proven, faults of XLA, aborts"
    for operator in sorted({each for r in records for each in r["operators"]}):
        own = [r for r in records if operator in r["operators"]]
        proven = sum(r.get("verdict") == "equivalent" for r in own)
        faults = sum(r["class"] in FAULTS for r in own)
        aborts = sum(r["class"] == ABORTED for r in own)
        yield f"  {operator:24} {len(own):5} {proven:5} {faults:4} {aborts:4}"


def records_in(file: Path) -> list[Record]:
    """Return the records of a file, if there is one."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    """Hunt, and print what was found; return 1 if a class is a fault of pitcheck."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=Path("xla_hunt.jsonl"))
    parser.add_argument("--run-only", action="store_true")
    parser.add_argument("--minimize", action="store_true")
    parser.add_argument("--keyed", action="store_true")
    parser.add_argument("--show", type=int, metavar="SEED")
    options = parser.parse_args()
    if options.show is not None:
        print(script_of(program_of(options.show, keyed=options.keyed)))
        return 0
    seeds = range(options.seed, options.seed + options.count)
    done = {record["seed"] for record in records_in(options.out)}
    missing = [program_of(seed, keyed=options.keyed) for seed in seeds if seed not in done]
    checked = not options.run_only
    collect(missing, options.jobs, options.seconds, options.out, checked=checked)
    found = [record for record in records_in(options.out) if record["seed"] in seeds]
    print("\n".join(table(found)))
    if options.minimize:
        for record in found:
            if record["class"] in {*FAULTS, ABORTED}:
                print(f"# seed {record['seed']}: {record['class']}: {record['reason']}")
                print(
                    script_of(shrunk(program_of(record["seed"], keyed=options.keyed))), flush=True
                )
    return 1 if any(record["class"] in BAD for record in found) else 0


if __name__ == "__main__":
    sys.exit(main())
