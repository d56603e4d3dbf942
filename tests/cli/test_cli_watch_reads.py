"""``pitcheck check --watch``: what a check asks the file system, and what counts as a change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pitcheck.commands.watching.answers import ASKED, OPENED, Answer, Question, signature
from pitcheck.commands.watching.files_read import Reads, read_log
from pitcheck.commands.watching.inputs import Inputs


def test_a_change_while_the_check_runs_is_seen(folder: Path) -> None:
    """The state that counts is the one when the check opened the file."""
    inputs = Inputs((str(folder / "r.plan.json"),))
    inputs.look()
    inputs.take(Reads({(OPENED, str(folder / "part.py")): None}))
    assert inputs.changed() == []
    (folder / "part.py").write_text("")
    assert inputs.changed() == [str(folder / "part.py")]


def logged(folder: Path, program: str) -> Reads:
    """Return what a program has asked, without what stands outside of a folder."""
    (folder / "log").unlink(missing_ok=True)
    subprocess.run([sys.executable, "-c", START + program], check=True, timeout=60, input=b"")
    read = read_log(folder / "log")
    inside = {
        (what, name): answer
        for (what, name), answer in read.answers.items()
        if Path(name).is_relative_to(folder)
    }
    return Reads(inside, read.made, read.started)


def asked(read: Reads, *kinds: str) -> dict[str, Answer]:
    """Return the answers to the questions of some kinds, by the relative name."""
    return {os.path.relpath(name): a for (what, name), a in read.answers.items() if what in kinds}


START = """
import os, sys
from pathlib import Path
from pitcheck.commands.watching.files_read import Log

log = Log(Path("log"), [Path("left")])
"""
READER = """
open("a.txt").close()
Path("a.txt").write_text("changed")
os.close(os.open("b.txt", os.O_RDONLY))
Path("made.txt").write_text("x")
Path("made.txt").read_text()
Path("left/c.txt").read_text()
try:
    open("none.txt")
except OSError:
    pass
sys.path.insert(0, "")
if os.fork() == 0:
    import part
    os._exit(0)
os.wait()
import json
with open(0, closefd=False):
    pass
