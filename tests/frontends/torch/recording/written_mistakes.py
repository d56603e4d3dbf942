"""Mistakes of time, memory and state that are put into written programs; some of them are none,
which is for the judge to say.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from frontends.torch.recording.written_programs import BLOCKS, SIZE, Do, Row, View, Written

Mistake = Callable[[Written, random.Random], Written | None]
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
POINTS = ("send", "recv", "batch")
PLAIN = ("copy", "add", "scale", "fill", "sum rows")


def mistakes(program: Written, choose: random.Random, count: int) -> Iterator[tuple[str, Written]]:
    """So many changes of a program, each as (kind, program); those that there is no place for are
    left out.
    """
    for _ in range(count):
        kind = choose.choice(list(MISTAKES))
        changed = MISTAKES[kind](program, choose)
        if changed is not None and changed != program:
            yield kind, changed


def _at(program: Written, *kinds: str) -> list[int]:
    """The rows in which some rank does something of these kinds."""
    return [
        place
        for place, row in enumerate(program.rows)
        if any(do is not None and do.what in kinds for do in row)
    ]


def _some(program: Written, choose: random.Random) -> list[int]:
    """All ranks, or one of them."""
    ranks = list(range(program.task.ranks))
    return ranks if choose.random() < 0.6 else [choose.choice(ranks)]


def _with(program: Written, place: int, *rows: Row) -> Written:
    return replace(program, rows=(*program.rows[:place], *rows, *program.rows[place + 1 :]))


def _changed(
    program: Written,
    choose: random.Random,
    place: int,
    change: Callable[[Do], Do | None],
    ranks: list[int] | None = None,
) -> Written:
    """Change what some ranks do in a row."""
    where = _some(program, choose) if ranks is None else ranks
    row = tuple(
        change(do) if do is not None and rank in where else do
        for rank, do in enumerate(program.rows[place])
    )
    return _with(program, place, row)


def _pick(program: Written, choose: random.Random, *kinds: str) -> int | None:
    found = _at(program, *kinds)
    return choose.choice(found) if found else None


def _of(program: Written, place: int) -> Do:
    return next(do for do in program.rows[place] if do is not None)


def _dropped(*kinds: str) -> Mistake:
    def drop(program: Written, choose: random.Random) -> Written | None:
        place = _pick(program, choose, *kinds)
        return None if place is None else _changed(program, choose, place, lambda _: None)

    return drop


def _moved(*kinds: str) -> Mistake:
    """All ranks, or one, do something earlier or later."""

    def move(program: Written, choose: random.Random) -> Written | None:
        place = _pick(program, choose, *kinds) if kinds else choose.randrange(len(program.rows))
        if place is None:
            return None
        where = _some(program, choose)
        row = program.rows[place]
        moved = tuple(do if rank in where else None for rank, do in enumerate(row))
        rows = list(program.rows)
        rows[place] = tuple(None if rank in where else do for rank, do in enumerate(row))
        rows.insert(choose.randrange(len(rows) + 1), moved)
        return replace(program, rows=tuple(rows))

    return move


def _written_meanwhile(program: Written, choose: random.Random) -> Written | None:
    """Write to, or read, what is in flight or just was."""
    place = _pick(program, choose, *BLOCKS)
    if place is None or not _of(program, place).names:
        return None
    name = choose.choice(_of(program, place).names)
    ends = [n for n in _at(program, "wait") if _of(program, n).handle == _of(program, place).handle]
    end = ends[0] if ends else place
    to = choose.randint(place, end) + 1
    new = choose.choice(
        (Do("scale", (name,), 2.0), Do("fill", (name,)), Do("add", (name, name), 1.0))
    )
    where = _some(program, choose)
    row: Row = tuple(new if rank in where else None for rank in range(program.task.ranks))
    return replace(program, rows=(*program.rows[:to], row, *program.rows[to:]))


def _shared(program: Written, choose: random.Random) -> Written | None:
    """Give a buffer the place of another one, or part of it."""
    found = [name for name, view in program.views.items() if view.base == "pool"] + [
        name for name in program.fresh if name != "pool"
    ]
    if len(found) < 2:
        return None
    name, other = choose.sample(found, 2)
    size = program.fresh.get(name) or program.views[name].size
    to = program.views.get(other)
    start = choose.choice((to.start, max(0, to.start - 1), to.start + 1)) if to is not None else 0
    base = "pool" if to is not None else other
    limit = {**program.kept, **program.fresh}[base]
    if start + size > limit:
        return None
    fresh = {known: known_size for known, known_size in program.fresh.items() if known != name}
    return replace(program, fresh=fresh, views={**program.views, name: View(base, start, size)})


def _pool_kept(program: Written, choose: random.Random) -> Written | None:
    """Keep what was made anew in every step, or the other way round."""
    name = choose.choice(
        [*program.fresh, *(known for known in program.kept if known != "flat")] or [""]
    )
    if name in program.fresh:
        fresh = {known: size for known, size in program.fresh.items() if known != name}
        return replace(program, fresh=fresh, kept={**program.kept, name: program.fresh[name]})
    if not name:
        return None
    kept = {known: size for known, size in program.kept.items() if known != name}
    return replace(program, kept=kept, fresh={**program.fresh, name: program.kept[name]})


def _handles(program: Written, choose: random.Random) -> Written | None:
    waits = _at(program, "wait")
    if len(waits) < 2:
        return None
    first, second = choose.sample(waits, 2)
    where = _some(program, choose)
    one, two = _of(program, first).handle, _of(program, second).handle
    changed = _changed(program, choose, first, lambda do: replace(do, handle=two), where)
    return _changed(changed, choose, second, lambda do: replace(do, handle=one), where)


def _swapped(program: Written, choose: random.Random) -> Written | None:
    """Two things that are next to each other on some ranks, in the other order there."""
    where = _some(program, choose)
    place = choose.randrange(len(program.rows) - 1)
    first, second = program.rows[place], program.rows[place + 1]
    rows = list(program.rows)
    rows[place] = tuple(
        second[rank] if rank in where else first[rank] for rank in range(len(first))
    )
    rows[place + 1] = tuple(
        first[rank] if rank in where else second[rank] for rank in range(len(first))
    )
    return replace(program, rows=tuple(rows))


def _communication_swapped(program: Written, choose: random.Random) -> Written | None:
    """Two operations of communication in the other order on one rank."""
    found = _at(program, *BLOCKS)
    if len(found) < 2:
        return None
    index = choose.randrange(len(found) - 1)
    one, two = found[index], found[index + 1]
    rank = choose.randrange(program.task.ranks)
    rows = [list(row) for row in program.rows]
    rows[one][rank], rows[two][rank] = rows[two][rank], rows[one][rank]
    return replace(program, rows=tuple(tuple(row) for row in rows))


def _barrier(program: Written, choose: random.Random) -> Written:
    """One more barrier."""
    where = _some(program, choose)
    row: Row = tuple(Do("barrier") if rank in where else None for rank in range(program.task.ranks))
    place = choose.randrange(len(program.rows) + 1)
    return replace(program, rows=(*program.rows[:place], row, *program.rows[place:]))


def _otherwise(
    kinds: tuple[str, ...], change: Callable[[Written, random.Random, Do], Do | None]
) -> Mistake:
    """Do something else in one row."""

    def make(program: Written, choose: random.Random) -> Written | None:
        place = _pick(program, choose, *kinds)
        if place is None:
            return None
        seed = choose.random()
        return _changed(program, choose, place, lambda do: change(program, random.Random(seed), do))

    return make


def _size(program: Written, name: str) -> int:
    known = {**program.kept, **program.fresh, "loss": 1, "total": 1, "average": 1}
    return program.views[name].size if name in program.views else known.get(name, SIZE)


def _names(program: Written) -> list[str]:
    return sorted(
        {
            name
            for row in program.rows
            for do in row
            if do is not None and do.what != "train"
            for name in do.names
        }
    )


def _other_operand(program: Written, choose: random.Random, do: Do) -> Do:
    """Read or write another buffer of the same size."""
    place = choose.randrange(len(do.names))
    alike = [
        name for name in _names(program) if _size(program, name) == _size(program, do.names[place])
    ]
    return replace(
        do,
        names=(
            *do.names[:place],
            choose.choice(alike or [do.names[place]]),
            *do.names[place + 1 :],
        ),
    )


def _other_peer(program: Written, choose: random.Random, do: Do) -> Do:
    return replace(
        do, peer=choose.randrange(program.task.ranks), source=choose.randrange(program.task.ranks)
    )


def _another_tag(program: Written, choose: random.Random, do: Do) -> Do:
    tags = {0} | {
        known.tag
        for row in program.rows
        for known in row
        if known is not None and known.what in POINTS
    }
    return replace(do, tag=choose.choice(sorted(tags)))


def _doubled(program: Written, choose: random.Random) -> Written:
    """Do something twice, at once or later."""
    place = choose.randrange(len(program.rows))
    where = _some(program, choose)
    row = tuple(do if rank in where else None for rank, do in enumerate(program.rows[place]))
    to = choose.randint(place, min(place + 3, len(program.rows)))
    return replace(program, rows=(*program.rows[:to], row, *program.rows[to:]))


def _shifted(program: Written, choose: random.Random) -> Written | None:
    """Let a view begin elsewhere."""
    if not program.views:
        return None
    name = choose.choice(list(program.views))
    view = program.views[name]
    start = max(0, view.start + choose.choice((-2, -1, 1, 2)))
    return replace(program, views={**program.views, name: replace(view, start=start)})


MISTAKES: dict[str, Mistake] = {
    "drop a wait": _dropped("wait"),
    "drop communication": _dropped(*BLOCKS),
    "drop a barrier": _dropped("barrier"),
    "drop zeroing": _dropped("zero", "fill"),
    "drop a copy": _dropped("copy", "clone", "sum rows"),
    "drop": _dropped(*PLAIN, "output", "clone"),
    "move a wait": _moved("wait"),
    "move a launch": _moved(*BLOCKS),
    "move zeroing": _moved("zero", "fill"),
    "move": _moved(),
    "write meanwhile": _written_meanwhile,
    "share a buffer": _shared,
    "shift a view": _shifted,
    "keep a buffer": _pool_kept,
    "exchange handles": _handles,
    "swap": _swapped,
    "swap communication": _communication_swapped,
    "one more barrier": _barrier,
    "do twice": _doubled,
    "another reduction": _otherwise(
        REDUCING, lambda _, choose, do: replace(do, op=choose.choice(("sum", "avg", "max")))
    ),
    "another group": _otherwise(
        BLOCKS,
        lambda p, choose, do: replace(
            do, group=choose.choice(["world", "second"] + ["low", "high"] * (p.task.ranks == 4))
        ),
    ),
    "never waited for": _otherwise(BLOCKS, lambda _, __, do: replace(do, handle=do.handle + "x")),
    "blocking": _otherwise(
        BLOCKS, lambda _, __, do: do if do.what == "batch" else replace(do, handle="")
    ),
    "part of a copy": _otherwise(
        ("copy",),
        lambda _, choose, do: replace(do, what="copy part", number=choose.choice((1, 2, 3))),
    ),
    "alias": _otherwise(("clone",), lambda _, __, do: replace(do, what="same")),
    "another operand": _otherwise(
        (*PLAIN, "output"),
        lambda p, choose, do: do if do.what == "output" else _other_operand(p, choose, do),
    ),
    "another buffer": _otherwise(
        tuple(kind for kind in BLOCKS if kind != "barrier"), _other_operand
    ),
    "another peer": _otherwise((*POINTS, "broadcast", "reduce"), _other_peer),
    "another tag": _otherwise(POINTS, _another_tag),
    "another number": _otherwise(
        ("add", "scale"),
        lambda _, choose, do: replace(do, number=do.number * choose.choice((0.5, 2.0, -1.0))),
    ),
}
"""By name, each from a program and chance to a changed program, or None where there is no place for
it.
"""
