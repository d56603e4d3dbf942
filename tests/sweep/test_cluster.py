"""Sweeps on a real Ray cluster of several processes, of which some are killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sweep.test_sweep import (
    DEMO,
    PAIR,
    PROGRAMS,
    REFERENCE,
    SAME,
    done,
    folder,
    pairs,
    stable,
    start,
    swept,
)

from pitcheck.errors import UsageError
from pitcheck.sweep.cluster import engine as cluster_engine
from pitcheck.sweep.exports import FORMATS
from pitcheck.sweep.result import Result
from pitcheck.sweep.results import Results

__all__ = ["folder"]

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.nightly]
MEMORY = 3 << 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Return a cluster with two nodes that check, and one that does not."""
    utils = pytest.importorskip("ray.cluster_utils")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        found = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        for _ in range(2):
            found.add_node(num_cpus=1, num_gpus=1, memory=MEMORY)
        yield found
        found.shutdown()


def on(cluster: Any, text: str, **options: object) -> tuple[int, list[Result]]:
    """Return the exit code and the results of a sweep on the cluster."""
    given = {"engine": "ray", "address": cluster.address, "jobs": None, **options}
    return swept(f'memory = "2GiB"\n{text}', **given)


def here(text: str, **options: object) -> tuple[int, list[Result]]:
    """Return the exit code and the results of the same sweep on this machine."""
    return swept(f'memory = "2GiB"\n{text}', results="here.sqlite", **options)


