"""A row of ``docs/frameworks.md``, and the meshes that rows have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """A program at one mesh with some options, and the mistakes that are planted into it.

    ``framework``: the name of its distribution. ``program``: the module in
    ``programs/frameworks``, whose function ``spec`` takes the mesh, a mistake and the ``options``.
    ``reason``: a property of the program that keeps its verdict from being equivalent.
    ``counted``: the file and the functions whose lines are counted, by default ``spec`` of the
    program.
    """

    framework: str
    feature: str
    program: str
    mesh: Mapping[str, int]
    mistakes: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    counted: str = ""

    @property
    def at(self) -> str:
        """The mesh as the page has it."""
        return ", ".join(f"{axis}={size}" for axis, size in self.mesh.items())


DP2, DP3, DP4, TP2, TP4, PP2, PP4 = (
    {"dp": 2},
    {"dp": 3},
    {"dp": 4},
    {"tp": 2},
    {"tp": 4},
    {"pp": 2},
    {"pp": 4},
)
CP2 = {"cp": 2}
EP2 = {"ep": 2}
"""Experts over data parallel ranks."""
BOTH = {"rep": 2, "dp": 2}
"""Replicas of sharded parameters."""
RATE = "another learning rate on one rank"
