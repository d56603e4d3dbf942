"""The page on GPUs shows the figures that are kept, and names the lines that are not measured."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import gpu

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_figures_of_the_file() -> None:
    figures = msgspec.json.decode((ROOT / "bench" / "gpu.json").read_bytes(), type=gpu.Figures)
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert "\n".join(gpu.table(figures)) in page


def test_lines_without_a_figure_are_called_not_measured() -> None:
    nothing = gpu.table(gpu.Figures("a card", "2026-01-01", "NumPy", []))
    rows = [line for line in nothing if line.startswith("| ")][1:]
    assert len(rows) == len(gpu.LINES) + len(gpu.KERNEL_GOALS)
    assert all("not measured" in row for row in rows)


def test_a_line_that_fails_says_why_and_the_others_go_on() -> None:
    def fails(_: gpu.Bench) -> tuple[None, None, str]:
        raise ValueError("too small")

    lines = [gpu.Line("one", "s", fails), gpu.Line("two", "s", lambda _: (2.0, None, "done"))]
    bench = gpu.Bench(None, small=True, most_seconds=10)
    found = list(gpu.measure(None, lines, bench, 60.0, with_kernels=False))
    assert [figure.said for figure in found] == ["failed: ValueError: too small", "done"]


def test_figures_of_earlier_days_are_kept_with_their_day(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    old = [gpu.Figure(name, 1.0, "s", None, "old") for name in ("one", "two")]
    file.write_bytes(msgspec.json.encode(gpu.Figures("a card", "2026-01-01", "NumPy", old)))
    new = [gpu.Figure("two", 2.0, "s", None, "new")]
    found = gpu.joined(file, gpu.Figures("a card", "2026-01-02", "NumPy", new))
    assert [(line.name, line.value, line.date) for line in found.lines] == [
        ("one", 1.0, "2026-01-01"),
        ("two", 2.0, ""),
    ]
    other = gpu.joined(file, gpu.Figures("another card", "2026-01-02", "NumPy", new))
    assert other.lines == new
