"""``shard_map`` programs over a mesh of eight devices, with the plain functions beside them.

Needs JAX. Its output is ``texts/meshes.jsonl.gz``. Each function of the two has the same arguments
and results; ``cases`` says how they are sharded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from jax_programs import pair, places_of, write  # first: it sets XLA's flags

import jax  # isort: skip
import jax.numpy as jnp  # isort: skip
import numpy as np  # isort: skip
from jax import lax  # isort: skip
from jax.sharding import AxisType, NamedSharding  # isort: skip
from jax.sharding import PartitionSpec as P  # isort: skip

MESH = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
AXES = "data", "model"
MEMBERS = 4
NEXT = [(0, 1), (1, 2), (2, 3), (3, 0)]
Function = Callable[..., Any]


def mapped(body: Function, given: Any, results: Any, **options: Any) -> Any:
    """Return a function that each device runs on its shards."""
    return jax.shard_map(body, mesh=MESH, in_specs=given, out_specs=results, **options)


def varying(x: Any) -> Any:
    """Return an array that may differ between devices from now on."""
    return lax.pcast(x, AXES, to="varying")


# --- attention over sequences in shards
def attention(queries: Any, keys: Any, values: Any) -> Any:
    """Return causal attention, [batch, sequence, heads, features]."""
    place = jnp.arange(queries.shape[1])
    scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys) / 2
    scores = jnp.where(place[:, None] >= place[None], scores, -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), values)


def exchanged_heads(queries: Any, keys: Any, values: Any) -> Any:
    """Return the same: sequences in shards become heads in shards, and back."""

    def body(*given: Any) -> Any:
        whole = (lax.all_to_all(x, "model", 2, 1, tiled=True) for x in given)
        return lax.all_to_all(attention(*whole), "model", 1, 2, tiled=True)

    rows = P(*AXES)
    return mapped(body, (rows,) * 3, rows)(queries, keys, values)


def ring(queries: Any, keys: Any, values: Any) -> Any:
    """Return the same: keys and values go round, and what is not held is computed again."""

    def body(queries: Any, keys: Any, values: Any) -> Any:
        here = lax.axis_index("model")
        length = queries.shape[1]
        mine = here * length + jnp.arange(length)

        @jax.checkpoint
        def step(state: Any, number: Any) -> Any:
            keys, values, most, norm, total = state
            theirs = (here - number) % MEMBERS * length + jnp.arange(length)
            scores = jnp.einsum("bqhd,bkhd->bqhk", queries, keys) / 2
            seen = (mine[:, None] >= theirs[None])[None, :, None]
            scores = jnp.where(seen, scores, -1e30)
            larger = jnp.maximum(most, lax.stop_gradient(scores.max(-1)))
            weights = jnp.exp(scores - larger[..., None])
            before = jnp.exp(most - larger)
            norm = norm * before + weights.sum(-1)
            total = total * before[..., None] + jnp.einsum("bqhk,bkhd->bqhd", weights, values)
            keys, values = (lax.ppermute(x, "model", NEXT) for x in (keys, values))
            return (keys, values, larger, norm, total), None

        first = jnp.full(queries.shape[:3], -1e30)
        start = first, jnp.zeros_like(first), jnp.zeros(queries.shape)
        state = keys, values, *map(varying, start)
        _, _, _, norm, total = lax.scan(step, state, jnp.arange(MEMBERS))[0]
        return total / norm[..., None]

    rows = P(*AXES)
    return mapped(body, (rows,) * 3, rows)(queries, keys, values)


# --- experts
def _sent(x: Any, router: Any) -> tuple[Any, Any]:
    """Return tokens for each expert in slots, [experts, slots, features], and where they were."""
    chances = jax.nn.softmax(x @ router)
    hot = (chances == chances.max(-1, keepdims=True)).astype(jnp.int32)
    place = jnp.cumsum(hot, 0) * hot - 1
    slots = jax.nn.one_hot(place, 2)  # more are dropped
    return jnp.einsum("td,tec->ecd", x, slots), slots * chances[..., None]


def _expert(x: Any, first: Any, second: Any) -> Any:
    return jnp.einsum("ecm,emd->ecd", jax.nn.silu(jnp.einsum("ecd,edm->ecm", x, first)), second)


def experts(x: Any, router: Any, first: Any, second: Any) -> Any:
    """Return what experts make of the tokens of each device, [devices, tokens, features]."""

    def group(x: Any) -> Any:
        sent, combined = _sent(x, router)
        return jnp.einsum("ecd,tec->td", _expert(sent, first, second), combined)

    return jax.vmap(group)(x)


def exchanged_tokens(x: Any, router: Any, first: Any, second: Any) -> Any:
    """Return the same, with two experts on each device of an axis."""

    def body(x: Any, router: Any, first: Any, second: Any) -> Any:
        sent, combined = _sent(x[0], router)
        arrived = lax.all_to_all(sent, "model", 0, 1, tiled=True)
        made = _expert(arrived, first, second)
        back = lax.all_to_all(made, "model", 1, 0, tiled=True)
        return jnp.einsum("ecd,tec->td", back, combined)[None]

    expert = P("model")
    return mapped(body, (P(AXES), P(), expert, expert), P(AXES))(x, router, first, second)


# --- layers in a pipeline
def _layer(x: Any, w: Any) -> Any:
    return x + jnp.tanh(x @ w)


def layers(x: Any, weights: Any) -> Any:
    """Return micro-batches, [micro-batches, batch, features], behind all layers."""
    return lax.scan(lambda h, w: (_layer(h, w), None), x, weights)[0]


def _held(x: Any, stage: Function, ticks: int, looped: bool) -> Any:
    """Return what the last stage makes of micro-batches that go through all, tick by tick."""
    here = lax.axis_index("model")

    def tick(arrived: Any, number: Any) -> Any:
        fresh = lax.dynamic_index_in_dim(x, jnp.clip(number, 0, len(x) - 1), 0, False)
        y = stage(jnp.where((here == 0) & (number < len(x)), fresh, arrived), number)
        done = jnp.where(here == MEMBERS - 1, y, jnp.zeros_like(y))
        return lax.ppermute(y, "model", NEXT), done

    start = varying(jnp.zeros(x.shape[1:]))
    if looped:
        done = lax.scan(tick, start, jnp.arange(ticks))[1]
    else:
        found = []
        for number in range(ticks):
            start, last = tick(start, number)
            found.append(last)
        done = jnp.stack(found)
    return lax.psum(done[ticks - len(x) :], "model")


def pipeline(x: Any, weights: Any, looped: bool = True) -> Any:
    """Return the same with two layers on each stage; rows of a batch are on both axes."""

    def body(x: Any, weights: Any) -> Any:
        @jax.checkpoint
        def stage(x: Any, _: Any) -> Any:
            return layers(x, weights)

        return _held(x, stage, len(x) + MEMBERS - 1, looped)

    return mapped(body, (P(None, "data"), P("model")), P(None, "data"))(x, weights)


def unrolled_pipeline(x: Any, weights: Any) -> Any:
    """Return the same without a loop over ticks."""
    return pipeline(x, weights, looped=False)


def circular_pipeline(x: Any, weights: Any) -> Any:
    """Return the same: micro-batches go round twice, and a stage has the layers 4 apart."""

    def body(x: Any, weights: Any) -> Any:
        here = lax.axis_index("model")

        def stage(x: Any, number: Any) -> Any:
            turn = jnp.clip((number - here) // MEMBERS, 0, 1)
            return _layer(x, lax.dynamic_index_in_dim(weights[:, 0], turn, 0, False))

        return _held(x, stage, len(x) + 2 * MEMBERS - 1, True)

    turns = weights.reshape(2, MEMBERS, *weights.shape[1:])
    specs = P(None, "data"), P(None, "model")
    return mapped(body, specs, P(None, "data"))(x, turns)


def rolled_pipeline(x: Any, weights: Any) -> Any:
    """Return the same by the partitioner: stages are an axis of arrays, which is rolled."""
    stages = weights.reshape(MEMBERS, 2, *weights.shape[1:])

    def at_stages(x: Any) -> Any:
        return lax.with_sharding_constraint(x, NamedSharding(MESH, P("model", "data")))

    def tick(state: Any, number: Any) -> Any:
        fresh = lax.dynamic_index_in_dim(x, jnp.clip(number, 0, len(x) - 1), 0, False)
        state = jnp.roll(state, 1, axis=0)
        first = jnp.arange(MEMBERS)[:, None, None] == 0
        state = at_stages(jnp.where(first, fresh[None], state))
        state = at_stages(jax.vmap(layers)(state, stages))
        return state, state[-1]

    start = jnp.zeros((MEMBERS, *x.shape[1:]))
    return lax.scan(tick, start, jnp.arange(len(x) + MEMBERS - 1))[1][MEMBERS - 1 :]


# --- a step of training inside a region
def blocks(x: Any, first: Any, second: Any) -> Any:
    """Return rows behind normed layers of two products each."""

    def block(x: Any, weights: Any) -> Any:
        first, second = weights
        normed = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)
        return x + jax.nn.gelu(normed @ first) @ second, None

    return lax.scan(block, x, (first, second))[0]


def step(x: Any, first: Any, second: Any) -> Any:
    """Return the loss of a batch, and the weights behind a step along the gradient."""

    def loss(weights: Any) -> Any:
        return jnp.mean(blocks(x, *weights) ** 2)

    value, gradients = jax.value_and_grad(loss)((first, second))
    return value, jax.tree.map(lambda w, g: w - 0.1 * g, (first, second), gradients)


def sharded_step(x: Any, first: Any, second: Any) -> Any:
    """Return the same: rows and weights in shards on one axis, columns on the other.

    The weights of a layer are gathered where it is computed, and again where its derivative is.
    """

    def body(x: Any, first: Any, second: Any) -> Any:
        @jax.checkpoint
        def block(x: Any, weights: Any) -> Any:
            first, second = (lax.all_gather(w, "data", axis=0, tiled=True) for w in weights)
            whole = lax.all_gather(x, "model", axis=0, tiled=True)
            normed = whole * lax.rsqrt(jnp.mean(whole * whole, -1, keepdims=True) + 1e-5)
            y = jax.nn.gelu(normed @ first) @ second
            return x + lax.psum_scatter(y, "model", scatter_dimension=0, tiled=True), None

        def loss(weights: Any) -> Any:
            y = lax.scan(block, x, weights)[0]
            return lax.psum(jnp.sum(y**2), AXES) / (y.size * 2 * MEMBERS)

        value, gradients = jax.value_and_grad(loss)((first, second))
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, (first, second), gradients)

    weights = P(None, "data", "model"), P(None, ("model", "data"))
    return mapped(body, (P(AXES), *weights), (P(), weights))(x, first, second)


def with_gradients(f: Function, places: tuple[int, ...]) -> Function:
    """Return the loss of a function's result, and the gradients of some arguments."""

    def loss(*given: Any) -> Any:
        return jnp.mean(f(*given) ** 2)

    def both(*given: Any) -> Any:
        return jax.value_and_grad(loss, places)(*given)

    both.__name__ = f.__name__
    return both


