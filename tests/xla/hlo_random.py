"""Random HLO programs, by theme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from xla.hlo_programs import Program, braces, order, random_sizes, shape, subset
from xla.hlo_random_orders import branches, extremes, roundings, sorts
from xla.hlo_random_windows import (
    convolutions,
    partial_gathers,
    pooling,
    replaced,
    scattered,
    selections,
)

DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def floats(p: Program) -> None:
    """Every elementwise operator on floating-point numbers."""
    x, y = p.given("f64", (2, 3)), p.given("f64", (2, 3))
    positive = p.given("f64", (2, 3), 1, 6)
    condition = p.given("pred", (2, 3))
    half = p.op("f64", (), "constant(0.5)")
    halves = p.call("f64", (2, 3), "broadcast", half, more=", dimensions={}")
    for opcode in [
        "negate",
        "abs",
        "sign",
        "tanh",
        "logistic",
        "cosine",
        "sine",
        "erf",
        "exponential",
        "copy",
    ]:
        p.out(p.call("f64", (2, 3), opcode, x))
    p.out(p.call("f64", (2, 3), "exponential-minus-one", x))
    for opcode in ["log", "sqrt", "rsqrt", "log-plus-one"]:
        p.out(p.call("f64", (2, 3), opcode, positive))
    for opcode in ["add", "subtract", "multiply", "divide", "maximum", "minimum"]:
        p.out(p.call("f64", (2, 3), opcode, x, y))
        p.out(p.call("f64", (2, 3), opcode, x, halves))
        p.out(p.call("f64", (2, 3), opcode, halves, x))
        p.out(p.call("f64", (2, 3), opcode, halves, halves))
    for direction in DIRECTIONS:
        for operands in ((x, y), (x, halves), (halves, y), (halves, halves)):
            p.out(p.call("pred", (2, 3), "compare", *operands, more=f", direction={direction}"))
    p.out(p.call("f64", (2, 3), "select", condition, x, y))
    p.out(p.call("f64", (2, 3), "select", condition, halves, halves))
    p.out(p.call("f64", (2, 3), "clamp", y, x, positive))
    p.out(p.call("f64", (2, 3), "clamp", half, x, p.given("f64", ())))
    for exponent in ("2", "-1", "0.5", "-1.5", "3", "0"):
        number = p.op("f64", (), f"constant({exponent})")
        wide = p.call("f64", (2, 3), "broadcast", number, more=", dimensions={}")
        p.out(p.call("f64", (2, 3), "power", positive, wide))
    p.out(p.call("f64", (2, 3), "power", halves, x))


def conversions(p: Program) -> None:
    """Conversions between truths, integers and floating-point numbers."""
    truths, whole, reals = p.given("pred", (5,)), p.given("s32", (5,)), p.given("f64", (5,))
    known, ones = p.drawn("s32", (5,)), p.constant("s32", [-3] * 5)
    numbers = [truths, whole, reals, known, ones]
    numbers += [p.op("f64", (), f"constant({n})") for n in ("-2.75", "2.75", "0", "-0")]
    for x in numbers:
        for kind in ("pred", "s32", "s64", "f32", "f64"):
            p.out(p.call(kind, p.sizes(x), "convert", x))
    for kind in ("s8", "s16", "u8", "u16", "u32"):
        p.out(p.call(kind, (5,), "convert", known))
        p.out(p.call(kind, (5,), "convert", truths))
    p.out(p.call("u32", (5,), "convert", p.given("s32", (5,), 0, 5)))


def integers(p: Program) -> None:
    """Elementwise operators on integers that inputs decide."""
    x, y = p.given("s32", (12,)), p.given("s32", (12,))
    positive = p.given("s32", (12,), 1, 5)
    two = p.constant("s32", 2)
    twos = p.call("s32", (12,), "broadcast", two, more=", dimensions={}")
    for opcode in ["add", "subtract", "multiply", "maximum", "minimum"]:
        p.out(p.call("s32", (12,), opcode, x, y))
        p.out(p.call("s32", (12,), opcode, twos, y))
    for opcode in ["negate", "abs", "sign", "copy"]:
        p.out(p.call("s32", (12,), opcode, x))
    for opcode in ("divide", "remainder"):
        for other in (positive, twos):
            p.out(p.call("s32", (12,), opcode, x, other))
            p.out(p.call("s32", (12,), opcode, positive, other))
    for direction in DIRECTIONS:
        for operands in ((x, y), (x, twos), (twos, y), (twos, twos), (x, x)):
            p.out(p.call("pred", (12,), "compare", *operands, more=f", direction={direction}"))
    condition, other = p.given("pred", (12,)), p.given("pred", (12,))
    p.out(p.call("s32", (12,), "select", condition, x, twos))
    p.out(p.call("s32", (12,), "clamp", p.constant("s32", -1), x, two))
    p.out(p.call("s32", (12,), "clamp", y, x, positive))
    p.out(p.call("s32", (12,), "clamp", p.given("s32", ()), x, p.constant("s32", -2)))
    yes, no = p.constant("pred", [True] * 12), p.constant("pred", [False] * 12)
    for opcode in ("and", "or", "xor"):
        for second in (other, yes, no):
            p.out(p.call("pred", (12,), opcode, condition, second))
    p.out(p.call("pred", (12,), "not", condition))
    for operands in ((yes, no), (no, yes), (other, yes), (condition, no)):
        p.out(p.call("pred", (12,), "select", condition, *operands))
    for direction in DIRECTIONS:
        more = f", direction={direction}"
        p.out(p.call("pred", (12,), "compare", condition, other, more=more))


def known(p: Program) -> None:
    """Operators on integers that are known, which wrap around, and differ by device."""
    ids = p.op("u32", (), "partition-id()")
    one = p.constant("u32", 1)
    p.out(p.call("u32", (), "convert", p.call("s32", (), "convert", ids)))
    before = p.call("u32", (), "subtract", ids, one)
    p.out(p.call("s32", (), "convert", before))
    p.out(p.call("pred", (), "compare", before, one, more=", direction=GT"))
    for kind, low, high in (("s8", -128, 128), ("u8", 0, 256), ("s32", -(2**31), 2**31)):
        x, y = p.drawn(kind, (6,), low, high), p.drawn(kind, (6,), low, high)
        some = p.constant(kind, [1, 2, 3, 7, 5, 4])
        mine = p.call(
            kind, (6,), "broadcast", p.call(kind, (), "convert", ids), more=", dimensions={}"
        )
        for opcode in ["add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor"]:
            p.out(p.call(kind, (6,), opcode, x, y))
            p.out(p.call(kind, (6,), opcode, mine, y))
        for opcode in ["divide", "remainder", "shift-left", "shift-right-logical"]:
            p.out(p.call(kind, (6,), opcode, x, some))
        if kind[0] == "s":
            p.out(p.call(kind, (6,), "shift-right-arithmetic", x, some))
            for opcode in ("abs", "sign", "negate"):
                p.out(p.call(kind, (6,), opcode, x))
        p.out(p.call(kind, (6,), "not", x))
        p.out(p.call(kind, (6,), "clamp", p.call(kind, (), "convert", ids), x, p.constant(kind, 9)))
        for direction in DIRECTIONS:
            p.out(p.call("pred", (6,), "compare", mine, some, more=f", direction={direction}"))
        region = p.region("add", kind)
        zero = p.constant(kind, 3)
        more = f", dimensions={{0}}, to_apply={region}"
        p.out(p.call(kind, (), "reduce", x, zero, more=more))
    table = p.drawn("s32", (4, 4))
    row = p.call(
        "s32", (1, 4), "dynamic-slice", table, ids, one, more=", dynamic_slice_sizes={1,4}"
    )
    p.out(row)
    four = p.call("s32", (4,), "reshape", row)
    clamped = p.call(
        "s32", (4,), "clamp", p.call("s32", (), "convert", ids), four, p.constant("s32", 2)
    )
    p.out(clamped)
    p.out(p.call("s32", (2,), "slice", four, more=", slice={[1:4:2]}"))
    p.out(p.call("s32", (4,), "reverse", four, more=", dimensions={0}"))
    p.out(p.call("s32", (8,), "pad", four, p.constant("s32", 7), more=", padding=-1_2_1"))
    p.out(p.call("s32", (8,), "concatenate", four, clamped, more=", dimensions={0}"))


def compared_by_device(p: Program) -> None:
    """Comparisons of inputs with a number of each device."""
    ids = p.call("s32", (), "convert", p.op("u32", (), "partition-id()"))
    x = p.given("s32", (6,), -1, 5)
    wide = p.call("s32", (6,), "broadcast", ids, more=", dimensions={}")
    for direction in DIRECTIONS:
        p.out(p.call("pred", (6,), "compare", x, wide, more=f", direction={direction}"))
        p.out(p.call("pred", (6,), "compare", wide, x, more=f", direction={direction}"))
    p.out(p.call("s32", (6,), "add", x, wide))
    p.out(p.call("s32", (6,), "clamp", ids, x, p.constant("s32", 2)))
    zero = p.constant("s32", 0)
    first = p.call("pred", (), "compare", ids, zero, more=", direction=EQ")
    full = p.call("pred", (6,), "broadcast", first, more=", dimensions={}")
    p.out(p.call("s32", (6,), "select", full, x, wide))


def moves(p: Program) -> None:
    """Broadcast, transpose, reshape, slice, reverse, concatenate and iota."""
    rank = int(p.rng.integers(1, 4))
    sizes = random_sizes(p, rank)
    kind = str(p.rng.choice(["f32", "s32", "pred"]))
    for x in (p.given(kind, sizes), p.constant(kind, p.rng.integers(0, 2, sizes))):
        whole = random_sizes(p, rank + 2)
        places = subset(p, range(rank + 2), rank)
        for place, size in zip(places, sizes, strict=True):
            whole[place] = size
        p.out(p.call(kind, whole, "broadcast", x, more=f", dimensions={braces(places)}"))
        turned = order(p, rank)
        more = f", dimensions={braces(turned)}"
        p.out(p.call(kind, [sizes[d] for d in turned], "transpose", x, more=more))
        p.out(p.call(kind, [*sizes[1:], sizes[0], 1], "reshape", x))
        starts = [int(p.rng.integers(0, n)) for n in sizes]
        ends = [int(p.rng.integers(s, n)) + 1 for s, n in zip(starts, sizes, strict=True)]
        steps = random_sizes(p, rank, 1, 3)
        ranges = list(zip(starts, ends, steps, strict=True))
        text = ", ".join(f"[{a}:{e}:{s}]" for a, e, s in ranges)
        p.out(
            p.call(kind, [len(range(*r)) for r in ranges], "slice", x, more=f", slice={{{text}}}")
        )
        axes = sorted(subset(p, range(rank), int(p.rng.integers(1, rank + 1))))
        p.out(p.call(kind, sizes, "reverse", x, more=f", dimensions={braces(axes)}"))
        axis = int(p.rng.integers(0, rank))
        long = [*sizes]
        long[axis] = 3
        other = p.given(kind, long)
        long[axis] += sizes[axis]
        p.out(p.call(kind, long, "concatenate", x, other, more=f", dimensions={{{axis}}}"))
        for element in ("s32", "f32", "u8"):
            p.out(p.op(element, sizes, f"iota(), iota_dimension={axis}"))


def pads(p: Program) -> None:
    """Pads with elements before, behind and between, some cropped."""
    sizes = random_sizes(p, 2, 2, 5)
    kind = str(p.rng.choice(["f32", "s32", "pred"]))
    filler = p.constant(kind, 1)
    for x in (p.given(kind, sizes), p.constant(kind, p.rng.integers(0, 2, sizes))):
        for _ in range(3):
            padding = [
                [int(p.rng.integers(-1, 3)), int(p.rng.integers(-1, 3)), int(p.rng.integers(0, 3))]
                for _ in sizes
            ]
            result = [
                n + (n - 1) * between + low + high
                for n, (low, high, between) in zip(sizes, padding, strict=True)
            ]
            if min(result) > 0:
                text = "x".join("_".join(map(str, part)) for part in padding)
                p.out(p.call(kind, result, "pad", x, filler, more=f", padding={text}"))
    p.out(filler)


def reductions(p: Program) -> None:
    """Reductions by each region, from neutral elements and from others."""
    sizes = random_sizes(p, 3, 1, 4)
    axes = sorted(subset(p, range(3), int(p.rng.integers(1, 4))))
    rest = [sizes[d] for d in range(3) if d not in axes]
    starts = {
        "add": (0, 2), "maximum": ("-inf", 1), "minimum": ("inf", -1),
    }  # fmt: skip
    x = p.given("f64", sizes)
    some = p.given("f64", ())
    for opcode, numbers in starts.items():
        more = f", dimensions={braces(axes)}, to_apply={p.region(opcode, 'f64')}"
        for start in (*(p.op("f64", (), f"constant({n})") for n in numbers), some):
            p.out(p.call("f64", rest, "reduce", x, start, more=more))
    whole = p.given("s32", sizes)
    least, most = -(2**31), 2**31 - 1
    for opcode, numbers in {"add": (0, 2), "maximum": (least, 1), "minimum": (most, -1)}.items():
        more = f", dimensions={braces(axes)}, to_apply={p.region(opcode, 's32')}"
        for number in numbers:
            p.out(p.call("s32", rest, "reduce", whole, p.constant("s32", number), more=more))
    for truths in (p.given("pred", sizes), p.constant("pred", p.rng.integers(0, 2, sizes))):
        for opcode in ("and", "or"):
            more = f", dimensions={braces(axes)}, to_apply={p.region(opcode, 'pred')}"
            for number in (False, True):
                start = p.constant("pred", number)
                p.out(p.call("pred", rest, "reduce", truths, start, more=more))


def windows(p: Program) -> None:
    """Sums over windows: running ones from either end, and others."""
    for kind in ("f64", "s32"):
        sizes = random_sizes(p, 2, 2, 6)
        x, zero = p.given(kind, sizes), p.constant(kind, 0)
        region = p.region("add", kind)
        for low, high, count in (
            (sizes[0] - 1, 0, sizes[0]),
            (0, sizes[0] - 1, sizes[0]),
            (1, 1, 2),
            (-1, 2, 2),
            (0, 0, 1),
            (sizes[0], 0, sizes[0]),
            (0, sizes[0] + 1, sizes[0] + 1),
            (0, 0, 2),
        ):
            result = [sizes[0] + low + high - count + 1, sizes[1] - 1]
            more = f", window={{size={count}x2 pad={low}_{high}x0_0}}, to_apply={region}"
            if result[0] > 0:
                p.out(p.call(kind, result, "reduce-window", x, zero, more=more))


def dots(p: Program) -> None:
    """Products with batch and contracted dimensions in any order."""
    for _ in range(4):
        batch, summed = int(p.rng.integers(0, 3)), int(p.rng.integers(0, 3))
        shared = random_sizes(p, batch + summed)
        sides = []
        for side in ("lhs", "rhs"):
            free = random_sizes(p, int(p.rng.integers(0, 3)))
            rank = len(shared) + len(free)
            places = order(p, rank)
            sizes = [0] * rank
            for place, size in zip(places, [*shared, *free], strict=True):
                sizes[place] = size
            kept = [sizes[d] for d in sorted(places[len(shared) :])]
            more = ""
            if batch:
                more += f", {side}_batch_dims={braces(places[:batch])}"
            if summed:
                more += f", {side}_contracting_dims={braces(places[batch : len(shared)])}"
            sides.append((p.given("f64", sizes), kept, more))
        (a, first, more), (c, second, others) = sides
        result = [*shared[:batch], *first, *second]
        p.out(p.call("f64", result, "dot", a, c, more=more + others))


def slices(p: Program) -> None:
    """Dynamic slices, read and written, that begin inside and outside."""
    device = p.call("s32", (), "convert", p.op("u32", (), "partition-id()"))
    sizes = random_sizes(p, 3, 2, 5)
    parts = [int(p.rng.integers(1, n + 1)) for n in sizes]
    kind = str(p.rng.choice(["f64", "s32", "pred"]))
    arrays = p.given(kind, sizes), p.constant(kind, p.rng.integers(0, 2, sizes))
    update = p.given(kind, parts)
    three = p.constant("s32", 3)
    places = (
        [p.given("s32", (), -3, 6) for _ in sizes],
        [p.constant("s32", int(p.rng.integers(-3, 6))) for _ in sizes],
        [p.call("s32", (), "multiply", device, three), p.given("s32", (), -3, 6), device],
        [p.given("u8", (), 0, 6) for _ in sizes],
    )
    for x in arrays:
        for starts in places:
            more = f", dynamic_slice_sizes={braces(parts)}"
            p.out(p.call(kind, parts, "dynamic-slice", x, *starts, more=more))
            p.out(p.call(kind, sizes, "dynamic-update-slice", x, update, *starts))


def _indexed(p: Program) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Return sizes, mapped, batching, whole dimensions, and the sizes of the batch."""
    sizes = random_sizes(p, int(p.rng.integers(1, 5)))
    dims = order(p, len(sizes))
    count = int(p.rng.integers(1, min(3, len(dims)) + 1))
    mapped, others = dims[:count], sorted(dims[count:])
    batched = bool(p.rng.integers(0, 2))
    batching = others if batched else []
    whole = [] if batched else others
    return sizes, mapped, batching, whole, random_sizes(p, int(p.rng.integers(0, 3)))


