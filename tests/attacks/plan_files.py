"""Attacks that are plan files: folders with plans and the verdicts that are right.

CONTRIBUTING.md describes the form. ``data/<class>/<attack>/`` has ``expected.toml`` and the plans
that it names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from pitcheck.plan.files import JSON_SUFFIX, read_plan
from pitcheck.plan.model import Plan, Tensor

DATA = Path(__file__).parent / "data"
EXPECTED = "expected.toml"
COUNTING = "counting"
Verdict = Literal[
    "equivalent", "estimate", "mismatch", "invalid", "inconclusive", "nothing-checked"
]


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The entry of one parallel plan in ``expected.toml``.

    ``verdict`` is one verdict, or a list if more than one is right. ``estimate`` is that of a wrong
    plan of which no draw shows the difference: its bound is called an estimate if it is not
    refused. ``reason`` says in words why it is right. ``codes`` are the codes that the findings
    must begin with, in order. ``reference`` names the reference's file. ``point`` has values of the
    reference's inputs, at full size, for which both sides differ. ``executor`` says why the
    independent executor judges otherwise.
    ``seed`` is that of the check.
    """

    verdict: Verdict | list[Verdict]
    reason: str
    codes: tuple[str, ...] = ()
    reference: str = "reference"
    point: dict[str, Any] = {}
    executor: str = ""
    seed: int = 1

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts that are right; equivalent stands alone."""
        return self.verdict if isinstance(self.verdict, list) else [self.verdict]


class Attack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``expected.toml``: a sentence on what is attacked, and every parallel plan.

    ``full``: both plans are checked at full shapes and coordinates, too.
    """

    attack: str
    plans: dict[str, Expected]
    full: bool = False


@dataclass(frozen=True)
class Pair:
    """A parallel plan of an attack, with its reference and what is expected."""

    folder: Path
    name: str
    expected: Expected
    full: bool

    @property
    def id(self) -> str:
        """The path of the parallel plan below ``data``, without its suffix."""
        return f"{self.folder.relative_to(DATA)}/{self.name}"

    @property
    def files(self) -> tuple[Path, Path]:
        """The reference's file, and that of the parallel plan."""
        return file_of(self.folder, self.expected.reference), file_of(self.folder, self.name)

    def plans(self) -> tuple[Plan, Plan]:
        """Return both plans. Raises PlanError for a file that is no plan."""
        reference, parallel = self.files
        return read_plan(reference), read_plan(parallel)


def file_of(folder: Path, name: str) -> Path:
    """Return the file of a plan that ``expected.toml`` names."""
    return folder / f"{name}{JSON_SUFFIX}"


def folders() -> Iterator[Path]:
    """Yield every folder with an ``expected.toml``, in the order of their paths."""
    for file in sorted(DATA.rglob(EXPECTED)):
        yield file.parent


def read_attack(folder: Path) -> Attack:
    """Return what a folder expects. Raises msgspec.ValidationError for a field that is unknown."""
    return msgspec.toml.decode((folder / EXPECTED).read_bytes(), type=Attack)


def pairs() -> Iterator[Pair]:
    """Yield every parallel plan of every folder."""
    for folder in folders():
        attack = read_attack(folder)
        for name, expected in attack.plans.items():
            yield Pair(folder, name, expected, attack.full)


def values_at(reference: Plan, point: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the values of a point, each of its tensor's shape.

    "counting" puts 1, 2, 3, ... into the tensor row by row. A number or nested lists are broadcast
    to its shape. Raises KeyError for a tensor that the reference lacks.
    """
    tensors = {tensor.name: tensor for tensor in reference.tensors}
    return {name: _value(tensors[name], given) for name, given in point.items()}


def _value(tensor: Tensor, given: Any) -> np.ndarray[Any, Any]:
    if given == COUNTING:
        value = np.arange(1, int(np.prod(tensor.shape)) + 1).reshape(tensor.shape)
    else:
        value = np.broadcast_to(given, tensor.shape)
    return value.astype(_dtype(tensor))


def _dtype(tensor: Tensor) -> str:
    if tensor.dtype == "bool":
        return "bool"
    return "int64" if tensor.dtype.startswith(("int", "uint")) else "float64"
