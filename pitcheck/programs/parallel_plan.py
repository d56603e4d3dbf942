"""The parallel plan of a training step."""

from __future__ import annotations

from contextlib import nullcontext

from msgspec.structs import replace

from pitcheck.models.config import Attention, Batch, Model, Optimizer
from pitcheck.models.layers import QUERY_SCALES, rotary_size
from pitcheck.models.tape import Tape
from pitcheck.plan.collector import collector_off
from pitcheck.plan.model import Plan
from pitcheck.programs.data_parallel.flat_buckets import adamw_flat, flat_buffers, reduced_flat
from pitcheck.programs.data_parallel.optimizer_step import adamw, clip
from pitcheck.programs.data_parallel.sharded_parameters import Units, unsharded
from pitcheck.programs.data_parallel.summed_gradients import LOCAL, reduced, shards_of
from pitcheck.programs.idle_options import without_idle_options
from pitcheck.programs.layers.context_attention import Placed, mask, query_scales
from pitcheck.programs.layers.layers import layer
from pitcheck.programs.layers.loss import TokenLoss
from pitcheck.programs.layers.predicted import LAYER, Prediction
from pitcheck.programs.layers.router import balance, move_biases
from pitcheck.programs.layers.tensor_parallel import embed
from pitcheck.programs.layout import Layout, check_layout
from pitcheck.programs.pipeline_stages import handed_on, layers_of, schedule
from pitcheck.programs.rank import Axes, Rank


def parallel_plan(
    model: Model, batch: Batch, layout: Layout, optimizer: Optimizer | None = None
) -> Plan:
    """Return one training step of ``model`` on ``batch`` as the ranks of ``layout`` run it.

    Inputs, parameters, state and outputs have the names of the reference's (``reference_plan``). So
    have most tensors in between that mean the same, with hints of what they hold. Raises PlanError
    for a layout that cannot run, UnsupportedError for one that is not built. Options that change
    nothing are left out, and the plan's assumptions name them.
    """
    check_layout(model, batch, layout)
    effective = without_idle_options(layout)
    layout = effective.layout
    with collector_off():
        axes = Axes.of(model, layout)
        rank = Rank(
            Tape(f"{model.name}, parallel", axes.sizes, layout.microbatches),
            model,
            batch,
            layout,
            axes,
        )
        step = _Step(rank, _units(rank) if layout.zero == 3 else None)
        step.begin()
        step.forward()
        step.finish(step.backward(), optimizer or Optimizer())
        step.order()
        return replace(step.rank.tape.plan(), assumptions=effective.notes)


def flat_parameters(model: Model, batch: Batch, layout: Layout) -> tuple[tuple[str, ...], ...]:
    """Return the parameters of every flat buffer in order, for the reference; () if none."""
    check_layout(model, batch, layout)
    layout = without_idle_options(layout).layout
    if not layout.flat_buckets:
        return ()
    with collector_off():
        axes = Axes.of(model, layout)
        rank = _forward(
            Rank(Tape(model.name, axes.sizes, layout.microbatches), model, batch, layout, axes)
        )
        names = [name for name, tensor in rank.tape.tensors.items() if tensor.role == "parameter"]
        return tuple(one.names for one in flat_buffers(rank, names).values())


def _units(rank: Rank) -> Units:
    """Return the units of a program that gathers its parameters, read off the unsharded program."""
    return Units(_forward(unsharded(rank)))


def _forward(rank: Rank) -> Rank:
    """Return the rank after a forward pass of the program that has its parameters whole."""
    whole = _Step(rank, None)
    whole.begin()
    whole.forward()
    return rank


