"""Whole sweeps: limits, crashes, kills, and going on after them."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pitcheck.base import process_tree
from pitcheck.errors import UsageError
from pitcheck.sweep import nights
from pitcheck.sweep.command import merge, run
from pitcheck.sweep.result import Result
from pitcheck.sweep.results import Results
from pitcheck.sweep.summary import summary

PLANS = Path(__file__).resolve().parents[2] / "plans"
DEMO = PLANS / "demo"
REFERENCE = "mlp-L4.reference.plan.json"
SAME = "same.plan.json"
"""A file with the plan of the reference: one file twice is refused."""
WRONG = "mlp-L4.missing-allreduce.plan.json"
PAIR = '[[pair]]\nreference = "{0}"\nparallel = "{1}"\n'
PROGRAMS = {
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "ended": "import os\nos._exit(7)\n",
    "endless": "while True:\n    pass\n",
    "huge": "x = bytearray(1 << 40)\n",
    "short": "from pitcheck.torch import Spec\ndef parallel(rank):\n    bytearray(1 << 40)\n"
    "spec = Spec(lambda: bytearray(1 << 40), parallel, mesh={'dp': 2}, batch={})\n",
    "named": "raise ValueError('MemoryError: PIT203 memory')\n",
    "noisy": "print('a' * 100_000)\nraise ValueError('no spec here')\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with small plans."""
    monkeypatch.chdir(tmp_path)
    for file in (REFERENCE, WRONG):
        shutil.copy(DEMO / file, tmp_path / file)
    shutil.copy(REFERENCE, SAME)
    return tmp_path


def swept(text: str, **options: object) -> tuple[int, list[Result]]:
    """Return the exit code and the results of a sweep in the working directory."""
    Path("sweep.toml").write_text(text, encoding="utf-8")
    given: dict[str, object] = {
        "file": "sweep.toml",
        "results": "r.sqlite",
        "resume": False,
        "before": None,
        "since": None,
        "shard": "1/1",
        "seed": 1,
        "jobs": 2,
        "stage_jobs": 1,
        "engine": "processes",
        "address": None,
        "backend": "auto",
        "cache": False,
        "cache_directory": ".pitcheck",
        "output": (),
        "quiet": True,
        **options,
    }
    code = run(**given)  # type: ignore[arg-type]
    kept = given["results"] or nights.newest(nights.files_in(nights.SWEEPS))
    return code, list(Results(Path(str(kept))).results(reports=True))


def test_a_sweep_of_right_and_wrong_pairs(folder: Path) -> None:
    both = PAIR.format(REFERENCE, SAME) + PAIR.format(REFERENCE, WRONG)
    code, (right, wrong) = swept(both)
    assert (code, right.status, wrong.status) == (1, "as expected", "unexpected")
    assert (right.verdict, wrong.verdict) == ("equivalent", "mismatch")
    assert wrong.report is not None
    assert wrong.report.findings[0].code == "PIT104"
    code, results = swept(both + 'expect = "mismatch"\n', results="s.sqlite")
    assert code == 0
    assert all(each.good for each in results)


def test_a_pair_that_is_right_but_should_not_be_is_not_good(folder: Path) -> None:
    code, (found,) = swept(PAIR.format(REFERENCE, SAME) + 'expect = "mismatch"\n')
    assert (code, found.status) == (1, "unexpected")


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("killed", "crashed", "killed by SIGKILL"),
        ("ended", "unexpected", "SystemExit: 7"),
        ("endless", "out of time", "stopped after 4 s"),
        ("huge", "out of memory", "MemoryError"),
        ("short", "out of memory", "MemoryError"),
        ("named", "unexpected", "MemoryError: PIT203 memory"),
        ("noisy", "unexpected", "no spec here"),
    ],
)
@pytest.mark.slow
def test_what_ends_one_process_ends_one_configuration(
    folder: Path, name: str, status: str, said: str
) -> None:
    Path(f"{name}.py").write_text(PROGRAMS[name], encoding="utf-8")
    seconds = 4 if name == "endless" else 100
    code, (right, found) = swept(
        f'seconds = {seconds}\nmemory = "2GiB"\n'
        + PAIR.format(REFERENCE, SAME)
        + f'[[program]]\nsource = "{name}.py:spec"\n'
    )
    assert right.status == "as expected" or name == "endless"
    assert found.status == status
    assert said in found.said
    assert code in (1, 3)
    assert not found.good


