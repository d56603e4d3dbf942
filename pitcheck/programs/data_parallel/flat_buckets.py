"""Flat buckets: parameters one after the other in a buffer that is cut evenly over ranks.

The buffer is padded and cut at any element, as in ZeRO and in Megatron-LM's distributed optimizer.
A shard begins and ends in the middle of parameters, so its moments belong to no single one: the
reference has the same buffers, in the same order, and says what each of them is. A rank holds runs
of the reference's buffer: the parts of its parameters, one after the other, then the shard of
these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from pitcheck.models.config import Optimizer
from pitcheck.models.flat_state import named
from pitcheck.plan.model import Lineage, Shard, Table
from pitcheck.programs.data_parallel.buckets import padded, portion_of, with_zeros
from pitcheck.programs.data_parallel.optimizer_step import moved, rates
from pitcheck.programs.data_parallel.sharded_parameters import weights_block
from pitcheck.programs.rank import Intervals, Names, Rank


@dataclass(frozen=True)
class Buffer:
    """The parameters ``names`` of as many ``elements`` on a rank, joined.

    The ranks along ``axes`` share them in as many ``shards`` of ``own`` elements.
    """

    name: str
    names: tuple[str, ...]
    elements: tuple[int, ...]
    stages: tuple[int, ...]
    axes: Names
    own: int
    shards: int
    sums: tuple[Names, ...]
    """Groups of axes over which gradients are summed after they are scattered."""
    lineage: Lineage
    """The part of the reference's buffer that a shard holds."""

    @property
    def padding(self) -> int:
        """The number of elements that are added at the end."""
        return self.own * self.shards - sum(self.elements)

    def holds(self, reference: str) -> Lineage:
        """Return the lineage of a tensor that holds the same part of another reference tensor."""
        return Lineage(reference, self.lineage.shards)


def flat_buffers(rank: Rank, names: Sequence[str]) -> dict[str, Buffer]:
    """Return buffers by name; each is closed when it is full.

    The parameters of a buffer belong to the same stages, and are cut and summed over the same axes.
    """
    alike: dict[tuple[object, ...], list[str]] = {}
    for name in names:
        sharing = rank.sharing[name]
        key = (
            rank.homes[name],
            sharing.shards,
            sharing.unsharded,
            rank.parted(rank.tape.tensors[name].lineage),
        )
        alike.setdefault(key, []).append(name)
    chosen = [bucket for members in alike.values() for bucket in _filled(rank, members)]
    return {
        named(number): _buffer(rank, named(number), bucket) for number, bucket in enumerate(chosen)
    }


def _filled(rank: Rank, names: Sequence[str]) -> list[list[str]]:
    buckets: list[list[str]] = [[]]
    held = 0
    for name in names:
        if held >= rank.layout.bucket:
            buckets.append([])
            held = 0
        buckets[-1].append(name)
        held += prod(rank.tape.tensors[name].shape)
    return buckets