class _Step:
    """One training step of all ranks; ``units`` gather parameters that are held as shards."""

    def __init__(self, rank: Rank, units: Units | None) -> None:
        self.rank = rank
        self.units = units
        bounds = (0, rank.model.vocabulary)
        self.tokens = rank.tape.input(
            "tokens",
            (rank.rows, rank.length),
            "int64",
            rank.tokens,
            microbatched=True,
            bounds=bounds,
        )
        self.loss = TokenLoss(rank, "", "loss.tokens")
        self.prediction = Prediction(rank) if rank.model.predicted else None
        self.losses = [self.loss, *([self.prediction.loss] if self.prediction is not None else [])]
        self.angles = ("", "")
        size = rotary_size(rank.model)
        if size:
            spread = rank.spread({0: rank.sequence()})
            cos, sin = (
                rank.tape.input(f"rotary.{name}", (rank.length, size // 2), lineage=spread)
                for name in ("cos", "sin")
            )
            self.angles = cos, sin

    def begin(self) -> None:
        """Record the start of a step: the number of tokens that are counted."""
        with self.rank.at(self.rank.last):
            for loss in self.losses:
                loss.count()

    def forward(self) -> None:
        """Record all stages, from the tokens to the loss."""
        rank, x = self.rank, ""
        for stage in range(rank.layout.stages):
            with rank.stage(stage):
                if self.units is not None:
                    self.units.enter(rank, stage, "")
                x = x if stage else embed(rank, self.tokens, "embedding")
                self._see(stage)
                for number in layers_of(stage, rank.layout.stages, rank.model.layers):
                    x = self._layer(x, stage, number, rank.model.is_mixture(number))
            if stage < rank.last:
                x = handed_on(rank, x, stage)
        with rank.stage(rank.last):
            self.loss.forward(x)
            if self.prediction is not None:
                hidden = self._layer(
                    self.prediction.join(x), rank.last, None, rank.model.experts is not None
                )
                self.prediction.loss.forward(hidden)

    def _see(self, stage: int) -> None:
        """Record what the layers of a stage know of places.

        These are the masks of the kinds of layers that it has (global, local, or both), and the
        factors of queries if one of them scales these.
        """
        rank, sizes = self.rank, self.rank.model.attention
        layers: list[int | None] = [*layers_of(stage, rank.layout.stages, rank.model.layers)]
        if self.prediction is not None and stage == rank.last:
            layers.append(None)
        for local in sorted({rank.model.is_local(number) for number in layers}):
            mask(rank, self.tokens, _visible(stage, local), local)
        if isinstance(sizes, Attention) and any(map(rank.model.scales_queries, layers)):
            query_scales(rank, self.tokens, _scales(stage), sizes)

    def _layer(self, x: str, stage: int, number: int | None, mixture: bool) -> str:
        """Record a layer of a stage; ``number`` None is the layer of multi-token prediction."""
        rank, units = self.rank, self.units
        name = LAYER if number is None else f"layers.{number}"
        placed = Placed(
            _visible(stage, rank.model.is_local(number)),
            self.angles if rank.model.is_rotary(number) else ("", ""),
            _scales(stage) if rank.model.scales_queries(number) else "",
        )
        if units is not None:
            units.enter(rank, stage, name)
        with rank.tape.recomputed() if rank.layout.recompute else nullcontext():
            x = layer(rank, x, name, placed, mixture)
        if units is not None:
            units.leave(rank, stage, name)
        return x

    def backward(self) -> dict[str, str]:
        """Record the backward pass; return parameter -> gradient of one micro-batch on one rank."""
        rank, tape = self.rank, self.rank.tape
        parts = [*(loss.part for loss in self.losses), *(term for term, _ in rank.losses.values())]
        roots = dict.fromkeys(parts, tape.constant("one", 1))
        return tape.backward(roots, partial=LOCAL, split=rank.layout.schedule == "zero-bubble")

    def finish(self, gradients: dict[str, str], settings: Optimizer) -> None:
        """Record sums over micro-batches and ranks, clipping, and the optimizer's step."""
        rank, tape = self.rank, self.rank.tape
        with tape.block("finish"), tape.untracked():
            tape.output(self._total())
            ordered = {
                name: gradients[name]
                for name, tensor in tape.tensors.items()
                if tensor.role == "parameter"
            }
            if rank.layout.flat_buckets:
                self._finish_flat(ordered, settings)
                return
            pieces = shards_of(rank, list(ordered))
            complete = reduced(rank, ordered, pieces)
            for name, gradient in complete.items():
                tape.gradient(
                    gradient,
                    of=name,
                    lineage=pieces[name].holds(gradient) if name in pieces else None,
                )
            move_biases(rank)
            adamw(rank, clip(rank, complete, settings, pieces), settings, pieces)

    def _finish_flat(self, gradients: dict[str, str], settings: Optimizer) -> None:
        """Record the same over flat buffers that are cut at any element."""
        rank = self.rank
        buffers = flat_buffers(rank, list(gradients))
        rank.homes.update((name, one.stages) for name, one in buffers.items())
        adamw_flat(
            rank,
            clip(rank, reduced_flat(rank, gradients, buffers), settings, buffers),
            settings,
            buffers,
        )

    def _total(self) -> str:
        """Record the sum of all losses, on the ranks of the last stage."""
        rank, tape = self.rank, self.rank.tape
        routers = balance(rank)
        with rank.at(rank.last):
            single = not routers and self.prediction is None
            total = self.loss.total("loss" if single else "loss.tokens", None if single else {})
            if self.prediction is not None:
                total = tape.op(
                    "add",
                    total,
                    self.prediction.loss.total("loss.predicted", {}),
                    name="" if routers else "loss",
                )
            return tape.op("add", total, routers, name="loss") if routers else total

    def order(self) -> None:
        """Record the programs of all pipeline ranks."""
        rank = self.rank
        before = [*(("count", m) for m in range(rank.layout.microbatches)), ("begin", None)]
        for place in range(rank.layout.pp):
            steps = [*before, *schedule(rank, place), ("finish", None)]
            rank.tape.program(steps, **({"pp": (place,)} if rank.layout.pp > 1 else {}))


def _visible(stage: int, local: bool) -> str:
    """Return the name of a stage's mask, with a ring the stem of one name per hop."""
    return f"visible.{stage}.local" if local else f"visible.{stage}"


def _scales(stage: int) -> str:
    """Return the name of a stage's factors of queries."""
    return f"{QUERY_SCALES}.{stage}"
