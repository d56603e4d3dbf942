"""Gradients summed over micro-batches and over the ranks that hold the same parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from pitcheck.plan.model import Group, Lineage
from pitcheck.programs.data_parallel.buckets import Piece, filled, piece, scatter, with_zeros
from pitcheck.programs.data_parallel.sharded_parameters import weights_block
from pitcheck.programs.layers.tensor_parallel import head_weight
from pitcheck.programs.rank import Names, Rank

LOCAL = "local:"
"""The beginning of the name of one micro-batch's gradient on one rank."""
AT_ENDS = "at_ends:"
"""The beginning of the name of an end's gradient, if both ends of the pipeline have the parameter.
"""


def shards_of(rank: Rank, names: Sequence[str]) -> dict[str, Piece]:
    """Return parameter -> how its gradient and optimizer state are cut.

    These are parameters that the rank holds whole (ZeRO 1 and 2); there are none otherwise.
    """
    if rank.layout.zero not in (1, 2):
        return {}
    tensors = rank.tape.tensors
    return {
        name: piece(rank, name, tensors[name].shape, tensors[name].lineage)
        for name in names
        if rank.sharing[name].shards
    }


def reduced(
    rank: Rank, gradients: Mapping[str, str], pieces: Mapping[str, Piece]
) -> dict[str, str]:
    """Record parameter -> its complete gradient.

    The rank has the part that it holds of the parameter, or a shard of that part.
    """
    if rank.layout.zero == 2:
        gradients = _scattered_at_once(rank, gradients, pieces)
    complete: dict[str, str] = {}
    scattered = {name for name in pieces if rank.layout.zero == 1}
    for name, gradient in gradients.items():
        if _at_ends(rank, name):
            complete[name] = (
                _terms_of_ends(rank, name, gradient)
                if name in scattered
                else _of_ends(rank, name, gradient, pieces)
            )
            continue
        last = not _over(rank, name) and name not in scattered
        hint = (
            _hint(rank, name, pieces) if last else _term(rank, name) if name in scattered else None
        )
        with rank.at(*rank.homes[name]):
            complete[name] = rank.tape.op(
                "accumulate",
                gradient,
                name=f"grad:{name}" if last else f"accumulated:{name}",
                hint=hint,
            )
    if scattered:
        complete |= _scattered(rank, complete, pieces)
    return {name: _all_reduced(rank, name, total, pieces) for name, total in complete.items()}


def _over(rank: Rank, name: str) -> list[Group]:
    """Return the groups over which gradients are still to be summed, as Megatron-LM orders them.

    They are data and context, tensor-parallel ranks, the pipeline's ends.
    """
    groups = [Group(axes=over) for over in rank.sharing[name].unsharded]
    return [*groups, ends(rank)] if _at_ends(rank, name) else groups


def _at_ends(rank: Rank, name: str) -> bool:
    """Return True if the first and the last stage both have a parameter, on different ranks."""
    return len({rank.pipeline_rank(stage) for stage in rank.homes[name]}) > 1


def _hint(rank: Rank, name: str, pieces: Mapping[str, Piece]) -> Lineage:
    """Return the lineage of a complete gradient. Padding is zero, as the norm needs it."""
    return with_zeros(
        pieces[name].holds(f"grad:{name}") if name in pieces else rank.like(f"grad:{name}", name)
    )


def _term(rank: Rank, name: str) -> Lineage | None:
    """Return the lineage of a rank's gradient over its micro-batches: a term of a sum."""
    return rank.term(name, rank.like(name, name), rank.sharing[name].axes)


def _all_reduced(rank: Rank, name: str, total: str, pieces: Mapping[str, Piece]) -> str:
    over = _over(rank, name)
    if total == f"{AT_ENDS}{name}":
        over = over[-1:]
    hint = _hint(rank, name, pieces)
    with rank.at(*rank.homes[name]):
        return _summed(
            rank,
            total,
            over,
            [f"reduced{number}:{name}" for number in range(len(over) - 1)] + [f"grad:{name}"],
            hint,
        )


def _summed(
    rank: Rank, total: str, over: Sequence[Group], names: Sequence[str], hint: Lineage | None
) -> str:
    """Record sums over one group after the other; the hint is that of the last one."""
    for number, (group, name) in enumerate(zip(over, names, strict=False)):
        total = rank.tape.op(
            "all_reduce",
            total,
            group=group,
            name=name,
            hint=hint if number == len(over) - 1 else None,
        )
    return total


