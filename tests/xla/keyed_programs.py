"""JAX programs with random numbers: prints their texts, and what XLA makes of mistakes in them.

``python keyed_programs.py FILE MAPS`` needs JAX. The files are ``texts/keyed.jsonl.gz``, and
``texts/keyed_maps.jsonl.gz`` with ``shard_map`` programs beside the plain one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jax_programs import pair, places_of, sharded, write  # first: it sets XLA's flags
from keyed_faults import faults

import jax  # isort: skip
import jax.numpy as jnp  # isort: skip
import numpy as np  # isort: skip
from jax import lax, random  # isort: skip
from jax.sharding import AxisType  # isort: skip
from jax.sharding import PartitionSpec as P  # isort: skip

MESH = jax.make_mesh((2, 2), ("d", "t"), axis_types=(AxisType.Auto,) * 2)
ALL = ("d", "t")
DEVICES = 4
WORDS = {"threefry2x32": 2, "rbg": 4}
Program = Callable[..., Any]


def trained(key: Any, x: Any, first: Any, second: Any) -> Any:
    """Return the loss of two layers with dropout between, and its gradients."""

    def loss(first: Any, second: Any) -> Any:
        h = jnp.tanh(x @ first)
        h = jnp.where(random.bernoulli(key, 0.9, h.shape), h / 0.9, 0)
        return jnp.mean((h @ second) ** 2)

    return jax.value_and_grad(loss, (0, 1))(first, second)


def masked(key: Any, x: Any) -> Any:
    """Return an array of which a mask leaves some, and its complement others."""
    mask = random.bernoulli(key, 0.5, x.shape)
    return jnp.where(mask, x, 0), jnp.where(mask, 0, x)


def normal(key: Any, x: Any) -> Any:
    """Return an array with noise."""
    return x + random.normal(key, x.shape)


def picked(key: Any, x: Any) -> Any:
    """Return rows of an array at random places."""
    return x[random.randint(key, (8,), 0, 8)]


def parted(key: Any, x: Any) -> Any:
    """Return an array with numbers of two keys that are split from one."""
    one, other = random.split(key)
    return x * random.uniform(one, x.shape) - random.uniform(other, x.shape, minval=-1, maxval=2)


def scanned(key: Any, x: Any, weights: Any) -> Any:
    """Return the loss of layers, each with a dropout of its key, and its gradient."""
    keys = random.split(key, 2)

    def loss(weights: Any) -> Any:
        def layer(h: Any, given: Any) -> Any:
            key, w = given
            h = jnp.tanh(h @ w)
            return jnp.where(random.bernoulli(key, 0.5, h.shape), 2 * h, 0), None

        return jnp.sum(lax.scan(layer, x, (keys, weights))[0] ** 2)

    return jax.value_and_grad(loss)(weights)


def carried(key: Any, x: Any) -> Any:
    """Return an array, and a key, after steps that each split the key."""

    def step(state: Any, _: Any) -> Any:
        key, x = state
        key, other = random.split(key)
        return (key, x * random.uniform(other, x.shape)), None

    key, x = lax.scan(step, (key, x), None, 2)[0]
    return x, random.key_data(key)


def mapped(key: Any, x: Any) -> Any:
    """Return an array whose shards are multiplied by the same numbers."""
    words = random.key_data(key)

    def body(words: Any, x: Any) -> Any:
        return x * random.uniform(random.wrap_key_data(words, impl=_impl(words)), x.shape)

    return jax.shard_map(body, mesh=MESH, in_specs=(P(), P(ALL)), out_specs=P(ALL))(words, x)


def folded(key: Any, x: Any) -> Any:
    """Return an array whose shards are multiplied by numbers of a key of each device."""
    words = random.key_data(key)

    def body(words: Any, x: Any) -> Any:
        key = random.wrap_key_data(words, impl=_impl(words))
        return x * random.uniform(random.fold_in(key, lax.axis_index(ALL)), x.shape)

    return jax.shard_map(body, mesh=MESH, in_specs=(P(), P(ALL)), out_specs=P(ALL))(words, x)


def short(key: Any, x: Any) -> Any:
    """Return an array times numbers of 16 bits."""
    return x * random.uniform(key, x.shape, dtype=jnp.bfloat16).astype(x.dtype)


def filled(key: Any, x: Any) -> Any:
    """Return rows that do not divide by the devices, with noise that is cut all the same."""
    noise = lax.with_sharding_constraint(random.uniform(key, x.shape), sharded(ALL))
    return x * noise


def columns(key: Any, x: Any) -> Any:
    """Return rows with noise that is cut by columns, which do not divide by the devices.

    Behind the last column a generator that counts draws the first number of the next row.
    """
    noise = lax.with_sharding_constraint(random.uniform(key, x.shape), sharded(None, ALL))
    return x * noise


def spread(key: Any, x: Any) -> Any:
    """Return the gradient of rows at random places: a device looks for them among its own."""
    places = random.randint(key, (6,), 0, 8)
    return jax.grad(lambda x: jnp.sum(x[places] ** 2))(x)


def fixed(key: Any, x: Any) -> Any:
    """Return rows at random places of a key that is a constant, of which some are left out."""
    rows = x[random.randint(random.key(6), (6,), 0, 8)]
    return jnp.where(random.bernoulli(key, 0.5, rows.shape), rows, 0)


def bits(key: Any, x: Any) -> Any:
    """Return random bits, and an array."""
    return random.bits(key, x.shape), x


def _impl(words: Any) -> str:
    return {size: name for name, size in WORDS.items()}[words.shape[0]]


def _case(program: Program, impl: str, arrays: tuple[Any, ...], given: Any, results: Any) -> Any:
    """Return a program of the words of a key, with its texts and its mistakes."""

    def of_words(words: Any, *arrays: Any) -> Any:
        return program(random.wrap_key_data(words, impl=impl), *arrays)

    of_words.__name__ = program.__name__
    words = np.arange(3, 3 + WORDS[impl], dtype=np.uint32) * 1234567891
    inputs = words, *arrays
    shardings = sharded(), *given
    case = pair(of_words, inputs, shardings, results)
    case["places"] = places_of(inputs, shardings)
    case["judged"] = _judged(case)
    return case


def _judged(case: Any) -> dict[str, bool]:
    """Return for each mistake True if the partitioned program gives other numbers by it.

    Those that XLA refuses are left out, and all of a program that it runs by no replicas.
    """
    found = list(faults(case["after"]))
    right = _run([case["after"]], case)[0]
    if right is None:
        return {}
    outputs = _run([text for _, text in found], case)
    return {
        what: _differ(right, held)
        for (what, _), held in zip(found, outputs, strict=True)
        if held is not None
    }


def _run(texts: Sequence[str], case: Any) -> list[Any]:
    given: list[list[Any]] = [[] for _ in range(DEVICES)]
    for whole, places in zip(case["inputs"], case["places"], strict=True):
        array = np.array(whole)
        kind = "f32" if array.dtype.kind == "f" else "u32"
        for device, place in enumerate(places):
            given[device].append((kind, array[tuple(slice(*ends) for ends in place)].tolist()))
    waiting = [json.dumps({"text": t, "devices": DEVICES, "inputs": given}) for t in texts]
    outputs: list[Any] = []
    oracle = [sys.executable, str(Path(__file__).parent / "xla_oracle.py")]
    while waiting:
        lines = "\n".join(waiting)
        made = subprocess.run(oracle, input=lines, capture_output=True, text=True, check=False)
        done = [json.loads(x)["outputs"] for x in made.stdout.splitlines() if x.endswith("}")]
        # It stops at a text that XLA refuses.
        outputs += [*done, *[None][: len(waiting) - len(done)]]
        waiting = waiting[len(done) + 1 :]
    return outputs


def _differ(right: Any, found: Any) -> bool:
    return any(
        not np.allclose(np.array(a, float), np.array(b, float), rtol=1e-5, atol=1e-6)
        for held, other in zip(right, found, strict=True)
        for a, b in zip(held, other, strict=True)
    )


def cases() -> list[Any]:
    """Return all programs."""
    rng = np.random.default_rng(0)

    def reals(*sizes: int) -> Any:
        return rng.standard_normal(sizes).astype(np.float32)

    s = sharded
    rows, whole = s(ALL), s()
    square = (reals(8, 4),)
    programs = [
        (trained, (reals(8, 4), reals(4, 4), reals(4, 2)), (s("d"), whole, whole)),
        (masked, square, (s("d", "t"),)),
        (normal, square, (rows,)),
        (picked, square, (rows,)),
        (parted, square, (s("d", "t"),)),
        (scanned, (reals(8, 4), reals(2, 4, 4)), (s("d"), whole)),
        (carried, square, (rows,)),
        (mapped, square, (rows,)),
        (folded, square, (rows,)),
        (short, square, (rows,)),
        (filled, (reals(6, 4),), (whole,)),
        (bits, square, (rows,)),
        (columns, (reals(4, 7),), (whole,)),
        (spread, square, (rows,)),
        (fixed, square, (rows,)),
    ]
    results = {
        "trained": (whole, (whole, whole)),
        "masked": (s("d", "t"), s("d", "t")),
        "parted": s("d", "t"),
        "scanned": (whole, whole),
        "carried": (rows, whole),
        "filled": whole,
        "columns": whole,
        "fixed": whole,
        "bits": (rows, rows),
    }
    found = []
    for impl, partitionable in (("threefry2x32", True), ("threefry2x32", False), ("rbg", True)):
        jax.config.update("jax_threefry_partitionable", partitionable)
        for program, arrays, given in programs:
            jax.clear_caches()
            case = _case(program, impl, arrays, given, results.get(program.__name__, rows))
            kind = impl if partitionable else "threefry2x32 of halves"
            case["name"] = f"{program.__name__}, {kind}"
            print(case["name"], len(case["judged"]), sum(case["judged"].values()), flush=True)
            found.append(case)
    return found


def noisy(words: Any, x: Any) -> Any:
    """Return an array times random numbers: the plain program of all that follow."""
    return x * random.uniform(random.wrap_key_data(words, impl=_impl(words)), x.shape)


def sliced(words: Any, x: Any) -> Any:
    """Return a shard times its part of the numbers that all devices draw."""
    noise = random.uniform(random.wrap_key_data(words, impl=_impl(words)), (8, 4))
    return x * lax.dynamic_slice(noise, (lax.axis_index(ALL) * 2, 0), (2, 4))


def own(words: Any, x: Any) -> Any:
    """Return a shard times numbers of a key of the device."""
    key = random.wrap_key_data(words, impl=_impl(words))
    return x * random.uniform(random.fold_in(key, lax.axis_index(ALL)), x.shape)


def maps() -> list[Any]:
    """Return programs in which each device draws, beside the plain one."""
    given = np.array([5, 7], np.uint32), np.ones((8, 4), np.float32)
    found = []
    for name, body in (("sliced", sliced), ("local", noisy), ("own", own)):
        jax.clear_caches()
        mapped = jax.shard_map(body, mesh=MESH, in_specs=(P(), P(ALL)), out_specs=P(ALL))
        case = pair(mapped, given, (sharded(), sharded(ALL)), sharded(ALL), noisy)
        # The plain program is compiled for all devices that JAX has.
        case["plain"] = case["plain"].replace("num_partitions=8", "num_partitions=4")
        found.append(case | {"name": name, "plain": case["plain"].replace("<=[8]", "<=[4]")})
    return found


def main() -> None:
    """Write all programs into two files."""
    write(sys.argv[1], cases())
    write(sys.argv[2], maps())


if __name__ == "__main__":
    main()
