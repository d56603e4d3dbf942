"""The mesh as a table in which the ranks of findings are marked.

A small mesh has a cell for every rank. Of a larger one every axis is a row with the coordinates
that occur among these ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from pitcheck.base.runs import runs, spell_numbers
from pitcheck.report.coordinate_names import describe_ranks
from pitcheck.report.report import Report

MOST_CELLS = 256
MOST_COLUMNS = 16
"""The most ranks, and the most of them in one row, up to which every rank has a cell."""


class Cell(NamedTuple):
    """One rank, and the numbers of the findings that concern it, from 1."""

    rank: int
    findings: tuple[int, ...]


class Row(NamedTuple):
    """The ranks that differ in the last axis alone; ``label`` has their other coordinates."""

    label: str
    cells: tuple[Cell, ...]


class AxisRow(NamedTuple):
    """One axis of a large mesh.

    ``spelled`` has the coordinates of marked ranks, ``runs`` the first of every run of them and how
    many it has.
    """

    axis: str
    size: int
    spelled: str
    runs: tuple[tuple[int, int], ...]


class MeshPicture(NamedTuple):
    """The mesh, as ``rows`` of ranks below ``columns``, or as ``axes``.

    ``marked``: the findings that concern ranks in particular, each with these in words.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    axes: tuple[AxisRow, ...]
    marked: tuple[tuple[int, str], ...]


def mesh_picture(report: Report) -> MeshPicture:
    """Return the picture of the report's mesh; that of one device has one rank."""
    of_finding = {
        number: finding.ranks for number, finding in enumerate(report.findings, 1) if finding.ranks
    }
    mesh = {axis: size for axis, size in report.mesh.items() if size > 1}
    small = prod(mesh.values()) <= MOST_CELLS and [1, *mesh.values()][-1] <= MOST_COLUMNS
    columns, rows = _cells(mesh, of_finding) if small else ((), ())
    return MeshPicture(
        columns=columns,
        rows=rows,
        axes=() if small else tuple(_axes(mesh, {r for own in of_finding.values() for r in own})),
        marked=tuple(
            (number, describe_ranks(ranks, report.mesh)) for number, ranks in of_finding.items()
        ),
    )


def _cells(
    mesh: Mapping[str, int], of_finding: Mapping[int, Sequence[int]]
) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    """Return the labels of the columns, and the rows; ranks are numbered row-major."""
    findings: dict[int, list[int]] = {}
    for number, ranks in of_finding.items():
        for rank in dict.fromkeys(ranks):
            findings.setdefault(rank, []).append(number)
    *outer, inner = [
        [f"{axis}={place}" for place in range(size)] for axis, size in mesh.items()
    ] or [["rank"]]
    cells = [Cell(rank, tuple(findings.get(rank, ()))) for rank in range(prod([1, *mesh.values()]))]
    rows = tuple(
        Row(" ".join(label), tuple(cells[n * len(inner) : (n + 1) * len(inner)]))
        for n, label in enumerate(product(*outer))
    )
    return tuple(inner), rows


def _axes(mesh: Mapping[str, int], ranks: set[int]) -> Iterator[AxisRow]:
    stride = prod(mesh.values())
    for axis, size in mesh.items():
        stride //= size
        places = sorted({rank // stride % size for rank in ranks})
        found = tuple((first, last - first + 1) for first, last in runs(places))
        every = len(places) == size
        yield AxisRow(axis, size, "every" if every else spell_numbers(places), found)
