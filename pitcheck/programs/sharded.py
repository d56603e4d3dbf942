"""Parameters that are held as shards and gathered where they are used (FSDP; Zhao et al. 2023), one unit per layer."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.models.tape import Tape
from pitcheck.plan.model import Lineage
from pitcheck.programs.buckets import Piece, gather, piece, scatter
from pitcheck.programs.predicted import LAYER
from pitcheck.programs.rank import Rank
from pitcheck.programs.tensor import WHOLE

AGAIN = ":again"


class Units:
    """The parameters of the program before it is sharded, by the unit that gathers them: a layer, or what else a stage has."""

    def __init__(self, whole: Rank) -> None:
        self._whole = whole

    def names(self, stage: int, prefix: str) -> list[str]:
        """The parameters of a unit: those of the layer called ``prefix``, or with "" those of the stage that belong to no layer."""
        mine = (name for name, stages in self._whole.homes.items() if stage in stages)
        return [name for name in mine if (name.startswith(f"{prefix}.") if prefix else not name.startswith(("layers.", f"{LAYER}.")))]

    def pieces(self, rank: Rank, names: Sequence[str]) -> list[Piece]:
        """How the parameters are cut into shards."""
        tensors = self._whole.tape.tensors
        return [piece(rank, name, tensors[name].shape, tensors[name].lineage) for name in names]

    def enter(self, rank: Rank, stage: int, prefix: str) -> None:
        """Gather a unit's parameters where the forward pass begins to use them; their gradients are reduced and scattered when the last one is there."""
        tape = rank.tape
        pieces = self.pieces(rank, self.names(stage, prefix))
        if not pieces:
            return
        names = [_shard(rank, self._whole, one, stage) for one in pieces]
        unit, wholes = prefix or f"stage.{stage}", [f"{name}{WHOLE}" for name in names]
        with tape.untracked(), tape.every_microbatch():
            gather(rank, pieces, names, f"{unit}:gathered", wholes, [self._hint(one) for one in pieces], [self._term(rank, one) for one in pieces])

        def back(gradients: Sequence[str | None]) -> Sequence[str | None]:
            present = [(one, gradient) for one, gradient in zip(pieces, gradients, strict=True) if gradient is not None]
            found = {one.name: tape.gradient_name(one.name) for one, _ in present}
            with tape.block(weights_block(rank, stage)):
                scatter(rank, [one for one, _ in present], [g for _, g in present], f"{unit}:scattered", list(found.values()), [None] * len(found))
            return [found.get(one.name) for one in pieces]

        tape.region(names, wholes, back)

    def leave(self, rank: Rank, stage: int, prefix: str) -> None:
        """Where the backward pass of a unit begins: its parameters, freed since, are gathered again."""
        tape = rank.tape
        pieces = self.pieces(rank, self.names(stage, prefix))

        def again() -> None:
            outputs = [f"{one.name}{WHOLE}{AGAIN}" for one in pieces]
            with tape.every_microbatch():
                gather(rank, pieces, [one.name for one in pieces], f"{prefix}:gathered{AGAIN}", outputs, [self._hint(one) for one in pieces], [])
            for one, output in zip(pieces, outputs, strict=True):
                tape.held_again(f"{one.name}{WHOLE}", output)

        tape.on_backward(again)

    def _hint(self, one: Piece) -> Lineage:
        lineage = self._whole.tape.tensors[one.name].lineage
        return Lineage(one.name, lineage.shards if lineage is not None else ())

    def _term(self, rank: Rank, one: Piece) -> Lineage | None:
        return rank.term(one.name, self._hint(one), (*rank.by_batch, *rank.axes.context, *self._whole.terms[one.name]))


def _shard(rank: Rank, whole: Rank, one: Piece, stage: int) -> str:
    """The rank's shard of a parameter, or, where another stage has it too, the same one."""
    rank.homes[one.name] = tuple(sorted({*rank.homes.get(one.name, ()), stage}))
    if one.name not in rank.tape.tensors:
        rank.terms[one.name] = whole.terms[one.name]
        rank.tape.parameter(one.name, one.own, one.lineage)
    return one.name


def weights_block(rank: Rank, stage: int) -> str:
    """The block in which the gradients of a stage's weights are complete."""
    return f"{'weight' if rank.layout.schedule == 'zero-bubble' else 'backward'}.{stage}"


def unsharded(rank: Rank) -> Rank:
    """The same rank with a tape of its own, on which the program is written before it is sharded."""
    return Rank(Tape("unsharded", rank.axes.sizes, rank.layout.microbatches), rank.model, rank.batch, rank.layout, rank.axes)
