"""A check of texts says what a check of files says, and needs nothing that a browser lacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pitcheck.cli import cli
from pitcheck.commands.text_places import line_and_column
from pitcheck.commands.texts import (
    CONFIGURATION,
    PARALLEL,
    REFERENCE,
    Answer,
    answer_in_json,
    check_texts,
)
from pitcheck.errors import UsageError
from pitcheck.report.report import VOLATILE

ROOT = Path(__file__).parents[2]
EXAMPLES = json.loads((ROOT / "docs/playground/examples/examples.json").read_text())
VERDICTS = ("equivalent", "mismatch", "mismatch", "invalid", "equivalent", "mismatch", "equivalent")
LACKING = (
    "_multiprocessing",
    "cffi",
    "click",
    "cupy",
    "galois",
    "gmpy2",
    "multiprocessing",
    "numba",
    "resource",
    "rich",
    "torch",
    "zstandard",
)
"""The modules that are not beside the page, or that a browser cannot have."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def texts_of(number: int) -> dict[str, str]:
    return {name: (ROOT / file).read_text() for name, file in EXAMPLES[number]["texts"].items()}


def stable(report: str) -> dict[str, object]:
    return {key: value for key, value in json.loads(report).items() if key not in VOLATILE}


def by_command(texts: dict[str, str], seed: str) -> dict[str, object]:
    """Return the report of the command line on files with these texts."""
    for name, text in texts.items():
        Path(name).write_text(text)
    options = ["--seed", seed, "--jobs", "1", "--no-cache", "--output", "json:by-command.json"]
    CliRunner().invoke(cli, ["check", *texts, *options], standalone_mode=False)
    return stable(Path("by-command.json").read_text())


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_is_what_its_title_says(number: int) -> None:
    texts = texts_of(number)
    answer = check_texts(texts, "1", "2^-64")
    assert answer.verdict == VERDICTS[number]
    title = EXAMPLES[number]["title"]
    assert answer.verdict == "equivalent" if CONFIGURATION in texts else answer.verdict in title
    assert (answer.witness is not None) == (answer.verdict == "mismatch")
    assert f"<title>{answer.verdict} – pitcheck report</title>" in answer.page
    assert stable(answer.report) == by_command(texts, "1")


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    check_texts(texts_of(4), "1", "2^-64", lambda *progress: told.append(progress))
    assert told


def test_a_missing_comma_is_shown_at_its_line() -> None:
    texts = texts_of(0)
    texts[PARALLEL] = texts[PARALLEL].replace('"mesh": [', '"mesh" [')
    answer = check_texts(texts, "1", "2^-64")
    (fault,) = answer.faults
    assert (answer.verdict, fault.file, fault.line, fault.column) == ("invalid", PARALLEL, 3, 9)
    assert "expected ':'" in fault.message


def test_both_texts_may_be_wrong() -> None:
    answer = check_texts({REFERENCE: "{", PARALLEL: '{"format": "é"'}, "1", "2^-64")
    found = [(fault.file, fault.line, fault.column) for fault in answer.faults]
    assert found == [(REFERENCE, 1, 2), (PARALLEL, 1, 15)]


def test_a_broken_rule_is_shown_at_its_line() -> None:
    texts = texts_of(0)
    texts[PARALLEL] = texts[PARALLEL].replace('"inputs": ["p"]', '"inputs": ["q"]')
    (fault, *_) = check_texts(texts, "1", "2^-64").faults
    assert fault.message.startswith("PIT002: operators[1].inputs[0]: 'q' is no tensor")
    line = texts[PARALLEL].splitlines()[fault.line - 1]
    assert line[fault.column - 1 :].startswith('"q"]')


@pytest.mark.parametrize(
    ("text", "place"), [("model =\n", (1, 8)), ('model = "llama3-8b-tiny"\n', (0, 0))]
)
def test_a_wrong_configuration_is_shown(text: str, place: tuple[int, int]) -> None:
    answer = check_texts({CONFIGURATION: text}, "1", "2^-64")
    assert [(f.file, f.line, f.column) for f in answer.faults] == [(CONFIGURATION, *place)]


@pytest.mark.parametrize(
    ("names", "seed", "bound", "message"),
    [
        ((REFERENCE, PARALLEL), "-1", "2^-64", "seed '-1' is not an integer"),
        ((REFERENCE, PARALLEL), str(2**128), "2^-64", "is not an integer from 0 to 2^128 - 1"),
        ((REFERENCE, PARALLEL), "1", "2", "'2' is no probability"),
        ((REFERENCE,), "1", "2^-64", "are no pair"),
        (("spec.py", PARALLEL), "1", "2^-64", "are no pair"),
        (("plan.pkl",), "1", "2^-64", "are no pair"),
    ],
)
def test_wrong_fields_are_refused_before_anything_is_written(
    names: tuple[str, ...], seed: str, bound: str, message: str, folder: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        check_texts(dict.fromkeys(names, "{}"), seed, bound)
    assert message in str(caught.value)
    assert list(folder.iterdir()) == []
    answer = json.loads(answer_in_json(json.dumps(dict.fromkeys(names, "{}")), seed, bound, print))
    assert answer == {"error": str(caught.value)}


def test_an_empty_seed_draws_one() -> None:
    answer = check_texts(texts_of(0), " ", "1e-20")
    assert isinstance(answer, Answer) and answer.verdict == "equivalent"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("byte 0", (1, 1)),
        ("byte 7", (1, 7)),
        ("é", (1, 7)),
        ("é[1]", (2, 2)),
        ("é[1].b", (2, 8)),
        ("é[1].c", (2, 2)),
        ("é[7]", (1, 7)),
        ("e.f", (3, 12)),
        ("e.f[0]", (3, 13)),
        ("b", None),
        ("file", None),
        ("", None),
    ],
)
def test_places_in_a_text(place: str, expected: tuple[int, int] | None) -> None:
    """Places after the fault of the text are found as far as it can be read."""
    text = '{"é": [1,\n {"b": 2}],\n"e": {"f": [}'
    assert line_and_column(text, place) == expected


def test_a_deep_text_has_no_place_below() -> None:
    assert line_and_column('{"a": ' + "[" * 100_000 + ', "b": 1}', "b") is None


FORBID = f"""
import json, sys, threading
from pathlib import Path

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {LACKING}:
            raise ImportError(f"{{name}} is not in a browser")

def no_thread(self):
    raise RuntimeError("a browser starts no thread")

sys.meta_path.insert(0, Absent())
threading.Thread.start = no_thread
from pitcheck.commands.texts import check_texts
answers = [check_texts(texts, "1", "2^-64") for texts in json.loads(sys.stdin.read())]
print(json.dumps([[a.verdict, json.loads(a.report)] for a in answers]))
print(sorted(set({LACKING}) & sys.modules.keys()), file=sys.stderr)
"""


def test_a_check_imports_nothing_that_a_browser_lacks(folder: Path) -> None:
    numbers = (3, 4, 5)
    ran = subprocess.run(
        [sys.executable, "-c", FORBID],
        input=json.dumps([texts_of(number) for number in numbers]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == "[]\n"
    for number, (verdict, report) in zip(numbers, json.loads(ran.stdout), strict=True):
        assert verdict == VERDICTS[number]
        assert stable(json.dumps(report)) == by_command(texts_of(number), "1")


def test_what_is_forbidden_is_noticed(folder: Path) -> None:
    code = FORBID.replace("from pitcheck", "import galois\nfrom pitcheck", 1)
    ran = subprocess.run(
        [sys.executable, "-c", code],
        input="[]",
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        check=False,
    )
    assert "galois is not in a browser" in ran.stderr