TOGETHER = {
    "forks": "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n"
    "        x = bytearray(os.urandom(1)) * 150_000_000\n        time.sleep(60)\n"
    "        os._exit(0)\ntime.sleep(60)\n",
    "shared": "import mmap, time\nm = mmap.mmap(-1, 600_000_000)\n"
    "for n in range(0, len(m), 4096):\n    m[n] = 1\ntime.sleep(60)\n",
    "apart": "import os, time\nfor _ in range(2):\n    if os.fork() == 0:\n        os.setsid()\n"
    "        x = bytearray(b'1') * 250_000_000\n        time.sleep(60)\n        os._exit(0)\n"
    "time.sleep(60)\n",
}
"""Programs of which no process has much data of its own that Python counts, but all have."""


def test_a_missing_library_is_not_the_failure_that_is_expected(folder: Path) -> None:
    Path("p.py").write_text("import nowhere_to_be_found\n", encoding="utf-8")
    code, (found,) = swept('[[program]]\nsource = "p.py:spec"\nexpect = "invalid"\n')
    assert (code, found.status) == (1, "unexpected")
    assert "No module named 'nowhere_to_be_found'" in found.said


@pytest.mark.parametrize("number", ["INT", "TERM", "HUP"])
def test_a_signal_from_outside_is_not_the_failure_that_is_expected(
    folder: Path, number: str
) -> None:
    text = f"import os, signal\nos.kill(os.getpid(), signal.SIG{number})\nraise ValueError\n"
    Path("p.py").write_text(text, encoding="utf-8")
    code, (found,) = swept('[[program]]\nsource = "p.py:spec"\nexpect = "invalid"\n')
    assert (code, found.status, found.said) == (3, "crashed", f"killed by SIG{number}")


@pytest.mark.skipif(not process_tree.PROC.is_dir(), reason="the memory is read from /proc")
@pytest.mark.parametrize("name", TOGETHER)
def test_memory_counts_over_all_that_a_process_starts(folder: Path, name: str) -> None:
    Path(f"{name}.py").write_text(TOGETHER[name], encoding="utf-8")
    begun = time.monotonic()
    code, (found,) = swept(
        f'seconds = 100\nmemory = "400MB"\n[[program]]\nsource = "{name}.py:spec"\n'
    )
    assert (code, found.status) == (3, "out of memory"), found
    assert "it and all that it started held more than 400000000 bytes" in found.said
    assert found.memory_mb * 2**20 > 399_000_000
    assert time.monotonic() - begun < 50


@pytest.mark.skipif(not process_tree.PROC.is_dir(), reason="the memory is read from /proc")
def test_what_forks_share_counts_once(folder: Path) -> None:
    Path("p.py").write_text(
        "import os, time\nx = bytearray(b'1') * 250_000_000\nfor _ in range(4):\n"
        "    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\ntime.sleep(60)\n",
        encoding="utf-8",
    )
    _, (found,) = swept('seconds = 6\nmemory = "600MB"\n[[program]]\nsource = "p.py:spec"\n')
    assert found.status == "out of time"
    assert 200 < found.memory_mb < 600


def test_a_pair_of_one_file_is_refused(folder: Path) -> None:
    """As by check: a plan equals itself."""
    Path("link.plan.json").symlink_to(REFERENCE)
    for other in (REFERENCE, f"./{REFERENCE}", "link.plan.json"):
        with pytest.raises(UsageError, match=r"sweep\.toml: pair: REFERENCE and PARALLEL are one"):
            swept(PAIR.format(REFERENCE, other))
    code, _ = swept(PAIR.format(REFERENCE, SAME))
    assert code == 0


def test_a_missing_file_is_one_row(folder: Path) -> None:
    code, (missing, right) = swept(
        PAIR.format("none.plan.json", REFERENCE) + PAIR.format(REFERENCE, SAME)
    )
    assert (code, missing.verdict, right.status) == (1, "invalid", "as expected")


def test_the_same_seed_gives_the_same_reports(folder: Path) -> None:
    text = PAIR.format(REFERENCE, SAME) + PAIR.format(REFERENCE, WRONG)
    _, one = swept(text)
    _, two = swept(text, results="s.sqlite", jobs=1)
    assert list(map(stable, one)) == list(map(stable, two))


@pytest.mark.slow
def test_stages_are_proven_by_several_processes_with_the_same_reports(folder: Path) -> None:
    text = PAIR.format(REFERENCE, SAME) + PAIR.format(REFERENCE, WRONG)
    _, one = swept(text)
    _, two = swept(text, results="s.sqlite", jobs=1, stage_jobs=2)
    assert list(map(stable, one)) == list(map(stable, two))


