"""``shard_map`` programs that XLA partitions for 4 devices: prints their texts as JSON.

Needs JAX. Its output is ``texts/shard_maps.jsonl``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jax_programs import pair, sharded  # first: it sets XLA's flags

import jax  # isort: skip
import jax.numpy as jnp  # isort: skip
import numpy as np  # isort: skip
from jax import lax  # isort: skip
from jax.sharding import AxisType  # isort: skip
from jax.sharding import PartitionSpec as P  # isort: skip

MESH = jax.make_mesh((2, 2), ("d", "t"), axis_types=(AxisType.Auto,) * 2)
RING = (("d", "t"),)
DEVICES = 4
FORWARDS = [(0, 1), (1, 2), (2, 3), (3, 0)]


def mapped(body: Callable[..., Any], given: Any, results: Any, **options: Any) -> Any:
    """Return a function that each device runs on its shards."""
    return jax.shard_map(body, mesh=MESH, in_specs=given, out_specs=results, **options)


def ring(queries: Any, keys: Any, values: Any) -> Any:
    """Return causal attention, for which keys and values go around all devices."""
    rows = P(None, *RING)

    def body(q: Any, k: Any, v: Any) -> Any:
        me = lax.axis_index(*RING)
        mine = me * 2 + jnp.arange(2)
        total = jnp.zeros_like(q)
        norm = jnp.zeros(q.shape[:2], q.dtype)
        for step in range(DEVICES):
            theirs = (me - step) % DEVICES * 2 + jnp.arange(2)
            scores = jnp.einsum("bqd,bkd->bqk", q, k) / 2
            weights = jnp.where(mine[:, None] >= theirs[None], jnp.exp(scores), 0)
            total = total + jnp.einsum("bqk,bkd->bqd", weights, v)
            norm = norm + weights.sum(-1)
            if step < DEVICES - 1:
                k, v = (lax.ppermute(x, *RING, FORWARDS) for x in (k, v))
        return total / norm[..., None]

    return mapped(body, (rows,) * 3, rows)(queries, keys, values)


def ring_loss(queries: Any, keys: Any, values: Any) -> Any:
    """Return the loss of attention in a loop, scores less their maximum so far; its gradients."""
    rows = P(None, *RING)

    def body(q: Any, k: Any, v: Any) -> Any:
        def step(carried: Any, _: Any) -> Any:
            k, v, most, norm, total = carried
            scores = jnp.einsum("bqd,bkd->bqk", q, k) / 2
            larger = jnp.maximum(most, lax.stop_gradient(scores.max(-1)))
            weights, before = jnp.exp(scores - larger[..., None]), jnp.exp(most - larger)
            norm = norm * before + weights.sum(-1)
            total = total * before[..., None] + jnp.einsum("bqk,bkd->bqd", weights, v)
            k, v = (lax.ppermute(x, *RING, FORWARDS) for x in (k, v))
            return (k, v, larger, norm, total), None

        zeros = jnp.zeros(q.shape[:2], q.dtype), jnp.zeros(q.shape, q.dtype)
        start = jnp.full(q.shape[:2], -1e30, q.dtype), *zeros
        varying = (lax.pcast(x, *RING, to="varying") for x in start)
        _, _, _, norm, total = lax.scan(step, (k, v, *varying), None, DEVICES)[0]
        return total / norm[..., None]

    def loss(*given: Any) -> Any:
        return jnp.sum(mapped(body, (rows,) * 3, rows)(*given) ** 2)

    return jax.value_and_grad(loss, (0, 1, 2))(queries, keys, values)


def ring_product(x: Any, weights: Any, y: Any) -> Any:
    """Return the loss of a product whose rows go around in a loop, and its gradient."""

    def body(x: Any, w: Any) -> Any:
        me = lax.axis_index(*RING)

        def step(number: Any, carried: Any) -> Any:
            rows, found = carried
            place = (me - number) % DEVICES * rows.shape[0]
            found = lax.dynamic_update_slice(found, rows @ w, (place, 0))
            return lax.ppermute(rows, *RING, FORWARDS), found

        start = lax.pcast(jnp.zeros((8, w.shape[1]), x.dtype), *RING, to="varying")
        return lax.fori_loop(0, DEVICES, step, (x, start))[1]

    def loss(weights: Any) -> Any:
        found = mapped(body, (P(*RING), P(None, *RING)), P(None, *RING))(x, weights)
        return jnp.sum((found - y) ** 2)

    return jax.value_and_grad(loss)(weights)


def pipeline(x: Any, weights: Any) -> Any:
    """Return the loss of four stages, through which three micro-batches go, and its gradient."""

    def body(x: Any, w: Any) -> Any:
        me = lax.axis_index(*RING)

        def step(carried: Any, number: Any) -> Any:
            fresh = x[jnp.minimum(number, len(x) - 1)]
            y = jnp.tanh(jnp.where(me == 0, fresh, carried) @ w[0])
            done = jnp.where(me == DEVICES - 1, y, 0)
            return lax.ppermute(y, *RING, [(0, 1), (1, 2), (2, 3)]), done

        start = lax.pcast(jnp.zeros_like(x[0]), *RING, to="varying")
        found = lax.scan(step, start, jnp.arange(len(x) + DEVICES - 1))[1]
        return lax.psum(found[DEVICES - 1 :], *RING)

    def loss(weights: Any) -> Any:
        return jnp.mean(mapped(body, (P(), P(*RING)), P())(x, weights) ** 2)

    return jax.value_and_grad(loss)(weights)


def experts(x: Any, first: Any, second: Any) -> Any:
    """Return the loss of one expert on each device, to which rows are sent, and its gradients."""

    def body(x: Any, first: Any, second: Any) -> Any:
        sent = lax.all_to_all(x.reshape(DEVICES, -1, x.shape[-1]), *RING, 0, 0)
        found = jnp.maximum(sent.reshape(-1, x.shape[-1]) @ first[0], 0) @ second[0]
        back = lax.all_to_all(found.reshape(DEVICES, -1, x.shape[-1]), *RING, 0, 0)
        return lax.pmean(jnp.sum(back.reshape(x.shape) * x), *RING)

    def loss(first: Any, second: Any) -> Any:
        return mapped(body, (P(*RING),) * 3, P())(x, first, second)

    return jax.value_and_grad(loss, (0, 1))(first, second)


def gathered(x: Any, first: Any, second: Any, checked: bool = True) -> Any:
    """Return the loss of two layers with weights in shards, and its gradients."""

    def body(x: Any, first: Any, second: Any) -> Any:
        h = jnp.tanh(x @ lax.all_gather(first, "d", axis=0, tiled=True))
        y = lax.psum_scatter(h @ second, "t", scatter_dimension=1, tiled=True)
        return lax.psum(jnp.sum(y**2), ("d", "t"))

    specs = P("d"), P("d", "t"), P("t")

    def loss(first: Any, second: Any) -> Any:
        return mapped(body, specs, P(), check_vma=checked)(x, first, second)

    return jax.value_and_grad(loss, (0, 1))(first, second)


def unchecked(x: Any, first: Any, second: Any) -> Any:
    """Return what :func:`gathered` does, with replicas that are not checked."""
    return gathered(x, first, second, False)


def normed(x: Any, weights: Any, scale: Any) -> Any:
    """Return rows that are normed over a sharded dimension, within a program without shards."""

    def body(x: Any, scale: Any) -> Any:
        most = lax.pmax(jnp.max(x, -1, keepdims=True), "t")
        mean = lax.pmean(jnp.mean(x, -1, keepdims=True), "t")
        square = lax.psum(jnp.sum((x - mean) ** 2, -1, keepdims=True), "t")
        return (x - mean) * lax.rsqrt(square + 1) * scale, most

    y, most = mapped(body, (P("d", "t"), P("t")), (P("d", "t"), P("d")))(x @ weights, scale)
    return y.sum(0), y * most


def branching(x: Any, weights: Any) -> Any:
    """Return what each device computes in its way: by its place on both axes of the mesh."""

    def body(x: Any, w: Any) -> Any:
        first = lax.axis_index("d") == 0
        y = lax.cond(first, lambda x: x @ w, lambda x: jnp.tanh(x) * 3, x)
        ways = [lambda y: y - 1, lambda y: jnp.sum(y * y, -1, keepdims=True) - y]
        return lax.psum(lax.switch(lax.axis_index("t"), ways, y), "t")

    return mapped(body, (P(*RING), P("t")), P("d"))(x, weights)


def partly(x: Any, weights: Any) -> Any:
    """Return a product in a region that is manual along one axis, the other cutting rows, too."""

    def body(x: Any, w: Any) -> Any:
        y = jnp.tanh(lax.all_gather(x, "d", axis=0, tiled=True) @ w)
        z = lax.psum_scatter(y * 3 + y * y, "d", scatter_dimension=0, tiled=True) - x
        return z / (x * x + 2) + lax.psum(x - 1, "d")

    return mapped(body, (P("d"), P()), P("d"), axis_names={"d"})(x, weights)


def nested(x: Any, weights: Any) -> Any:
    """Return a product in a region within another, each manual along an axis."""

    def inner(x: Any, w: Any) -> Any:
        y = jnp.tanh(x @ w) - w[:1]
        return lax.psum_scatter(y, "t", scatter_dimension=0, tiled=True) + lax.axis_index("t")

    def body(x: Any, w: Any) -> Any:
        specs = P(None, "t"), P("t")
        y = jax.shard_map(inner, in_specs=specs, out_specs=P("t"), axis_names={"t"})(x, w)
        return lax.psum(y, "d") * y

    return mapped(body, (P("d"), P()), P("d"), axis_names={"d"})(x, weights)


def cases() -> list[tuple[Callable[..., Any], tuple[Any, ...], Any, Any]]:
    """Return the programs with their inputs, and the shardings of inputs and results."""
    rng = np.random.default_rng(0)

    def reals(*sizes: int) -> Any:
        return rng.standard_normal(sizes).astype(np.float32)

    s = sharded
    rows, middle, whole = s(*RING), s(None, *RING), s()
    layers = (reals(4, 4), reals(4, 4), reals(4, 4))
    shards = s("d"), s("d", "t"), s("t")
    return [
        (ring, tuple(reals(2, 8, 2) for _ in range(3)), (middle,) * 3, middle),
        (
            ring_product,
            (reals(8, 2), reals(2, 8), reals(8, 8)),
            (rows, middle, middle),
            (whole, middle),
        ),
        (ring_loss, tuple(reals(2, 8, 2) for _ in range(3)), (middle,) * 3, (whole, (middle,) * 3)),
        (pipeline, (reals(3, 2, 2), reals(4, 2, 2)), (whole, rows), (whole, rows)),
        (
            experts,
            (reals(16, 2), reals(4, 2, 4), reals(4, 4, 2)),
            (rows,) * 3,
            (whole, (rows, rows)),
        ),
        (gathered, layers, shards, (whole, shards[1:])),
        (unchecked, layers, shards, (whole, shards[1:])),
        (branching, (reals(8, 4), reals(8, 4)), (rows, s("t")), s("d")),
        (partly, (reals(8, 4), reals(4, 4)), (rows, s("t")), rows),
        (nested, (reals(4, 4), reals(4, 4)), (s("d"), s(None, "t")), s("d")),
        (normed, (reals(4, 2), reals(2, 8), reals(8)), (s("d"), whole, s("t")), (whole, s("d"))),
    ]


def main() -> None:
    """Print all programs."""
    for case in cases():
        print(json.dumps(pair(*case)))


if __name__ == "__main__":
    main()