def _index_sizes(
    p: Program, batching: list[int], sizes: list[int], batch: list[int], count: int
) -> tuple[list[int], list[int], int, list[int]]:
    """Return the sizes of the indices, their dimensions of batches, the vectors', and the batch."""
    free = [*batch, *(sizes[d] for d in batching)]
    places = order(p, len(free))
    arranged = [0] * len(free)
    for place, size in zip(places, free, strict=True):
        arranged[place] = size
    paired = places[len(batch) :]
    vector = int(p.rng.integers(0, len(free) + 1))
    if count == 1 and p.rng.integers(0, 2):
        return arranged, paired, len(free), arranged
    whole = [*arranged[:vector], count, *arranged[vector:]]
    return whole, [d + (d >= vector) for d in paired], vector, arranged


def gathers(p: Program) -> None:
    """Gathers of elements and of whole slices, at places inside and outside."""
    sizes, mapped, batching, _, batch = _indexed(p)
    index, paired, vector, arranged = _index_sizes(p, batching, sizes, batch, len(mapped))
    collapsed = sorted(
        mapped if batching else subset(p, mapped, int(p.rng.integers(0, len(mapped) + 1)))
    )
    kept = [d for d in range(len(sizes)) if d not in collapsed and d not in batching]
    slices_of = [1 if d in mapped or d in batching else sizes[d] for d in range(len(sizes))]
    rank = len(arranged) + len(kept)
    offsets = sorted(subset(p, range(rank), len(kept)))
    inner, outer = iter([slices_of[d] for d in kept]), iter(arranged)
    result = [next(inner) if d in offsets else next(outer) for d in range(rank)]
    more = (
        f", offset_dims={braces(offsets)}, collapsed_slice_dims={braces(collapsed)}, "
        f"start_index_map={braces(mapped)}"
    )
    if batching:
        more += (
            f", operand_batching_dims={braces(batching)}, "
            f"start_indices_batching_dims={braces(paired)}"
        )
    more += f", index_vector_dim={vector}, slice_sizes={braces(slices_of)}"
    for kind in ("f64", "s32", "pred"):
        x = p.given(kind, sizes)
        for element in ("s32", "u8"):
            low = 0 if element == "u8" else -2
            p.out(p.call(kind, result, "gather", x, p.given(element, index, low, 6), more=more))
            p.out(p.call(kind, result, "gather", x, p.drawn(element, index, low, 6), more=more))


