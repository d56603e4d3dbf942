"""The dense feed-forward part, tensor parallel."""

from __future__ import annotations

from pitcheck.programs.layers.regions import enter
from pitcheck.programs.layers.tensor_parallel import column, row
from pitcheck.programs.rank import Rank


def feed_forward(rank: Rank, x: str, name: str, ffn: int) -> str:
    """Record down(silu(gate x) * up x), or down(gelu(up x)), of the residual stream ``x``.

    The middle, ``ffn`` wide, is cut over tensor-parallel ranks.
    """
    tape, model, axes = rank.tape, rank.model, rank.axes.tensor
    entered = enter(rank, x)
    if model.activation == "gelu":
        up = column(rank, entered, f"{name}.up", ffn, axes, model.bias)
        middle = tape.op("gelu", up, name=f"{name}.middle", hint=rank.wide, approximate="tanh")
        return row(rank, middle, f"{name}.down", model.hidden, model.bias)
    if model.fused_gate:
        packed = column(rank, entered, f"{name}.gate_up", 2 * ffn, axes, model.bias, blocks=2)
        own = ffn // rank.axes.size(axes)
        gate, up = tape.several(
            "split",
            packed,
            names=(f"{name}.gate", f"{name}.up"),
            hints=(rank.wide, rank.wide),
            axis=2,
            sizes=(own, own),
        )
    else:
        gate, up = (
            column(rank, entered, f"{name}.{part}", ffn, axes, model.bias)
            for part in ("gate", "up")
        )
    middle = tape.op("mul", tape.op("silu", gate), up, name=f"{name}.middle", hint=rank.wide)
    return row(rank, middle, f"{name}.down", model.hidden, model.bias)
