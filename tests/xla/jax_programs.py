"""JAX programs that XLA partitions for 4 devices: prints their texts before and after as JSON.

Needs JAX. Its output is ``texts/pairs.jsonl``. Other programs are written by ``pair`` as well.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HLO_DUMPS"] = tempfile.mkdtemp()
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    f"--xla_force_host_platform_device_count=8 --xla_dump_to={os.environ['HLO_DUMPS']} "
    "--xla_dump_hlo_pass_re=spmd.* --xla_dump_hlo_as_text --xla_dump_large_constants"
)

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

_DUMPS = Path(os.environ["HLO_DUMPS"])
_TABLES = re.compile(r"\n(FileNames|FunctionNames|FileLocations|StackFrames)\n(\d+ .*\n)*")
_METADATA = re.compile(r", metadata=\{[^}]*\}")
_MESH = jax.make_mesh((2, 2), ("d", "t"), axis_types=(AxisType.Auto,) * 2)


def mlp(x: Any, first: Any, second: Any, y: Any) -> Any:
    """Return the loss of two layers, and its gradients."""

    def loss(first: Any, second: Any) -> Any:
        return jnp.mean((jnp.maximum(x @ first, 0) @ second - y) ** 2)

    return jax.value_and_grad(loss, (0, 1))(first, second)


def words(tokens: Any, labels: Any, table: Any, head: Any) -> Any:
    """Return the loss of a model of words, -1 standing for no label, and its gradients."""

    def loss(table: Any, head: Any) -> Any:
        scores = jax.nn.log_softmax(jnp.take(table, tokens, axis=0, mode="clip") @ head)
        kept = labels != -1
        chosen = jnp.where(kept, labels, 0)[..., None]
        found = jnp.take_along_axis(scores, chosen, -1)[..., 0]
        return -jnp.sum(found * kept) / jnp.maximum(kept.sum().astype(jnp.float32), 1)

    return jax.value_and_grad(loss, (0, 1))(table, head)


def layers(x: Any, weights: Any) -> Any:
    """Return the loss of a loop over layers, and its gradient."""

    def loss(weights: Any) -> Any:
        return jnp.sum(jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0] ** 2)

    return jax.value_and_grad(loss)(weights)


def shifts(x: Any) -> Any:
    """Return an array moved in several ways."""
    joined = jnp.concatenate([x[1:], x[:1] * 2], 0)
    padded = jnp.pad(x, ((1, 0), (0, 2)))[:-1, :-2]
    written = jax.lax.dynamic_update_slice(x, x[:2] * 3, (3, 0))
    return jnp.roll(x, 1, axis=0) * joined + padded, x[::-1] + x[:, ::-1], written


def attention(queries: Any, keys: Any, values: Any) -> Any:
    """Return causal attention."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys) / 2
    place = jnp.arange(8)
    scores = jnp.where(place[:, None] >= place[None], scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), values)


def sums(x: Any) -> Any:
    """Return running sums, the maximum and the sum."""
    return jnp.cumsum(x, 0), jnp.cumsum(x, 1), jnp.max(x, 1), jnp.sum(x)


def places(x: Any) -> Any:
    """Return the places of the greatest and the least elements."""
    return jnp.argmax(x, 1), jnp.argmin(x, 0)


def orders(x: Any, y: Any) -> Any:
    """Return sorted arrays: by one key, by two, with places, and the greatest elements."""
    both = jax.lax.sort(((x > 0).astype(x.dtype), y, -x), num_keys=2, dimension=0)
    return jnp.sort(x, 0), jnp.argsort(x, 1), both[2], *jax.lax.top_k(x, 2)


def pooled(x: Any) -> Any:
    """Return the gradient of pooling with windows that overlap."""

    def loss(x: Any) -> Any:
        found = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return jnp.sum(found**2)

    return jax.grad(loss)(x)


def convolved(x: Any, kernel: Any) -> Any:
    """Return the gradients of a convolution."""

    def loss(x: Any, kernel: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        found = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)
        return jnp.sum(found**2)

    return jax.grad(loss, (0, 1))(x, kernel)


