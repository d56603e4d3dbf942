"""The pieces of all reference models: the context of a step, linear layers, norms, embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pitcheck.models.config import Attention, Batch, LatentAttention, Model
from pitcheck.models.tape import Tape
from pitcheck.plan.model import Number

QUERY_SCALES = "query_scales"
"""The name of the factors of queries in the plan of one device."""


@dataclass(frozen=True)
class Context:
    """The tape, the model, its batch, and the tensors that all layers share.

    ``visible`` (length, length): True where the token of a row may attend to that of a column;
    ``local``: the same in layers with a window or a chunk. Each is "" if no layer needs it.
    ``cos``, ``sin`` (length, half the rotary size): "" without rotary embedding.
    ``scales`` (length, 1): the factors of queries; "" if they are not scaled by their place.
    """

    tape: Tape
    model: Model
    batch: Batch
    visible: str
    cos: str = ""
    sin: str = ""
    local: str = ""
    scales: str = ""

    def of_layer(self, layer: int | None) -> Context:
        """Return the context in which a layer attends.

        ``layer`` counts from 0; None is the layer of multi-token prediction.
        """
        model = self.model
        turned = model.is_rotary(layer)
        return replace(
            self,
            visible=self.local if model.is_local(layer) else self.visible,
            cos=self.cos if turned else "",
            sin=self.sin if turned else "",
            scales=self.scales if model.scales_queries(layer) else "",
        )


def parameter(tape: Tape, name: str, *shape: int, decays: bool = True) -> str:
    """Add a parameter unless it exists already; return its name.

    Without ``decays`` it is a norm, a bias or a sink, which weight decay leaves out.
    """
    return name if name in tape.tensors else tape.parameter(name, shape, decays=decays)


def linear(tape: Tape, x: str, name: str, outputs: int, bias: bool = False) -> str:
    """Record ``x`` (..., k) times the weight ``name.weight`` (outputs, k), plus ``name.bias``.

    The result (..., outputs) is called ``name``.
    """
    weight = parameter(tape, f"{name}.weight", outputs, tape.tensors[x].shape[-1])
    added = (parameter(tape, f"{name}.bias", outputs, decays=False),) if bias else ()
    return tape.op("linear", x, weight, *added, name=name)


def norm(context: Context, x: str, name: str) -> str:
    """Record the model's norm over the last dimension of ``x``; the result is called ``name``."""
    tape, model, size = context.tape, context.model, context.tape.tensors[x].shape[-1]
    weight = parameter(tape, f"{name}.weight", size, decays=False)
    if model.norm == "rms":
        return tape.op("rms_norm", x, weight, name=name, eps=model.norm_eps)
    return tape.op(
        "layer_norm",
        x,
        weight,
        parameter(tape, f"{name}.bias", size, decays=False),
        name=name,
        eps=model.norm_eps,
    )


def embed(context: Context, tokens: str, name: str) -> str:
    """Record the rows of the embedding at ``tokens`` (sequences, length), plus learned positions.

    The result is (sequences, length, hidden).
    """
    tape, model = context.tape, context.model
    weight = parameter(tape, "embedding.weight", model.embedding_rows, model.hidden)
    if not model.positions:
        return tape.op("embedding", tokens, weight, name=name)
    words = tape.op("embedding", tokens, weight, name=f"{name}.words")
    weight = parameter(tape, "embedding.positions.weight", model.positions, model.hidden)
    # Read as a slice: rows looked up by number would tie the positions to the length of
    # the sequence.
    places = tape.op(
        "slice", weight, name=f"{name}.positions", axis=0, start=0, stop=context.batch.length
    )
    return tape.op("add", words, places, name=name)


def logits(context: Context, x: str, name: str) -> str:
    """Record a score for every row of the vocabulary, (sequences, length, rows)."""
    tape, model = context.tape, context.model
    weight = parameter(
        tape,
        "embedding.weight" if model.tied else "head.weight",
        model.embedding_rows,
        model.hidden,
    )
    return tape.op("linear", x, weight, name=name)


def prepare(tape: Tape, model: Model, batch: Batch, tokens: str) -> Context:
    """Record the tensors that all layers share.

    These are positions, causal mask, factors of queries, and rotary cosines and sines, which are
    inputs.
    """
    tape.op("positions", tokens, name="positions", axis=1)
    rows, columns = (tape.op("unsqueeze", "positions", axis=axis) for axis in (1, 0))
    layers = [*range(model.layers), *([None] if model.predicted else [])]
    local = {model.is_local(layer) for layer in layers}
    context = Context(
        tape,
        model,
        batch,
        tape.op("ge", rows, columns, name="visible") if False in local else "",
        local=_near(tape, model, tokens, rows, columns) if True in local else "",
        scales=_query_scales(tape, model, tokens, layers),
    )
    size = rotary_size(model)
    if not size:
        return context
    cos, sin = (tape.input(f"rotary.{name}", (batch.length, size // 2)) for name in ("cos", "sin"))
    return replace(context, cos=cos, sin=sin)


def _near(tape: Tape, model: Model, tokens: str, rows: str, columns: str) -> str:
    """Record True where a column is no later than its row, and in its window or chunk."""
    sizes = model.attention
    window, chunk = (sizes.window, sizes.chunk) if isinstance(sizes, Attention) else (0, 0)
    if window:
        # Places further on are positions, too: a literal would tie the window to the length.
        ahead = tape.op("positions", tokens, axis=1, offset=window)
        near = tape.op("lt", rows, tape.op("unsqueeze", ahead, axis=0), name="visible.near")
    else:
        every = tape.op("full_like", columns, value=chunk)
        near = tape.op("eq", *(tape.op("floor_divide", at, every) for at in (rows, columns)))
    return tape.op("logical_and", tape.op("ge", rows, columns), near, name="visible.local")


def _query_scales(tape: Tape, model: Model, tokens: str, layers: Sequence[int | None]) -> str:
    """Record the factors of queries, (length, 1); return "" if no layer scales them."""
    sizes = model.attention
    if not isinstance(sizes, Attention) or not any(map(model.scales_queries, layers)):
        return ""
    counted = tape.op("positions", tokens, axis=1, offset=1)
    floor = tape.op("full_like", counted, value=sizes.query_floor)
    steps = tape.op("cast", tape.op("floor_divide", counted, floor), dtype="float32")
    logarithm = tape.op("log", tape.op("add", steps, Number(1)))
    factors = tape.op("add", tape.op("mul", logarithm, Number(sizes.query_scale)), Number(1))
    return tape.op("unsqueeze", factors, name=QUERY_SCALES, axis=1)


def rotary_size(model: Model) -> int:
    """Return the number of elements of a head that rotary position embedding rotates."""
    attention = model.attention
    if isinstance(attention, LatentAttention):
        return attention.rope
    return attention.head_dim if attention.rotary else 0
