"""The findings of draws by which a rank cannot have the masks of its elements."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.refute.placed_draws import Misuse
from pitcheck.report.report import Finding


def misused(misuses: Sequence[Misuse]) -> list[Finding]:
    """Return one finding for every line that draws, and for what is wrong there."""
    found: dict[tuple[str, bool, bool], list[Misuse]] = {}
    for each in misuses:
        found.setdefault((each.drawn.source, each.same, _is_again(each)), []).append(each)
    return [_finding(several) for several in found.values()]


def _is_again(misuse: Misuse) -> bool:
    return misuse.drawn.code == misuse.before.code


def _finding(misuses: Sequence[Misuse]) -> Finding:
    """Return the finding of some draws of one line."""
    first = misuses[0]
    now, before = first.drawn, first.before
    where = f"dropout at {now.source}" if now.source else "dropout"
    there = f" at {before.source}" if before.source != now.source else ""
    if first.same:
        title = f"{where} draws the same numbers for different elements"
        cause = (
            f"rank {now.rank} draws {first.part} of the reference's mask from the state of the "
            f"generator from which rank {before.rank} draws another part{there}"
        )
        repair = (
            "seed ranks that hold different elements differently, or say in Spec.dropout along "
            "which axes they may draw alike"
        )
    elif _is_again(first):
        title = f"{where} draws another mask for the same elements"
        cause = (
            f"rank {now.rank} draws the mask {first.part} a second time, from another state of the "
            f"generator than{there or ' before'}"
        )
        repair = "keep the mask, or restore the state of the generator where it is drawn again"
    else:
        title = f"{where} draws other numbers on ranks that hold the same elements"
        cause = (
            f"rank {now.rank} and rank {before.rank} both hold {first.part} of what is dropped, "
            f"and draw from different states of their generators"
        )
        repair = "draw from one state on all ranks that hold the same elements"
    return Finding(
        code="PIT114",
        verdict="mismatch",
        title=title,
        source=now.source or None,
        ranks=tuple(sorted({each.drawn.rank for each in misuses})),
        cause=cause,
        repair=repair,
    )