def scatters(p: Program) -> None:
    """Scatters that add elements and whole windows, at places inside and outside."""
    sizes, mapped, batching, whole, batch = _indexed(p)
    index, paired, vector, arranged = _index_sizes(p, batching, sizes, batch, len(mapped))
    rank = len(arranged) + len(whole)
    windows = sorted(subset(p, range(rank), len(whole)))
    inner, outer = iter([sizes[d] for d in whole]), iter(arranged)
    given = [next(inner) if d in windows else next(outer) for d in range(rank)]
    more = (
        f", update_window_dims={braces(windows)}, inserted_window_dims={braces(sorted(mapped))}, "
        f"scatter_dims_to_operand_dims={braces(mapped)}"
    )
    if batching:
        more += (
            f", input_batching_dims={braces(batching)}, "
            f"scatter_indices_batching_dims={braces(paired)}"
        )
    more += f", index_vector_dim={vector}, to_apply="
    for kind in ("f64", "s32"):
        x, updates = p.given(kind, sizes), p.given(kind, given)
        ones = p.call(kind, given, "broadcast", p.constant(kind, 1), more=", dimensions={}")
        region = p.region("add", kind)
        for indices in (p.given("s32", index, -2, 6), p.drawn("s32", index, -2, 6)):
            p.out(p.call(kind, sizes, "scatter", x, indices, updates, more=more + region))
            p.out(p.call(kind, sizes, "scatter", x, indices, ones, more=more + region))


