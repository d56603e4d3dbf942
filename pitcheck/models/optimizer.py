"""Clipping by the global norm, and AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from pitcheck.models.config import Optimizer
from pitcheck.models.tape import Tape


def clip(tape: Tape, gradients: Mapping[str, str], settings: Optimizer) -> dict[str, str]:
    """Record parameter -> its gradient * min(1, max_norm / (norm + 10^-6)).

    norm is the root of the sum of squares of all gradients, as PyTorch and Megatron-LM clip.
    """
    squares = [
        tape.op("sum", tape.op("square", gradient), name=f"squares:{name}")
        for name, gradient in gradients.items()
    ]
    norm = tape.op("sqrt", tape.op("sum", tape.op("stack", *squares, axis=0)), name="gradient_norm")
    tape.output(norm)
    ratio = tape.op("div", Fraction(settings.max_norm), tape.op("add", norm, Fraction(1, 10**6)))
    factor = tape.op("clamp", ratio, name="clip_factor", max=1)
    return {
        name: tape.op("mul", gradient, factor, name=f"clipped:{name}")
        for name, gradient in gradients.items()
    }


def adamw(tape: Tape, gradients: Mapping[str, str], settings: Optimizer) -> None:
    """Record one step of all parameters from their clipped gradients.

    Norms, biases and sinks do not decay. Moments are state called first:P and second:P.
    """
    rate, decay = rates(tape, settings)
    for name, gradient in gradients.items():
        kept = name if name in tape.undecayed else tape.op("mul", name, decay)
        tape.update(stepped(tape, name, gradient, rate, kept, settings), of=name)


def rates(tape: Tape, settings: Optimizer) -> tuple[str, str]:
    """Record the factors of a step.

    Returns: the learning rate, corrected for a first moment that starts at 0, and the factor by
    which a parameter decays.
    """
    rate = tape.input("learning_rate", ())
    correction = 1 - Fraction(settings.beta1) ** settings.step
    step = tape.op("div", rate, correction, name="corrected_rate")
    return step, tape.op(
        "sub", 1, tape.op("mul", rate, Fraction(settings.weight_decay)), name="decay"
    )


def stepped(tape: Tape, name: str, gradient: str, rate: str, kept: str, settings: Optimizer) -> str:
    """Record m' = b1 m + (1 - b1) g and v' = b2 v + (1 - b2) g^2; return the new parameter.

    It is kept - rate m' / (sqrt(v' / (1 - b2^step)) + eps).
    """
    beta1, beta2 = Fraction(settings.beta1), Fraction(settings.beta2)
    shape = tape.tensors[name].shape
    first, second = tape.state(f"first:{name}", shape), tape.state(f"second:{name}", shape)
    m = tape.op(
        "add", tape.op("mul", first, beta1), gradient, name=f"new:{first}", alpha=str(1 - beta1)
    )
    v = tape.op(
        "add",
        tape.op("mul", second, beta2),
        tape.op("square", gradient),
        name=f"new:{second}",
        alpha=str(1 - beta2),
    )
    for tensor, of in ((m, first), (v, second)):
        tape.update(tensor, of=of)
    root = tape.op("sqrt", tape.op("div", v, 1 - beta2**settings.step))
    change = tape.op("mul", tape.op("div", m, tape.op("add", root, Fraction(settings.eps))), rate)
    return tape.op("sub", kept, change, name=f"new:{name}")
