"""Pipeline stages: the layers of each, what is sent between them, and the order of a rank."""

from __future__ import annotations

from pitcheck.models.records import held
from pitcheck.programs.layers.regions import after
from pitcheck.programs.layout import Layout
from pitcheck.programs.rank import Rank

Steps = list[tuple[str, int | None]]


def layers_of(stage: int, stages: int, layers: int) -> range:
    """Return the layers of a stage; stages differ by at most one layer."""
    return range(stage * layers // stages, (stage + 1) * layers // stages)


def handed_on(rank: Rank, x: str, stage: int) -> str:
    """Record sending the residual stream ``x`` to the next stage, and its gradient back.

    Return the name that it has there.
    """
    tape = rank.tape
    if rank.pipeline_rank(stage) == rank.pipeline_rank(stage + 1):
        return x
    name, following, before = f"{x}:received", rank.following, rank.before
    with rank.stage(stage), tape.untracked():
        tape.send(x, following, tag=f"forward.{stage}", **{"async": True})
    with rank.at(stage), tape.untracked(), tape.block(f"sent.{stage}"):
        tape.wait_sent(x)
    with rank.stage(stage + 1), tape.untracked():
        tape.receive(x, before, name, held(x, rank.residual), tag=f"forward.{stage}")

    def back(gradient: str) -> str:
        with rank.at(stage + 1), tape.block(f"backward.{stage + 1}"):
            tape.send(gradient, before, tag=f"backward.{stage}", **{"async": True})
        with rank.at(stage + 1), tape.block(f"sent.{stage + 1}"):
            tape.wait_sent(gradient)
        return tape.receive(
            gradient,
            following,
            tape.gradient_name(x),
            tape.gradient_hint(x),
            tag=f"backward.{stage}",
        )

    with rank.stage(stage):
        tape.region([x], [name], after(back))
    return name


def schedule(rank: Rank, place: int) -> Steps:
    """Return the order in which pipeline rank ``place`` runs (block, micro-batch).

    Sends are waited for at the end: each was received long before.
    """
    layout = rank.layout
    stages = range(place, layout.stages, layout.pp)
    sent: Steps = [
        (f"sent.{stage}", number) for stage in stages for number in range(layout.microbatches)
    ]
    return [*_passes_of(layout, place), *sent]


def _passes_of(layout: Layout, place: int) -> Steps:
    if layout.schedule == "interleaved":
        return _interleaved(layout, place)
    count = layout.microbatches
    forward = _passes("forward", place, count)
    backward = _passes("backward", place, count)
    if layout.schedule == "gpipe":
        return [*forward, *backward]
    steps = _one_forward_one_backward(forward, backward, min(layout.pp - 1 - place, count))
    return steps if layout.schedule == "1f1b" else _with_weights(steps, place, count)


def _passes(kind: str, stage: int, count: int) -> Steps:
    return [(f"{kind}.{stage}", number) for number in range(count)]


def _one_forward_one_backward(forward: Steps, backward: Steps, ahead: int) -> Steps:
    """Return 1F1B (Narayanan et al. 2019).

    It is ``ahead`` forward passes, then one forward and one backward pass in turn, then the
    remaining backward passes.
    """
    steps = forward[:ahead]
    for number, step in enumerate(forward[ahead:]):
        steps += [step, backward[number]]
    return [*steps, *backward[len(forward) - ahead :]]


def _interleaved(layout: Layout, place: int) -> Steps:
    """Return 1F1B over several stages per rank (Narayanan et al. 2021).

    A group of micro-batches has as many as there are pipeline ranks.
    """
    pp, virtual = layout.pp, layout.virtual
    total = layout.microbatches * virtual

    def step(kind: str, number: int) -> tuple[str, int | None]:
        group, within = divmod(number, pp * virtual)
        chunk = within // pp
        stage = (chunk if kind == "forward" else virtual - 1 - chunk) * pp + place
        return f"{kind}.{stage}", group * pp + within % pp

    forward, backward = (
        [step(kind, number) for number in range(total)] for kind in ("forward", "backward")
    )
    return _one_forward_one_backward(
        forward, backward, min(2 * (pp - 1 - place) + (virtual - 1) * pp, total)
    )


def _with_weights(steps: Steps, place: int, count: int) -> Steps:
    """Return ZB-H1 (Qi et al. 2023) from 1F1B.

    Gradients of weights follow as many backward passes later as the rank has stages before it; the
    rest fills the end.
    """
    weights, passed = _passes("weight", place, count), 0
    found: Steps = []
    for step in steps:
        found.append(step)
        if step[0].startswith("backward"):
            passed += 1
            if passed > place:
                found.append(weights[passed - 1 - place])
    return [*found, *weights[max(passed - place, 0) :]]
