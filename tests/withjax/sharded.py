"""Programs by ``shard_map`` for four devices, with the plain functions that they stand for.

Each takes its mistakes as arguments, so that a wrong one is as close to the right one as can be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, PartitionSpec

P = PartitionSpec
Function = Callable[..., Any]


def mesh_of(*sizes: int, names: Sequence[str] = ("data", "model")) -> Any:
    """Return a mesh whose shardings are found by the compiler."""
    return jax.make_mesh(sizes, tuple(names), axis_types=(AxisType.Auto,) * len(sizes))


def array(*shape: int) -> Any:
    """Return the shape of an array of float32."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def loss_of(f: Function) -> Function:
    """Return the loss of a function's result, and the gradients of all its arguments."""

    def loss(*args: Any) -> Any:
        return jnp.mean(f(*args) ** 2)

    def both(*args: Any) -> Any:
        return jax.value_and_grad(loss, tuple(range(len(args))))(*args)

    return both


# --- a product of matrices whose inner dimension is sharded
def product(reduce: Function, check_vma: bool = True) -> Function:
    """Return x @ w; ``reduce`` adds what the devices of an axis have."""
    return jax.shard_map(
        lambda x, w: reduce(x @ w),
        mesh=mesh_of(2, 2),
        in_specs=(P("data", "model"), P("model", None)),
        out_specs=P("data", None),
        check_vma=check_vma,
    )


# --- attention in a ring
def attention(queries: Any, keys: Any, values: Any) -> Any:
    """Return attention over whole sequences, [sequence, features]."""
    return jax.nn.softmax(queries @ keys.T / 2, -1) @ values


def ring_attention(
    shift: int = 1,
    steps: int = 4,
    rescale: bool = True,
    check_vma: bool = True,
    looped: bool = False,
) -> Function:
    """Return attention whose keys and values go round the devices, in a loop or step by step."""
    mesh = mesh_of(4, names=("ring",))
    to_next = [(device, (device + shift) % 4) for device in range(4)]

    def step(queries: Any, state: Any) -> Any:
        keys, values, most, total, held = state
        scores = queries @ keys.T / 2
        greater = jnp.maximum(most, lax.stop_gradient(scores).max(-1, keepdims=True))
        weights = jnp.exp(scores - greater)
        before = jnp.exp(most - greater)
        total = total * before + weights.sum(-1, keepdims=True)
        held = (held * before if rescale else held) + weights @ values
        keys, values = (lax.ppermute(x, "ring", to_next) for x in (keys, values))
        return keys, values, greater, total, held

    def local(queries: Any, keys: Any, values: Any) -> Any:
        most = jnp.full((queries.shape[0], 1), -1e30)
        state = keys, values, most, jnp.zeros_like(most), jnp.zeros_like(queries)
        if looped:
            state = lax.fori_loop(0, steps, lambda _, held: step(queries, held), state)
        else:
            for _ in range(steps):
                state = step(queries, state)
        return state[4] / state[3]

    spec = P("ring", None)
    return jax.shard_map(
        local, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=check_vma
    )


# --- experts that tokens are sent to
def experts(tokens: Any, weights: Any) -> Any:
    """Return token i of each expert's queue times that expert's matrix.

    ``tokens``: [devices, experts, tokens, features]; ``weights``: [experts, features, features].
    """
    return jnp.tanh(jnp.einsum("dexf,efg->dexg", tokens, weights))


def sent_to_experts(there: bool = True, back: bool = True) -> Function:
    """Return the same with one expert on each device and ``all_to_all`` before and behind it."""

    def local(tokens: Any, weights: Any) -> Any:
        x = tokens[0]
        arrived = lax.all_to_all(x, "expert", 0, 0, tiled=True) if there else x
        made = jnp.tanh(arrived @ weights[0])
        return (lax.all_to_all(made, "expert", 0, 0, tiled=True) if back else made)[None]

    spec = P("expert", None, None)
    return jax.shard_map(
        local,
        mesh=mesh_of(4, names=("expert",)),
        in_specs=(P("expert", None, None, None), spec),
        out_specs=P("expert", None, None, None),
    )


# --- stages in a pipeline
def layers(x: Any, weights: Any) -> Any:
    """Return micro-batches, [micro-batches, batch, features], behind four layers."""
    for layer in range(4):
        x = jnp.tanh(x @ weights[layer])
    return x


def pipeline(delay: int = 3, shift: int = 1) -> Function:
    """Return the same with one layer on each device; activations go to the next one."""
    to_next = [(device, device + shift) for device in range(4 - shift)]
    count = 3

    def local(x: Any, weights: Any) -> Any:
        stage = lax.axis_index("stage")
        arrived = jnp.zeros_like(x[0])
        results = []
        for tick in range(count + delay):
            given = jnp.where(stage == 0, x[min(tick, count - 1)], arrived)
            made = jnp.tanh(given @ weights[0])
            arrived = lax.ppermute(made, "stage", to_next)
            if tick >= delay:
                results.append(jnp.where(stage == 3, made, 0))
        return lax.psum(jnp.stack(results), "stage")

    return jax.shard_map(
        local,
        mesh=mesh_of(4, names=("stage",)),
        in_specs=(P(), P("stage", None, None)),
        out_specs=P(),
    )