"""


def test_all_that_a_process_and_its_forks_read_is_logged(folder: Path) -> None:
    (folder / "left").mkdir()
    for name in ("a.txt", "b.txt", "left/c.txt"):
        (folder / name).write_text("")
    (folder / "part.py").write_text("import inner.deep\n")
    (folder / "inner").mkdir()
    (folder / "inner" / "deep.py").write_text("")
    for _ in range(2):  # the second time there is bytecode
        read = asked(logged(folder, READER), OPENED)
        assert read.keys() == {"b.txt", "none.txt", "part.py", "inner/deep.py"}
        assert read["none.txt"] is None
        assert read["b.txt"] == signature("b.txt")


def watched(folder: Path, program: str) -> Inputs:
    """Return the inputs of a program that has run."""
    inputs = Inputs(())
    inputs.look()
    inputs.take(logged(folder, program))
    return inputs


@pytest.mark.parametrize(
    "program",
    [
        "Path('new.txt').exists()",
        "os.path.isfile('new.txt')",
        "os.access('new.txt', os.R_OK)",
        "os.path.lexists(path='new.txt')",
        "list(Path().glob('*.txt'))",
        "import glob; glob.glob('*.txt')",
        "os.listdir()",
        "list(os.walk('.'))",
        "os.makedirs('made'); os.listdir()",
        "Path('made').mkdir(exist_ok=True); Path('new.txt').exists()",
        "import shutil; os.mkdir('t'); open('t/new.txt', 'w'); os.listdir(); shutil.rmtree('t')",
    ],
)
def test_a_file_whose_existence_was_asked_is_waited_for(folder: Path, program: str) -> None:
    (folder / "old.txt").write_text("")
    inputs = watched(folder, program)
    assert inputs.changed() == []
    (folder / "new.txt").write_text("")
    assert inputs.changed() in ([str(folder)], [str(folder / "new.txt")])
    (folder / "new.txt").unlink()
    assert inputs.changed() == []


def test_the_content_of_a_file_that_was_asked_for_counts(folder: Path) -> None:
    """A program may open it where Python does not see it."""
    (folder / "data").write_text("1")
    inputs = watched(folder, "Path('data').stat()")
    (folder / "data").write_text("2")
    assert inputs.changed() == [str(folder / "data")]


def test_the_files_of_an_earlier_run_are_not_taken_for_made_ones(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "a").write_text("")
    inputs = watched(folder, "Path('data').mkdir(exist_ok=True); open('data/a').close()")
    (folder / "data" / "a").write_text("2")
    assert inputs.changed() == [str(folder / "data" / "a")]


def test_a_file_of_the_same_name_as_a_removed_one_elsewhere_counts(folder: Path) -> None:
    """A name that is removed relative to an open folder is none of the working directory."""
    (folder / "inner").mkdir()
    for name in ("a", "inner/a"):
        (folder / name).write_text("")
    at = "os.open('inner', os.O_RDONLY)"
    inputs = watched(folder, f"open('a').close(); os.unlink('a', dir_fd={at})")
    (folder / "a").write_text("2")
    assert inputs.changed() == [str(folder / "a")]


@pytest.mark.parametrize(
    "program",
    [
        "Path('new.txt').exists(); Path('new.txt').write_text('1')",
        "os.listdir(); Path('.new').write_text('1'); os.replace('.new', 'new.txt')",
        "import tempfile\nwith tempfile.TemporaryDirectory(dir='.') as t:\n"
        "    os.path.exists(t + '/a'); os.listdir(t); os.listdir('.')",
        "import sqlite3; sqlite3.connect('x.db'); open('x.db').close()",
        "os.path.exists('sub'); os.mkdir('sub'); os.listdir('sub'); os.system('touch sub/x')",
    ],
)
def test_what_a_check_makes_itself_is_no_change(folder: Path, program: str) -> None:
    assert watched(folder, program).changed() == []


def test_the_wrapped_functions_do_what_the_others_do(folder: Path) -> None:
    logged(
        folder,
        "import shutil, tempfile\n"
        "assert os.stat in os.supports_follow_symlinks and os.stat in os.supports_dir_fd\n"
        "assert os.stat(0) and os.stat('.', follow_symlinks=False) == os.lstat('.')\n"
        "for wrong in (None, 1.5):\n"
        "    try:\n        os.stat(wrong)\n    except TypeError:\n        continue\n"
        "    raise SystemExit(1)\n"
        "shutil.rmtree(tempfile.mkdtemp())\n",
    )


def test_a_module_in_an_earlier_folder_of_the_path_is_a_change(folder: Path) -> None:
    for name in ("first", "second"):
        (folder / name).mkdir()
    (folder / "second" / "part.py").write_text("")
    (folder / "first" / "notes.txt").write_text("")
    inputs = watched(
        folder, "sys.path[:0] = ['first', 'second', 'third']; import part; log.searches(sys.path)"
    )
    (folder / "first" / ".part.py.swp").write_text("")
    (folder / "first" / "more.txt").write_text("")
    assert inputs.changed() == []
    for name in ("first/part.py", "first/part.so", "first/part/"):
        path = folder / name
        path.mkdir() if name.endswith("/") else path.write_text("")
        assert inputs.changed() == [str(folder / "first")]
        path.rmdir() if name.endswith("/") else path.unlink()
    assert inputs.changed() == []
    (folder / "third").mkdir()
    assert str(folder / "third") in inputs.changed()


def test_a_new_module_beside_a_program_is_a_change(folder: Path) -> None:
    (folder / "program.py").write_text("")
    inputs = watched(folder, "open('program.py').close()")
    (folder / ".hidden").mkdir()
    (folder / "__pycache__").mkdir()
    (folder / "notes.txt").write_text("")
    assert inputs.changed() == []
    (folder / "numbers").mkdir()
    assert inputs.changed() == [str(folder)]


def test_a_program_that_is_started_is_named_once(folder: Path) -> None:
    (folder / "made.sh").write_text("cat secret\n")
    (folder / "secret").write_text("")
    read = logged(folder, "import subprocess; subprocess.run(['sh', 'made.sh'])")
    assert read.started == ("sh",)
    inputs = Inputs(())
    inputs.look()
    assert inputs.take(read) == ["pitcheck: the check starts sh; what that reads is not watched"]
    assert inputs.take(read) == []
    (folder / "made.sh").write_text("cat\n")
    assert inputs.changed() == [str(folder / "made.sh")]


def test_a_file_that_every_check_changes_ends_no_wait(folder: Path) -> None:
    """The first change may be that of an editor; the second one in a row is the check's."""
    question: Question = (ASKED, str(folder / "data"))
    inputs = Inputs(())
    for number, said in ((1, 0), (2, 1), (3, 0)):
        (folder / "data").write_text("")
        read = Reads({question: signature(str(folder / "data"))})
        (folder / "data").write_text("x" * number)
        inputs.look()
        assert len(inputs.take(read)) == said
        assert bool(inputs.changed()) == (number == 1)
    (folder / "data").unlink()
    assert inputs.changed() == [question[1]]


def test_a_file_that_is_not_there_has_no_state(folder: Path) -> None:
    assert signature(str(folder / "none")) is None
    assert signature("nul\0") is None
