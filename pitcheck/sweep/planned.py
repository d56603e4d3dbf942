"""A configuration that a sweep checks.

It stands by itself, since each process of a sweep reads one, and few read the file of a sweep.

>>> Planned(name="tiny tp=2", sources=("tiny.toml",), row="tiny", column="tp=2").expect
'equivalent'
"""

from __future__ import annotations

import msgspec

from pitcheck.report.report import Verdict


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that a sweep checks.

    ``name`` tells it from all others of the sweep. ``sources`` are the arguments of the check,
    ``assignments`` change a configuration file, and ``options`` are those of the check. With
    ``probe`` a fault is planted in the parallel plan. ``impossible`` is the rule by which it cannot
    run, "" if it can. ``row`` and ``column`` are its place in a table: a model, and a mesh.
    """

    name: str
    sources: tuple[str, ...]
    assignments: tuple[str, ...] = ()
    options: dict[str, str] = {}
    expect: Verdict = "equivalent"
    probe: bool = False
    impossible: str = ""
    row: str
    column: str