def workers() -> list[int]:
    """Return the processes that check a configuration of a sweep below this folder."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            said = (each / "cmdline").read_bytes()
            if b"pitcheck.sweep.child.worker" in said and (each / "cwd").readlink() == Path.cwd():
                found.append(int(each.name))
        except (OSError, ValueError):
            continue
    return found


def parent(process: int) -> int:
    """Return the process that started another one."""
    return int(Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[1])


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Return what a condition gives once it is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def lines(name: str) -> list[bytes]:
    """Return the results of a file as JSON lines without times and workers that died."""
    import msgspec  # noqa: PLC0415

    found = []
    for text in FORMATS["jsonl"](Results(Path(name))).splitlines():
        line = msgspec.json.decode(text)
        for key in ("seconds", "memory_mb", "started", "lost"):
            line.pop(key, None)
        for key in ("seconds", "peak_memory_mb", "remembered", "backend"):
            (line.get("report") or {}).pop(key, None)
        found.append(msgspec.json.encode(line))
    return found


def test_a_cluster_that_loses_workers_and_a_node_gives_the_same_results(
    folder: Path, cluster: Any
) -> None:
    text = pairs(8)
    assert here(text)[0] == 0
    extra = cluster.add_node(num_cpus=1, memory=MEMORY)

    def lose() -> None:
        os.kill(parent(wait_for(workers)[0]), signal.SIGKILL)
        wait_for(lambda: done("r.sqlite") > 1)
        cluster.remove_node(extra, allow_graceful=False)

    thread = threading.Thread(target=lose)
    thread.start()
    code, results = on(cluster, text)
    thread.join()
    assert code == 0
    assert len(results) == 8
    assert any(each.lost for each in results)
    assert lines("r.sqlite") == lines("here.sqlite")
    assert wait_for(lambda: not workers())


def test_limits_and_crashes_are_the_rows_that_they_are_here(folder: Path, cluster: Any) -> None:
    for name, program in PROGRAMS.items():
        Path(f"{name}.py").write_text(program, encoding="utf-8")
    text = "seconds = 12\n" + "".join(f'[[program]]\nsource = "{n}.py:spec"\n' for n in PROGRAMS)
    text += '[[matrix]]\nmodels = ["gpt3-tiny.toml"]\n[matrix.set]\ntp = [1, 3]\n'
    shutil.copy(DEMO.parent / "gpt3-tiny.toml", "gpt3-tiny.toml")
    code, expected = here(text)
    assert (code, list(map(stable, expected))) == (1, list(map(stable, on(cluster, text)[1])))
    assert {each.status for each in expected} >= {"crashed", "out of time", "out of memory"}


def test_an_interrupted_sweep_on_a_cluster_goes_on(folder: Path, cluster: Any) -> None:
    text = f'memory = "2GiB"\n{pairs(5)}'
    Path("sweep.toml").write_text(text, encoding="utf-8")
    arguments = ["--results", "r.sqlite", "--seed", "1", "--no-cache", "--jobs", "1"]
    arguments += ["--engine", "ray", "--address", cluster.address]
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        before = done("r.sqlite")
        process = start([*arguments, "--resume"] if before else arguments)
        while done("r.sqlite") == before:
            time.sleep(0.05)
            assert process.poll() is None
        process.send_signal(number)
        assert process.wait() == code
        assert wait_for(lambda: not workers())
    assert done("r.sqlite") < 5
    assert on(cluster, pairs(5), resume=True)[0] == 0
    here(pairs(5))
    assert lines("r.sqlite") == lines("here.sqlite")


def test_a_node_that_refuses_is_left_out(
    folder: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sendable = cluster_engine._sendable
    bad: list[str] = []

    def refusing() -> Callable[[str, bytes], Any]:
        work = sendable()
        bad.append(next(n["NodeID"] for n in ray.nodes() if n["Resources"].get("CPU")))
        left_out = bad[0]

        def found(code: str, content: bytes) -> Any:
            node, address, _, _ = answer = work(code, content)
            return (node, address, "a test wants it", b"") if node == left_out else answer

        return found

    monkeypatch.setattr(cluster_engine, "_sendable", refusing)
    code, results = on(cluster, pairs(4))
    assert (code, len(results)) == (0, 4)
    said = capsys.readouterr().err
    assert said.count("checks nothing: a test wants it") == 1


def test_a_cluster_with_another_pitcheck_checks_nothing(
    folder: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_engine, "meaning", lambda: "0" * 64)
    monkeypatch.setattr(cluster_engine, "PATIENCE", 1.0)
    with pytest.raises(UsageError, match="its pitcheck or its libraries are others"):
        on(cluster, pairs(2))
    assert Results(Path("r.sqlite")).statuses() == {}


def test_a_configuration_that_no_node_has_room_for_is_an_error(
    folder: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_engine, "PATIENCE", 1.0)
    with pytest.raises(UsageError, match=r"no node of the Ray cluster .*CPU 1, memory 50000000000"):
        swept(
            f'memory = "50GB"\n{PAIR.format(REFERENCE, SAME)}',
            engine="ray",
            address=cluster.address,
        )


def test_each_process_on_gpus_has_its_own(folder: Path, cluster: Any) -> None:
    seen = "import os, pathlib, time\ntime.sleep(4)\npathlib.Path(f'gpu-{os.getpid()}').write_text("
    seen += "os.environ['CUDA_VISIBLE_DEVICES'])\n"
    for n in range(2):
        Path(f"{n}.py").write_text(seen, encoding="utf-8")
    on(
        cluster,
        "".join(f'[[program]]\nsource = "{n}.py:spec"\n' for n in range(2)),
        backend="cupy",
    )
    found = [each.read_text(encoding="utf-8") for each in Path.cwd().glob("gpu-*")]
    # Each node of this cluster has one GPU, that of number 0.
    assert found == ["0", "0"]


def test_proofs_are_shared_by_the_folder(folder: Path, cluster: Any) -> None:
    text = PAIR.format(REFERENCE, SAME)
    for name in ("one", "two"):
        on(cluster, text, cache=True, cache_directory="shared", results=f"{name}.sqlite")
    (found,) = Results(Path("two.sqlite")).results(reports=True)
    assert found.report is not None
    assert found.report.remembered > 0


def test_a_cluster_of_its_own_ends_with_the_sweep(folder: Path) -> None:
    text = f'memory = "2GiB"\n{PAIR.format(REFERENCE, SAME)}'
    Path("sweep.toml").write_text(text, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    ran = subprocess.run(
        [sys.executable, "-m", "pitcheck", "sweep", "sweep.toml", "--engine", "ray", "--quiet"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.endswith("1 configurations\n")
