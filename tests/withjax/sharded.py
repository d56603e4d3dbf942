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


# --- causal attention in a ring, whose masks know where keys come from
def causal_attention(queries: Any, keys: Any, values: Any) -> Any:
    """Return attention of 8 tokens to those that are not behind them."""
    place = jnp.arange(8)
    seen = place[:, None] >= place[None]
    scores = jnp.where(seen, jnp.exp(queries @ keys.T / 2), 0.0)
    return scores @ values / scores.sum(-1, keepdims=True)


def causal_ring(shift: int = 1) -> Function:
    """Return the same on four devices; keys are taken to come from the device before."""
    to_next = [(device, (device + shift) % 4) for device in range(4)]

    def local(queries: Any, keys: Any, values: Any) -> Any:
        here, place = lax.axis_index("ring"), jnp.arange(2)
        held, total = jnp.zeros_like(queries), jnp.zeros_like(queries[:, :1])
        for step in range(4):
            seen = here * 2 + place[:, None] >= (here - step) % 4 * 2 + place[None]
            scores = jnp.where(seen, jnp.exp(queries @ keys.T / 2), 0.0)
            held, total = held + scores @ values, total + scores.sum(-1, keepdims=True)
            keys, values = (lax.ppermute(x, "ring", to_next) for x in (keys, values))
        return held / total

    spec = P("ring", None)
    return jax.shard_map(
        local, mesh=mesh_of(4, names=("ring",)), in_specs=(spec,) * 3, out_specs=spec
    )


# --- a table of words that is cut into rows
def words(table: Any, tokens: Any) -> Any:
    """Return rows of a table, [words, features], by their numbers."""
    return jnp.take(table, tokens, axis=0)


def words_in_parts(masked: bool = True) -> Function:
    """Return the same with two of eight rows on each device."""

    def local(table: Any, tokens: Any) -> Any:
        place = tokens - lax.axis_index("row") * 2
        inside = (place >= 0) & (place < 2)
        rows = jnp.take(table, jnp.where(inside, place, 0), axis=0, mode="clip")
        return lax.psum(jnp.where(inside[:, None], rows, 0) if masked else rows, "row")

    return jax.shard_map(
        local, mesh=mesh_of(4, names=("row",)), in_specs=(P("row"), P()), out_specs=P()
    )


# --- one step of data parallelism
def batch_loss(w: Any, x: Any, y: Any) -> Any:
    """Return the mean of squared errors over a batch."""
    return jnp.mean((x @ w - y) ** 2)


def batch_step(join: Function, check_vma: bool = False) -> Function:
    """Return its value and its gradient; ``join`` makes them of those that devices have."""
    return jax.shard_map(
        lambda w, x, y: join(*jax.value_and_grad(batch_loss)(w, x, y)),
        mesh=mesh_of(4, names=("data",)),
        in_specs=(P(), P("data"), P("data")),
        out_specs=P(),
        check_vma=check_vma,
    )


# --- devices that do not stand in the order of their numbers
def numbered() -> Function:
    """Return each of four elements times its place, on a mesh of its own order."""
    devices = [jax.devices()[number] for number in (2, 0, 3, 1)]
    return jax.shard_map(
        lambda x: x * lax.axis_index("place"),
        mesh=jax.sharding.Mesh(devices, ("place",)),
        in_specs=P("place"),
        out_specs=P("place"),
    )


# --- weights of attention that are gathered layer by layer
def gathered_layers() -> Function:
    """Return the loss of two layers in a loop, and its gradients; rows of weights are sharded."""
    specs = {name: P(None, "shard") for name in ("first", "second", "third", "last")}

    def layer(x: Any, weights: Any) -> tuple[Any, None]:
        whole = {n: lax.all_gather(w, "shard", tiled=True) for n, w in weights.items()}
        x = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
        scores = jnp.einsum("btd,bsd->bts", x @ whole["first"], x @ whole["second"])
        mixed = jax.nn.softmax(scores / 2, -1) @ (x @ whole["third"])
        return x + jax.nn.silu(mixed) @ whole["last"], None

    def local(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            return jnp.mean(lax.scan(jax.checkpoint(layer), x, weights)[0] ** 2)

        value, gradients = jax.value_and_grad(loss)(weights)
        return lax.pmean(value, "shard"), gradients

    return jax.shard_map(
        local,
        mesh=mesh_of(4, names=("shard",)),
        in_specs=(specs, P("shard")),
        out_specs=(P(), specs),
    )