def _of_ends(rank: Rank, name: str, gradient: str, pieces: Mapping[str, Piece]) -> str:
    """Record the buffer of the sum over both ends of the pipeline.

    Before the sum each end's gradient is a different tensor: they are different parts of the whole
    one.
    """
    whole, over = _hint(rank, name, pieces), _over(rank, name)[:-1]
    for stage, part in _parts_of_ends(rank, name):
        hint = Lineage(f"{whole.reference}:{part}", whole.shards)
        names = [f"{part}.{number}:{name}" for number in range(len(over))] + [f"{part}:{name}"]
        with rank.at(stage):
            own = rank.tape.op("accumulate", gradient, name=names[0], hint=None if over else hint)
            rank.tape.op(
                "identity", _summed(rank, own, over, names[1:], hint), name=f"{AT_ENDS}{name}"
            )
    return f"{AT_ENDS}{name}"


def _terms_of_ends(rank: Rank, name: str, gradient: str) -> str:
    """Record the buffer of what every rank of either end has computed.

    These are terms of that end's part of the whole gradient, which are scattered next.
    """
    term = rank.like(f"grad:{name}", name)
    for stage, part in _parts_of_ends(rank, name):
        hint = replace(term, reference=f"{term.reference}:{part}", partial=rank.sharing[name].axes)
        with rank.at(stage):
            own = rank.tape.op("accumulate", gradient, name=f"{part}:{name}", hint=hint)
            rank.tape.op("identity", own, name=f"{AT_ENDS}{name}")
    return f"{AT_ENDS}{name}"


def _parts_of_ends(rank: Rank, name: str) -> list[tuple[int, str]]:
    """Return (stage, part of the whole gradient) of both ends.

    The uses of an embedding are differentiated in reverse order. So the first stage's is the last
    of the reference's parts, and the last stage has the sum of those before.
    """
    each = 2 if rank.model.tied and name == head_weight(rank) else 1
    before = (1 + rank.model.predicted) * each - 1
    return [
        (rank.homes[name][0], f"part{before + 1}"),
        (rank.homes[name][-1], f"sum{before}" if before > 1 else "part1"),
    ]


def ends(rank: Rank) -> Group:
    """Return the ranks in the same place of the first and the last stage.

    They share an embedding.
    """
    if rank.layout.pp == 2:
        return Group(axes=rank.axes.pipeline)
    inside = rank.layout.ranks // rank.layout.pp
    return Group(
        ranks=tuple((place, place + (rank.layout.pp - 1) * inside) for place in range(inside))
    )


def buckets(rank: Rank, pieces: Mapping[str, Piece]) -> list[tuple[tuple[int, ...], list[Piece]]]:
    """Return (stages, pieces) of flat buffers.

    Their parameters belong to the same stages and are sharded over the same axes.
    """
    alike: dict[tuple[tuple[int, ...], Names], list[Piece]] = {}
    for name, one in pieces.items():
        alike.setdefault((rank.homes[name], one.axes), []).append(one)
    return [
        (stages, bucket)
        for (stages, _), members in alike.items()
        for bucket in filled(members, rank.layout.bucket)
    ]


def _scattered(rank: Rank, sums: Mapping[str, str], pieces: Mapping[str, Piece]) -> dict[str, str]:
    """Record ZeRO 1: after all micro-batches every rank gets its shards of the sums."""
    found: dict[str, str] = {}
    for number, (stages, bucket) in enumerate(buckets(rank, pieces)):
        names = [one.name for one in bucket]
        found |= {
            name: f"scattered:{name}" if _over(rank, name) else f"grad:{name}" for name in names
        }
        hints = [None if _over(rank, name) else _hint(rank, name, pieces) for name in names]
        with rank.at(*stages):
            scatter(
                rank,
                bucket,
                [sums[name] for name in names],
                f"bucket.{number}",
                [found[name] for name in names],
                hints,
            )
    return found


def _scattered_at_once(
    rank: Rank, gradients: Mapping[str, str], pieces: Mapping[str, Piece]
) -> dict[str, str]:
    """Record ZeRO 2: every rank gets its shards after each micro-batch and keeps their sums."""
    for number, (stages, bucket) in enumerate(buckets(rank, pieces)):
        names = [one.name for one in bucket]
        for stage in stages:
            with rank.at(stage), rank.tape.block(weights_block(rank, stage)):
                scatter(
                    rank,
                    bucket,
                    [gradients[name] for name in names],
                    f"bucket.{number}",
                    [f"scattered:{name}" for name in names],
                    [None] * len(names),
                )
    return {
        name: f"scattered:{name}" if name in pieces else gradient
        for name, gradient in gradients.items()
    }
