"""The page of a sweep: one folder of files that load nothing, with the report of every check.

Rows of its grid are models, columns meshes. What is new since the last sweep comes first.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pitcheck import __version__
from pitcheck.errors import UsageError
from pitcheck.report import html
from pitcheck.sweep.badge import BADGE, badge
from pitcheck.sweep.pictures import trend
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import Result, Status, command
from pitcheck.sweep.results import Results
from pitcheck.sweep.summary import UNKNOWN, lost_workers, summary

MARK = ".pitcheck-sweep"
"""The file in a folder that may be replaced by a newer page."""
REPORTS = "reports"
MOST_NIGHTS = 30
"""The earlier sweeps that a page shows, the newest ones."""
MESH = ("dp", "tp", "pp", "cp", "ep", "etp")
NOT_RUN = "not run"

_FOLDER = Path(__file__).parent / "page"


class Row(NamedTuple):
    """A configuration as the page shows it. ``kind`` gives its colour."""

    name: str
    mesh: str
    status: str
    kind: str
    verdict: str
    said: str
    note: str
    seconds: str
    memory: str
    page: str
    command: str
    picture: Any


class Change(NamedTuple):
    """A configuration that ended otherwise than in the sweep before."""

    name: str
    now: str
    before: str
    kind: str
    said: str
    page: str


class Cell(NamedTuple):
    """The configurations of one model on one mesh: how many ran, and how many are good."""

    good: int
    total: int
    kind: str
    words: str


class Line(NamedTuple):
    """A model, and its cells in the order of the meshes; None where nothing ran."""

    model: str
    cells: tuple[Cell | None, ...]


class Trend(NamedTuple):
    """A number of every sweep, with its last value in words, and its picture."""

    name: str
    last: str
    picture: Any


class Night(NamedTuple):
    """The results of one sweep, by the name of their configuration, without reports."""

    started: float
    results: Mapping[str, Result]


def write_page(folder: Path, files: Sequence[Path]) -> None:
    """Write the page of the newest of some results into a folder; the others are earlier sweeps.

    The folder is new or empty, or has an older page, which is replaced as a whole.

    Raises UsageError for another folder, and for files that are no results.
    """
    folder = folder.resolve()
    _check_folder(folder)
    *earlier, last = _in_time(files)
    nights = [
        Night(each.about().started, {r.name: r for r in each.results()})
        for each in earlier[-MOST_NIGHTS:]
    ]
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    try:
        (beside / REPORTS).mkdir(parents=True)
        (beside / MARK).write_text(f"{__version__}\n", encoding="utf-8")
        pages = _write_reports(beside, last)
        page = html.rendered(_FOLDER, _content(last, nights, pages))
        (beside / "index.html").write_text(page, encoding="utf-8")
        told = summary(last.planned(), last.results())
        (beside / BADGE).write_text(badge(last.about(), told), encoding="utf-8")
        _replace(folder, beside, old)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _in_time(files: Sequence[Path]) -> list[Results]:
    """Return results in the order in which their sweeps began. Raises UsageError for copies."""
    once = {file.resolve(): file for file in files}
    found = sorted(
        (Results(file).believed() for file in once.values()), key=lambda each: each.about().started
    )
    for one, two in pairwise(found):
        if one.about() == two.about():
            raise UsageError(
                f"{one.path} and {two.path} are results of one sweep, which would be compared with "
                f"itself; name one of them"
            )
    return found


def _replace(folder: Path, new: Path, old: Path) -> None:
    """Put a new folder in the place of another one, which is ``old`` then, or stays if that fails.

    Raises OSError.
    """
    if not folder.exists():
        new.rename(folder)
        return
    folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        old.rename(folder)
        raise


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no directory; name a new one")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise UsageError(
            f"{folder} has files that are no page of a sweep; name a new or an empty directory"
        )
    if not folder.parent.is_dir():
        raise UsageError(f"{folder}: {folder.parent} is no directory; create it first")


def _write_reports(folder: Path, results: Results) -> Mapping[str, str]:
    """Write the page of every report, and return their names by that of the configuration."""
    planned = {each.name: (place, each) for place, each in enumerate(results.planned())}
    pages = {}
    for result in results.results(reports=True):
        if result.report is not None:
            place, each = planned[result.name]
            file = f"{REPORTS}/{place:05d}.html"
            (folder / file).write_bytes(html.encode(result.report, each.sources))
            pages[result.name] = file
    return pages


def _content(results: Results, nights: Sequence[Night], pages: Mapping[str, str]) -> dict[str, Any]:
    """Return what the template names."""
    about, planned = results.about(), results.planned()
    found = {each.name: each for each in results.results()}
    told = summary(planned, found.values())
    rows = [_row(each, found.get(each.name), nights, pages) for each in planned]
    cells = _cells(planned, found)
    bad = [row for row in rows if row.kind in ("bad", "unknown")]
    return {
        "said": told.sentence(),
        "good": told.good,
        "version": __version__,
        "about": about,
        "started": f"{datetime.fromtimestamp(about.started, UTC):%Y-%m-%d %H:%M}",
        "seconds": f"{_seconds(found.values()):.0f}",
        "shards": "" if about.shards == 1 else f"{about.shard} of {about.shards}",
        "nights": len(nights),
        "changes": tuple(_changes(rows, found, nights[-1])) if nights else (),
        "bad": bad,
        "meshes": _meshes(cells),
        "grid": tuple(_grid(cells)),
        "trends": tuple(_trends([*nights, Night(about.started, found)])),
        "statuses": sorted({row.status for row in rows}),
        "rows": rows,
    }


def _row(
    planned: Planned, result: Result | None, nights: Sequence[Night], pages: Mapping[str, str]
) -> Row:
    seconds = [
        night.results[planned.name].seconds for night in nights if planned.name in night.results
    ]
    return Row(
        name=planned.name,
        mesh=mesh(planned),
        status=result.status if result else NOT_RUN,
        kind=kind(result),
        verdict=result.verdict if result else "",
        said=result.said if result else "the sweep was broken off",
        note=_note(result),
        seconds=f"{result.seconds:.1f}" if result else "",
        memory=f"{result.memory_mb:.0f}" if result and result.memory_mb else "",
        page=pages.get(planned.name, ""),
        command=command(planned, result.seed) if result else "",
        picture=trend([*seconds, result.seconds], "seconds") if result and seconds else "",
    )


def _note(result: Result | None) -> str:
    """Return why a configuration was left out, or how often it was sent again to a cluster."""
    if result is None or not result.lost:
        return result.said if result and result.status == "skipped" else ""
    return lost_workers(result)


def kind(result: Result | None) -> str:
    """Return the kind of a result, by which it is coloured: good, skipped, unknown or bad."""
    if result is None or result.status in UNKNOWN:
        return "unknown"
    if result.status == "skipped":
        return "skipped"
    if not result.good:
        return "unknown" if result.verdict == "inconclusive" else "bad"
    return "good"


def mesh(planned: Planned) -> str:
    """Return the mesh that a configuration is set to, or how it is called."""
    given = dict(assignment.split("=", 1) for assignment in planned.assignments)
    sizes = [f"{axis}={given[axis]}" for axis in MESH if given.get(axis, "1") != "1"]
    if sizes:
        return " ".join(sizes)
    return "one rank" if set(MESH) & given.keys() else "as it is"


def _cells(
    planned: Iterable[Planned], found: Mapping[str, Result]
) -> dict[tuple[str, str], list[str]]:
    """Return the kinds of the configurations by model and mesh, without impossible ones."""
    cells: dict[tuple[str, str], list[str]] = {}
    for each in planned:
        colour = kind(found.get(each.name))
        if colour != "skipped":
            cells.setdefault((each.row, mesh(each)), []).append(colour)
    return cells


def _meshes(cells: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(sorted({on for _, on in cells}, key=lambda text: (text.count("="), text)))


def _grid(cells: Mapping[tuple[str, str], Sequence[str]]) -> Iterator[Line]:
    meshes = _meshes(cells)
    for model in dict.fromkeys(model for model, _ in cells):
        yield Line(model, tuple(_cell(model, on, cells.get((model, on), ())) for on in meshes))


def _cell(model: str, on: str, kinds: Sequence[str]) -> Cell | None:
    if not kinds:
        return None
    counts = Counter(kinds)
    worst = next(each for each in ("bad", "unknown", "good") if counts[each])
    return Cell(counts["good"], len(kinds), worst, f"{model} {on}")


def _changes(rows: Sequence[Row], found: Mapping[str, Result], before: Night) -> Iterator[Change]:
    """Yield what ended otherwise than before, what is bad now first, and what is gone last."""
    order = ("bad", "unknown", "good", "skipped")
    for row in sorted(rows, key=lambda each: order.index(each.kind)):
        then = before.results.get(row.name)
        was = _ended(then)
        now = _ended(found.get(row.name))
        if was != now:
            yield Change(row.name, now, was, row.kind, row.said, row.page)
    names = {row.name for row in rows}
    for name in before.results.keys() - names:
        yield Change(name, "no longer there", _ended(before.results[name]), "skipped", "", "")


def _ended(result: Result | None) -> str:
    if result is None:
        return NOT_RUN
    return f"{result.status} ({result.verdict})" if result.verdict else result.status


def _trends(nights: Sequence[Night]) -> Iterator[Trend]:
    seconds = [_seconds(night.results.values()) for night in nights]
    ran = [float(_number(night.results.values(), "skipped", without=True)) for night in nights]
    good = [float(_number(night.results.values(), "as expected")) for night in nights]
    for name, values, unit in (
        ("seconds of all processes", seconds, "s"),
        ("configurations that ran", ran, ""),
        ("configurations as expected", good, ""),
    ):
        yield Trend(name, f"{values[-1]:.0f} {unit}".strip(), trend(values, name, width=240))


def _number(results: Iterable[Result], status: Status, *, without: bool = False) -> int:
    return sum((each.status == status) != without for each in results)


def _seconds(results: Iterable[Result]) -> float:
    return sum(each.seconds for each in results)