def stable(result: Result) -> tuple[object, ...]:
    """Return what may not differ between two sweeps with one seed."""
    from msgspec.structs import replace  # noqa: PLC0415

    from pitcheck.report.report import Report, Seconds  # noqa: PLC0415

    report = result.report
    if isinstance(report, Report):
        report = replace(
            report, seconds=Seconds(), peak_memory_mb=0.0, remembered=0, backend="numpy"
        )
    return result.name, result.status, result.verdict, result.seed, result.said, report


def pairs(count: int) -> str:
    """Return a sweep of small pairs, wrong ones among them, and copy their plans."""
    for n in range(count):
        shutil.copy(REFERENCE, f"{n}.plan.json")
    return "".join(
        PAIR.format(f"{n}.plan.json", WRONG if n % 3 == 1 else SAME)
        + ('expect = "mismatch"\n' if n % 3 == 1 else "")
        for n in range(count)
    )


def test_a_sweep_that_is_done_has_nothing_left(folder: Path) -> None:
    text = pairs(2)
    _, results = swept(text)
    before = Path("r.sqlite").read_bytes()
    code, again = swept(text, resume=True)
    assert (code, again) == (0, results)
    assert Path("r.sqlite").read_bytes() == before


def test_another_sweep_is_not_gone_on_with(folder: Path) -> None:
    text = pairs(2)
    swept(text)
    with pytest.raises(UsageError, match="sweep is"):
        swept(text + PAIR.format(REFERENCE, SAME), resume=True)
    with pytest.raises(UsageError, match="seed is 1 in one and 2 in the other"):
        swept(text, resume=True, seed=2)
    Path("0.plan.json").write_text(Path(WRONG).read_text("utf-8"), encoding="utf-8")
    with pytest.raises(UsageError, match="files is"):
        swept(text, resume=True)
    shutil.copy(REFERENCE, "0.plan.json")
    with pytest.raises(UsageError, match="shards is 1"):
        swept(text, resume=True, shard="1/2")
    with pytest.raises(UsageError, match="is there already"):
        swept(text)
    with pytest.raises(UsageError, match="no such file"):
        swept(text, resume=True, results="none.sqlite")


