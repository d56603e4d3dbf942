"""The reference plan: one training step of a model on a single device."""

from __future__ import annotations

from math import prod

from pitcheck.models.config import Attention, Batch, Model, Optimizer
from pitcheck.models.dense import attention, feed_forward
from pitcheck.models.flat_state import Buffers, adamw_flat, join_gradients
from pitcheck.models.latent import latent_attention
from pitcheck.models.layers import embed, linear, logits, norm, prepare
from pitcheck.models.loss import masked_mean, token_losses
from pitcheck.models.mixture import Routed, mixture, move_bias
from pitcheck.models.optimizer import adamw, clip
from pitcheck.models.rules import check_model
from pitcheck.models.tape import Tape
from pitcheck.plan.collector import collector_off
from pitcheck.plan.model import Number, Plan


def reference_plan(
    model: Model, batch: Batch, optimizer: Optimizer | None = None, flat: Buffers = ()
) -> Plan:
    """Return forward pass, loss, backward pass, clipping and AdamW step of ``model`` on ``batch``.

    Inputs: ``tokens``, ``labels`` (integers) and ``mask`` (True for tokens that are counted), each
    (sequences, length); the cosines and sines of rotary embedding; the learning rate. Multi-token
    prediction has ``tokens``, ``labels`` and ``mask`` under ``predicted.``: there the tokens are
    those one place further on, and the labels those after them.

    Outputs: ``loss``, ``gradient_norm``, the gradient of every parameter before clipping, all new
    parameters and state. With ``flat`` gradients and moments are those of flat buffers of the named
    parameters instead. Raises PlanError for sizes that do not fit.
    """
    check_model(model, batch)
    with collector_off():
        tape = Tape(model.name)
        step = _Step(tape, model, batch)
        step.forward()
        gradients = step.backward(compared=not flat)
        settings = optimizer or Optimizer()
        if flat:
            adamw_flat(
                tape, clip(tape, join_gradients(tape, gradients, flat), settings), settings, flat
            )
        else:
            adamw(tape, clip(tape, gradients, settings), settings)
        return tape.plan()


def parameter_count(plan: Plan, predicted: bool = False) -> int:
    """Return the number of trainable elements of a plan.

    Those of multi-token prediction are counted with ``predicted`` only.
    """
    counted = (
        tensor
        for tensor in plan.tensors
        if tensor.role == "parameter" and (predicted or not tensor.name.startswith("predicted."))
    )
    return sum(prod(tensor.shape) for tensor in counted)


class _Step:
    """One training step; the forward pass remembers the losses and the routers' results."""

    def __init__(self, tape: Tape, model: Model, batch: Batch) -> None:
        self.tape = tape
        self.model = model
        self.batch = batch
        self.context = prepare(tape, model, batch, self._tokens("tokens"))
        self.losses: list[str] = []
        self.routed: dict[str, Routed] = {}

    def _tokens(self, name: str) -> str:
        return self.tape.input(
            name,
            (self.batch.sequences, self.batch.length),
            "int64",
            bounds=(0, self.model.vocabulary),
        )

    def forward(self) -> None:
        """Record all layers and losses."""
        x = embed(self.context, "tokens", "embedding")
        for number in range(self.model.layers):
            x = self.layer(x, f"layers.{number}", number, self.model.is_mixture(number))
        self._head(x, "", "loss.tokens")
        if self.model.predicted:
            self._predict(x)

    def layer(self, x: str, name: str, number: int | None, mixed: bool) -> str:
        """Record a layer: x + attention(norm x), then that + feed-forward(norm of it).

        ``number`` counts from 0; None is the layer of multi-token prediction.
        """
        tape, context = self.tape, self.context.of_layer(number)
        with tape.module(name):
            normed, sizes = norm(context, x, f"{name}.attention_norm"), self.model.attention
            attend = f"{name}.attention"
            mixer = (
                attention(context, normed, attend, sizes)
                if isinstance(sizes, Attention)
                else latent_attention(context, normed, attend, sizes)
            )
            x = tape.op("add", x, mixer, name=f"{name}.middle")
            normed = norm(context, x, f"{name}.mlp_norm")
            return tape.op(
                "add", x, self._feed_forward(normed, f"{name}.mlp", mixed), name=f"{name}.output"
            )

    def _feed_forward(self, x: str, name: str, mixed: bool) -> str:
        if not mixed or self.model.experts is None:
            return feed_forward(self.context, x, name, self.model.ffn)
        routed = self.routed[name] = mixture(self.context, x, name, self.model.experts)
        self.losses.extend(routed.losses)
        return routed.output

    def _head(self, x: str, prefix: str, name: str) -> str:
        """Record the mean loss of the tokens that are counted, from the last hidden state."""
        tape, shape = self.tape, (self.batch.sequences, self.batch.length)
        labels = self._tokens(f"{prefix}labels")
        mask = tape.input(f"{prefix}mask", shape, "bool")
        scores = logits(self.context, norm(self.context, x, f"{prefix}norm"), f"{prefix}logits")
        loss = masked_mean(tape, token_losses(tape, scores, labels, name), mask, name)
        self.losses.append(loss)
        return loss

    def _predict(self, x: str) -> None:
        """Record multi-token prediction (DeepSeek-V3, 2024, section 2.2).

        It is one more layer over [norm of the hidden state, norm of the next token's embedding].
        """
        tape, context = self.tape, self.context
        with tape.module("predicted"):
            following = embed(context, self._tokens("predicted.tokens"), "predicted.embedding")
            both = tape.op(
                "cat",
                norm(context, x, "predicted.hidden_norm"),
                norm(context, following, "predicted.token_norm"),
                axis=2,
            )
            joined = linear(tape, both, "predicted.join", self.model.hidden)
        hidden = self.layer(joined, "predicted.layer", None, self.model.experts is not None)
        self._head(hidden, "predicted.", "loss.predicted.tokens")
        self.losses[-1] = tape.op(
            "mul", self.losses[-1], Number(self.model.predicted_weight), name="loss.predicted"
        )

    def backward(self, compared: bool) -> dict[str, str]:
        """Record the sum of all losses, the backward pass and the steps of the routers' biases.

        Return parameter -> gradient; each gradient is an output if ``compared``.
        """
        tape = self.tape
        with tape.untracked():
            total = self.losses[0]
            for loss in self.losses[1:-1]:
                total = tape.op("add", total, loss)
            tape.output(
                tape.op("add", total, self.losses[-1], name="loss")
                if len(self.losses) > 1
                else tape.op("identity", total, name="loss")
            )
        gradients = tape.backward(dict.fromkeys(self.losses, tape.constant("one", 1)))
        ordered = {
            name: gradients[name]
            for name, tensor in tape.tensors.items()
            if tensor.role == "parameter"
        }
        for name, gradient in ordered.items() if compared else ():
            tape.gradient(gradient, of=name)
        for name, routed in self.routed.items():
            if routed.bias and self.model.experts is not None:
                move_bias(self.context, routed, name, self.model.experts)
        return ordered
