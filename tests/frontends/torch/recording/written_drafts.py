"""Random right programs that use memory and communication in unusual but legal ways.

Every gradient is averaged by a motif of its own: in place, through buffers, in rows, around a ring,
... The motifs are shuffled into each other, so that much is in flight at a time; then their buffers
get places in one pool, which are used again as soon as nothing needs what lies there. So every
program is right by construction.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from frontends.torch.recording.written_programs import (
    BLOCKS,
    DECAY,
    MOMENTUM,
    RATE,
    ROWS,
    SIZE,
    Do,
    Row,
    Task,
    View,
    Written,
)

POOL = 40


@dataclass
class Draft:
    """A program under construction. ``sizes``: of buffers that have no place yet; ``views``: their
    parts.
    """

    choose: random.Random
    task: Task
    sizes: dict[str, int] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    count: int = 0

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.task.ranks

    def name(self, stem: str) -> str:
        """A new name."""
        self.count += 1
        return f"{stem}{self.count}"

    def buffer(self, size: int) -> str:
        """A new buffer."""
        name = self.name("b")
        self.sizes[name] = size
        return name

    def part(self, base: str, start: int, size: int, step: int = 0) -> str:
        """A part of a buffer."""
        name = self.name("v")
        self.views[name] = View(base, start, size, step)
        return name

    def each(self, what: str, *names: str, number: float = 0.0) -> list[Row]:
        """An instruction of all ranks."""
        return [(Do(what, names, number),) * self.ranks]

    def together(
        self, what: str, *names: str, op: str = "sum", group: str = "", root: int = 0
    ) -> list[Row]:
        """A collective of all ranks, which blocks or is waited for later."""
        group = group or self.choose.choice(("world", "world", "second", "third"))
        handle = self.name("h") if self.choose.random() < 0.6 else ""
        rows: list[Row] = [
            (Do(what, names, op=op, group=group, handle=handle, peer=root),) * self.ranks
        ]
        return rows + self.wait(handle) if handle else rows

    def wait(self, handle: str) -> list[Row]:
        """Wait for what was launched."""
        return [(Do("wait", handle=handle),) * self.ranks]


Motif = Callable[[Draft, str], list[Row]]
"""Replaces a vector of every rank by the mean of all."""


def _divide(d: Draft, name: str) -> list[Row]:
    return d.each("scale", name, number=1 / d.ranks)


def _in_place(d: Draft, vector: str) -> list[Row]:
    if d.choose.random() < 0.3:
        return d.together("all_reduce", vector, op="avg")
    return d.together("all_reduce", vector) + _divide(d, vector)


def _copied(d: Draft, vector: str) -> list[Row]:
    b = d.buffer(SIZE)
    return (
        d.each("copy", b, vector)
        + d.together("all_reduce", b)
        + d.each("copy", vector, b)
        + _divide(d, vector)
    )


def _padded(d: Draft, vector: str) -> list[Row]:
    """In a bucket whose end nobody fills."""
    bucket = d.buffer(SIZE + 3)
    b = d.part(bucket, d.choose.choice((0, 2)), SIZE)
    return (
        d.each("copy", b, vector)
        + d.together("all_reduce", bucket)
        + _divide(d, b)
        + d.each("copy", vector, b)
    )


def _gathered(d: Draft, vector: str) -> list[Row]:
    b = d.buffer(SIZE * d.ranks)
    gather = d.together(d.choose.choice(("all_gather", "all_gather_list")), b, vector)
    return gather + d.each("sum rows", vector, b) + _divide(d, vector)


def _scattered(d: Draft, vector: str) -> list[Row]:
    part = d.buffer(SIZE // d.ranks)
    return (
        d.together("reduce_scatter", part, vector)
        + _divide(d, part)
        + d.together("all_gather", vector, part)
    )


def _scattered_in_place(d: Draft, vector: str) -> list[Row]:
    b = d.buffer(SIZE)
    part = d.part(b, 0, SIZE // d.ranks, SIZE // d.ranks)
    rows = d.each("copy", b, vector) + d.together("reduce_scatter", part, b, op="avg")
    return rows + d.together("all_gather", b, part) + d.each("copy", vector, b)


def _exchanged(d: Draft, vector: str) -> list[Row]:
    b, part = d.buffer(SIZE), d.buffer(SIZE // d.ranks)
    rows = d.together("all_to_all", b, vector) + d.each("sum rows", part, b) + _divide(d, part)
    return rows + d.together("all_gather", vector, part)


def _rooted(d: Draft, vector: str) -> list[Row]:
    """Reduce to a root, which sends the result to the others; they hold nothing in between."""
    b, root = d.buffer(SIZE), d.choose.randrange(d.ranks)
    rows = d.each("copy", b, vector) + d.together("reduce", b, root=root)
    rows.append(
        tuple(Do("scale", (b,), 1 / d.ranks) if rank == root else None for rank in range(d.ranks))
    )
    return rows + d.together("broadcast", b, root=root) + d.each("copy", vector, b)


def _in_pairs(d: Draft, vector: str) -> list[Row]:
    if d.ranks == 2:
        return _in_place(d, vector)
    order = d.choose.sample(("low", "high"), k=2)
    return (
        d.together("all_reduce", vector, group=order[0])
        + d.together("all_reduce", vector, group=order[1])
        + _divide(d, vector)
    )


def _ring(d: Draft, vector: str) -> list[Row]:
    """Every rank's term goes around."""
    at = d.buffer(SIZE)
    rows = d.each("copy", at, vector)
    for _ in range(d.ranks - 1):
        received = d.buffer(SIZE)
        rows += d.choose.choice((_batch, _asynchronous, _by_turns, _half_asynchronous))(
            d, at, received
        )
        rows += d.each("add", vector, received, number=1.0)
        at = received
    return rows + _divide(d, vector)


