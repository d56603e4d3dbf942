"""A step of training of a Llama in JAX, on 8 devices: replicas 2, shards of weights 2, of heads 2.

Grouped-query attention with rotary positions and a causal mask, a gated MLP, norms, layers computed
again in the backward pass, gradients clipped by their global norm, AdamW. ``unrolled`` and
``scanned`` return the jitted step and its arguments: layers one after the other, or by
``jax.lax.scan``. The environment variable SIZES is ``tiny`` or ``8b``, the sizes of Llama 3 8B, and
LAYERS says how many layers there are. It needs JAX and optax.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P


class Sizes(NamedTuple):
    """The sizes of a model, and of a batch."""

    layers: int
    embed: int
    heads: int
    kv_heads: int
    head: int
    mlp: int
    vocabulary: int
    batch: int
    length: int


OF = {
    "tiny": Sizes(4, 64, 8, 4, 8, 128, 64, 8, 16),
    "8b": Sizes(32, 4096, 32, 8, 128, 14336, 128256, 16, 2048),
}
NUMBER, EMBED, HEADS, KV_HEADS, HEAD, MLP, VOCABULARY, BATCH, LENGTH = OF[
    os.environ.get("SIZES", "tiny")
]
LAYERS = int(os.environ.get("LAYERS", NUMBER))
ROWS = ("replica", "shard")

Tree = Any

WEIGHTS: dict[str, tuple[tuple[int, ...], P]] = {
    "attention_norm": ((EMBED,), P()),
    "queries": ((EMBED, HEADS * HEAD), P("shard", "tensor")),
    "keys": ((EMBED, KV_HEADS * HEAD), P("shard", "tensor")),
    "values": ((EMBED, KV_HEADS * HEAD), P("shard", "tensor")),
    "output": ((HEADS * HEAD, EMBED), P("tensor", "shard")),
    "mlp_norm": ((EMBED,), P()),
    "gate": ((EMBED, MLP), P("shard", "tensor")),
    "up": ((EMBED, MLP), P("shard", "tensor")),
    "down": ((MLP, EMBED), P("tensor", "shard")),
}
"""The shape and the sharding of each weight of a layer."""
OUTSIDE: dict[str, tuple[tuple[int, ...], P]] = {
    "embedding": ((VOCABULARY, EMBED), P("tensor", "shard")),
    "norm": ((EMBED,), P()),
    "head": ((EMBED, VOCABULARY), P("shard", "tensor")),
}
"""Those of the weights outside of layers."""


def unrolled() -> tuple[Any, tuple[Any, ...]]:
    """Return the step with layers one after the other, and its arguments."""
    return _program(scanned=False)


def scanned() -> tuple[Any, tuple[Any, ...]]:
    """Return the step with layers in a scan, and its arguments."""
    return _program(scanned=True)


def _normed(x: Any, weight: Any) -> Any:
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight


def _turned(x: Any) -> Any:
    """Return heads turned by their positions, shape (batch, length, heads, HEAD)."""
    speed = 1e4 ** -(np.arange(HEAD // 2) * 2 / HEAD)
    angle = (np.arange(LENGTH)[:, None] * speed)[:, None]
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    first, second = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return jnp.concatenate([first * cosine - second * sine, first * sine + second * cosine], -1)


def _attention(x: Any, layer: Tree) -> Any:
    queries = _turned((x @ layer["queries"]).reshape(*x.shape[:2], HEADS, HEAD))
    keys = _turned((x @ layer["keys"]).reshape(*x.shape[:2], KV_HEADS, HEAD))
    values = (x @ layer["values"]).reshape(*x.shape[:2], KV_HEADS, HEAD)
    keys, values = (jnp.repeat(a, HEADS // KV_HEADS, axis=2) for a in (keys, values))
    scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys) / np.sqrt(HEAD)
    seen = np.tril(np.ones((LENGTH, LENGTH), dtype=bool))
    shares = jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", shares, values)
    return mixed.reshape(*x.shape[:2], HEADS * HEAD) @ layer["output"]


def _program(*, scanned: bool) -> tuple[Any, tuple[Any, ...]]:
    mesh = jax.make_mesh((2, 2, 2), ("replica", "shard", "tensor"), axis_types=(AxisType.Auto,) * 3)

    def at(*axes: Any) -> NamedSharding:
        return NamedSharding(mesh, P(*axes))

    def layer_of(x: Any, layer: Tree) -> Any:
        attended = _attention(_normed(x, layer["attention_norm"]), layer)
        x = x + lax.with_sharding_constraint(attended, at(ROWS))
        y = _normed(x, layer["mlp_norm"])
        gated = (jax.nn.silu(y @ layer["gate"]) * (y @ layer["up"])) @ layer["down"]
        return x + lax.with_sharding_constraint(gated, at(ROWS))

    again = jax.checkpoint(layer_of)

    def loss_of(weights: Tree, tokens: Any, targets: Any) -> Any:
        x = lax.with_sharding_constraint(weights["embedding"][tokens], at(ROWS))
        if scanned:
            x, _ = lax.scan(lambda y, layer: (again(y, layer), None), x, weights["layers"])
        else:
            for layer in weights["layers"]:
                x = again(x, layer)
        logits = _normed(x, weights["norm"]) @ weights["head"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))

    def step(weights: Tree, state: Tree, tokens: Any, targets: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(weights, tokens, targets)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    weights = _weights(at, scanned=scanned)
    state = _states(jax.eval_shape(optimizer.init, weights), weights, at())
    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32, sharding=at(ROWS))
    given = (weights, state, tokens, tokens)
    shardings = jax.tree.map(lambda a: a.sharding, given)
    results = (*shardings[:2], at())
    return jax.jit(step, in_shardings=shardings, out_shardings=results), given


def _weights(at: Any, *, scanned: bool) -> Tree:
    def given(shape: tuple[int, ...], where: P, *front: int) -> Any:
        sharding = at(*(None,) * len(front), *where)
        return jax.ShapeDtypeStruct((*front, *shape), jnp.float32, sharding=sharding)

    front = (LAYERS,) if scanned else ()
    layers = [
        {name: given(*each, *front) for name, each in WEIGHTS.items()}
        for _ in range(1 if scanned else LAYERS)
    ]
    outside = {name: given(*each) for name, each in OUTSIDE.items()}
    return {"layers": layers[0] if scanned else layers, **outside}


def _states(state: Tree, weights: Tree, whole: NamedSharding) -> Tree:
    """Return the state of the optimizer, sharded as its weights are; counters are replicas."""
    places = {tuple(path): leaf.sharding for path, leaf in jax.tree.leaves_with_path(weights)}

    def given(path: Any, leaf: Any) -> Any:
        ends = [sharding for place, sharding in places.items() if path[-len(place) :] == place]
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=ends[0] if ends else whole)

    return jax.tree.map_with_path(given, state)
