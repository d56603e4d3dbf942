"""Programs on the command line: ``check FILE.py:NAME`` and ``capture``, and what is said of files
that are none.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Call

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "tensor_parallel.py"


def test_a_captured_program_is_checked_without_it(call: Call, tmp_path: Path) -> None:
    captured = call("capture", f"{EXAMPLE}:spec", "--out", str(tmp_path))
    files = [tmp_path / f"spec.{side}.plan.zst" for side in ("reference", "parallel")]
    assert (captured.code, captured.out.split()) == (0, [str(file) for file in files])
    checked = call("check", *map(str, files), "--seed", "1")
    assert (checked.code, "equivalent: 6 of 6 outputs proven (" in checked.out) == (0, True)


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (None, "spec", "no such file"),
        ("spec = 3\n", "spec", "'spec' of"),
        ("other = 3\n", "spec", "is not there"),
        ("other = 3\n", "spec", "of which the file has none"),
        (EXAMPLE.read_text(encoding="utf-8"), "specs", "the nearest is 'spec'"),
        ("1 / 0\n", "spec", "it raises ZeroDivisionError: division by zero"),
        (
            "import nothing_of_that_name\n",
            "spec",
            "it imports nothing_of_that_name, which is not installed",
        ),
        ("raise ModuleNotFoundError(name='torch')\n", "spec", "install pitcheck[torch]"),
    ],
)
def test_a_file_that_is_no_specification_is_refused(
    call: Call, tmp_path: Path, text: str | None, name: str, said: str
) -> None:
    file = tmp_path / "program_to_check.py"
    if text is not None:
        file.write_text(text)
    result = call("check", f"{file}:{name}")
    assert result.code == 2
    assert said in " ".join((result.out + result.err).split())


def test_capture_wants_a_specification_and_a_directory(call: Call, tmp_path: Path) -> None:
    assert (
        call("capture", "plan.json").code,
        call("capture", f"{EXAMPLE}:spec", "--out", str(tmp_path / "none")).code,
    ) == (2, 2)