def strided(x: Any, kernel: Any) -> Any:
    """Return the gradients of a convolution that moves by two rows at a time."""

    def loss(x: Any, kernel: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        found = jax.lax.conv_general_dilated(x, kernel, (2, 1), "SAME", dimension_numbers=numbers)
        return jnp.sum(found**2)

    return jax.grad(loss, (0, 1))(x, kernel)


def halos(x: Any, kernel: Any) -> Any:
    """Return a convolution of an image whose rows are sharded."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)


def written(x: Any, place: Any, several: Any) -> Any:
    """Return an array with a row replaced, and with rows raised to a number."""
    return x.at[place].set(2.0), x.at[several].max(0.5)


def chosen(x: Any) -> Any:
    """Return one of two branches, by the sum of all elements."""
    return jax.lax.cond(jnp.sum(x) > 0, lambda x: x * 2, jnp.sin, x)


def parts(x: Any, starts: Any) -> Any:
    """Return the gradient of slices that begin elsewhere in each row."""

    def loss(x: Any) -> Any:
        cut = jax.vmap(lambda row, start: jax.lax.dynamic_slice(row, (start,), (2,)))
        return jnp.sum(cut(x, starts) ** 2)

    return jax.grad(loss)(x)


def routed(x: Any, router: Any, up: Any, down: Any) -> Any:
    """Return gradients through two experts of each token, which are given their tokens sorted."""

    def loss(up: Any, down: Any) -> Any:
        weights, chosen = jax.lax.top_k(jax.nn.softmax(x @ router), 2)
        order = jnp.argsort(chosen.reshape(-1))
        counts = jnp.bincount(chosen.reshape(-1), length=len(up))
        hidden = jnp.tanh(jax.lax.ragged_dot(x[order // 2], up, counts))
        made = jax.lax.ragged_dot(hidden, down, counts)[jnp.argsort(order)]
        return jnp.sum((made.reshape(len(x), 2, -1) * weights[..., None]).sum(1) ** 2)

    return jax.grad(loss, (0, 1))(up, down)


def finite(x: Any) -> Any:
    """Return which elements are finite."""
    return jnp.isfinite(x)


def sharded(*axes: str | None) -> NamedSharding:
    return NamedSharding(_MESH, P(*axes))


def _dumped(moment: str) -> str:
    """Return the text of a moment, without where its lines come from."""
    found = next(_DUMPS.glob(f"**/*{moment}_spmd-partitioning*.txt")).read_text()
    return _METADATA.sub("", _TABLES.sub("", found))


def _compile(function: Callable[..., Any], given: tuple[Any, ...], **shardings: Any) -> None:
    """Have XLA write the texts of a program, and no others."""
    for path in _DUMPS.glob("**/*.txt"):
        path.unlink()
    jax.jit(function, keep_unused=True, **shardings).lower(*given).compile()


def _plain(function: Callable[..., Any], given: tuple[Any, ...]) -> str:
    """Return the text of a function of whole arrays, as the partitioner would be given it."""
    mesh = jax.sharding.Mesh(jax.devices(), ("device",))
    _compile(function, given, out_shardings=NamedSharding(mesh, P()))
    return _dumped("before")


def pair(
    function: Callable[..., Any],
    given: tuple[Any, ...],
    inputs: Any,
    results: Any,
    plain: Callable[..., Any] | None = None,
) -> Any:
    """Return the texts of a program with its inputs, and its outputs on one device.

    ``plain``: a function of whole arrays that computes the same; its text stands beside.
    """
    _compile(function, given, in_shardings=inputs, out_shardings=results)
    texts = {"before": _dumped("before"), "after": _dumped("after")}
    if plain is not None:
        texts["plain"] = _plain(plain, given)
    found = jax.tree.leaves(jax.jit(plain or function)(*given))
    return {
        "name": function.__name__,
        **texts,
        "inputs": [np.asarray(x).tolist() for x in jax.tree.leaves(given)],
        "outputs": [np.asarray(x).tolist() for x in found],
    }


def places_of(given: tuple[Any, ...], inputs: Any) -> list[Any]:
    """Return where the part of each input begins and ends that each device is given."""
    pairs = zip(jax.tree.leaves(given), jax.tree.leaves(inputs), strict=True)
    return [
        [
            [list(place.indices(size)[:2]) for place, size in zip(part, x.shape, strict=True)]
            for part in sharding.devices_indices_map(x.shape).values()
        ]
        for x, sharding in ((np.asarray(x), sharding) for x, sharding in pairs)
    ]


def write(file: str, cases: list[Any]) -> None:
    """Write cases into a file of one line each, which is compressed, and always the same."""
    lines = "".join(f"{json.dumps(case)}\n" for case in cases)
    Path(file).write_bytes(gzip.compress(lines.encode(), mtime=0))


def main() -> None:
    """Print all programs."""
    rng = np.random.default_rng(0)

    def reals(*sizes: int) -> Any:
        return rng.standard_normal(sizes).astype(np.float32)

    s = sharded
    d, t, both = s("d"), s("t"), s("d", "t")
    tokens, labels = (rng.integers(0, 8, (4, 4)).astype(np.int32) for _ in range(2))
    labels = np.where(rng.random((4, 4)) < 0.3, -1, labels).astype(np.int32)
    columns = s(None, "t")
    square = reals(8, 4)
    cases: list[tuple[Callable[..., Any], tuple[Any, ...], Any, Any]] = [
        (
            mlp,
            (square, reals(4, 8), reals(8, 4), reals(8, 4)),
            (d, columns, t, d),
            (s(), (columns, t)),
        ),
        (
            words,
            (tokens, labels, reals(8, 4), reals(4, 8)),
            (d, d, t, columns),
            (s(), (t, columns)),
        ),
        (layers, (reals(4, 4), reals(3, 4, 4)), (d, columns), (s(), columns)),
        (shifts, (square,), (both,), (both, d, t)),
        (attention, tuple(reals(2, 8, 2, 4) for _ in range(3)), (both,) * 3, both),
        (sums, (square,), (both,), (both, both, d, s())),
    ]
    image, kernel = reals(2, 4, 4, 1), reals(3, 3, 1, 2)
    place, several = np.int32(3), np.array([5, 2, 5], np.int32)
    starts = rng.integers(0, 4, 8).astype(np.int32)
    cases += [
        (places, (square,), (both,), (s(), s())),
        (orders, (square, reals(8, 4)), (both, both), (both, both, both, d, d)),
        (pooled, (image,), (d,), d),
        (convolved, (image, kernel), (d, s(None, None, None, "t")), (d, s())),
        (halos, (image, kernel), (both, s()), both),
        (written, (square, place, several), (both, s(), s()), (both, both)),
        (chosen, (square,), (both,), both),
        (parts, (square, starts), (d, d), d),
        (finite, (square,), (both,), both),
        (strided, (reals(4, 4, 3, 2), reals(3, 3, 2, 2)), (d, s()), (d, s())),
        (routed, (square, reals(4, 4), reals(4, 4, 6), reals(4, 6, 4)), (d, s(), t, t), (t, t)),
    ]
    for case in cases:
        print(json.dumps(pair(*case)))


if __name__ == "__main__":
    main()