def cases() -> Iterator[tuple[Function, Function, tuple[Any, ...], Any, Any]]:
    """Yield each program: sharded, plain, its arguments, and the shardings of both ends."""
    rng = np.random.default_rng(0)

    def reals(*sizes: int) -> Any:
        return rng.standard_normal(sizes).astype(np.float32)

    def at(*axes: Any) -> Any:
        return NamedSharding(MESH, P(*axes))

    def graded(
        sharded: Function, plain: Function, given: tuple[Any, ...], shardings: Any, first: int = 0
    ) -> tuple[Function, Function, tuple[Any, ...], Any, Any]:
        places = tuple(range(first, len(given)))
        both = with_gradients(sharded, places), with_gradients(plain, places)
        return *both, given, shardings, (at(), shardings[first:])

    rows, expert = at(*AXES), at("model")
    sequences = tuple(reals(2, 8, 4, 2) for _ in range(3))
    for function in (exchanged_heads, ring):
        yield graded(function, attention, sequences, (rows,) * 3)
    tokens = reals(8, 4, 2), reals(2, 8), reals(8, 2, 4), reals(8, 4, 2)
    yield graded(exchanged_tokens, experts, tokens, (at(AXES), at(), expert, expert))
    batches = reals(4, 4, 2), reals(8, 2, 2)
    places = at(None, "data"), expert
    for function in (pipeline, unrolled_pipeline, circular_pipeline, rolled_pipeline):
        yield graded(function, layers, batches, places, 1)
    weights = at(None, "data", "model"), at(None, ("model", "data"))
    matrices = reals(8, 4), reals(2, 4, 8), reals(2, 8, 4)
    yield sharded_step, step, matrices, (at(AXES), *weights), (at(), weights)


def main() -> None:
    """Write all programs, or those that are named."""
    names = sys.argv[2:]
    write(
        sys.argv[1],
        [
            pair(sharded, given, inputs, results, plain) | {"places": places_of(given, inputs)}
            for sharded, plain, given, inputs, results in cases()
            if not names or sharded.__name__ in names
        ],
    )


if __name__ == "__main__":
    main()
