"""The page of a sweep: what it says, what it never loads, and how large it becomes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from report.browser import ask, axe
from sweep.test_results import about_of, good, planned_of, report_of

from pitcheck.errors import UsageError
from pitcheck.sweep.morning import mesh, write_page
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import of_report, without_report
from pitcheck.sweep.results import Results


def night(path: Path, planned: list[Planned], wrong: int | None, started: float) -> Path:
    """Write results of which one is wrong, if that is said."""
    found = Results.new(path, about_of(len(planned), started=started), planned)
    found.put(
        of_report(each, report_of("mismatch"), "") if n == wrong else good(each)
        for n, each in enumerate(planned)
    )
    return path


def page_of(tmp_path: Path, *files: Path) -> str:
    write_page(tmp_path / "page", files)
    return (tmp_path / "page" / "index.html").read_text(encoding="utf-8")


def test_what_is_new_comes_first(tmp_path: Path) -> None:
    planned = planned_of(4)
    first = night(tmp_path / "1.sqlite", planned[:3], 0, 10.0)
    second = night(tmp_path / "2.sqlite", planned, 2, 20.0)
    page = page_of(tmp_path, second, first)
    new = page[page.index("New since") : page.index("To look at")]
    assert re.findall(r">(m tp=\d)<", new) == ["m tp=2", "m tp=0", "m tp=3"]
    assert "before unexpected (mismatch)" in new
    assert "before not run" in new
    look = page[page.index("To look at") : page.index("Models and meshes")]
    assert re.findall(r">(m tp=\d)<", look) == ["m tp=2"]
    assert "pitcheck check m.toml --seed 3" in look


def test_a_night_is_not_compared_with_itself(tmp_path: Path) -> None:
    planned = planned_of(2)
    before = night(tmp_path / "1.sqlite", planned, 0, 10.0)
    last = night(tmp_path / "2.sqlite", planned, 1, 20.0)
    link = tmp_path / "link.sqlite"
    link.symlink_to(last)
    page = page_of(tmp_path, before, last)
    assert page_of(tmp_path, last, before, link, last) == page
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(last.read_bytes())
    with pytest.raises(UsageError, match="are results of one sweep"):
        write_page(tmp_path / "page", [before, copy, last])


def test_every_report_has_its_page(tmp_path: Path) -> None:
    planned = planned_of(3)
    page = page_of(tmp_path, night(tmp_path / "1.sqlite", planned, 1, 10.0))
    linked = set(re.findall(r'href="(reports/[^"]*)"', page))
    assert linked == {f"reports/{n:05d}.html" for n in range(3)}
    assert all((tmp_path / "page" / file).is_file() for file in linked)
    assert "mismatch" in (tmp_path / "page/reports/00001.html").read_text(encoding="utf-8")


def test_a_night_that_was_broken_off_is_not_good(tmp_path: Path) -> None:
    planned = planned_of(3)
    found = Results.new(tmp_path / "1.sqlite", about_of(3), planned)
    found.put([good(planned[0])])
    page = page_of(tmp_path, tmp_path / "1.sqlite")
    assert '<header class="bad">' in page
    assert "2 not run" in page


def test_names_are_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m\u202e"
    planned = planned_of(1, name=hostile, row=hostile, column=hostile, sources=(hostile,))
    found = Results.new(tmp_path / "1.sqlite", about_of(1), planned)
    found.put([without_report(planned[0], 1, "crashed", hostile)])
    page = page_of(tmp_path, tmp_path / "1.sqlite")
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    file = night(tmp_path / "1.sqlite", planned_of(1), None, 1.0)
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(UsageError, match="no page of a sweep"):
        write_page(tmp_path / "page", [file])
    assert (tmp_path / "page" / "thesis.tex").read_text(encoding="utf-8") == "years of work"
    (tmp_path / "page" / "thesis.tex").unlink()
    write_page(tmp_path / "page", [file])
    write_page(tmp_path / "page", [file])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.sqlite", "page"]


def test_an_older_page_stays_where_a_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = page_of(tmp_path, night(tmp_path / "1.sqlite", planned_of(1), None, 1.0))
    rename = Path.rename

    def fails_for_the_new_one(path: Path, target: Path) -> Path:
        if path.suffix == ".part":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fails_for_the_new_one)
    with pytest.raises(UsageError, match="No space left"):
        page_of(tmp_path, night(tmp_path / "2.sqlite", planned_of(1), 0, 2.0))
    assert (tmp_path / "page" / "index.html").read_text(encoding="utf-8") == old
    assert {path.name for path in tmp_path.iterdir()} == {"1.sqlite", "2.sqlite", "page"}


def test_the_mesh_of_a_configuration() -> None:
    (planned,) = planned_of(1)
    for assignments, said in (
        (("dp=2", "tp=1", "zero=3"), "dp=2"),
        (("dp=1", "tp=1"), "one rank"),
        (("ep=4", "dp=2"), "dp=2 ep=4"),
        ((), "as it is"),
    ):
        assert mesh(msgspec.structs.replace(planned, assignments=assignments)) == said


@pytest.mark.parametrize("width", [360, 1440])
def test_the_page_is_accessible_and_filters(tmp_path: Path, width: int) -> None:
    source = axe()
    planned = planned_of(6)
    files = [night(tmp_path / f"{n}.sqlite", planned, n, float(n)) for n in range(3)]
    page = page_of(tmp_path, *files)
    script = (
        source + "; const found = await axe.run();"
        "const box = document.querySelector('input[type=search]');"
        "box.value = 'tp=4'; box.dispatchEvent(new Event('input', {bubbles: true}));"
        "return [found.violations.filter(v => v.impact === 'serious' || v.impact === 'critical')"
        ".map(v => v.id), document.getElementById('shown').textContent,"
        " document.documentElement.scrollWidth <= window.innerWidth,"
        " performance.getEntriesByType('resource').length];"
    )
    assert ask(page, script, tmp_path, width) == [[], "1 of 6 shown", True, 0]


MANY = """
import resource, sys
from pathlib import Path
from sweep.test_results import about_of, good, planned_of
from pitcheck.sweep.morning import write_page
from pitcheck.sweep.results import Results
planned = planned_of(10_000)
found = Results.new(Path("many.sqlite"), about_of(10_000), planned)
for start in range(0, 10_000, 500):
    found.put([good(each) for each in planned[start : start + 500]])
write_page(Path("page"), [Path("many.sqlite")])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_ten_thousand_configurations_fit(tmp_path: Path) -> None:
    tests = str(Path(__file__).resolve().parents[1])
    code = f"import sys; sys.path.insert(0, {tests!r}){MANY}"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 200 * 1024, "KiB"
    assert (tmp_path / "page" / "index.html").stat().st_size < 10 << 20
