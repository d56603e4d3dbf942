"""Models of ``transformers`` at toy size, each checked under DistributedDataParallel and FSDP2.

``python bench/model_zoo.py --results FILE`` goes over every class with a language, image or audio
head. A class that trains a step in plain PyTorch is checked in a process of its own, and a line of
JSON is added to FILE. With ``--resume`` classes that FILE has are left out. ``--table PAGE`` writes
the page of FILE. It needs the extra ``transformers``.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from toys.children import answered, checked  # noqa: E402
from toys.classes import Entry, entries  # noqa: E402
from toys.plain import plain_step  # noqa: E402
from toys.programs import MISTAKES, WRAPPERS  # noqa: E402
from toys.results import Row, appended, rows  # noqa: E402
from toys.table import page  # noqa: E402

SPECS = ROOT / "bench" / "model_zoo_spec.py"


def main() -> None:
    """Check what the command line asks for, and write the page if it asks for one."""
    options = parsed()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    known = {each.key: each for each in rows(options.results)}
    if not options.write_only:
        for entry in list(chosen(options))[: options.limit]:
            plain = known.get((entry.name, "plain", ""))
            if plain is None or plain.verdict != "trains" or not options.resume:
                plain = plainly(entry, options.seconds)
                appended(options.results, plain)
                print(plain.line(), flush=True)
            key = (entry.name, options.wrapper, options.wrong or "")
            if plain.verdict != "trains" or (options.resume and key in known):
                continue
            row = check(plain, options)
            appended(options.results, row)
            print(row.line(), flush=True)
    if options.table:
        Path(options.table).write_text(page(rows(options.results)))


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", required=True, type=Path, help="the file of JSON lines")
    parser.add_argument(
        "--only", nargs="*", default=[], help="names of classes, or parts of these or of heads"
    )
    parser.add_argument("--shuffle", type=int, help="a seed of another order than the library's")
    parser.add_argument("--limit", type=int, help="at most so many classes")
    parser.add_argument("--wrapper", choices=(*WRAPPERS, "plain"), default="ddp")
    parser.add_argument("--wrong", choices=MISTAKES, help="plant a mistake; needs ddp")
    parser.add_argument("--resume", action="store_true", help="leave out what FILE has")
    parser.add_argument("--seconds", type=int, default=120, help="of wall time for each check")
    parser.add_argument("--table", help="the page to write")
    parser.add_argument("--write-only", action="store_true", help="check nothing")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> Iterable[Entry]:
    """Yield the classes whose names or heads have a part that is asked for, or all."""
    every = list(entries())
    whole = {entry.name for entry in every}.intersection(options.only)
    if options.shuffle is not None:
        Random(options.shuffle).shuffle(every)
    for entry in every:
        named = f"{entry.name} {entry.head}"
        parts = [part for part in options.only if part not in whole and part in named]
        if not options.only or parts or entry.name in whole:
            yield entry


def plainly(entry: Entry, seconds: int) -> Row:
    """Train a step of a class in plain PyTorch, in a process of its own."""
    done = answered(lambda: plain_step(entry.name, entry.head).told(), seconds)
    told = done.answer or {"problem": f"no step within {seconds} s"}
    return Row(
        name=entry.name,
        head=entry.head,
        wrapper="plain",
        verdict="fails" if told["problem"] else "trains",
        reason=told["problem"],
        unused=tuple(told.get("unused", ())),
        differs=tuple(told.get("differs", ())),
        because=told.get("because", ""),
        seconds=round(done.seconds, 1),
    )


def check(plain: Row, options: argparse.Namespace) -> Row:
    """Check a class under a wrapper, in a process of its own."""
    if options.wrapper == "plain":
        return plain
    words = [plain.name, options.wrapper, options.wrong, "unused" if plain.unused else None]
    target = f"{SPECS}:{'__'.join(word for word in words if word)}"
    return checked(plain, target, options.wrapper, options.wrong or "", options.seconds)


if __name__ == "__main__":
    main()
