"""Options of a layout where they change nothing.

These cut over an axis of one rank, or are about buffers of gradients without ZeRO 1 or 2.
Frameworks accept them, so that one file serves a grid of sizes. The layout that is built is the one
without them, and a note for the report names each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from pitcheck.programs.layout import Layout

BUCKETED = (1, 2)
"""The stages of ZeRO that gather gradients in flat buffers."""


@dataclass(frozen=True)
class Effective:
    """The layout that is built, and a sentence for every option that it leaves out."""

    layout: Layout
    notes: tuple[str, ...]


def without_idle_options(layout: Layout) -> Effective:
    """Return a layout that was checked, without the options that change nothing in it."""
    defaults = Layout()
    changes: dict[str, Any] = {}
    notes = []
    for field, axis, work in (
        ("zero", "dp", "ZeRO shards over dp"),
        ("flat_buckets", "dp", "flat buckets are cut over dp"),
        ("sequence_parallel", "tp", "sequence parallelism cuts the sequence over tp"),
        ("zigzag", "cp", "zig-zag order spreads a sequence over cp"),
        ("context", "cp", "context parallelism spreads a sequence over cp"),
    ):
        given, default = getattr(layout, field), getattr(defaults, field)
        if getattr(layout, axis) > 1 or not given or given == default:
            continue
        changes[field] = default
        notes.append(
            f"layout.{field} = {_written(given)} has no effect: {work}, which is 1; the plan is "
            f"the one without it"
        )
    zero = changes.get("zero", layout.zero)
    if layout.bucket != defaults.bucket and zero not in BUCKETED:
        changes["bucket"] = defaults.bucket
        notes.append(
            f"layout.bucket = {layout.bucket} has no effect: it is about zero 1 and 2, and zero is "
            f"{zero}; the plan is the one without it"
        )
    return Effective(replace(layout, **changes) if changes else layout, tuple(notes))


def _written(value: object) -> str:
    """Return a value as a configuration writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
