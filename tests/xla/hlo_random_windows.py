"""Random HLO programs of windows: pooling, its gradient, convolutions, slices at indices."""

from __future__ import annotations

from xla.hlo_programs import Program, braces, order, random_sizes, subset


def _windows(
    p: Program, sizes: list[int], *, padded: bool, dilated: bool, backwards: bool = False
) -> tuple[str, list[int], list[int]]:
    """Return a random window over an array, its sizes, and those of the result."""
    fields: dict[str, list[str]] = {}
    counts, windows = [], []
    for size in sizes:
        low, high = (int(n) for n in p.rng.integers(-1, 3, 2)) if padded else (0, 0)
        base, inner = (int(n) for n in p.rng.integers(1, 3, 2)) if dilated else (1, 1)
        if size + low + high < 1 or size + min(low, 0) + min(high, 0) < 1:
            low, high = 0, 0
        room = (size - 1) * base + 1 + low + high
        window = int(p.rng.integers(1, (room - 1) // inner + 2))
        stride = int(p.rng.integers(1, 4))
        windows.append(window)
        counts.append((room - (window - 1) * inner - 1) // stride + 1)
        values = {"size": window, "stride": stride, "pad": f"{low}_{high}"}
        if dilated:
            values |= {"lhs_dilate": base, "rhs_dilate": inner}
        if backwards:
            values["rhs_reversal"] = int(p.rng.integers(0, 2))
        for name, value in values.items():
            fields.setdefault(name, []).append(str(value))
    text = " ".join(f"{name}={'x'.join(values)}" for name, values in fields.items())
    return f"{{{text}}}", windows, counts


def pooling(p: Program) -> None:
    """Reductions over windows with strides, dilations and padding, by each region."""
    for kind, opcode, starts in (
        ("f64", "maximum", ("-inf", "0.5")),
        ("f64", "minimum", ("inf", "-0.5")),
        ("f64", "add", ("0",)),
        ("f64", "multiply", ("1",)),
        ("s32", "maximum", (str(-(2**31)), "1")),
        ("s32", "add", ("0",)),
        ("pred", "and", ("true", "false")),
        ("pred", "or", ("false",)),
    ):
        sizes = random_sizes(p, 2, 2, 8)
        x, region = p.given(kind, sizes), p.region(opcode, kind)
        for start in starts:
            first = p.op(kind, (), f"constant({start})")
            for padded, dilated in ((True, True), (True, False), (False, False)):
                window, _, counts = _windows(p, sizes, padded=padded, dilated=dilated)
                more = f", window={window}, to_apply={region}"
                p.out(p.call(kind, counts, "reduce-window", x, first, more=more))
    window, _, counts = _windows(p, [6, 7], padded=False, dilated=False)
    more = f", window={window}, to_apply={p.region('add', 'f64')}"
    two = p.op("f64", (), "constant(2)")
    p.out(p.call("f64", counts, "reduce-window", p.given("f64", (6, 7)), two, more=more))


def selections(p: Program) -> None:
    """Gradients of pooling, with equal elements in windows that overlap."""
    for direction in ("GE", "GT", "LE", "LT"):
        p.before(
            f"%select.{direction} (a: f64[], b: f64[]) -> pred[] {{\n  %a = f64[] parameter(0)\n"
            f"  %b = f64[] parameter(1)\n  ROOT %c = pred[] compare(%a, %b), "
            f"direction={direction}\n}}\n"
        )
        for _ in range(2):
            sizes = random_sizes(p, 2, 1, 7)
            window, _, counts = _windows(p, sizes, padded=False, dilated=False)
            x, source = p.given("f64", sizes, -1, 2), p.given("f64", counts)
            more = (
                f", window={window}, select=%select.{direction}, scatter={p.region('add', 'f64')}"
            )
            zero = p.op("f64", (), "constant(0)")
            p.out(p.call("f64", sizes, "select-and-scatter", x, source, zero, more=more))


def convolutions(p: Program) -> None:
    """Convolutions with any labels, windows and groups."""
    for rank, features, batches in ((2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (0, 1, 1)):
        space = random_sizes(p, rank, 2, 6)
        window, kernel, counts = _windows(p, space, padded=True, dilated=True, backwards=True)
        batch, channels, outputs = random_sizes(p, 3, 1, 4)
        labels, arrays = [], []
        for letters, sizes in (
            ("bf", [batch * batches, channels * features, *space]),
            ("io", [channels, outputs * features * batches, *kernel]),
            ("bf", [batch, outputs * features * batches, *counts]),
        ):
            turned = order(p, rank + 2)
            names = letters + "".join(map(str, range(rank)))
            labels.append("".join(names[d] for d in turned))
            arrays.append([sizes[d] for d in turned])
        more = f", dim_labels={labels[0]}_{labels[1]}->{labels[2]}"
        more += f", feature_group_count={features}" if features > 1 else ""
        more += f", batch_group_count={batches}" if batches > 1 else ""
        more += f", window={window}" if rank else ""
        given = [p.given("f64", sizes) for sizes in arrays[:2]]
        p.out(p.call("f64", arrays[2], "convolution", *given, more=more))


def _placed(
    p: Program, partial: bool
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Return sizes, those of slices, mapped, batching and collapsed dimensions."""
    sizes = random_sizes(p, int(p.rng.integers(2, 5)), 1, 5)
    dims = order(p, len(sizes))
    count = int(p.rng.integers(1, 3))
    mapped, others = dims[:count], dims[count:]
    batching = sorted(subset(p, others, int(p.rng.integers(0, min(2, len(others)) + 1))))
    slices = [
        1 if d in batching else int(p.rng.integers(1, n + 1)) if partial or d in mapped else n
        for d, n in enumerate(sizes)
    ]
    free = [d for d in range(len(sizes)) if slices[d] == 1 and d not in batching]
    collapsed = sorted(subset(p, free, int(p.rng.integers(0, len(free) + 1))))
    return sizes, slices, mapped, batching, collapsed


def _index(
    p: Program, sizes: list[int], mapped: list[int], batching: list[int], batch: list[int]
) -> tuple[list[int], list[int], list[int]]:
    """Return the sizes of indices whose vectors lie last, those paired, and of the batch."""
    free = [*batch, *(sizes[d] for d in batching)]
    places = order(p, len(free))
    arranged = [0] * len(free)
    for place, size in zip(places, free, strict=True):
        arranged[place] = size
    return [*arranged, len(mapped)], places[len(batch) :], arranged


def _laid_out(
    p: Program, slices: list[int], batching: list[int], collapsed: list[int], arranged: list[int]
) -> tuple[list[int], list[int]]:
    """Return the dimensions of slices in a result, or in updates, and its sizes."""
    kept = [d for d in range(len(slices)) if d not in collapsed and d not in batching]
    rank = len(arranged) + len(kept)
    offsets = sorted(subset(p, range(rank), len(kept)))
    inner, outer = iter([slices[d] for d in kept]), iter(arranged)
    return offsets, [next(inner) if d in offsets else next(outer) for d in range(rank)]


def partial_gathers(p: Program) -> None:
    """Gathers of windows that are parts of dimensions, in batches, at places outside, too."""
    sizes, slices, mapped, batching, collapsed = _placed(p, True)
    batch = random_sizes(p, int(p.rng.integers(0, 2)), 1, 4)
    index, paired, arranged = _index(p, sizes, mapped, batching, batch)
    offsets, result = _laid_out(p, slices, batching, collapsed, arranged)
    more = (
        f", offset_dims={braces(offsets)}, collapsed_slice_dims={braces(collapsed)}, "
        f"start_index_map={braces(mapped)}, operand_batching_dims={braces(batching)}, "
        f"start_indices_batching_dims={braces(paired)}, index_vector_dim={len(arranged)}, "
        f"slice_sizes={braces(slices)}"
    )
    for kind in ("f64", "s32"):
        x = p.given(kind, sizes)
        for indices in (p.given("s32", index, -2, 6), p.drawn("s32", index, -2, 6)):
            p.out(p.call(kind, result, "gather", x, indices, more=more))


def scattered(p: Program) -> None:
    """Scatters of windows by each region, some dropped; those that replace at one place."""
    sizes, slices, mapped, batching, collapsed = _placed(p, bool(p.rng.integers(0, 2)))
    batch = random_sizes(p, int(p.rng.integers(0, 2)), 1, 4)
    for one in (False, True):
        index, paired, arranged = _index(p, sizes, mapped, batching, [] if one else batch)
        offsets, given = _laid_out(p, slices, batching, collapsed, arranged)
        more = (
            f", update_window_dims={braces(offsets)}, inserted_window_dims={braces(collapsed)}, "
            f"scatter_dims_to_operand_dims={braces(mapped)}, "
            f"input_batching_dims={braces(batching)}, "
            f"scatter_indices_batching_dims={braces(paired)}, index_vector_dim={len(arranged)}, "
            "to_apply="
        )
        places = p.given("s32", index, -1, 4), p.drawn("s32", index, -1, 4)
        for kind in ("f64", "s32", "pred"):
            x, updates = p.given(kind, sizes), p.given(kind, given)
            opcodes = ["replace"] if one else ["add", "maximum", "minimum"]
            if kind == "pred":
                opcodes = ["replace"] if one else ["and", "or"]
            if kind == "f64" and not one:
                opcodes.append("multiply")
            for opcode in opcodes:
                for indices in places:
                    region = p.region(opcode, kind)
                    p.out(p.call(kind, sizes, "scatter", x, indices, updates, more=more + region))


def replaced(p: Program) -> None:
    """Scatters that replace at several places that are known, each another."""
    places = p.constant("s32", p.rng.permutation(5)[:3, None])
    more = (
        ", update_window_dims={0}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply="
    )
    for kind in ("f64", "s32", "pred"):
        x, updates = p.given(kind, (5, 2)), p.given(kind, (2, 3))
        region = p.region("replace", kind)
        p.out(p.call(kind, (5, 2), "scatter", x, places, updates, more=more + region))
