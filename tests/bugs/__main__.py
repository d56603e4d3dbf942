"""Print the findings of today's check on the known bugs.

``PYTHONPATH=.:tests python -m bugs [--full] [--write] [--page] [NAME ...]``

``--full``: print each report in full. ``--write``: write first findings that differ from those in
the records to ``today.json``; tests compare the check with that file. ``--page``: check nothing,
and write the table of ``docs/bugs.md``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from time import process_time

from bugs.record import Setting
from bugs.table import BUGS, PAGE, TODAY, first_of, is_named, named_today, page, said

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.report.report import Report
from pitcheck.report.text import render

OPTIONS = ("--full", "--write", "--page")


def main(arguments: Sequence[str]) -> None:
    """One line per bug and configuration: whether an output changes, the verdict, the first
    finding.
    """
    names = [name for name in arguments if not name.startswith("--")]
    unknown = [given for given in arguments if given not in BUGS and given not in OPTIONS]
    if unknown:
        sys.exit(
            f"no such bug or option: {', '.join(unknown)}; options are {', '.join(OPTIONS)}, bugs "
            f"those of tests/bugs"
        )
    today = {bug: dict(codes) for bug, codes in named_today().items()}
    for name in names or BUGS:
        bug = BUGS[name]
        today.pop(name, None)
        for where, setting in bug.shows.items():
            report = _tried(f"{name}: {where}", setting, full="--full" in arguments)
            first = first_of(report)
            right = first is not None and is_named(bug, first)
            print(
                f"    {'right' if right else 'wanted ' + ' or '.join(bug.codes)}: "
                f"{said(first) if first else 'nothing'}",
                flush=True,
            )
            if first is not None and not right:
                today.setdefault(name, {})[where] = first.code
        for where, setting in bug.silent.items():
            report = _tried(f"{name}: silent, {where}", setting, full="--full" in arguments)
            if report.verdict != "equivalent":
                print(
                    f"    WRONG ALARM: {[said(finding) for finding in report.findings[:3]]}",
                    flush=True,
                )
    print(
        f"the cause is named first of {len(BUGS) - len(today)} of {len(BUGS)} bugs, wherever they "
        f"show"
    )
    if "--write" in arguments:
        TODAY.write_text(json.dumps(today, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _tried(title: str, setting: Setting, full: bool) -> Report:
    begun = process_time()
    changes, judged = setting.changes(), process_time()
    pair = setting.wrong()
    report = check(*pair, Options(seed=1))
    same = " (the code builds the right program)" if pair == setting.right() else ""
    took = f"{judged - begun:.1f} + {process_time() - judged:.1f} s"
    print(
        f"{title}: {'changes an output' if changes else 'changes nothing'}, "
        f"{report.verdict}{same}, {took}",
        flush=True,
    )
    if full:
        print("\n".join(line.text for line in render(report)))
    return report


if __name__ == "__main__":
    if "--page" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        main(sys.argv[1:])
