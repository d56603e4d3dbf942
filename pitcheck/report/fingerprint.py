"""The identity of a finding, the same in SARIF and in baselines (``docs/ci.md``).

It is made of what is wrong and where. What a seed, a rerun, the array library or an edit elsewhere
in the file changes has no part in it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from pitcheck.report.coordinate_names import as_box
from pitcheck.report.report import Finding, Report
from pitcheck.report.sources import source_line

NAME = "pitcheckFault/v2"
"""The name of this definition; another definition has another one."""

_AT_LINE = re.compile(r"(\bat [^\s():]+\.\w+):[1-9][0-9]{0,8}\b")
"""A source line inside a sentence, such as ``at model.py:8``."""


def fingerprints(report: Report) -> list[str]:
    """Return a fingerprint for every finding, in their order.

    Equal ones are numbered, so that one finding more is one fingerprint more.
    """
    seen: Counter[str] = Counter()
    found = []
    for finding in report.findings:
        fault = fingerprint(finding, report.mesh, report.microbatches)
        seen[fault] += 1
        found.append(f"{fault}:{seen[fault]}")
    return found


def fingerprint(finding: Finding, mesh: Mapping[str, int], microbatches: int) -> str:
    """Return 128 bits in hexadecimal of the code, title, cause, place and coordinates of a finding.

    ``mesh`` maps axes to sizes; an axis all of whose ranks are concerned counts without its size.
    Left out are lines, the element and both values, the repair, the stage and the witness. A broken
    precision rule is the same fault under ``--precision warn`` and ``error``.
    """
    place = source_line(finding.source)
    known = [
        finding.code,
        "warning" if finding.verdict == "imprecise" else finding.verdict,
        _without_lines(finding.title),
        _without_lines(finding.cause),
        finding.operator,
        finding.source if place is None else place.file,
        finding.output,
        _ranks(finding.ranks, mesh),
        _every(finding.microbatches, microbatches),
    ]
    return hashlib.sha256(json.dumps(known).encode("ascii")).hexdigest()[:32]


def _without_lines(text: str | None) -> str | None:
    return text and _AT_LINE.sub(r"\1", text)


def _ranks(ranks: Sequence[int], mesh: Mapping[str, int]) -> object:
    """Return the places along every axis, or ranks that are no product of such with their mesh."""
    wanted = sorted(set(ranks))
    box = as_box(wanted, mesh) if wanted else None
    if box is None:
        return [wanted, list(mesh.items()) if wanted else []]
    return {axis: _every(box[axis], mesh[axis]) for axis in sorted(box) if mesh[axis] > 1}


def _every(numbers: Sequence[int], size: int) -> object:
    """Return distinct numbers below ``size`` in order, and "every" in place of all of them."""
    wanted = sorted(set(numbers))
    return "every" if wanted and wanted == list(range(size)) else wanted