def batched(p: Program) -> None:
    """A gather and a scatter in two dimensions of batches, which turn in the indices."""
    x, indices = p.given("f64", (2, 3, 4)), p.given("s32", (5, 2, 3), -1, 5)
    more = (
        ", offset_dims={}, collapsed_slice_dims={2}, start_index_map={2}, "
        "operand_batching_dims={0,1}, start_indices_batching_dims={1,2}, index_vector_dim=3, "
        "slice_sizes={1,1,1}"
    )
    p.out(p.call("f64", (5, 2, 3), "gather", x, indices, more=more))
    more = (
        ", update_window_dims={}, inserted_window_dims={2}, scatter_dims_to_operand_dims={2}, "
        "input_batching_dims={0,1}, scatter_indices_batching_dims={1,2}, index_vector_dim=3, "
        f"to_apply={p.region('add', 'f64')}"
    )
    updates = p.given("f64", (5, 2, 3))
    p.out(p.call("f64", (2, 3, 4), "scatter", x, indices, updates, more=more))


def control(p: Program) -> None:
    """Loops, calls, branches and tuples."""
    p.before(
        """%more (s: (s32[], f64[3], f64[4,3])) -> pred[] {
  %s = (s32[], f64[3], f64[4,3]) parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %end = s32[] constant(4)
  ROOT %m = pred[] compare(%n, %end), direction=LT
}

%twice (a: f64[3]) -> f64[3] {
  %a = f64[3] parameter(0)
  ROOT %d = f64[3] add(%a, %a)
}

%minus (a: f64[3]) -> f64[3] {
  %a = f64[3] parameter(0)
  ROOT %d = f64[3] negate(%a)
}

%step (s: (s32[], f64[3], f64[4,3])) -> (s32[], f64[3], f64[4,3]) {
  %s = (s32[], f64[3], f64[4,3]) parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %x = f64[3] get-tuple-element(%s), index=1
  %w = f64[4,3] get-tuple-element(%s), index=2
  %zero = s32[] constant(0)
  %one = s32[] constant(1)
  %row = f64[1,3] dynamic-slice(%w, %n, %zero), dynamic_slice_sizes={1,3}
  %flat = f64[3] reshape(%row)
  %sum = f64[3] multiply(%x, %flat)
  %odd = s32[] and(%n, %one)
  %y = f64[3] conditional(%odd, %sum, %sum), branch_computations={%twice, %minus}
  %is = pred[] compare(%odd, %one), direction=EQ
  %z = f64[3] conditional(%is, %y, %sum), true_computation=%twice, false_computation=%minus
  %back = f64[1,3] reshape(%z)
  %v = f64[4,3] dynamic-update-slice(%w, %back, %n, %zero)
  %next = s32[] add(%n, %one)
  ROOT %t = (s32[], f64[3], f64[4,3]) tuple(%next, %y, %v)
}
"""
    )
    first = p.constant("s32", int(p.rng.integers(-1, 2)))
    x, w = p.given("f64", (3,)), p.given("f64", (4, 3))
    state = "(s32[], f64[3], f64[4,3])"
    p._lines.append(f"  %state = {state} tuple({first}, {x}, {w})")
    p._lines.append(f"  %end = {state} while(%state), condition=%more, body=%step")
    for number, (kind, sizes) in enumerate((("s32", ()), ("f64", (3,)), ("f64", (4, 3)))):
        p.out(p.op(kind, sizes, f"get-tuple-element(%end), index={number}"))
    p.out(p.call("f64", (3,), "call", x, more=", to_apply=%twice"))
    for number in (-1, 0, 1, 7):
        choice = p.constant("s32", number)
        more = ", branch_computations={%twice, %minus}"
        p.out(p.call("f64", (3,), "conditional", choice, x, x, more=more))


