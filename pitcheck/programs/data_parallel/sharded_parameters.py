"""Parameters held as shards and gathered for use (FSDP; Zhao et al. 2023), one unit per layer."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.models.autograd import AGAIN
from pitcheck.models.tape import Tape
from pitcheck.plan.model import MICROBATCH_AXIS, Lineage
from pitcheck.programs.data_parallel.buckets import Piece, gather, piece, scatter
from pitcheck.programs.layers.predicted import LAYER
from pitcheck.programs.layers.tensor_parallel import WHOLE
from pitcheck.programs.rank import Names, Rank


class Units:
    """The parameters of the unsharded program, by the unit that gathers them.

    A unit is a layer, or the rest of a stage.
    """

    def __init__(self, whole: Rank) -> None:
        self._whole = whole

    def names(self, stage: int, prefix: str) -> list[str]:
        """Return the parameters of a unit.

        They are those of the layer called ``prefix``, or with "" those of the stage that belong to
        no layer.
        """
        mine = (name for name, stages in self._whole.homes.items() if stage in stages)
        return [
            name
            for name in mine
            if (
                name.startswith(f"{prefix}.")
                if prefix
                else not name.startswith(("layers.", f"{LAYER}."))
            )
        ]

    def pieces(self, stage: int, prefix: str) -> list[list[Piece]]:
        """Return how the parameters of a unit are cut into shards, one list per set of axes.

        Parameters that are whole are left out.
        """
        whole = self._whole
        found: dict[Names, list[Piece]] = {}
        for name in self.names(stage, prefix):
            axes, tensor = whole.sharing[name].shards, whole.tape.tensors[name]
            if axes:
                found.setdefault(axes, []).append(piece(whole, name, tensor.shape, tensor.lineage))
        return list(found.values())

    def enter(self, rank: Rank, stage: int, prefix: str) -> None:
        """Record gathering a unit's parameters where the forward pass begins to use them.

        Their gradients are reduced and scattered after the last one.
        """
        for number, pieces in enumerate(self.pieces(stage, prefix)):
            self._enter(rank, stage, _named(prefix or f"stage.{stage}", number), pieces)

    def _enter(self, rank: Rank, stage: int, unit: str, pieces: Sequence[Piece]) -> None:
        tape = rank.tape
        names = [_shard(rank, self._whole, one, stage) for one in pieces]
        wholes = [f"{name}{WHOLE}" for name in names]
        with tape.untracked(), tape.every_microbatch():
            gather(
                rank,
                pieces,
                names,
                f"{unit}:gathered",
                wholes,
                [self._hint(one) for one in pieces],
                [self._term(rank, one) for one in pieces],
            )

        def back(gradients: Sequence[str | None]) -> Sequence[str | None]:
            present = [
                (one, gradient)
                for one, gradient in zip(pieces, gradients, strict=True)
                if gradient is not None
            ]
            found = {one.name: tape.gradient_name(one.name) for one, _ in present}
            with tape.block(weights_block(rank, stage)):
                scatter(
                    rank,
                    [one for one, _ in present],
                    [g for _, g in present],
                    f"{unit}:scattered",
                    list(found.values()),
                    [None] * len(found),
                )
            return [found.get(one.name) for one in pieces]

        tape.region(names, wholes, back)

    def leave(self, rank: Rank, stage: int, prefix: str) -> None:
        """Record gathering a unit's parameters again where its backward pass begins."""
        tape = rank.tape

        def again() -> None:
            for number, pieces in enumerate(self.pieces(stage, prefix)):
                outputs = [f"{one.name}{WHOLE}{AGAIN}" for one in pieces]
                with tape.every_microbatch():
                    buffer = f"{_named(prefix, number)}:gathered{AGAIN}"
                    gather(
                        rank,
                        pieces,
                        [one.name for one in pieces],
                        buffer,
                        outputs,
                        [self._hint(one) for one in pieces],
                        [],
                    )
                for one, output in zip(pieces, outputs, strict=True):
                    tape.held_again(f"{one.name}{WHOLE}", output)

        tape.on_backward(again)

    def _hint(self, one: Piece) -> Lineage:
        lineage = self._whole.tape.tensors[one.name].lineage
        return Lineage(one.name, lineage.shards if lineage is not None else ())

    def _term(self, rank: Rank, one: Piece) -> Lineage | None:
        return rank.term(
            one.name, self._hint(one), (*self._whole.sharing[one.name].axes, MICROBATCH_AXIS)
        )


def _named(unit: str, number: int) -> str:
    """Return the name of a unit's buffer number ``number``."""
    return f"{unit}.{number}" if number else unit


def _shard(rank: Rank, whole: Rank, one: Piece, stage: int) -> str:
    """Add the rank's shard of a parameter unless another stage has added it; return its name."""
    rank.homes[one.name] = tuple(sorted({*rank.homes.get(one.name, ()), stage}))
    if one.name not in rank.tape.tensors:
        rank.sharing[one.name] = whole.sharing[one.name]
        decays = one.name not in whole.tape.undecayed
        rank.tape.parameter(one.name, one.own, one.lineage, decays=decays)
    return one.name


def weights_block(rank: Rank, stage: int) -> str:
    """Return the block in which the gradients of a stage's weights are complete."""
    return f"{'weight' if rank.layout.schedule == 'zero-bubble' else 'backward'}.{stage}"


def unsharded(rank: Rank) -> Rank:
    """Return the same rank with a new tape, for the program before it is sharded."""
    return Rank(
        Tape("unsharded", rank.axes.sizes, rank.layout.microbatches),
        rank.model,
        rank.batch,
        rank.layout,
        rank.axes,
    )
