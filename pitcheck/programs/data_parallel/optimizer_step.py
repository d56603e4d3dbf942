"""Clipping by the global norm, and the optimizer's step on a rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Protocol

from pitcheck.models.config import Optimizer
from pitcheck.models.tape import Tape
from pitcheck.plan.model import Lineage
from pitcheck.programs.data_parallel.buckets import Piece, gather, own_part
from pitcheck.programs.data_parallel.summed_gradients import buckets
from pitcheck.programs.rank import Names, Rank


class Held(Protocol):
    """The way in which a rank holds a tensor, and others that are spread as it is."""

    @property
    def lineage(self) -> Lineage:
        """The part of the reference's tensor that the rank holds."""

    def holds(self, reference: str) -> Lineage:
        """Return the lineage of a tensor that holds the same part of another reference tensor."""


def clip(
    rank: Rank, gradients: Mapping[str, str], settings: Optimizer, pieces: Mapping[str, Held]
) -> dict[str, str]:
    """Record parameter -> its gradient * min(1, max_norm / (norm + 10^-6)).

    Every element of the model counts once in the norm, wherever it is held.
    """
    tape = rank.tape
    norm = tape.op("sqrt", _squares(rank, gradients, pieces), name="gradient_norm", hint={})
    tape.output(norm)
    ratio = tape.op("div", Fraction(settings.max_norm), tape.op("add", norm, Fraction(1, 10**6)))
    factor = tape.op("clamp", ratio, name="clip_factor", hint={}, max=1)
    clipped = {}
    for name, gradient in gradients.items():
        with rank.at(*rank.homes[name]):
            hint = (
                pieces[name].holds(f"clipped:{name}")
                if name in pieces
                else rank.like(f"clipped:{name}", name)
            )
            clipped[name] = tape.op("mul", gradient, factor, name=f"clipped:{name}", hint=hint)
    return clipped


def _squares(rank: Rank, gradients: Mapping[str, str], pieces: Mapping[str, Held]) -> str:
    """Record the sum of squares over all parameters.

    A rank sums those of its parts; the sums are added over ranks with other parts, then over
    pipeline ranks.
    """
    tape = rank.tape
    own: dict[Names, dict[int, list[str]]] = {}
    for name, gradient in gradients.items():
        home = rank.pipeline_rank(rank.homes[name][0])
        axes = rank.parted(pieces[name].lineage if name in pieces else tape.tensors[name].lineage)
        with rank.at(home):
            square = tape.op(
                "sum",
                tape.op("square", gradient),
                name=f"squares:{name}",
                hint=None if axes else {},
            )
        own.setdefault(axes, {}).setdefault(home, []).append(square)
    totals = [_over(rank, axes, by_place) for axes, by_place in own.items()]
    total = total_of(tape, totals, "squares.stage")
    return (
        tape.op("all_reduce", total, group=rank.axes.pipeline, name="squares")
        if rank.axes.pipeline
        else total
    )


def _over(rank: Rank, axes: Names, by_place: Mapping[int, Sequence[str]]) -> str:
    """Record the sum over the parameters of each pipeline rank, and over ``axes``."""
    name = "squares.own" + "".join(f".{axis}" for axis in axes)
    for place in range(rank.layout.pp):
        with rank.at(place):
            squares = by_place.get(place) or [rank.tape.constant("zero", 0)]
            rank.tape.op("sum", rank.tape.op("stack", *squares, axis=0), name=name)
    return rank.tape.op("all_reduce", name, group=axes, name=f"{name}.summed") if axes else name


def total_of(tape: Tape, terms: Sequence[str], name: str) -> str:
    """Record the sum of at least one of ``terms``, in their order."""
    total = terms[0]
    for term in terms[1:-1]:
        total = tape.op("add", total, term)
    return (
        tape.op("add", total, terms[-1], name=name)
        if len(terms) > 1
        else tape.op("identity", total, name=name)
    )


def adamw(
    rank: Rank, gradients: Mapping[str, str], settings: Optimizer, pieces: Mapping[str, Piece]
) -> None:
    """Record one AdamW step of the parameters; norms, biases and sinks do not decay.

    The parameters in ``pieces`` are updated as the rank's shards, which are gathered then.
    """
    tape = rank.tape
    corrected, decay = rates(tape, settings)
    for name, gradient in gradients.items():
        with rank.at(*rank.homes[name]):
            own = own_part(rank, pieces[name], name, f"{name}:own") if name in pieces else name
            kept = own if name in tape.undecayed else tape.op("mul", own, decay)
            new = moved(rank, own, gradient, corrected, kept, settings)
            if name not in pieces:
                tape.update(new, of=name)
    for number, (stages, bucket) in enumerate(buckets(rank, pieces)):
        with rank.at(*stages):
            names = [one.name for one in bucket]
            hints = [rank.like(f"new:{name}", name) for name in names]
            gather(
                rank,
                bucket,
                [f"new:{name}:own" for name in names],
                f"new.{number}",
                [f"new:{name}" for name in names],
                hints,
                [],
            )
    for name in pieces:
        tape.update(f"new:{name}", of=name)


def rates(tape: Tape, settings: Optimizer) -> tuple[str, str]:
    """Record the factors of a step.

    Returns: the learning rate, corrected for a first moment that starts at 0, and the factor by
    which a parameter decays.
    """
    rate = tape.input("learning_rate", (), lineage={})
    correction = 1 - Fraction(settings.beta1) ** settings.step
    corrected = tape.op("div", rate, correction, name="corrected_rate", hint={})
    lost = tape.op("mul", rate, Fraction(settings.weight_decay))
    return corrected, tape.op("sub", 1, lost, name="decay", hint={})


def moved(rank: Rank, own: str, gradient: str, rate: str, kept: str, settings: Optimizer) -> str:
    """Record new moments, and return the parameter less their ratio.

    All of them are spread as the part ``own`` of the parameter.
    """
    tape, shape, name = rank.tape, rank.tape.tensors[own].shape, own.removesuffix(":own")
    beta1, beta2 = Fraction(settings.beta1), Fraction(settings.beta2)
    first, second = (
        tape.state(f"{moment}:{name}", shape, rank.like(f"{moment}:{name}", own))
        for moment in ("first", "second")
    )
    mean = tape.op("mul", first, beta1)
    mean = tape.op(
        "add",
        mean,
        tape.op("mul", gradient, 1 - beta1),
        name=f"new:{first}",
        hint=rank.like(f"new:{first}", own),
    )
    power = tape.op("mul", tape.op("square", gradient), 1 - beta2)
    power = tape.op(
        "add",
        tape.op("mul", second, beta2),
        power,
        name=f"new:{second}",
        hint=rank.like(f"new:{second}", own),
    )
    root = tape.op(
        "add",
        tape.op("sqrt", tape.op("div", power, 1 - beta2**settings.step)),
        Fraction(settings.eps),
    )
    for tensor, of in ((mean, first), (power, second)):
        tape.update(tensor, of=of)
    return tape.op(
        "sub",
        kept,
        tape.op("mul", rate, tape.op("div", mean, root)),
        name=f"new:{own}",
        hint=rank.like(f"new:{name}", own),
    )
