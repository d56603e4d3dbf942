"""Whole checks over any array module: what is reported, byte for byte, with its witnesses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Plan
from pitcheck.programs.configuration import read_configuration
from pitcheck.report.report import VOLATILE, Report

PLANS = Path(__file__).parents[2] / "plans"
SEED = 1
SMALL = "layers=1 pp=1 tp=1 sequence_parallel=false dp=2 sequences=4 length=4"
"""The settings of a small check, of one layer over two ranks."""
Pair = tuple[Plan, Plan]


def shipped(name: str, settings: str = "") -> Pair:
    """Return both plans of a configuration that is shipped."""
    configuration = read_configuration(PLANS / f"{name}.toml", settings.split())
    return configuration.reference(), configuration.parallel()


def spoilt() -> Pair:
    """Return a small Llama with a minimum for a sum of gradients."""
    reference, parallel = shipped("llama3-tiny", SMALL)
    wrong = {"attributes": {"reduction": "min"}}
    operators = (
        replace(o, **wrong) if o.id == "grad:norm.weight" else o for o in parallel.operators
    )
    return reference, replace(parallel, operators=tuple(operators))


def reported(pair: Pair, backend: str, folder: Path, **options: Any) -> dict[str, bytes]:
    """Return what a check reports, as ``written`` says; ``folder`` is emptied."""
    given = Options(seed=SEED, backend=backend, jobs=1, witness_directory=folder, **options)
    return written(check(*pair, given), folder)


def written(report: Report, folder: Path) -> dict[str, bytes]:
    """Return a report as JSON, and its witnesses by their names.

    Times, memory and the name of the array module are left out. ``folder`` is emptied.
    """
    items = msgspec.structs.asdict(report).items()
    facts = {name: value for name, value in items if name not in VOLATILE}
    found = {"report": msgspec.json.encode(facts)}
    for file in sorted(folder.iterdir()):
        found[file.name] = file.read_bytes()
        file.unlink()
    return found
