"""Decoders in flax as MaxText builds them, tiny: layers in a scan, axes with logical names.

Needs JAX, flax and optax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax import lax

RULES = (
    ("batch", ("data", "fsdp")),
    ("embed", "fsdp"),
    ("vocab", "tensor"),
    ("heads", "tensor"),
    ("kv_heads", "tensor"),
    ("mlp", "tensor"),
    ("experts", None),
)
"""The axes of the mesh for each logical axis. Those that no rule names are whole everywhere."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a decoder, and its variants."""

    vocabulary: int = 16
    embed: int = 8
    heads: int = 4
    kv_heads: int = 2
    head: int = 4
    mlp: int = 8
    layers: int = 2
    experts: int = 0
    """The experts of each layer; 0: its MLP is dense."""
    chosen: int = 2
    """The experts that a token is sent to."""
    capacity: int = 0
    """The tokens of a sequence that an expert takes; 0: all, and none is dropped."""
    ragged: bool = False
    """True if each expert is given its tokens alone, which are sorted by experts."""
    dtype: Any = jnp.float32


def _weights(*names: str | None) -> Any:
    start = nn.initializers.variance_scaling(1.0, "fan_in", "normal", in_axis=0)
    return nn.with_logical_partitioning(start, names)


class Norm(nn.Module):
    """A norm of root mean squares."""

    sizes: Sizes

    @nn.compact
    def __call__(self, x: Any) -> Any:
        start = nn.with_logical_partitioning(nn.initializers.ones, ("norm",))
        scale = self.param("scale", start, (x.shape[-1],))
        square = jnp.mean(lax.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
        y = x * lax.rsqrt(square + 1e-6)
        return y.astype(self.sizes.dtype) * scale.astype(self.sizes.dtype)


def rotary(x: Any, positions: Any) -> Any:
    """Return heads, [batch, sequence, heads, features], turned by their positions."""
    half = x.shape[-1] // 2
    timescale = 100.0 ** (np.arange(half) / half)
    angles = positions[:, :, None, None] / timescale
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    first, second = jnp.split(x, 2, axis=-1)
    parts = first * cosine - second * sine, second * cosine + first * sine
    return jnp.concatenate(parts, axis=-1).astype(x.dtype)


class Attention(nn.Module):
    """Causal attention within segments, with fewer heads of keys than of queries."""

    sizes: Sizes

    @nn.compact
    def __call__(self, x: Any, positions: Any, segments: Any) -> Any:
        s = self.sizes

        def heads(name: str, count: int, axis: str) -> Any:
            w = self.param(name, _weights("embed", axis, None), (s.embed, count, s.head))
            return jnp.einsum("bse,ehd->bshd", x, w.astype(s.dtype))

        query = rotary(heads("query", s.heads, "heads"), positions) / np.sqrt(s.head)
        key = rotary(heads("key", s.kv_heads, "kv_heads"), positions)
        value = heads("value", s.kv_heads, "kv_heads")
        query = nn.with_logical_constraint(query, ("batch", "length", "heads", None))
        key = nn.with_logical_constraint(key, ("batch", "length", "kv_heads", None))
        value = nn.with_logical_constraint(value, ("batch", "length", "kv_heads", None))
        groups = query.reshape(*query.shape[:2], s.kv_heads, s.heads // s.kv_heads, s.head)
        scores = jnp.einsum("bqkgd,bskd->bkgqs", groups, key)
        place = jnp.arange(x.shape[1])
        seen = (place[:, None] >= place[None]) & (segments[:, :, None] == segments[:, None])
        least = -0.7 * float(np.finfo(np.float32).max)
        scores = jnp.where(seen[:, None, None], scores.astype(jnp.float32), least)
        most = lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
        exponentials = jnp.exp(scores - most)
        total = jnp.sum(exponentials, axis=-1, keepdims=True)
        found = jnp.einsum("bkgqs,bskd->bqkgd", (exponentials / total).astype(s.dtype), value)
        found = found.reshape(*x.shape[:2], s.heads, s.head)
        found = nn.with_logical_constraint(found, ("batch", "length", "heads", None))
        out = self.param("out", _weights("heads", None, "embed"), (s.heads, s.head, s.embed))
        return jnp.einsum("bshd,hde->bse", found, out.astype(s.dtype))


class Mlp(nn.Module):
    """A gated MLP."""

    sizes: Sizes

    @nn.compact
    def __call__(self, x: Any) -> Any:
        s = self.sizes
        gate = self.param("wi_0", _weights("embed", "mlp"), (s.embed, s.mlp)).astype(s.dtype)
        up = self.param("wi_1", _weights("embed", "mlp"), (s.embed, s.mlp)).astype(s.dtype)
        down = self.param("wo", _weights("mlp", "embed"), (s.mlp, s.embed)).astype(s.dtype)
        hidden = jax.nn.silu(x @ gate) * (x @ up)
        hidden = nn.with_logical_constraint(hidden, ("batch", "length", "mlp"))
        return hidden @ down


class Experts(nn.Module):
    """Gated MLPs, to some of which each token is sent: into slots, or to all of them."""

    sizes: Sizes

    @nn.compact
    def __call__(self, x: Any) -> tuple[Any, Any]:
        s = self.sizes
        router = self.param("gate", _weights("embed", None), (s.embed, s.experts))
        chances = jax.nn.softmax((x @ router.astype(s.dtype)).astype(jnp.float32), axis=-1)
        weights, chosen = lax.top_k(chances, s.chosen)
        weights = weights / weights.sum(-1, keepdims=True)
        hot = jax.nn.one_hot(chosen, s.experts, dtype=jnp.int32)
        shape = s.experts, s.embed, s.mlp
        names = "experts", "embed", "mlp"
        gate = self.param("wi_0", _weights(*names), shape).astype(s.dtype)
        up = self.param("wi_1", _weights(*names), shape).astype(s.dtype)
        down = self.param("wo", _weights("experts", "mlp", "embed"), (s.experts, s.mlp, s.embed))
        layers = gate, up, down.astype(s.dtype)
        if s.capacity:
            y = _into_slots(x, *_slots(hot, weights, s.capacity), layers)
        elif s.ragged:
            y = _to_chosen(x, chosen, weights, layers)
        else:
            y = _to_all(x, (hot * weights[..., None]).sum(2), layers)
        return y, _balance(chances, hot)


def _into_slots(x: Any, sent: Any, combined: Any, layers: tuple[Any, Any, Any]) -> Any:
    """Return what experts make of tokens; ``sent``: [batch, sequence, experts, slots]."""
    gate, up, down = layers
    given = jnp.einsum("bse,bsxc->xbce", x, sent.astype(x.dtype))
    given = nn.with_logical_constraint(given, ("experts", "batch", None, None))
    hidden = jax.nn.silu(jnp.einsum("xbce,xem->xbcm", given, gate))
    hidden = hidden * jnp.einsum("xbce,xem->xbcm", given, up)
    hidden = nn.with_logical_constraint(hidden, ("experts", "batch", None, "mlp"))
    made = jnp.einsum("xbcm,xme->xbce", hidden, down)
    return jnp.einsum("xbce,bsxc->bse", made, combined)


def _to_all(x: Any, weights: Any, layers: tuple[Any, Any, Any]) -> Any:
    """Return what all experts make of tokens, by weights, [batch, sequence, experts]."""
    gate, up, down = layers
    hidden = jax.nn.silu(jnp.einsum("bse,xem->bsxm", x, gate))
    hidden = hidden * jnp.einsum("bse,xem->bsxm", x, up)
    hidden = nn.with_logical_constraint(hidden, ("batch", "length", "experts", "mlp"))
    return jnp.einsum("bsxe,bsx->bse", jnp.einsum("bsxm,xme->bsxe", hidden, down), weights)


def _to_chosen(x: Any, chosen: Any, weights: Any, layers: tuple[Any, Any, Any]) -> Any:
    """Return what the chosen experts make of tokens, which are sorted by experts, and back."""
    gate, up, down = layers
    flat = chosen.reshape(-1)
    order = jnp.argsort(flat)
    rows = jnp.take(x.reshape(-1, x.shape[-1]), order // chosen.shape[-1], axis=0)
    counts = jnp.bincount(flat, length=gate.shape[0])
    hidden = jax.nn.silu(lax.ragged_dot(rows, gate, counts))
    hidden = hidden * lax.ragged_dot(rows, up, counts)
    made = lax.ragged_dot(hidden, down, counts)
    back = jnp.take(made, jnp.argsort(order), axis=0).reshape(*chosen.shape, -1)
    return jnp.einsum("bske,bsk->bse", back, weights)


def _balance(chances: Any, hot: Any) -> Any:
    """Return the loss that keeps experts equally busy."""
    density = jnp.mean(hot.sum(2).astype(jnp.float32), axis=1)
    return jnp.mean(density * chances.mean(1)) * chances.shape[-1] ** 2


def _slots(hot: Any, weights: Any, capacity: int) -> tuple[Any, Any]:
    """Return the slot of each token at each expert, as truths, and with its weight.

    Tokens that find no slot are dropped. ``hot``: [batch, sequence, choices, experts].
    """
    batch, length, choices, experts = hot.shape
    flat = hot.reshape(batch, length * choices, experts)
    count = jnp.cumsum(flat, axis=1).reshape(hot.shape)
    kept = hot * (count <= capacity)
    place = (kept * count).sum(2)
    weight = (kept * weights[..., None]).sum(2)
    combined = weight[..., None] * jax.nn.one_hot(place, capacity + 1, dtype=jnp.int32)
    combined = combined[..., 1:]
    return combined.astype(bool), combined


class Layer(nn.Module):
    """A layer: attention and an MLP, or experts."""

    sizes: Sizes

    @nn.compact
    def __call__(self, x: Any, positions: Any, segments: Any) -> tuple[Any, Any]:
        names = "batch", "length", None
        x = nn.with_logical_constraint(x, names)
        normed = Norm(self.sizes, name="pre_attention_norm")(x)
        x = x + Attention(self.sizes, name="attention")(normed, positions, segments)
        x = nn.with_logical_constraint(x, names)
        normed = Norm(self.sizes, name="post_attention_norm")(x)
        if self.sizes.experts:
            y, loss = Experts(self.sizes, name="moe")(normed)
        else:
            y, loss = Mlp(self.sizes, name="mlp")(normed), jnp.zeros(())
        return nn.with_logical_constraint(x + y, names), loss


class Decoder(nn.Module):
    """A model of words."""

    sizes: Sizes

    @nn.compact
    def __call__(self, tokens: Any, positions: Any, segments: Any) -> tuple[Any, Any]:
        s = self.sizes
        start = nn.with_logical_partitioning(nn.initializers.normal(1.0), ("vocab", "embed"))
        table = self.param("embedding", start, (s.vocabulary, s.embed))
        x = table.astype(s.dtype)[tokens]
        x = nn.with_logical_constraint(x, ("batch", "length", None))
        layer = nn.remat(Layer, prevent_cse=False, policy=None)
        scanned = nn.scan(
            layer,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=(nn.broadcast, nn.broadcast),
            length=s.layers,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        x, losses = scanned(s, name="layers")(x, positions, segments)
        x = Norm(s, name="decoder_norm")(x)
        head = self.param("logits", _weights("embed", "vocab"), (s.embed, s.vocabulary))
        logits = x @ head.astype(s.dtype)
        logits = nn.with_logical_constraint(logits, ("batch", "length", "vocab"))
        return logits.astype(jnp.float32), jnp.mean(losses)


@jax.custom_vjp
def cross_entropy(logits: Any, targets: Any, weight: float) -> tuple[Any, Any]:
    """Return the cross entropy of logits and targets with the loss of their norms in it."""
    return _cross_entropy(logits, targets, weight)[0]


def _cross_entropy(logits: Any, targets: Any, weight: float) -> Any:
    shifted = logits - lax.stop_gradient(logits.max(-1, keepdims=True))
    exponentials = jnp.exp(shifted)
    total = jnp.sum(exponentials, axis=-1, keepdims=True)
    loss = -jnp.sum(targets * (shifted - jnp.log(total)), axis=-1)
    log_z = jnp.squeeze(jnp.log(total) + logits.max(-1, keepdims=True), -1)
    norms = weight * lax.square(log_z)
    return (loss + norms, norms), (targets, weight, exponentials, total, log_z)


def _forward(logits: Any, targets: Any, weight: float) -> Any:
    return _cross_entropy(logits, targets, weight)


def _backward(held: Any, given: Any) -> Any:
    targets, weight, exponentials, total, log_z = held
    g, _ = given
    scale = (1 + 2 * weight * log_z)[..., None] * exponentials / total - targets
    return g[..., None] * scale, None, None


cross_entropy.defvjp(_forward, _backward)


def trainer() -> Any:
    """Return the optimizer."""
    return optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(1e-2, b2=0.95, eps=1e-8, weight_decay=0.1)
    )


def loss_of(model: Decoder, params: Any, batch: Any) -> tuple[Any, Any]:
    """Return the loss of a batch, and its parts."""
    logits, balance = model.apply(params, batch["inputs"], batch["positions"], batch["segments"])
    targets = jax.nn.one_hot(batch["targets"], logits.shape[-1])
    entropy, norms = cross_entropy(logits, targets, 1e-4)
    entropy = nn.with_logical_constraint(entropy, ("batch", "length"))
    kept = batch["segments"] != 0
    count = jnp.sum(kept)
    loss = jnp.sum(entropy * kept) / (count + 1e-8)
    if model.sizes.experts:
        loss = loss + 1e-2 * balance
    return loss, jnp.sum(norms * kept) / (count + 1e-8)


def train_step(model: Decoder, state: Any, batch: Any) -> tuple[Any, Any]:
    """Return the state behind a step, and numbers to print."""
    loss = lambda params: loss_of(model, params, batch)  # noqa: E731
    (value, norms), gradients = jax.value_and_grad(loss, has_aux=True)(state.params)
    numbers = {
        "loss": value,
        "z_loss": norms,
        "gradient_norm": optax.global_norm(gradients),
        "parameter_norm": optax.global_norm(state.params),
    }
    return state.apply_gradients(grads=gradients), numbers


def state_of(model: Decoder, seed: int) -> Any:
    """Return the state at the start."""
    some = jnp.ones((1, 4), jnp.int32)
    params = model.init(jax.random.key(seed), some, some, some)
    return TrainState.create(apply_fn=None, params=params, tx=trainer())