def _around(d: Draft, make: Callable[[int, int, int], Do]) -> Row:
    """A row whose instructions are made from the rank, the one after and the one before it."""
    return tuple(make(rank, (rank + 1) % d.ranks, (rank - 1) % d.ranks) for rank in range(d.ranks))


def _batch(d: Draft, sent: str, received: str) -> list[Row]:
    handle, tag = d.name("h"), d.count
    return [
        _around(
            d,
            lambda _, after, before: Do(
                "batch", (sent, received), handle=handle, peer=after, source=before, tag=tag
            ),
        ),
        *d.wait(handle),
    ]


def _asynchronous(d: Draft, sent: str, received: str) -> list[Row]:
    send, receive, tag = d.name("h"), d.name("h"), d.count
    launches = [
        _around(d, lambda _, after, before: Do("send", (sent,), handle=send, peer=after, tag=tag)),
        _around(
            d,
            lambda _, after, before: Do("recv", (received,), handle=receive, peer=before, tag=tag),
        ),
    ]
    waits = d.wait(send) + d.wait(receive)
    for rows in (launches, waits):
        d.choose.shuffle(rows)
    return launches + waits


def _by_turns(d: Draft, sent: str, received: str) -> list[Row]:
    """Ranks of even numbers send first."""
    tag = d.count

    def turn(odd: int) -> Row:
        def make(rank: int, after: int, before: int) -> Do:
            return (
                Do("send", (sent,), peer=after, tag=tag)
                if rank % 2 == odd
                else Do("recv", (received,), peer=before, tag=tag)
            )

        return _around(d, make)

    return [turn(0), turn(1)]


def _half_asynchronous(d: Draft, sent: str, received: str) -> list[Row]:
    send, tag = d.name("h"), d.count
    return [
        _around(d, lambda _, after, before: Do("send", (sent,), handle=send, peer=after, tag=tag)),
        _around(d, lambda _, after, before: Do("recv", (received,), peer=before, tag=tag)),
        *d.wait(send),
    ]


MOTIFS: tuple[Motif, ...] = (
    _in_place,
    _copied,
    _padded,
    _gathered,
    _scattered,
    _scattered_in_place,
    _exchanged,
    _rooted,
    _in_pairs,
    _ring,
    _ring,
)


