"""A mixture of experts on a rank: tokens go to the experts they chose, are computed there and come back; shared experts are a dense feed-forward part."""

from __future__ import annotations

from pitcheck.models.config import Experts
from pitcheck.programs.dispatch import Sent, combine, dispatch
from pitcheck.programs.feed_forward import feed_forward
from pitcheck.programs.rank import Names, Rank
from pitcheck.programs.routing import route
from pitcheck.programs.tensor import parameter


def mixture_of_experts(rank: Rank, x: str, name: str, experts: Experts) -> str:
    """The weighted results of the experts that each token of ``x`` (sequences, length, hidden) chose, plus those of the shared experts."""
    routed = f"{name}.routed" if experts.shared else name
    sent = dispatch(rank, x, route(rank, x, name, experts), name, experts)
    combine(rank, _computed(rank, sent, f"{name}.experts", experts), sent, routed)
    if experts.shared:
        rank.tape.op("add", routed, feed_forward(rank, x, f"{name}.shared", experts.shared * experts.ffn), name=name, hint=rank.residual)
    return name


def _computed(rank: Rank, sent: Sent, name: str, experts: Experts) -> str:
    """The rank's experts, each on its own tokens, weighted and added up per token; a term of the sum where an expert's width is cut."""
    tape = rank.tape
    own = tape.op("einsum", sent.chosen, sent.tokens, name=f"{name}.tokens", equation="gbpl,gbph->lgbph")
    gate, up = (
        tape.op("einsum", own, _weight(rank, f"{name}.{part}.weight", experts, 1), name=f"{name}.{part}", equation="lgbph,lfh->lgbpf")
        for part in ("gate", "up")
    )
    middle = tape.op("mul", tape.op("silu", gate), up, name=f"{name}.middle")
    each = tape.op("einsum", middle, _weight(rank, f"{name}.down.weight", experts, 2), name=f"{name}.down", equation="lgbpf,lhf->lgbph")
    return tape.op("einsum", sent.weights, each, name=f"{name}.weighted", equation="gbpl,lgbph->gbph")


def _weight(rank: Rank, name: str, experts: Experts, cut: int) -> str:
    """The weights of the rank's experts as one tensor, experts first; dimension ``cut`` is the expert's width."""
    axes: dict[int, Names] = {0: rank.axes.experts, cut: rank.axes.expert_tensor}
    sizes = {0: experts.routed, cut: experts.ffn, 3 - cut: rank.model.hidden}
    shape = [sizes[dim] // rank.axes.size(axes.get(dim, ())) for dim in range(3)]
    return parameter(rank, name, shape, rank.spread(axes), sharing=rank.expert())
