"""``pitcheck check FILE.py:NAME --jax --devices N``: a program that JAX compiles in a process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import Call

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from hunt.judging import computations_of

from pitcheck.frontends.xla.running.child import partitioned_texts
from pitcheck.frontends.xla.running.dumping import texts_in

PROGRAM = """
import os
import time

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P


def step(params, x, y):
    def loss(params):
        return jnp.mean((jax.nn.relu(x @ params["first"]) @ params["second"] - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - g / 10, params, gradients)


def program():
    print("compiles")
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    at = lambda *spec: NamedSharding(mesh, P(*spec))
    shardings = {"first": at(None, "model"), "second": at("model", None)}
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    params = {"first": array(8, 16), "second": array(16, 8)}
    jitted = jax.jit(
        step,
        in_shardings=(shardings, at("data"), at("data")),
        out_shardings=(at(), shardings),
    )
    return jitted, (params, array(8, 8), array(8, 8))


def lowered():
    jitted, args = program()
    return jitted.lower(*args)


def traced():
    jitted, args = program()
    return jitted.trace(*args)


def plain():
    return step, ()


def alone():
    return jax.jit(lambda x: x + 1), (jnp.ones(2),)


def nothing():
    pass


def raises():
    return 1 / 0


def leaves():
    raise SystemExit(0)


def aborts():
    print("the last line")
    os.abort()


def ends():
    os._exit(0)


def forks():
    Path = __import__("pathlib").Path
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            Path("number").write_text(str(os.getpid()))
            Path("number").rename("child.pid")
            time.sleep(60)
        os.wait()
    while not Path("child.pid").exists():
        time.sleep(0.01)


def hangs():
    forks()
    time.sleep(60)


def returns_with_children():
    forks()
    return program()


def chooses():
    jax.config.update("jax_num_cpu_devices", 8)
    return program()


number = 3
"""


@pytest.fixture(autouse=True)
def program(folder: Path) -> None:
    Path("train.py").write_text(PROGRAM)


@pytest.mark.parametrize("name", ["program", "lowered", "traced"])
def test_a_program_is_proven(call: Call, name: str) -> None:
    result = call("check", f"train.py:{name}", "--jax", "--devices", "4")
    assert (result.code, result.out.split(":")[0]) == (0, "equivalent")
    assert "compiles" not in result.out


def test_both_ways_to_write_it(call: Call) -> None:
    assert call("check", "train.py:program@4", "--quiet").code == 0


def test_the_texts_are_those_of_the_whole_compilation(folder: Path) -> None:
    """The process ends without waiting for the machine code, and nothing of a text is missing."""
    (folder / "process").mkdir()
    texts = partitioned_texts("train.py", "program", 4, folder / "process")
    whole = folder / "whole"
    whole.mkdir()
    code = (
        "from pathlib import Path; from train import lowered; "
        "from pitcheck.frontends.xla.running.dumping import dumped_around_partitioner; "
        "dumped_around_partitioner(lowered(), Path('whole'))"
    )
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": "."}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    expected = texts_in(whole)
    for text, other in ((texts.before, expected.before), (texts.after, expected.after)):
        # Places in Python files differ between two processes.
        computations = computations_of(text.read_text())
        assert "ENTRY" in computations
        assert computations == computations_of(other.read_text())


SAID = {
    "plain": "plain returns a function first; it must return a jitted function with its arguments",
    "alone": "XLA does not partition the program: it is for one device",
    "nothing": "nothing returns nothing; it must return a jitted function",
    "raises": "it raises ZeroDivisionError: division by zero (line 56)",
    "leaves": "it raises SystemExit: 0 (line 60)",
    "aborts": (
        "JAX's process ended with signal 6 (SIGABRT) while it compiled the program; its last line "
        "is: the last line"
    ),
    "ends": "JAX's process ended with exit code 0 while it compiled the program",
    "chooses": "it runs on 8 devices of cpu, which it chooses itself, and not on 4 of cpu",
    "number": "'number' is no function",
    "programm": "'programm' is not there; the nearest is 'program'",
}


@pytest.mark.parametrize("name", SAID)
def test_a_program_that_cannot_be_used(call: Call, name: str) -> None:
    result = call("check", f"train.py:{name}@4")
    assert result.code == 2
    assert SAID[name] in " ".join(result.out.split())


def _has_ended(number: int) -> bool:
    """Return True once a process has ended, which may take a moment."""
    for _ in range(500):
        try:
            if (Path("/proc") / str(number) / "stat").read_text().rpartition(")")[2].split()[
                0
            ] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_a_program_that_hangs_is_stopped_with_its_children(call: Call) -> None:
    """One of them is a leader of a session, so that no signal to the group reaches it."""
    result = call("check", "train.py:hangs@4", "--set", "seconds=10")
    assert result.code == 2
    assert "hangs took more than 10 s and was stopped" in " ".join(result.out.split())
    assert _has_ended(int(Path("child.pid").read_text()))


def test_nothing_is_left_behind(
    call: Call, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = {*Path().rglob("*")}
    assert call("check", "train.py:returns_with_children@4", "--no-cache").code == 0
    assert {*Path().rglob("*")} - before == {Path("child.pid")}
    assert not [*temporary.iterdir()]
    assert _has_ended(int(Path("child.pid").read_text()))


def test_the_child_ends_with_the_process_that_waits(folder: Path) -> None:
    """Its folder goes, too, though nobody is left who would remove it."""
    texts = folder / "texts_of_it"
    texts.mkdir()
    code = (
        "from pathlib import Path; from pitcheck.frontends.xla.running.child import *; "
        "partitioned_texts('train.py', 'hangs', 4, Path('texts_of_it'))"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    while not Path("child.pid").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert _has_ended(int(Path("child.pid").read_text()))
    assert not texts.exists()


def test_the_working_directory_is_not_where_modules_are(call: Call) -> None:
    """Only the folder of the program is."""
    Path("programs").mkdir()
    Path("train.py").rename("programs/train.py")
    Path("jax.py").write_text("raise ImportError('another jax')")
    assert call("check", "programs/train.py:program@4", "--quiet").code == 0


def test_jax_that_is_missing_is_named(call: Call) -> None:
    Path("jax.py").write_text("raise ModuleNotFoundError('no', name='jax')")
    result = call("check", "train.py:program@4")
    assert result.code == 2
    assert "it needs JAX; install pitcheck[jax]" in result.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train.py:program", "--jax"], "--jax needs the number of devices; add --devices N"),
        (["train.py:program", "--devices", "4"], "--devices 4 is of a program of JAX; add --jax"),
        (["a.plan.json", "--jax", "--devices", "4"], "--jax takes one program, FILE.py:NAME"),
        (["train.py:program@4", "--jax", "--devices", "4"], "leave --jax out"),
        (["train.py:f", "b.plan.json", "--jax", "--devices", "4"], "and no second plan"),
        (["train.py:program@1"], "2 to 4096 devices, and not for 1"),
        (["train.py:program@5000"], "2 to 4096 devices, and not for 5000"),
        (["train.py:program@4", "--set", "tp=2"], "it takes seconds=N"),
        (["train.py:program@4", "--set", "seconds=0"], "is no time; give seconds=N"),
        (["train.py:program@4", "--set", "seconds=nan"], "is no time; give seconds=N"),
        (["train.py:program@4", "--layers", "one-of-each"], "it takes seconds=N"),
    ],
)
def test_wrong_options(call: Call, words: list[str], said: str) -> None:
    result = call("check", *words)
    assert result.code == 2
    assert said in result.err


def test_a_file_that_is_missing(call: Call) -> None:
    result = call("check", "trian.py:program@4")
    assert result.code == 2
    assert "no such file; the nearest is 'train.py'" in " ".join(result.out.split())
