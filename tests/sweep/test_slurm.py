"""A night on Slurm, with stubs of sbatch and srun that run every job here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sweep.test_sweep import folder, pairs, stable, swept

from pitcheck.sweep.results import Results

__all__ = ["folder"]

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "examples" / "night" / "slurm.sh"
# As Slurm does, it copies the script, and runs it once for each number of the array.
SBATCH = """#!/usr/bin/env bash
set -eu
echo "$*" >> calls
array= output= names=()
while [ "${1#--}" != "$1" ]; do
    case $1 in --array=*) array=${1#--array=};; --output=*) output=${1#--output=};; esac
    case $1 in --dependency=*) test -e ended;; esac
    shift
done
cp "$1" spooled
shift
if [ -n "$array" ]; then
    for n in ${ORDER:-$(seq "${array%-*}" "${array#*-}")}; do
        code=0
        SLURM_ARRAY_TASK_ID=$n SLURM_ARRAY_TASK_COUNT=${COUNT:-${array#*-}} SLURM_CPUS_PER_TASK=1 \\
            bash spooled "$@" > "${output/\\%a/$n}" 2>&1 || code=$?
        echo "$n $code" >> ended
    done
    echo "17;somewhere"
else
    code=0
    bash spooled "$@" > "$output" 2>&1 || code=$?
    echo "merge $code" >> ended
    echo 18
fi
"""
SRUN = '#!/bin/sh\nexec "$@"\n'
PITCHECK = '#!/bin/sh\nexec "{}" -m pitcheck "$@"\n'


@pytest.fixture
def slurm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with plans, where Slurm's commands are stubs."""
    (folder / "bin").mkdir()
    for name, text in (
        ("sbatch", SBATCH),
        ("srun", SRUN),
        ("pitcheck", PITCHECK.format(sys.executable)),
    ):
        (folder / "bin" / name).write_text(text, encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SEED", "1")
    return folder


def submitted(parts: int) -> list[str]:
    """Submit the sweep in the working directory, and return how each job ended."""
    ran = subprocess.run(
        [SCRIPT, "submit", "sweep.toml", str(parts), "nights"], capture_output=True, check=True
    )
    assert ran.stdout == b"18\n"
    return Path("ended").read_text(encoding="utf-8").splitlines()


def merged() -> list[tuple[object, ...]]:
    return list(map(stable, Results(Path("nights/night.sqlite")).results(reports=True)))


@pytest.mark.slow
def test_a_night_in_parts_is_the_night(slurm: Path) -> None:
    _, whole = swept(pairs(4))
    assert submitted(2) == ["1 0", "2 0", "merge 0"]
    assert merged() == list(map(stable, whole))
    array, merge = (slurm / "calls").read_text(encoding="utf-8").splitlines()
    assert "--array=1-2" in array
    assert "--dependency=afterany:17 " in merge
    assert "good: 4" in (slurm / "nights/night/badge.svg").read_text(encoding="utf-8")
    assert (slurm / "nights/night.txt").read_text(encoding="utf-8").startswith("good: 4")
    # A part that is requeued goes on: nothing is left, and nothing is run twice.
    before = {each: each.read_bytes() for each in Path("nights").glob("part-*.sqlite")}
    shutil.rmtree("nights/night")
    Path("nights/night.sqlite").unlink()
    assert submitted(2)[-3:] == ["1 0", "2 0", "merge 0"]
    assert {each: each.read_bytes() for each in before} == before


@pytest.mark.slow
def test_a_night_that_is_not_good_is_merged_and_says_so(slurm: Path) -> None:
    text = pairs(2).replace('expect = "mismatch"\n', "")
    Path("sweep.toml").write_text(text, encoding="utf-8")
    assert sorted(submitted(2)) == ["1 0", "2 1", "merge 1"]
    assert "not good: 1 of 2" in Path("nights/night/badge.svg").read_text(encoding="utf-8")


def test_a_night_without_a_part_is_no_night(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("sweep.toml").write_text(pairs(2), encoding="utf-8")
    monkeypatch.setenv("ORDER", "2")
    assert submitted(2) == ["2 0", "merge 2"]
    assert "part 1 of 2 is missing" in Path("nights/merge.log").read_text(encoding="utf-8")
    assert not Path("nights/night.sqlite").exists()


def test_a_part_that_is_submitted_alone_is_refused(
    slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm counts the numbers of the array that it was given, and 2 is no part of 1."""
    Path("sweep.toml").write_text(pairs(2), encoding="utf-8")
    monkeypatch.setenv("ORDER", "2")
    monkeypatch.setenv("COUNT", "1")
    assert submitted(2) == ["2 2", "merge 2"]
    assert "'2/1' is no part" in Path("nights/part-2.log").read_text(encoding="utf-8")
