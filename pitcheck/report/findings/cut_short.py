"""The finding of a check that ended before its verdict.

>>> work = Work(doing="prove all outputs")
>>> cut_short(work, "30 s are over").title
'30 s are over, and no verdict was reached; at work: prove all outputs'
"""

from __future__ import annotations

from pitcheck.base.work import Work
from pitcheck.report.report import Finding


def cut_short(work: Work, why: str, proven: int = 0) -> Finding:
    """Return the finding that names what was at work when a check ended, since ``why``.

    ``proven`` is the number of distinct stages that were proven by then.
    """
    step = f" (to {work.doing})" if work.stage and work.doing else ""
    counted = f"; {proven} distinct stages are proven so far" if proven else ""
    return Finding(
        code="PIT203",
        verdict="inconclusive",
        title=f"{why}, and no verdict was reached; at work: {work.place()}{step}{counted}",
        output=None,
        operator=(work.operator or None) if work.stage else None,
        source=(work.source or None) if work.stage else None,
        repair="give --seconds more time, or --jobs more processes; finished proofs are kept and "
        "not made again, unless --no-cache was given",
    )
