"""The models once more, in plain PyTorch: tokens are sent to their experts one by one, and
everything else is PyTorch's own where it has it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from pitcheck.models.config import Attention, Batch, Experts, LatentAttention, Model, Optimizer

Tensor = torch.Tensor


class TorchModel:
    """``values``: parameters and given tensors by name. ``losses()`` computes; ``loads`` then holds
    how many tokens each expert of a layer got.
    """

    def __init__(self, model: Model, batch: Batch, values: dict[str, Tensor]) -> None:
        self.model, self.batch, self.values = model, batch, values
        self.loads: dict[str, Tensor] = {}
        self.extra: list[Tensor] = []

    def total(self) -> Tensor:
        x = self.embed(self.values["tokens"])
        for number in range(self.model.layers):
            mixed = (
                self.model.experts is not None
                and number >= self.model.dense_layers
                and number % self.model.experts_every == self.model.experts_every - 1
            )
            x = self.layer(x, f"layers.{number}", mixed, number)
        loss = self.head(x, "")
        if self.model.predicted:
            following = self.norm(
                self.embed(self.values["predicted.tokens"]), "predicted.token_norm"
            )
            joined = (
                torch.cat([self.norm(x, "predicted.hidden_norm"), following], -1)
                @ self.values["predicted.join.weight"].T
            )
            loss = loss + float(Fraction(self.model.predicted_weight)) * self.head(
                self.layer(joined, "predicted.layer", True), "predicted."
            )
        return loss + sum(self.extra, start=torch.zeros((), dtype=torch.float64))

    def embed(self, tokens: Tensor) -> Tensor:
        x = self.values["embedding.weight"][tokens]
        return (
            x + self.values["embedding.positions.weight"][: tokens.shape[1]]
            if self.model.positions
            else x
        )

    def norm(self, x: Tensor, name: str) -> Tensor:
        eps, weight = float(Fraction(self.model.norm_eps)), self.values[f"{name}.weight"]
        if self.model.norm == "layer":
            return F.layer_norm(x, x.shape[-1:], weight, self.values[f"{name}.bias"], eps)
        return F.rms_norm(x, x.shape[-1:], weight, eps)

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.values[f"{name}.weight"], self.values.get(f"{name}.bias"))

    def head(self, x: Tensor, prefix: str) -> Tensor:
        scores = F.linear(
            self.norm(x, f"{prefix}norm"),
            self.values["embedding.weight" if self.model.tied else "head.weight"],
        )
        labels = self.values[f"{prefix}labels"].masked_fill(~self.values[f"{prefix}mask"], -100)
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)

    def layer(self, x: Tensor, name: str, mixed: bool, number: int = 0) -> Tensor:
        sizes = self.model.attention
        normed = self.norm(x, f"{name}.attention_norm")
        x = x + (
            self.heads(normed, f"{name}.attention", sizes, number)
            if isinstance(sizes, Attention)
            else self.latent(normed, f"{name}.attention", sizes)
        )
        normed = self.norm(x, f"{name}.mlp_norm")
        return x + (
            self.mixture(normed, f"{name}.mlp", self.model.experts)
            if mixed and self.model.experts
            else self.feed_forward(normed, f"{name}.mlp")
        )

    def heads(self, x: Tensor, name: str, sizes: Attention, number: int) -> Tensor:
        rows, length, _ = x.shape
        shared = sizes.heads // sizes.kv_heads
        if sizes.fused:
            packed = self.linear(x, f"{name}.qkv").view(
                rows, length, sizes.kv_heads, shared + 2, sizes.head_dim
            )
            q = packed[..., :shared, :].reshape(rows, length, sizes.heads, sizes.head_dim)
            k, v = packed[..., shared, :], packed[..., shared + 1, :]
        else:
            q, k, v = (
                self.linear(x, f"{name}.{letter}").view(rows, length, -1, sizes.head_dim)
                for letter in "qkv"
            )
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        eps = float(Fraction(self.model.norm_eps))
        if sizes.qk_norm == "rms":
            q, k = (
                F.rms_norm(t, t.shape[-1:], self.values[f"{name}.{part}_norm.weight"], eps)
                for t, part in ((q, "q"), (k, "k"))
            )
        everywhere = sizes.global_every > 0 and (number + 1) % sizes.global_every == 0
        if sizes.rotary and (sizes.global_rotary or not everywhere):
            turn = self.turn_halves if sizes.rotary_pairs == "half" else self.turn_pairs
            q, k = (turn(t) for t in (q, k))
            if sizes.qk_norm == "l2":
                q, k = (t / (t.pow(2).mean(-1, keepdim=True) + eps).sqrt() for t in (q, k))
        elif sizes.query_floor:
            steps = torch.floor((torch.arange(length) + 1.0) / sizes.query_floor)
            grown = torch.log1p(steps.double()) * float(Fraction(sizes.query_scale)) + 1
            q = q * grown.view(1, 1, length, 1)
        k, v = (t.repeat_interleave(shared, 1) for t in (k, v))
        scores = q @ k.transpose(2, 3) / sizes.head_dim**0.5
        hidden = torch.tensor(
            [[not sees(i, j, sizes, everywhere) for j in range(length)] for i in range(length)]
        )
        scores = scores.masked_fill(hidden, -torch.inf)
        if sizes.sinks:
            sinks = self.values[f"{name}.sinks"].view(1, -1, 1, 1).expand(rows, -1, length, 1)
            scores = torch.cat([scores, sinks], -1)
        mixed = scores.softmax(-1)[..., :length] @ v
        return self.linear(mixed.transpose(1, 2).reshape(rows, length, -1), f"{name}.o")

    def turn_halves(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        cos, sin = self.values["rotary.cos"], self.values["rotary.sin"]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def turn_pairs(self, x: Tensor) -> Tensor:
        turned = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.complex(
            self.values["rotary.cos"], self.values["rotary.sin"]
        )
        return torch.view_as_real(turned).flatten(-2)

    def latent(self, x: Tensor, name: str, sizes: LatentAttention) -> Tensor:
        rows, length, _ = x.shape
        source = (
            self.norm(self.linear(x, f"{name}.q_a"), f"{name}.q_norm") if sizes.query_rank else x
        )
        q = self.linear(source, f"{name}.q_b").view(rows, length, sizes.heads, -1).transpose(1, 2)
        both = self.linear(x, f"{name}.kv_a")
        pairs = (
            self.linear(self.norm(both[..., : sizes.kv_rank], f"{name}.kv_norm"), f"{name}.kv_b")
            .view(rows, length, sizes.heads, -1)
            .transpose(1, 2)
        )
        shared = (
            self.turn_pairs(both[..., sizes.kv_rank :]).unsqueeze(1).repeat(1, sizes.heads, 1, 1)
        )
        q = torch.cat([q[..., : sizes.nope], self.turn_pairs(q[..., sizes.nope :])], -1)
        k = torch.cat([pairs[..., : sizes.nope], shared], -1)
        mixed = F.scaled_dot_product_attention(q, k, pairs[..., sizes.nope :], is_causal=True)
        return self.linear(mixed.transpose(1, 2).reshape(rows, length, -1), f"{name}.o")

    def feed_forward(self, x: Tensor, name: str) -> Tensor:
        if self.model.activation == "gelu":
            return self.linear(
                F.gelu(self.linear(x, f"{name}.up"), approximate="tanh"), f"{name}.down"
            )
        gate, up = (
            self.linear(x, f"{name}.gate_up").chunk(2, -1)
            if self.model.fused_gate
            else (self.linear(x, f"{name}.{part}") for part in ("gate", "up"))
        )
        return self.linear(self.gated(gate, up), f"{name}.down")

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        if self.model.activation == "swiglu":
            return F.silu(gate) * up
        limit = float(Fraction(self.model.gate_limit))
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return (up + 1) * gate * torch.sigmoid(gate * float(Fraction(self.model.gate_alpha)))

    def mixture(self, x: Tensor, name: str, experts: Experts) -> Tensor:
        scores = self.linear(x, f"{name}.router")
        scored = scores.sigmoid() if experts.score == "sigmoid" else scores.softmax(-1)
        rows, length, _ = x.shape
        load = torch.zeros(rows, experts.routed, dtype=torch.float64)
        output = []
        for row in range(rows):
            for token in range(length):
                chosen = self.choose(scored[row, token].detach(), name, experts)
                load[row, chosen] += 1
                output.append(self.sent(x[row, token], scored[row, token], chosen, name, experts))
        self.loads[name] = load.sum(0)
        self.balance(scores, scored, load, experts)
        routed = torch.stack(output).view_as(x)
        return routed + self.feed_forward(x, f"{name}.shared") if experts.shared else routed

    def choose(self, scored: Tensor, name: str, experts: Experts) -> list[int]:
        ranked = (
            scored + self.values[f"{name}.router.correction"]
            if Fraction(experts.bias_rate)
            else scored
        )
        size = experts.routed // experts.groups
        best = 2 if experts.group_score == "top2" else 1
        value = [
            sum(sorted(ranked[g * size : (g + 1) * size].tolist())[-best:])
            for g in range(experts.groups)
        ]
        kept = sorted(range(experts.groups), key=lambda g: -value[g])[: experts.kept]
        candidates = [expert for expert in range(experts.routed) if expert // size in kept]
        return sorted(candidates, key=lambda expert: -float(ranked[expert]))[: experts.chosen]

    def sent(
        self, x: Tensor, scored: Tensor, chosen: list[int], name: str, experts: Experts
    ) -> Tensor:
        weights = scored[chosen]
        weights = weights / weights.sum() if experts.normalized else weights
        gate, up, down = (
            self.values[f"{name}.experts.{part}.weight"] for part in ("gate", "up", "down")
        )
        weights = float(Fraction(experts.scale)) * weights

        def result(e: int, given: Tensor) -> Tensor:
            if not experts.bias:
                return down[e] @ self.gated(gate[e] @ given, up[e] @ given)
            added = {p: self.values[f"{name}.experts.{p}.bias"][e] for p in ("gate", "up", "down")}
            middle = self.gated(gate[e] @ given + added["gate"], up[e] @ given + added["up"])
            return down[e] @ middle + added["down"]

        each = [
            result(e, w * x) if experts.scaled_input else w * result(e, x)
            for w, e in zip(weights, chosen, strict=True)
        ]
        return torch.stack(each).sum(0)

    def balance(self, scores: Tensor, scored: Tensor, load: Tensor, experts: Experts) -> None:
        share = scored / scored.sum(-1, keepdim=True)
        groups = len(load) if experts.auxiliary_over == "sequence" else self.batch.groups
        losses = []
        for counts, shares in zip(load.chunk(groups), share.chunk(groups), strict=True):
            tokens = shares.shape[0] * shares.shape[1]
            frequency = experts.routed * counts.sum(0) / (experts.chosen * tokens)
            losses.append((frequency * shares.flatten(0, 1).mean(0)).sum())
        self.extra.append(float(Fraction(experts.auxiliary)) * torch.stack(losses).mean())
        self.extra.append(float(Fraction(experts.z)) * (scores.logsumexp(-1) ** 2).mean())


def sees(row: int, column: int, sizes: Attention, everywhere: bool) -> bool:
    """Token ``row`` attends to token ``column``."""
    if column > row:
        return False
    if sizes.window and not everywhere:
        return column > row - sizes.window
    return not sizes.chunk or everywhere or column // sizes.chunk == row // sizes.chunk


def train(
    model: Model,
    batch: Batch,
    settings: Optimizer,
    values: dict[str, Tensor],
    parameters: list[str],
) -> dict[str, Any]:
    """One step: the expected outputs by name, from PyTorch's autograd, clipping and AdamW."""
    leaves = {name: values[name].clone().requires_grad_() for name in parameters}
    run = TorchModel(model, batch, {**values, **leaves})
    loss = run.total()
    loss.backward()  # type: ignore[no-untyped-call]
    found: dict[str, Any] = {"loss": loss.detach()}
    for name, leaf in leaves.items():
        found[f"grad:{name}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone()
    found["gradient_norm"] = torch.nn.utils.clip_grad_norm_(
        list(leaves.values()), float(Fraction(settings.max_norm))
    )
    found |= _adamw(settings, values, leaves)
    if model.experts is not None and Fraction(model.experts.bias_rate):
        for name, load in run.loads.items():
            rate = float(Fraction(model.experts.bias_rate))
            found[f"new:{name}.router.correction"] = values[
                f"{name}.router.correction"
            ] + rate * torch.sign(load.mean() - load)
    return found


def _adamw(
    settings: Optimizer, values: dict[str, Tensor], leaves: dict[str, Tensor]
) -> dict[str, Tensor]:
    decay = float(Fraction(settings.weight_decay))
    groups = [
        {
            "params": [leaf],
            "weight_decay": 0.0 if leaf.ndim < 2 or name.endswith("bias") else decay,
        }
        for name, leaf in leaves.items()
    ]
    betas = float(Fraction(settings.beta1)), float(Fraction(settings.beta2))
    optimizer = torch.optim.AdamW(
        groups,
        lr=float(values["learning_rate"]),
        betas=betas,
        eps=float(Fraction(settings.eps)),
        foreach=False,
    )
    for name, leaf in leaves.items():
        moments = {
            "exp_avg": values[f"first:{name}"].clone(),
            "exp_avg_sq": values[f"second:{name}"].clone(),
        }
        optimizer.state[leaf] = {
            "step": torch.tensor(float(settings.step - 1), dtype=torch.float64),
            **moments,
        }
    optimizer.step()
    found: dict[str, Tensor] = {}
    for name, leaf in leaves.items():
        state = optimizer.state[leaf]
        found |= {
            f"new:{name}": leaf.detach(),
            f"new:first:{name}": state["exp_avg"],
            f"new:second:{name}": state["exp_avg_sq"],
        }
    return found