def _buffer(rank: Rank, name: str, names: Sequence[str]) -> Buffer:
    tensors, sharing = rank.tape.tensors, rank.sharing[names[0]]
    elements = tuple(prod(tensors[own].shape) for own in names)
    shards = rank.axes.size(sharing.shards)
    own = -(-sum(elements) // shards)
    parted = rank.parted(tensors[names[0]].lineage)
    values = [
        padded(portion_of(runs, own, i), own)
        for runs in _runs(rank, names, parted)
        for i in range(shards)
    ]
    lineage = Lineage(name, (Shard(0, intervals=Table((*parted, *sharing.shards), tuple(values))),))
    return Buffer(
        name,
        tuple(names),
        elements,
        rank.homes[names[0]],
        sharing.shards,
        own,
        shards,
        sharing.unsharded,
        lineage,
    )


def _runs(rank: Rank, names: Sequence[str], parted: Names) -> list[Intervals]:
    """Return the runs of the reference's buffer that a rank has, in the rank's order.

    There is one entry for every place along the axes ``parted`` by which parameters are cut.
    """
    found: list[Intervals] = []
    for place in range(rank.axes.size(parted)):
        runs: list[tuple[int, int]] = []
        before = 0
        for name in names:
            whole, own = _parameter_runs(rank, name, _along(rank, parted, place))
            for start, stop in own:
                if runs and runs[-1][1] == before + start:
                    runs[-1] = runs[-1][0], before + stop
                else:
                    runs.append((before + start, before + stop))
            before += whole
        found.append(tuple(runs))
    return found


def _along(rank: Rank, axes: Names, place: int) -> dict[str, int]:
    """Return the coordinate along each of ``axes`` of a place that is counted row-major."""
    found: dict[str, int] = {}
    for axis in reversed(axes):
        place, found[axis] = divmod(place, rank.axes.sizes[axis])
    return found


def _parameter_runs(rank: Rank, name: str, at: Mapping[str, int]) -> tuple[int, Intervals]:
    """Return the elements of a parameter that a rank has.

    Returns: the number of elements of the whole parameter, and the rank's runs of them, row-major.
    """
    tensor = rank.tape.tensors[name]
    shards = {
        shard.dim: shard for shard in (tensor.lineage.shards if tensor.lineage is not None else ())
    }
    inner = 1
    runs: Intervals = ((0, 1),)
    for dim in reversed(range(len(tensor.shape))):
        size, held = _dimension(rank, shards.get(dim), tensor.shape[dim], at)
        if runs == ((0, inner),):
            runs = tuple((start * inner, stop * inner) for start, stop in held)
        else:
            runs = tuple(
                (row * inner + start, row * inner + stop)
                for low, high in held
                for row in range(low, high)
                for start, stop in runs
            )
        inner *= size
    return inner, runs


def _dimension(
    rank: Rank, shard: Shard | None, size: int, at: Mapping[str, int]
) -> tuple[int, Intervals]:
    """Return the size of a dimension of the whole parameter, and what a rank has of it."""
    if shard is None:
        return size, ((0, size),)
    over = shard.by if shard.intervals is None else shard.intervals.over
    place = 0
    for axis in over:
        place = place * rank.axes.sizes[axis] + at[axis]
    if shard.intervals is None:
        return size * rank.axes.size(over), ((place * size, (place + 1) * size),)
    values = [portion_of(value, size, 0) for value in shard.intervals.values]
    return sum(stop - start for value in values for start, stop in value), values[place]


# --- the step


def reduced_flat(
    rank: Rank, gradients: Mapping[str, str], buffers: Mapping[str, Buffer]
) -> dict[str, str]:
    """Record buffer -> a rank's shard of its complete gradient, with zeros for padding."""
    tape = rank.tape
    found: dict[str, str] = {}
    for one in buffers.values():
        shard = (
            _at_once(rank, one, gradients)
            if rank.layout.zero == 2
            else _at_the_end(rank, one, gradients)
        )
        with rank.at(*one.stages):
            names = [
                *(f"reduced{number}:{one.name}" for number in range(len(one.sums) - 1)),
                f"grad:{one.name}",
            ]
            for number, (axes, name) in enumerate(zip(one.sums, names, strict=False)):
                hint = (
                    with_zeros(one.holds(f"grad:{one.name}"))
                    if number == len(one.sums) - 1
                    else None
                )
                shard = tape.op("all_reduce", shard, group=axes, name=name, hint=hint)
        found[one.name] = shard
        tape.output(shard, f"grad:{one.name}", one.holds(f"grad:{one.name}"))
    return found


def _last(one: Buffer) -> tuple[str, Lineage | None]:
    """Return name and hint of a shard of gradients after it is scattered."""
    return (
        (f"scattered:{one.name}", None)
        if one.sums
        else (f"grad:{one.name}", with_zeros(one.holds(f"grad:{one.name}")))
    )


def _at_the_end(rank: Rank, one: Buffer, gradients: Mapping[str, str]) -> str:
    """Record ZeRO 1: after all micro-batches every rank gets its shard of the sums."""
    tape = rank.tape
    with rank.at(*one.stages):
        terms = [
            rank.term(name, rank.like(name, name), rank.sharing[name].axes) for name in one.names
        ]
        sums = [
            tape.op("accumulate", gradients[name], name=f"accumulated:{name}", hint=term)
            for name, term in zip(one.names, terms, strict=True)
        ]
        name, hint = _last(one)
        return tape.op(
            "reduce_scatter",
            _flattened(rank, one, sums, f"{one.name}:gradients"),
            name=name,
            hint=hint,
            group=one.axes,
            axis=0,
        )


def _at_once(rank: Rank, one: Buffer, gradients: Mapping[str, str]) -> str:
    """Record ZeRO 2: every rank gets its shard after each micro-batch.

    It keeps the sum of these shards only.
    """
    tape = rank.tape
    (stage,) = one.stages
    with rank.at(stage), tape.block(weights_block(rank, stage)):
        flat = _flattened(
            rank, one, [gradients[name] for name in one.names], f"{one.name}:gradients"
        )
        shard = tape.op("reduce_scatter", flat, name=f"{one.name}:shard", group=one.axes, axis=0)
    name, hint = _last(one)
    with rank.at(stage):
        return tape.op("accumulate", shard, name=name, hint=hint)


def _flattened(rank: Rank, one: Buffer, tensors: Sequence[str], name: str) -> str:
    """Record the tensors' elements one after the other, and zeros to the end."""
    tape = rank.tape
    parts = [
        tape.op("reshape", tensor, sizes=(count,))
        for tensor, count in zip(tensors, one.elements, strict=True)
    ]
    joined = tape.op("cat", *parts, name="" if one.padding else name, axis=0)
    return (
        tape.op("pad", joined, name=name, axis=0, before=0, after=one.padding)
        if one.padding
        else joined
    )


def _shard(rank: Rank, one: Buffer, whole: str, name: str, reference: str) -> str:
    """Record the rank's shard of a buffer that it has whole."""
    hint = one.holds(reference) if reference else None
    return rank.tape.op(
        "chunk",
        whole,
        name=name,
        hint=hint,
        axis=0,
        count=one.shards,
        position=rank.position(one.axes),
    )


def adamw_flat(
    rank: Rank, gradients: Mapping[str, str], settings: Optimizer, buffers: Mapping[str, Buffer]
) -> None:
    """Record one AdamW step of the rank's shards, which are gathered then.

    Every element decays as its parameter does.
    """
    corrected, decay = rates(rank.tape, settings)
    for one in buffers.values():
        with rank.at(*one.stages):
            own = _shard(
                rank,
                one,
                _flattened(rank, one, one.names, f"{one.name}:parameters"),
                f"{one.name}:own",
                one.name,
            )
            kept = rank.tape.op("mul", own, _shard(rank, one, _decays(rank, one, decay), "", ""))
            _gathered(rank, one, moved(rank, own, gradients[one.name], corrected, kept, settings))


def _decays(rank: Rank, one: Buffer, decay: str) -> str:
    """Record the factor of every element of a buffer: some do not decay, padding stays 0."""
    tape = rank.tape
    factors = [
        tape.op("full", sizes=(count,), value=1)
        if name in tape.undecayed
        else tape.op("expand", decay, sizes=(count,))
        for name, count in zip(one.names, one.elements, strict=True)
    ]
    joined = tape.op("cat", *factors, name=f"{one.name}:decays", axis=0)
    return tape.op("pad", joined, axis=0, before=0, after=one.padding) if one.padding else joined


def _gathered(rank: Rank, one: Buffer, shard: str) -> None:
    """Record the new parameters, from the shards of all ranks."""
    tape = rank.tape
    whole = tape.op("all_gather", shard, name=f"{one.name}:gathered", group=one.axes, axis=0)
    if one.padding:
        whole = tape.op("slice", whole, axis=0, start=0, stop=sum(one.elements))
    parts = tape.several("split", whole, names=("",) * len(one.names), axis=0, sizes=one.elements)
    for name, part in zip(one.names, parts, strict=True):
        new = tape.op(
            "reshape",
            part,
            name=f"new:{name}",
            hint=rank.like(f"new:{name}", name),
            sizes=tape.tensors[name].shape,
        )
        tape.update(new, of=name)
