"""The dense feed-forward part, tensor parallel."""

from __future__ import annotations

from pitcheck.models.records import Hint
from pitcheck.plan.model import Number
from pitcheck.programs.layers.regions import enter
from pitcheck.programs.layers.tensor_parallel import column, row
from pitcheck.programs.rank import Rank


def feed_forward(rank: Rank, x: str, name: str, ffn: int) -> str:
    """Record down(silu(gate x) * up x), or as the activation says, of the residual stream ``x``.

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
    middle = gated(rank, gate, up, f"{name}.middle", rank.wide)
    return row(rank, middle, f"{name}.down", model.hidden, model.bias)


def gated(rank: Rank, gate: str, up: str, name: str, hint: Hint = None) -> str:
    """Record silu(gate) * up, or g * sigmoid(alpha g) * (u + 1) of clamped gate and up."""
    tape, model = rank.tape, rank.model
    if model.activation == "swiglu":
        return tape.op("mul", tape.op("silu", gate), up, name=name, hint=hint)
    stem = name.removesuffix(".middle")
    gate = tape.op("clamp", gate, name=f"{stem}.gate.clamped", max=model.gate_limit)
    up = tape.op(
        "clamp",
        up,
        name=f"{stem}.up.clamped",
        min=f"-{model.gate_limit}",
        max=model.gate_limit,
    )
    slope = tape.op("sigmoid", tape.op("mul", gate, Number(model.gate_alpha)))
    return tape.op(
        "mul", tape.op("mul", gate, slope), tape.op("add", up, Number(1)), name=name, hint=hint
    )
