"""``pitcheck check FILE.py:NAME --jax --devices N``: a program that JAX compiles in a process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from conftest import Call

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
    os.abort()


def hangs():
    Path = __import__("pathlib").Path
    Path("began").touch()
    if os.fork() == 0:
        time.sleep(4)
        Path("child").touch()
    time.sleep(60)


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


SAID = {
    "plain": "plain returns a function first; it must return a jitted function with its arguments",
    "alone": "XLA does not partition the program: it is for one device",
    "nothing": "nothing returns nothing; it must return a jitted function",
    "raises": "it raises ZeroDivisionError: division by zero (line 56)",
    "leaves": "it raises SystemExit: 0 (line 60)",
    "aborts": "JAX's process ended with signal 6 (SIGABRT) while it compiled the program",
    "number": "'number' is no function",
    "programm": "'programm' is not there; the nearest is 'program'",
}


@pytest.mark.parametrize("name", SAID)
def test_a_program_that_cannot_be_used(call: Call, name: str) -> None:
    result = call("check", f"train.py:{name}@4")
    assert result.code == 2
    assert SAID[name] in " ".join(result.out.split())


def test_a_program_that_hangs_is_stopped_with_its_children(call: Call) -> None:
    result = call("check", "train.py:hangs@4", "--set", "seconds=4")
    assert result.code == 2
    assert "hangs took more than 4 s and was stopped" in " ".join(result.out.split())
    assert Path("began").exists()
    time.sleep(max(0.0, Path("began").stat().st_mtime + 4.5 - time.time()))
    assert not Path("child").exists()


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
