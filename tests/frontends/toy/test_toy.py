"""A reader of docs/write-a-frontend.md gets a frontend that works: the page is followed, file by
file.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pitcheck.cli import main
from pitcheck.commands import reading
from pitcheck.commands.reading import FRONTENDS, frontend_of
from pitcheck.errors import PitcheckError, PlanError, UnsupportedError, UsageError
from pitcheck.frontends.protocol import Frontend, Request

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "write-a-frontend.md"
FENCED = re.compile(r"^```(toy \w+|python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENTRIES = {
    "other": "toy_other:OTHER",
    "absent": "toy_absent:FRONTEND",
    "number": "toy_number:FRONTEND",
}
"""Further entry points, by the packages that bring them."""
Check = Callable[..., int]


def blocks() -> dict[str, str]:
    """Return the files that the page shows, by what stands behind the fence."""
    return dict(FENCED.findall(PAGE.read_text(encoding="utf-8")))


def install(folder: Path, name: str, entry: str) -> None:
    """Write what an installer writes of a package."""
    info = folder / f"{name}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[pitcheck.frontends]\n{name} = {entry}\n")


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which the page was followed, and its package installed."""
    shown = blocks()
    for name in ("reference", "parallel", "wrong"):
        (tmp_path / f"{name}.toy").write_text(shown[f"toy {name}"])
    (tmp_path / "toy_frontend.py").write_text(shown["python"])
    ((name, entry),) = tomllib.loads(shown["toml"])["project"]["entry-points"][
        "pitcheck.frontends"
    ].items()
    install(tmp_path, name, entry)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for module in ("toy_frontend", *(entry.partition(":")[0] for entry in ENTRIES.values())):
        sys.modules.pop(module, None)


@pytest.fixture
def check(followed: Path) -> Check:
    return lambda *files: main(["check", *files, "--seed", "1"])


def test_the_page_shows_the_files_of_this_folder() -> None:
    shown = blocks()
    assert shown["python"] == (HERE / "toy_frontend.py").read_text()
    for name in ("reference", "parallel", "wrong"):
        assert shown[f"toy {name}"] == (HERE / f"{name}.toy").read_text()
    assert len(shown["python"].splitlines()) < 100


def test_a_right_pair_is_equivalent(check: Check) -> None:
    assert check("reference.toy", "parallel.toy") == 0
    shutil.copy("reference.toy", "again.toy")
    assert check("reference.toy", "again.toy") == 0


def test_a_wrong_pair_is_a_mismatch_at_its_line(
    check: Check, capfd: pytest.CaptureFixture[str]
) -> None:
    assert check("reference.toy", "wrong.toy") == 1
    told = capfd.readouterr().out
    assert "error[PIT104]: 'p' is not summed where it must be" in told
    assert "wrong.toy:4" in told


@pytest.mark.parametrize(
    ("old", "new", "code", "finding"),
    [
        ("ranks 2", "ranks two", 2, "PIT001"),
        ("ranks 2", "ranks 0", 2, "PIT001"),
        ("ranks 2", "ranks 999999999", 2, "PIT001"),
        ("weight w 3x8 cut 0", "weight w 3x8 cut", 2, "PIT001"),
        ("z 4x8 = relu y", "z 4x8 relu y", 2, "PIT001"),
        ("z 4x8 = relu y", "z 4x\udcff8 = relu y", 2, "PIT001"),
        ("z 4x8 = relu y", "z 4x9 = relu y", 2, "PIT003"),
        ("weight w 3x8 cut 0", "weight w 3x8 cut 7", 2, "PIT008"),
        ("z 4x8 = relu y", "z 4x8 = relu nothing", 2, "PIT002"),
        ("z 4x8 = relu y", "z 4x8 = gelu y", 3, "PIT200"),
        ("output z", "", 5, "PIT201"),
    ],
)
def test_a_damaged_file_is_never_equivalent(
    followed: Path,
    check: Check,
    capfd: pytest.CaptureFixture[str],
    old: str,
    new: str,
    code: int,
    finding: str,
) -> None:
    right = (followed / "parallel.toy").read_text()
    assert old in right
    (followed / "damaged.toy").write_text(
        right.replace(old, new), encoding="utf-8", errors="surrogateescape"
    )
    assert check("reference.toy", "damaged.toy") == code
    told = capfd.readouterr()
    assert f"[{finding}]" in told.out
    assert "Traceback" not in told.err