def _update(d: Draft, number: int) -> list[Row]:
    parameter, gradient = f"w{number}", f"w{number}.grad"
    if d.task.momentum:
        momentum = f"m{number}"
        change = d.each("scale", momentum, number=MOMENTUM) + d.each(
            "add", momentum, gradient, number=1.0
        )
        return change + d.each("add", parameter, momentum, number=-RATE)
    way = d.choose.choice(("plain", "plain", "buffer", "sharded"))
    if way == "plain":
        return d.each("add", parameter, gradient, number=-RATE)
    if way == "buffer":
        b = d.buffer(SIZE)
        return (
            d.each("copy", b, gradient)
            + d.each("scale", b, number=RATE)
            + d.each("add", parameter, b, number=-1.0)
        )
    mine, change = (
        d.part(name, 0, SIZE // d.ranks, SIZE // d.ranks) for name in (parameter, gradient)
    )
    return d.each("add", mine, change, number=-RATE) + d.together("all_gather", parameter, mine)


def _two_at_once(d: Draft, first: str, second: str) -> list[Row]:
    """Two gradients in one bucket."""
    bucket = d.buffer(2 * SIZE + 1)
    parts = [d.part(bucket, 0, SIZE), d.part(bucket, SIZE, SIZE)]
    both = list(zip((first, second), parts, strict=True))
    rows = [row for vector, part in both for row in d.each("copy", part, vector)]
    rows += d.together("all_reduce", bucket) + _divide(d, bucket)
    return rows + [row for vector, part in both for row in d.each("copy", vector, part)]


def _idle(d: Draft) -> list[Row]:
    """Something that no result needs."""
    kind = d.choose.choice(("barrier", "scratch", "filled", "log"))
    if kind == "barrier":
        return [(Do("barrier", group=d.choose.choice(("world", "second"))),) * d.ranks]
    b = d.buffer(d.choose.choice((2, SIZE)))
    if kind == "scratch":
        return d.each("fill", b, number=1.0) + d.each("scale", b, number=2.0)
    if kind == "filled":
        return d.each("fill", b, number=1.0) + d.together("all_reduce", b)
    whole = d.buffer(SIZE)
    return d.each("copy", whole, "w0") + d.together("broadcast", whole)


def _totals(d: Draft) -> list[Row]:
    if not (d.task.total or d.task.average):
        return []
    rows = (
        d.each("clone", "total", "loss") + d.together("all_reduce", "total") + _divide(d, "total")
    )
    if d.task.average:
        rows += d.each("scale", "average", number=1 - DECAY) + d.each(
            "add", "average", "total", number=DECAY
        )
    return rows + (d.each("output", "total", "total") if d.task.total else [])


def right_program(seed: int) -> Written:
    """A right program of a seed."""
    choose = random.Random(seed)
    flip = lambda chance: choose.random() < chance  # noqa: E731
    ranks = 4 if flip(0.2) else 2
    task = Task(
        ranks,
        choose.choice((1, 2, 2, 3)),
        flip(0.3),
        flip(0.5),
        flip(0.3),
        choose.choice(("start", "start", "end")),
    )
    d = Draft(choose, task)
    flat = task.zero == "start" and flip(0.4)
    zeroed = d.each("fill", "flat") if flat else d.each("zero")
    halves = [(0, ROWS)] if flip(0.7) else [(0, 1), (1, ROWS)]
    train = [
        row
        for begin, end in halves
        for row in d.each("train", str(begin), str(end), number=1 / len(halves))
    ]
    train += d.each("output", "loss", "loss")
    before = _shuffled(
        choose,
        [
            (zeroed if task.zero == "start" else []) + train,
            *(_idle(d) for _ in range(choose.randrange(2))),
        ],
    )
    numbers = list(range(task.parameters))
    choose.shuffle(numbers)
    motifs = [_totals(d), *(_idle(d) for _ in range(choose.randrange(2)))]
    if len(numbers) > 1 and flip(0.3):
        first, second = numbers.pop(), numbers.pop()
        motifs.append(
            _two_at_once(d, f"w{first}.grad", f"w{second}.grad")
            + _update(d, first)
            + _update(d, second)
        )
    motifs += [
        choose.choice(MOTIFS)(d, f"w{number}.grad") + _update(d, number) for number in numbers
    ]
    rows = before + _shuffled(choose, motifs) + (zeroed if task.zero == "end" else [])
    program = Written(
        task, tuple(rows), {"flat": SIZE * task.parameters} if flat else {}, {}, d.views, flat
    )
    return placed(program, d.sizes, choose)


def _shuffled(choose: random.Random, motifs: list[list[Row]]) -> list[Row]:
    """All rows, those of each motif in their order."""
    left = [list(reversed(motif)) for motif in motifs if motif]
    rows: list[Row] = []
    while left:
        motif = choose.choice(left)
        rows.append(motif.pop())
        left = [motif for motif in left if motif]
    return rows


def placed(program: Written, sizes: dict[str, int], choose: random.Random) -> Written:
    """The program with a place for every buffer: memory of its own, or where nothing is needed any
    more of one pool.
    """
    first, last = _lives(program)
    pool, kept, fresh, views = "pool", dict(program.kept), {}, dict(program.views)
    busy = [-1] * POOL
    for name in sorted(first, key=lambda name: (first[name], name)):
        if name not in sizes:
            continue
        size = sizes[name]
        free = [
            start
            for start in range(POOL - size + 1)
            if max(busy[start : start + size]) < first[name]
        ]
        if choose.random() < 0.25 or not free:
            fresh[name] = size
            continue
        start = free[0] if choose.random() < 0.7 else choose.choice(free)
        views[name] = View(pool, start, size)
        busy[start : start + size] = [last[name]] * size
    (kept if choose.random() < 0.5 else fresh)[pool] = POOL
    return Written(program.task, program.rows, kept, fresh, views, program.flat)


def _lives(program: Written) -> tuple[dict[str, int], dict[str, int]]:
    """In which rows each buffer is used first and last, while something is in flight too."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    flying: dict[str, set[str]] = {}
    for place, row in enumerate(program.rows):
        for do in row:
            if do is None:
                continue
            names = {_root(program, name) for name in do.names}
            if do.what in BLOCKS and do.handle:
                flying.setdefault(do.handle, set()).update(names)
            for name in names | flying.get(do.handle, set()):
                first.setdefault(name, place)
                last[name] = place
    return first, last


def _root(program: Written, name: str) -> str:
    return program.views[name].base if name in program.views else name