def collectives(p: Program) -> None:
    """Collectives over groups in any order, of partitions of one replica."""
    count = p.devices
    members = order(p, count)
    size = int(p.rng.choice([n for n in (2, 4) if count % n == 0]))
    groups = [members[start : start + size] for start in range(0, count, size)]
    listed = f"{{{','.join(map(braces, groups))}}}"
    where = f", channel_id=1, replica_groups={listed}"
    everywhere = f"{where}, use_global_device_ids=true"
    for kind in ("f64", "s32"):
        x = p.given(kind, (4, 8))
        for opcode in ("add", "maximum", "minimum"):
            more = f"{everywhere}, to_apply={p.region(opcode, kind)}"
            p.out(p.call(kind, (4, 8), "all-reduce", x, more=more))
            axis = int(p.rng.integers(0, 2))
            sizes = [4, 8]
            sizes[axis] //= size
            more = f"{everywhere}, dimensions={{{axis}}}, to_apply={p.region(opcode, kind)}"
            p.out(p.call(kind, sizes, "reduce-scatter", x, more=more))
        for axis in range(2):
            sizes = [4, 8]
            sizes[axis] *= size
            more = f"{everywhere}, dimensions={{{axis}}}"
            p.out(p.call(kind, sizes, "all-gather", x, more=more))
            more = f"{where}, dimensions={{{axis}}}"
            p.out(p.call(kind, (4, 8), "all-to-all", x, more=more))
        parts = [p.given(kind, (3,)) for _ in range(size)]
        name = f"%tuple{kind}"
        whole = f"({', '.join([shape(kind, (3,))] * size)})"
        p._lines.append(f"  {name} = {whole} all-to-all({', '.join(parts)}){where}")
        for number in range(size):
            p.out(p.op(kind, (3,), f"get-tuple-element({name}), index={number}"))
        targets = order(p, count)
        sources = order(p, count)[: int(p.rng.integers(1, count + 1))]
        pairs = [[s, t] for s, t in zip(sources, targets, strict=False)]
        more = f", channel_id=2, source_target_pairs={{{','.join(map(braces, pairs))}}}"
        p.out(p.call(kind, (4, 8), "collective-permute", x, more=more))
    truths = p.given("pred", (5,))
    for opcode in ("and", "or"):
        more = f"{everywhere}, to_apply={p.region(opcode, 'pred')}"
        p.out(p.call("pred", (5,), "all-reduce", truths, more=more))
    p.out(
        p.call(
            "pred",
            (5,),
            "collective-permute",
            truths,
            more=", channel_id=2, source_target_pairs={{1,1},{0,2}}",
        )
    )
    p.out(p.op("u32", (), "partition-id()"))


