"""Every operator that real programs run, forward, backward and optimizer: each is translated and
compared with what PyTorch gave for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from frontends.torch.aten.aten_harness import Recorded, by_algebra, check_recorded, copied
from frontends.torch.aten.aten_rows import flags, integers, reals
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

Tensor = torch.Tensor
_UNSEEN = {
    "_local_scalar_dense",
    "_record_function_enter_new",
    "_record_function_exit",
    "rand",
    "randint",
    "uniform_",
    "normal_",
    "set_",
}
"""Operators that are no part of a step's computation.

They look at a number, mark events for the profiler, or make inputs.
"""


class _Checking(TorchDispatchMode):
    """Compares every operator as it runs; keeps the names of those that it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self, called: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = called._schema.name.partition("::")[2]
        if name in _UNSEEN:
            return called(*args, **kwargs)
        before, keywords = copied(args), copied(kwargs)
        results = called(*args, **kwargs)
        written = [
            i
            for i, argument in enumerate(called._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        given = dict(zip((a.name for a in called._schema.arguments), args, strict=False)) | kwargs
        outputs = [given[called._schema.arguments[i].name] for i in written] if written else results
        operator = f"{name.removesuffix('_') if written else name}.{called._overloadname}"
        self.seen.add(operator)
        check_recorded(Recorded.of(operator, called, before, keywords, copied(outputs)), by_algebra)
        return results


class _Norm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(reals(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5).type_as(x) * self.weight


def _complex_rotary(q: Tensor, _: Tensor) -> Tensor:
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, 4, 2).double() / 4)
    angles = torch.outer(torch.arange(q.shape[1]).double(), frequencies)
    turns = torch.polar(torch.ones_like(angles), angles).view(1, q.shape[1], 1, 2)
    return torch.view_as_real(
        torch.view_as_complex(q.reshape(*q.shape[:-1], -1, 2)) * turns
    ).flatten(3)


def _half_rotary(q: Tensor, positions: Tensor) -> Tensor:
    inverse = 1.0 / (10000.0 ** (torch.arange(0, 4, 2, dtype=torch.float64) / 4))
    angles = (inverse[None, :, None].expand(1, -1, 1) @ positions[:, None, :].double()).transpose(
        1, 2
    )
    turned = torch.cat((angles, angles), -1).unsqueeze(2)
    first, second = q[..., :2], q[..., 2:]
    return q * turned.cos() + torch.cat((-second, first), -1) * turned.sin()


def _llama(rotary: Callable[[Tensor, Tensor], Tensor], backend: SDPBackend) -> None:
    torch.manual_seed(1)
    size, heads = 8, 2
    embedding, norm, last = nn.Embedding(11, size), _Norm(size), _Norm(size)
    wq, wk, wv, wo = (nn.Linear(size, n, bias=False) for n in (size, 4, 4, size))
    up, gate, down, head = (
        nn.Linear(size, 12, bias=False),
        nn.Linear(size, 12, bias=False),
        nn.Linear(12, size, bias=False),
        nn.Linear(size, 11, bias=False),
    )
    tokens, target = integers(11, 2, 5), integers(11, 2, 5, seed=1)
    x = embedding(tokens)
    h = norm(x)
    positions = torch.arange(5).unsqueeze(0)
    q, k, v = (w(h).view(2, 5, -1, size // heads) for w in (wq, wk, wv))
    q, k = rotary(q, positions), rotary(k, positions)
    k, v = (t[:, :, :, None, :].expand(2, 5, 1, heads, 4).reshape(2, 5, heads, 4) for t in (k, v))
    with sdpa_kernel(backend):
        attended = F.scaled_dot_product_attention(
            *(t.transpose(1, 2) for t in (q, k, v)), is_causal=True
        )
    x = x + wo(attended.transpose(1, 2).contiguous().view(2, 5, size))
    h = last(x)
    x = x + down(F.silu(gate(h)) * up(h))
    logits = head(x)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
    loss.backward()


def _gpt() -> None:
    """Attention as Megatron writes it, with a mask, dropout 0 and a fused projection; both kinds of
    gelu.
    """
    torch.manual_seed(2)
    size, heads, length = 8, 2, 5
    tokens, positions = nn.Embedding(11, size), nn.Embedding(7, size)
    first, second, qkv = nn.LayerNorm(size), nn.LayerNorm(size), nn.Linear(size, 3 * size)
    out, up, down = nn.Linear(size, size), nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
    ids = integers(11, length, 2)
    x = tokens(ids) + positions(torch.arange(length)[:, None])
    q, k, v = qkv(first(x)).view(length, 2, heads, -1).split(size // heads, -1)
    q, k, v = (t.reshape(length, 2 * heads, -1) for t in (q, k, v))
    scores = torch.empty(2 * heads, length, length)
    scores = torch.baddbmm(
        torch.zeros_like(scores),
        q.transpose(0, 1),
        k.transpose(0, 1).transpose(1, 2),
        beta=0.0,
        alpha=0.5,
    )
    mask = torch.tril(torch.ones(1, 1, length, length)).bool().logical_not()
    scores = scores.view(2, heads, length, length).masked_fill(mask, -10000.0)
    weights = F.dropout(scores.softmax(-1), 0.0)
    context = torch.bmm(weights.view(2 * heads, length, length), v.transpose(0, 1)).view(
        2, heads, length, -1
    )
    x = x + out(context.permute(2, 0, 1, 3).contiguous().view(length, 2, size))
    for approximate in ("none", "tanh"):
        x = x + down(F.gelu(up(second(x)), approximate=approximate))
    logits = F.linear(x, tokens.weight)
    loss_mask = flags(length, 2).double()
    losses = F.cross_entropy(logits.transpose(1, 2), ids, reduction="none")
    ((losses * loss_mask).sum() / loss_mask.sum().clamp(min=1)).backward()


def _vocabulary_parallel() -> None:
    """Megatron's embedding and cross entropy of a rank that holds ids 4 .. 7 of 11."""
    torch.manual_seed(3)
    ids, weight = integers(11, 2, 5), nn.Parameter(reals(4, 6))
    outside = (ids < 4) | (ids >= 8)
    inside = ids.clone() - 4
    inside[outside] = 0
    embedded = F.embedding(inside, weight)
    embedded = embedded.masked_fill(outside.unsqueeze(-1), 0.0)
    embedded.sum().backward()
    found = weight[inside]
    found[outside, :] = 0.0
    logits = reals(2, 5, 4)
    logits = logits - logits.max(dim=-1)[0].unsqueeze(-1)
    flat = logits.view(-1, 4)
    places = torch.arange(flat.shape[0])
    predicted = flat[places, inside.view(-1)].clone().contiguous().view_as(ids)
    predicted[outside] = 0.0
    exponentials = torch.exp(logits)
    loss = torch.log(exponentials.sum(dim=-1)) - predicted
    exponentials.div_(exponentials.sum(dim=-1).unsqueeze(-1))
    gradient = exponentials.view(-1, 4)
    gradient[places, inside.view(-1)] -= 1.0 - outside.view(-1).double()
    gradient.view(2, 5, 4).mul_(loss.unsqueeze(-1))


def _experts() -> None:
    """Routing with the first two of four experts, and the ways in which tokens go there
    and back.
    """
    torch.manual_seed(4)
    x, router = reals(6, 4).requires_grad_(), nn.Parameter(reals(4, 4, seed=1))
    experts = [nn.Parameter(reals(4, 4, seed=i)) for i in range(4)]
    scores = F.softmax(x @ router.t(), dim=-1, dtype=torch.float64)
    weights, chosen = torch.topk(scores, 2, dim=-1)
    weights = weights / weights.sum(-1, keepdim=True)
    gates = torch.zeros_like(scores).scatter_add(1, chosen, weights)
    counts = torch.zeros(6, 4, dtype=torch.int64).scatter_(1, chosen, 1).sum(0)
    auxiliary = (scores.mean(0) * counts.double() / 12).sum() * 4
    order = torch.sort(chosen.view(-1), stable=True)[1]
    permuted = x.index_select(0, order // 2)
    torch.bincount(chosen.view(-1), minlength=4)
    F.one_hot(chosen, 4).cumsum(0)
    dense = sum(gates[:, i].unsqueeze(-1) * (x @ experts[i]) for i in range(4))
    y = torch.zeros_like(x).index_add(
        0, order // 2, permuted * weights.view(-1)[order].unsqueeze(-1)
    )
    (
        dense.square().mean()
        + y.abs().sum()
        + auxiliary
        + torch.logsumexp(x @ router.t(), -1).square().mean()
    ).backward()


def _merged() -> None:
    """Attention over two blocks of keys, merged as ring attention does."""
    q, k, v = (reals(1, 2, 4, 3, seed=i).requires_grad_() for i in range(3))
    total, sum_of = None, None
    for block in (slice(0, 2), slice(2, 4)):
        scores = q @ k[:, :, block].transpose(-1, -2) / 3**0.5
        lse = torch.logsumexp(scores, -1, keepdim=True)
        out = torch.exp(scores - lse) @ v[:, :, block]
        if total is None or sum_of is None:
            total, sum_of = out, lse
        else:
            total = total - torch.sigmoid(lse - sum_of) * (total - out)
            sum_of = (
                torch.logaddexp(sum_of, lse) if block.start else sum_of - F.logsigmoid(sum_of - lse)
            )
    assert total is not None
    total.sum().backward()


def _others() -> None:
    x = reals(3, 4).requires_grad_()
    y = (
        F.glu(x) * F.softplus(x[:, :2])
        + torch.tanh(x)[:, 1:3]
        + torch.sigmoid(x.roll(1, 0)).flip(1)[:, ::2]
        + F.relu(x)[:, [0, 2]]
    )
    z = (
        torch.where(y > 0, y, 0.1 * y).clamp(-1, 1).abs()
        + y.std(-1, keepdim=True)
        + y.var(0)
        + F.logsigmoid(y)
        + F.pad(y, (1, 0))[:, 1:]
    )
    w = (
        torch.stack([z, z.minimum(y)]).unbind()[1].repeat(2, 1).chunk(2)[0]
        + z.norm()
        + z.amax(-1, keepdim=True)
        + z.max()
        + torch.lerp(z, y, 0.25)
    )
    u = (
        F.mse_loss(w, y)
        + F.binary_cross_entropy_with_logits(w, torch.ones_like(w) / 2)
        + (1 - w).reciprocal().tril().sum()
        + (2.0 - w).cumsum(0).mean()
    )
    (u + torch.logsumexp(w, -1).sum() + w.gather(1, integers(2, 3, 2)).sum()).backward()


def _optimizers() -> None:
    for make in (
        *(
            lambda p, kw=kw: torch.optim.AdamW(p, lr=1e-3, **kw)
            for kw in ({"foreach": True}, {"foreach": False}, {"fused": True})
        ),
        *(
            lambda p, kw=kw: torch.optim.Adam(p, lr=1e-3, weight_decay=0.1, **kw)
            for kw in ({"foreach": True}, {"foreach": False}, {"fused": True})
        ),
        *(
            lambda p, kw=kw: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, **kw)
            for kw in ({"foreach": True}, {"nesterov": True}, {"fused": True})
        ),
    ):
        parameters = [nn.Parameter(reals(2, 3)), nn.Parameter(reals(4))]
        optimizer = make(parameters)
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = reals(*parameter.shape, seed=3)
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()


PROGRAMS = {
    "llama-complex-flash": lambda: _llama(_complex_rotary, SDPBackend.FLASH_ATTENTION),
    "llama-halves-math": lambda: _llama(_half_rotary, SDPBackend.MATH),
    "gpt": _gpt,
    "vocabulary-parallel": _vocabulary_parallel,
    "experts": _experts,
    "merged": _merged,
    "others": _others,
    "optimizers": _optimizers,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_operator_of_a_program(name: str) -> None:
    mode = _Checking()
    torch.set_default_dtype(torch.float64)
    try:
        with mode:
            PROGRAMS[name]()
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(mode.seen) > 5
