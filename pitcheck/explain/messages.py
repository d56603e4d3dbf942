"""From diagnoses to text: the only place where facts become words."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.report.codes import find
from pitcheck.report.report import TriedRepair

MOST_PLACES = 12
"""Places of one mistake that are listed; of more only the number is said."""


def said(diagnosis: Diagnosis) -> str:
    """Return the cause as text."""
    return diagnosis.kind.said.format(**diagnosis.facts)


def repair(diagnosis: Diagnosis) -> str:
    """Return the repair as text; "" if none is known."""
    return diagnosis.kind.repair.format(**diagnosis.facts)


def places(others: Sequence[tuple[str, str]]) -> str:
    """Return the further places of one mistake as text: operator and tensor of each."""
    if not others:
        return ""
    named = ", ".join(
        f"{operator!r} ({tensor!r})" if operator else repr(tensor)
        for operator, tensor in others[:MOST_PLACES]
    )
    more = len(others) - MOST_PLACES
    return f"; the same mistake is made at {named}{f' and {more} more' if more > 0 else ''}"


def tried(effect: TriedRepair, *, mended: bool, everything: int) -> str:
    """Return as text which outputs a repair makes right.

    "every output" is said only if every output was computed anew and compared.
    """
    some = _some(effect.right)
    if mended and not effect.wrong:
        right = (
            f"every output {'' if effect.compared == everything else 'that differs '}is right then"
        )
    else:
        right = f"{some} right then" + (f", {_some(effect.wrong)} not" if effect.wrong else "")
    return f"(tried{', all repairs together' if effect.together else ''}: {right})"


def _some(names: Sequence[str]) -> str:
    return f"{names[0]!r} is" if len(names) == 1 else f"{names[0]!r} and {len(names) - 1} more are"


def spell(box: Sequence[Sequence[tuple[int, int]]]) -> str:
    """Return a box as text, e.g. ``[0:2, 4:8]``."""
    return "[" + ", ".join("+".join(f"{a}:{b}" for a, b in intervals) for intervals in box) + "]"


def title(code: str, output: str, result: str) -> str:
    """Return the title of a finding, of the tensor ``result`` or of the output that differs."""
    return find(code).of_finding.format(output=output, result=result)