def test_shards_that_are_merged_are_the_whole_sweep(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = pairs(3)
    _, whole = swept(text)
    files = [f"{n}.sqlite" for n in (1, 2)]
    for n in (1, 2):
        swept(text, shard=f"{n}/2", results=f"{n}.sqlite")
    assert merge("all.sqlite", files, ()) == 0
    merged = Results(Path("all.sqlite")).results(reports=True)
    assert list(map(stable, merged)) == list(map(stable, whole))


def start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pitcheck", "sweep", "sweep.toml", *arguments],
        start_new_session=True,
        # What runs in the background may have been told to ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def done(name: str) -> int:
    """Return the number of results in a file, 0 before it is one."""
    try:
        return len(Results(Path(name)).statuses())
    except UsageError:
        return 0


def killed_and_resumed(kills: int, draw: random.Random, longest: float) -> list[Result]:
    """Return the results of a sweep that is killed so many times, and then gone on with."""
    path = Path("killed.sqlite")
    arguments = ["--results", str(path), "--seed", "1", "--jobs", "2", "--no-cache"]
    for _ in range(kills):
        process = start([*arguments, "--resume"] if path.exists() else arguments)
        time.sleep(draw.uniform(0.2, longest))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        done = set() if not path.exists() else {each.name for each in Results(path).results()}
        assert len(done) <= 6
    resume = [*arguments, "--resume"] if path.exists() else arguments
    assert start(resume).wait() == 0
    return list(Results(path).results(reports=True))


def test_an_interrupted_sweep_goes_on(folder: Path) -> None:
    text = pairs(4)
    _, whole = swept(text)
    process = start(["--results", "i.sqlite", "--seed", "1", "--jobs", "1", "--no-cache"])
    while not done("i.sqlite"):
        time.sleep(0.1)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    kept = Results(Path("i.sqlite"))
    assert 0 < len(kept.statuses()) < 4
    code, results = swept(text, resume=True, results="i.sqlite")
    assert code == 0
    assert list(map(stable, results)) == list(map(stable, whole))
    assert summary(kept.planned(), results).good


def is_running(process: int) -> bool:
    """Return True if a process is there and has not ended."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text("utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def ends(number: int) -> bool:
    """Return True if a process ends soon."""
    for _ in range(100):
        if not is_running(number):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.skipif(not process_tree.PROC.is_dir(), reason="processes are found in /proc")
@pytest.mark.parametrize("ended", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_however_a_sweep_ends_its_processes_end_and_it_goes_on(
    folder: Path, ended: signal.Signals
) -> None:
    """Forks of a process, also those in a session of their own, end with it."""
    Path("slow.py").write_text(
        "import os, pathlib, time\nif pathlib.Path('go').exists():\n    raise ValueError('gone')\n"
        "number = os.fork() and os.getpid() or os.setsid() or os.getpid()\n"
        "pathlib.Path(f'{number}.started').touch()\ntime.sleep(600)\n",
        encoding="utf-8",
    )
    text = pairs(2) + '[[program]]\nsource = "slow.py:spec"\nexpect = "invalid"\n'
    Path("sweep.toml").write_text(text, encoding="utf-8")
    process = start(["--results", "t.sqlite", "--seed", "1", "--jobs", "2", "--no-cache"])
    while len(started := list(folder.glob("*.started"))) < 2:
        time.sleep(0.1)
        assert process.poll() is None
    process.send_signal(ended)
    assert process.wait(60) != 0
    assert all(ends(int(each.stem)) for each in started)
    Path("go").touch()
    code, results = swept(text, resume=True, results="t.sqlite")
    assert (code, len(results)) == (0, 3)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_sweep_that_is_killed_at_twenty_moments_ends_like_another(folder: Path) -> None:
    text = pairs(6)
    _, whole = swept(text)
    found = killed_and_resumed(20, random.Random(1), 4.0)
    assert list(map(stable, found)) == list(map(stable, whole))


def test_code_of_the_working_directory_does_not_answer(folder: Path) -> None:
    Path("pitcheck/sweep/child").mkdir(parents=True)
    for file in ("__init__", "sweep/__init__", "sweep/child/__init__", "sweep/child/worker"):
        text = "raise SystemExit('another pitcheck')\n"
        Path("pitcheck", f"{file}.py").write_text(text, encoding="utf-8")
    code, (found,) = swept(PAIR.format(REFERENCE, WRONG))
    assert (code, found.verdict) == (1, "mismatch")


def test_settings_that_a_sweep_does_not_read_are_named(folder: Path) -> None:
    text = PAIR.format(REFERENCE, WRONG) + 'expect = "mismatch"\n'
    Path("pitcheck.toml").write_text('estimates = "refuse"\n', encoding="utf-8")
    with pytest.raises(UsageError, match="estimates is 'refuse', which a sweep does not read"):
        swept(text)
    code, (found,) = swept('[options]\nestimates = "refuse"\n' + text)
    assert (code, found.verdict) == (0, "mismatch")


def test_outputs_do_not_replace_what_is_read(folder: Path) -> None:
    text = PAIR.format(REFERENCE, WRONG)
    for file in (WRONG, "sweep.toml", "r.sqlite"):
        with pytest.raises(UsageError, match="name another file"):
            swept(text, output=[f"junit:{file}"])


def test_a_process_that_leaves_its_session_does_not_hold_the_night(folder: Path) -> None:
    Path("escapes.py").write_text(
        "import subprocess, time\n"
        "subprocess.Popen(['sleep', '60'], start_new_session=True)\ntime.sleep(60)\n",
        encoding="utf-8",
    )
    begun = time.monotonic()
    _, (found,) = swept('seconds = 2\n[[program]]\nsource = "escapes.py:spec"\n')
    assert found.status == "out of time"
    assert time.monotonic() - begun < 40


def test_two_processes_do_not_work_on_one_file(folder: Path) -> None:
    text = pairs(4)
    Path("sweep.toml").write_text(text, encoding="utf-8")
    process = start(["--results", "r.sqlite", "--seed", "1", "--jobs", "1", "--no-cache"])
    while not Path("r.sqlite").exists():
        time.sleep(0.05)
        assert process.poll() is None
    with pytest.raises(UsageError, match="another process is at work"):
        swept(text, resume=True)
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_planted_fault_is_caught_and_said(folder: Path) -> None:
    code, results = swept(
        f'[[matrix]]\nmodels = ["{PLANS / "gpt3-tiny.toml"}"]\nprobes = 1\n'
        "[matrix.set]\n'model.layers' = [1]\npp = [1]\ndp = [1]\n"
    )
    right, probe = results
    assert (code, right.verdict, probe.verdict) == (0, "equivalent", "mismatch")
    assert probe.said