THEMES: Mapping[str, tuple[Callable[[Program], None], int, int]] = MappingProxyType(
    {
        "floats": (floats, 1, 1),
        "conversions": (conversions, 1, 1),
        "integers": (integers, 2, 1),
        "known": (known, 2, 4),
        "compared_by_device": (compared_by_device, 1, 4),
        "moves": (moves, 8, 1),
        "pads": (pads, 6, 1),
        "reductions": (reductions, 6, 1),
        "windows": (windows, 4, 1),
        "dots": (dots, 5, 1),
        "slices": (slices, 6, 2),
        "gathers": (gathers, 32, 1),
        "scatters": (scatters, 16, 1),
        "batched": (batched, 1, 1),
        "control": (control, 2, 1),
        "collectives": (collectives, 5, 4),
        "roundings": (roundings, 1, 1),
        "extremes": (extremes, 4, 1),
        "sorts": (sorts, 3, 1),
        "branches": (branches, 2, 4),
        "pooling": (pooling, 4, 1),
        "selections": (selections, 3, 1),
        "convolutions": (convolutions, 6, 1),
        "partial_gathers": (partial_gathers, 12, 1),
        "scattered": (scattered, 12, 1),
        "replaced": (replaced, 1, 1),
    }
)
"""The themes: what makes a program, the number of programs, and of their devices."""


def programs(theme: str) -> list[Program]:
    """Return the programs of a theme."""
    make, count, devices = THEMES[theme]
    found = [Program(f"{theme}-{number}", devices) for number in range(count)]
    for program in found:
        make(program)
    return found
