"""Wrong plans beside right ones for what makes stages smaller: coordinates that look alike, sums of
which some terms are left out, buffers of which a part is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from attacks.pairs import alone, found, given, spread, tensor
from zoo.builder import Builder

from pitcheck.plan.model import Axis, Lineage, Number, Operator, Output, Plan, Shard, Table, Tensor

RANKS = 8
MESH = (Axis("r", RANKS),)
Pair = tuple[Plan, Plan]

# --- coordinates whose cones look alike


def pieces(reference: str, places: Sequence[int]) -> Lineage:
    """Lineage of one row for each rank: the row at its place."""
    rows = tuple(((place, place + 1),) for place in places)
    return Lineage(reference, (Shard(0, intervals=Table(("r",), rows)),))


def piece(name: str, reference: str, places: Sequence[int]) -> Tensor:
    return given(name, 1, lineage=pieces(reference, places))


def moved(rank: int, by: int) -> list[int]:
    """All places in order, but that of one rank moved."""
    return [place + by * (place == rank) for place in range(RANKS)]


def nested(outer: str, inner: str, first: Sequence[int], second: Sequence[int]) -> Pair:
    """Return outer(inner(a, x), inner(x, d)) and the same with the rows of x at other places."""
    own = range(RANKS)

    def steps(u: str, v: str) -> list[Operator]:
        return [
            Operator("g", inner, ("a", u), ("g",)),
            Operator("h", inner, (v, "d"), ("h",)),
            Operator("y", outer, ("g", "h"), ("y",)),
        ]

    whole = [given(name, RANKS) for name in "xad"], [tensor(name, RANKS) for name in "ghy"]
    local = [piece("u", "x", first), piece("v", "x", second), piece("a", "a", own)]
    return alone([*whole[0], *whole[1]], steps("x", "x")), spread(
        [*local, piece("d", "d", own), *(tensor(name, 1) for name in "ghy")],
        steps("u", "v"),
        Output("y", "y", pieces("y", own)),
        mesh=MESH,
    )


@pytest.mark.parametrize("inner", ["sub", "mul"])
def test_places_that_add_up_to_the_same_are_told_apart(inner: str) -> None:
    """One rank reads the row before and the row behind its own, in two steps of one kind: the sum
    of its places is that of the others.
    """
    assert found(*nested("sub", inner, range(RANKS), range(RANKS)))[0] == "equivalent"
    for rank, by in ((3, 1), (5, -2)):
        wrong = nested("sub", inner, moved(rank, by), moved(rank, -by))
        assert found(*wrong)[0] == "mismatch"


def test_places_at_the_same_depth_are_told_apart() -> None:
    """Three steps of one kind lead to each row, by the same operands in another order."""

    def pair(first: Sequence[int], second: Sequence[int]) -> Pair:
        reference, parallel = Builder("one"), Builder("many", {"r": RANKS})
        held = {"u": first, "v": second, "w": range(RANKS)}
        reference.input("x", (RANKS,))
        for name, places in held.items():
            parallel.input(name, (1,), pieces("x", places))
        for b, (u, v, w) in ((reference, "xxx"), (parallel, "uvw")):
            b.op("sub", b.op("sub", b.op("sub", w, u), b.op("sub", v, w)), w, out="y")
        reference.output("y")
        parallel.output("y", "y", pieces("y", range(RANKS)))
        return reference.plan(), parallel.plan()

    assert found(*pair(range(RANKS), range(RANKS)))[0] == "equivalent"
    assert found(*pair(moved(4, 1), moved(4, -1)))[0] == "mismatch"


@pytest.mark.parametrize("how", ["literal", "operands", "attribute", "operator"])
def test_a_rank_whose_step_differs_is_of_another_class(how: str) -> None:
    def pair(rank: int | None) -> Pair:
        reference, parallel = Builder("one"), Builder("many", {"r": RANKS})
        for b, spec in ((reference, None), (parallel, {0: "r"})):
            size = RANKS if spec is None else 1
            a, x = b.input("a", (size,), spec), b.input("x", (size,), spec)
            others = tuple(n for n in range(RANKS) if n != rank)
            where = () if spec is None or rank is None else {"r": others}
            b.op("mul", b.op("sub", a, x, out="g", where=where), Number(3), out="y", where=where)
            if spec is not None and rank is not None:
                here = {"r": (rank,)}
                operands = (x, a) if how == "operands" else (a, x)
                kind = "add" if how == "operator" else "sub"
                more = {"alpha": 2} if how == "attribute" else {}
                b.op(kind, *operands, out="g", where=here, **more)
                b.op("mul", "g", Number(5 if how == "literal" else 3), out="y", where=here)
        reference.output("y")
        parallel.output("y", "y", pieces("y", range(RANKS)))
        return reference.plan(), parallel.plan()

    assert found(*pair(None))[0] == "equivalent"
    assert found(*pair(4))[0] == "mismatch"


# --- sums of which some terms are left out

Change = Callable[[Builder, str, object], str]


def summed(change: Change, rank: int | None, of: int = 1, ranks: int = RANKS) -> Pair:
    """Return a sum over a batch and the same over micro-batches and ranks; ``rank`` makes
    ``change`` to its sum over micro-batches, or with ``of`` 0 to what it adds up there, or with
    ``of`` 2 to the sum of all.
    """
    reference, parallel = Builder("one"), Builder("many", {"r": ranks}, microbatches=4)
    x = reference.input("x", (ranks * 4, 2, 2))
    reference.op("sum", reference.op("square", x), axes=(0,), out="y")
    reference.output("y")
    x = parallel.input("x", (1, 2, 2), {0: ("r", "mb")}, microbatched=True)

    def on_one(b: Builder, value: str) -> str:
        if rank is None:
            return value
        b.op("identity", value, out="v", where={"r": tuple(n for n in range(ranks) if n != rank)})
        return change(b, value, {"r": (rank,)})

    value = parallel.op("sum", parallel.op("square", x), axes=(0,))
    value = on_one(parallel, value) if of == 0 else value
    value = parallel.op("accumulate", value)
    value = on_one(parallel, value) if of == 1 else value
    value = parallel.op("all_reduce", value, group="r")
    value = on_one(parallel, value) if of == 2 else value
    parallel.op("identity", value, out="y")
    parallel.output("y")
    return reference.plan(), parallel.plan()


def doubled(b: Builder, value: str, where: object) -> str:
    return str(b.op("mul", value, Number(2), out="v", where=where))


def turned(b: Builder, value: str, where: object) -> str:
    return str(b.op("transpose", value, dim0=0, dim1=1, out="v", where=where))


def contracted(b: Builder, value: str, where: object) -> str:
    return str(b.op("einsum", value, Number(2), equation="ab,->ab", out="v", where=where))


def as_it_is(b: Builder, value: str, where: object) -> str:
    return str(b.op("mul", value, Number(1), out="v", where=where))


@pytest.mark.parametrize("change", [doubled, turned, contracted])
def test_a_step_between_sums_that_one_rank_makes_is_seen(change: Change) -> None:
    assert found(*summed(change, 4))[0] == "mismatch"


@pytest.mark.parametrize(("of", "ranks"), [(0, RANKS), (2, RANKS), (1, 16)])
def test_a_factor_of_one_rank_is_seen_before_and_behind_all_sums(of: int, ranks: int) -> None:
    assert found(*summed(doubled, ranks // 2, of, ranks))[0] == "mismatch"


def test_steps_between_sums_that_change_nothing_are_right() -> None:
    assert found(*summed(doubled, None))[0] == "equivalent"
    assert found(*summed(as_it_is, 4))[0] == "equivalent"


@pytest.mark.parametrize("axes", [0, -3, (0,), (-3,)])
def test_axes_in_every_form_are_reduced(axes: object) -> None:
    def pair(kind: str) -> Pair:
        reference, parallel = Builder("one"), Builder("many", {"r": RANKS})
        for b, spec in ((reference, None), (parallel, {0: "r"})):
            x = b.input("x", (RANKS * 2 if spec is None else 2, 2, 3), spec)
            value = b.op("sum", b.op("square" if spec is None else kind, x), axes=axes)
            b.op("identity", value, out="y") if spec is None else b.op(
                "all_reduce", value, group="r", out="y"
            )
            b.output("y")
        return reference.plan(), parallel.plan()

    assert found(*pair("square"))[0] == "equivalent"
    assert found(*pair("abs"))[0] == "mismatch"


@pytest.mark.parametrize("what", ["inf", "nan"])
def test_what_is_not_finite_is_no_number_to_multiply_sums_by(what: str) -> None:
    """Infinity times a sum is not the sum of infinities of both signs."""

    def pair(first: bool) -> Pair:
        reference, parallel = Builder("one"), Builder("many", {"r": RANKS})
        x = reference.input("x", (RANKS, 3))
        total = reference.op("sum", reference.op("neg", x), axes=(0,))
        reference.output(reference.op("mul", total, Number(what), out="y"))
        x = parallel.input("x", (1, 3), {0: "r"})
        value = parallel.op("sum", parallel.op("neg", x), axes=(0,))
        value = parallel.op("mul", value, Number(what)) if first else value
        value = parallel.op("all_reduce", value, group="r")
        parallel.op(
            "identity" if first else "mul", value, *([] if first else [Number(what)]), out="y"
        )
        parallel.output("y")
        return reference.plan(), parallel.plan()

    assert found(*pair(first=False))[0] == "equivalent"
    assert found(*pair(first=True))[0] == ("mismatch" if what == "inf" else "equivalent")


# --- buffers of which a part is read


def buffered(order: str, sizes: tuple[int, ...], read: Sequence[int], group: object = "r") -> Pair:
    """Return three sums over a batch, and the same by one all-reduce of a buffer that is cut into
    parts of ``sizes``, of which some are read.
    """
    reference, parallel = Builder("one"), Builder("many", {"r": 4})
    lengths, names = {"a": 2, "b": 3, "c": 4}, [f"part {n}" for n in range(len(sizes))]
    for b, spec in ((reference, None), (parallel, {0: "r"})):
        size = 4 if spec is None else 1
        given_ = {n: b.input(n, (size, length), spec) for n, length in lengths.items()}
        sums = {n: b.op("sum", b.op("square", x), axes=(0,)) for n, x in given_.items()}
        buffer = b.op("cat", *(sums[n] for n in (order if spec else "abc")), axis=0)
        buffer = b.op("all_reduce", buffer, group=group) if spec else buffer
        parts = b.op("split", buffer, axis=0, sizes=sizes, out=names)
        for number in read:
            b.output(parts[number])
    return reference.plan(), parallel.plan()


@pytest.mark.parametrize("sizes", [(2, 3, 4), (1, 7, 1), (4, 4, 1), (5, 4)])
@pytest.mark.parametrize("last", [False, True])
def test_parts_of_a_buffer_are_those_of_the_tensors_joined(
    sizes: tuple[int, ...], last: bool
) -> None:
    read = [len(sizes) - 1 if last else 0]
    assert found(*buffered("abc", sizes, read))[0] == "equivalent"
    swapped = "acb" if last else "bac"
    assert found(*buffered(swapped, sizes, read))[0] == "mismatch"
