"""The same seed gives the same report, byte for byte but for times and memory, whatever the order
of sets and the process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path
import msgspec
from explain import test_causes
from refute import test_random_streams
from refute.test_rounding_noise import REAL, SAME
from zoo.pairs import pair
from support.explain_plans import run
from pitcheck.report.report import VOLATILE
pairs = [case.pair(False) for case in test_causes.CASES.values()]
pairs += [*test_random_streams.WRONG.values()]
pairs += [SAME["softmax that overflows"], REAL["1e-18 of it"]]
names = ("transformer_block", "tensor_and_data_parallel", "pipeline", "false_hints")
pairs += map(pair, names)
for one in pairs:
    report = run(one, Path(sys.argv[1]), seed=7)
    items = msgspec.structs.asdict(report).items()
    fields = {name: value for name, value in items if name not in VOLATILE}
    sys.stdout.buffer.write(msgspec.json.encode(fields) + b"\\n")
"""


def reports(hash_seed: str, folder: Path) -> bytes:
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env=environment,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.slow
def test_two_processes_report_the_same(tmp_path: Path) -> None:
    """Witnesses too: their names are made of their contents."""
    first = reports("1", tmp_path)
    names = sorted(p.name for p in tmp_path.iterdir())
    second = reports("4242", tmp_path)
    assert first.count(b"\n") > 20
    assert first.splitlines() == second.splitlines()
    assert names == sorted(p.name for p in tmp_path.iterdir())
    assert len(names) > 10