def test_every_file_cut_short_is_refused_or_lacks_its_output(followed: Path) -> None:
    frontend = frontend_of("short.toy")
    assert frontend is not None
    text = (followed / "parallel.toy").read_text().rstrip("\n")
    for end in range(len(text)):
        (followed / "short.toy").write_text(text[:end])
        try:
            (plan,) = frontend.read(Request("short.toy"))
        except (PlanError, UnsupportedError):
            continue
        assert not plan.outputs, text[:end]


def test_a_file_that_is_not_there_is_invalid(check: Check) -> None:
    assert check("reference.toy", "none.toy") == 2


def test_no_installed_frontend_reads_what_pitcheck_reads_itself() -> None:
    for source in ("a.plan.json", "a.plan.zst", "a.pkl", "a.toml", "a.py:spec"):
        assert frontend_of(source) in FRONTENDS
    assert frontend_of("a.unknown") is None


def test_a_format_that_two_frontends_read_is_refused(
    followed: Path, check: Check, capfd: pytest.CaptureFixture[str]
) -> None:
    (followed / "toy_other.py").write_text(
        (followed / "toy_frontend.py")
        .read_text()
        .replace('FRONTEND = Frontend("toy"', 'OTHER = Frontend("other"')
    )
    install(followed, "other", ENTRIES["other"])
    assert check("reference.toy", "parallel.toy") == 2
    assert "recognised by the frontends other and toy" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("absent", "", "cannot be loaded"),
        ("number", "FRONTEND = 7\n", "is of type int; it must be"),
    ],
)
def test_an_entry_point_that_is_no_frontend_is_named(
    followed: Path, name: str, source: str, said: str
) -> None:
    if source:
        (followed / f"toy_{name}.py").write_text(source)
    install(followed, name, ENTRIES[name])
    with pytest.raises(UsageError, match=said):
        frontend_of("reference.toy")
    assert frontend_of("a.plan.json") in FRONTENDS, (
        "what pitcheck reads itself does not depend on others"
    )


def test_a_frontend_that_gives_another_number_of_plans_is_a_bug(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.none").write_text("")
    empty = Frontend(
        "empty", "nothing (.none)", lambda source: source.endswith(".none"), lambda request: []
    )
    monkeypatch.setattr(reading, "FRONTENDS", (empty,))
    with pytest.raises(PitcheckError, match="it must give 1 Plan"):
        reading.read(str(tmp_path / "a.none"))
    assert main(["check", str(tmp_path / "a.none"), str(tmp_path / "a.none")]) == 2


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("tuple(self.tensors)", "self.tensors", 0),
        ("Tensor(name, shape))", 'Tensor(name, shape, dtype="float33"))', 2),
        ("Tensor(name, shape))", "Tensor(name, [*shape[:-1], float(shape[-1]) + 0.5]))", 2),
        ("Axis(RANK, self.ranks)", "(RANK, self.ranks)", 2),
        ("outputs=(name,)", "outputs=name", 2),
        ("if summed else {}", 'if summed else {"speed": float("nan")}', 2),
    ],
)
def test_a_plan_of_another_package_holds_what_a_plan_file_may_hold(
    followed: Path, check: Check, capfd: pytest.CaptureFixture[str], old: str, new: str, code: int
) -> None:
    """Lists become tuples as in a file; values of wrong types are refused by name, and do not reach
    the check.
    """
    source = (followed / "toy_frontend.py").read_text()
    assert old in source
    (followed / "toy_frontend.py").write_text(source.replace(old, new))
    assert check("reference.toy", "parallel.toy") == code
    told = capfd.readouterr()
    assert "Traceback" not in told.err
    assert ("[PIT001]" in told.out) == (code == 2)


def test_one_source_may_stand_for_both_plans(
    followed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frontend of pairs gets its settings; one that takes none refuses them."""
    toy = frontend_of("a.toy")
    assert toy is not None

    def both(request: Request) -> list[object]:
        names = (
            "reference.toy",
            dict(text.split("=") for text in request.assignments).get("side", "parallel") + ".toy",
        )
        return [plan for name in names for plan in toy.read(Request(name))]

    pair = Frontend(
        "pair",
        "a pair (.pair)",
        lambda source: source.endswith(".pair"),
        both,
        gives_pair=True,
        takes_settings=True,
    )  # type: ignore[arg-type]
    monkeypatch.setattr(reading, "FRONTENDS", (pair, toy))
    assert main(["check", "a.pair", "--seed", "1"]) == 0
    assert main(["check", "a.pair", "--seed", "1", "--set", "side=wrong"]) == 1
    assert main(["check", "a.pair", "reference.toy"]) == 2
    assert main(["check", "reference.toy", "parallel.toy", "--set", "side=wrong"]) == 2
