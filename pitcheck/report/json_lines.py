"""The report as JSON lines (``docs/report-format.md``): one per finding, and the verdict last.

Lines of several checks may be joined: each says which plans it is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pitcheck.report.json import on_one_line
from pitcheck.report.report import Report


def encode(report: Report, plans: Sequence[str] = ()) -> bytes:
    """Return the report's lines: equal reports give equal bytes.

    ``plans``: the checked files, the reference first.
    """
    fields = msgspec.structs.asdict(report)
    findings = fields.pop("findings")
    lines = [_line("finding", plans, msgspec.structs.asdict(each)) for each in findings]
    lines.append(_line("verdict", plans, {**fields, "finding_count": len(findings)}))
    return b"".join(lines)


def _line(type_: str, plans: Sequence[str], fields: Mapping[str, Any]) -> bytes:
    return on_one_line({"type": type_, "plans": plans, **fields}) + b"\n"
