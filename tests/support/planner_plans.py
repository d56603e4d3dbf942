"""Execution plans that a real planner wrote, and what must come out of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.frontends.nnscaler import read_nnscaler
from pitcheck.plan.model import Plan
from pitcheck.report.report import Finding, Report

SHIPPED = Path(__file__).parent.parent / "data" / "nnscaler"
FURTHER = Path(__file__).parents[3] / "shared" / "nnscaler"
"""More and larger plans of the same kind, beside the repository; not everybody has them."""

MLP = "pairs/mlp-L4-gbs128.reference.pkl"
LLAMA = "pairs/llama-L2-gbs32.reference.pkl"
LARGE = ("L32", "L64")
SLOW_OF_PLANNER = frozenset(
    {"m08_weight_wrong_slice", "n30_weight_slice_off_by_one_rank0", "p01_div_scale"}
)
"""Plans of which every explanation takes some seconds."""


@dataclass(frozen=True)
class Row:
    """One entry of the manifest; ``folder`` is where its files are, None where they are
    not here.
    """

    folder: Path | None
    reference: str
    parallel: str
    right: bool

    @property
    def name(self) -> str:
        """A short name."""
        return Path(self.parallel).stem

    @property
    def large(self) -> bool:
        """True if a check of it takes seconds."""
        return any(mark in self.parallel for mark in LARGE)


FURTHER_ROWS = (
    Row(
        FURTHER,
        "pairs/mlp-L64-gbs128.reference.pkl",
        "pairs/mlp-L64-gbs128.dp2-pp2-tp2-mb2.megatron.pkl",
        True,
    ),
    Row(
        FURTHER,
        "pairs/llama-L32-gbs32.reference.pkl",
        "pairs/llama-L32-gbs32.dp2-pp2-tp2-mb2.pkl",
        True,
    ),
    Row(FURTHER, LLAMA, "mutants/p00_none.pkl", True),
    Row(FURTHER, LLAMA, "mutants/p03_softmax_dim.pkl", False),
    Row(FURTHER, "pairs/mlp-L8-d64.reference.pkl", "pairs/mlp-L8-d64.pp4-tp2-mb2.pkl", True),
    Row(
        FURTHER,
        "pairs/mlp-L8-d64.reference.pkl",
        "pairs/mlp-L8-d64.dp2-pp2-tp4-mb2.hybrid.pkl",
        False,
    ),
    Row(FURTHER, "pairs/ffn-L2.reference.pkl", "pairs/ffn-L2.pp2-mb2.pkl", True),
    Row(
        FURTHER,
        "pairs/llama-shapes.reference.pkl",
        "pairs/llama-shapes.dp2-pp2-tp2-mb2.hybrid.pkl",
        True,
    ),
    Row(FURTHER, MLP, "mutants/s1_class_and_signature_disagree.pkl", False),
)


CONTRADICTIONS = {
    "m01_drop_fw_allreduce": "IdentityAllreducePrim carries the signature 'nn.allreduce_allreduce'",
    "p05_ffn_allreduce_dropped": "IdentityAllreducePrim carries the signature "
    "'nn.allreduce_identity'",
    "s1_class_and_signature_disagree": "AllReduceAllReducePrim carries the signature "
    "'nn.identity_allreduce'",
}
"""Wrong plans that say two things of one primitive, and are refused when they are read; and what is
said then.
"""


@cache
def rows() -> tuple[Row, ...]:
    """Every entry that can be read: those that ship, then those beside the repository, which may be
    absent.
    """
    return tuple(row for row in all_rows() if row.name not in CONTRADICTIONS)


@cache
def all_rows() -> tuple[Row, ...]:
    """Every entry, with those that contradict themselves."""
    return (*_of_folder(SHIPPED), *_elsewhere())


def _of_folder(folder: Path) -> tuple[Row, ...]:
    entries = json.loads((folder / "manifest.json").read_text())
    return tuple(
        Row(folder, entry["reference"], entry["parallel"], entry["expect"] == "equivalent")
        for entry in entries
    )


def _elsewhere() -> tuple[Row, ...]:
    if not (FURTHER / "manifest.json").exists():
        return tuple(Row(None, row.reference, row.parallel, row.right) for row in FURTHER_ROWS)
    shipped = {row.parallel for row in _of_folder(SHIPPED)}
    return tuple(row for row in _of_folder(FURTHER) if row.parallel not in shipped)


def row_of(name: str) -> Row:
    """The entry whose parallel plan has this short name."""
    return next(row for row in rows() if row.name == name)


@cache
def read(folder: Path, name: str) -> Plan:
    """A plan, read once."""
    return read_nnscaler(folder / name)


def plans(row: Row) -> tuple[Plan, Plan]:
    """(reference, parallel). Large ones are not kept."""
    assert row.folder is not None
    reader = read.__wrapped__ if row.large else read
    return reader(row.folder, row.reference), reader(row.folder, row.parallel)


def run(
    reference: Plan,
    parallel: Plan,
    seed: int = 1,
    shapes: str = "reduced",
    coordinates: str = "reduced",
) -> Report:
    """A check that writes no witness."""
    return check(reference, parallel, Options(seed=seed, shapes=shapes, coordinates=coordinates))


def said(report: Report) -> str:
    """The verdict and the first findings."""
    return f"{report.verdict}: " + "; ".join(
        f"{f.code} {f.title} ({f.operator})" for f in report.findings[:4]
    )


def text_of(finding: Finding) -> str:
    """All that a finding says."""
    return " | ".join(
        str(part)
        for part in (finding.title, finding.output, finding.operator, finding.cause, finding.repair)
        if part
    )
