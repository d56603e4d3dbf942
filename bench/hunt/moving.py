"""Random operators that move elements: slices, pads, joins, shapes, gathers and scatters."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hunt.drawing import MOST_ELEMENTS, Draw
from hunt.programs import INDEX, UNIQUE, Shape


def _replaced(shape: Shape, dimension: int, size: int) -> Shape:
    return (*shape[:dimension], size, *shape[dimension + 1 :])


def strided_slice(draw: Draw) -> None:
    """Draw a slice with steps."""
    x, shape = draw.value()
    low = [draw.random.randrange(size) for size in shape]
    high = [draw.random.randint(a + 1, size) for a, size in zip(low, shape, strict=True)]
    steps = [draw.random.choice((1, 1, 2, 3)) for _ in shape]
    kept = [d for d in range(len(shape)) if draw.chance(0.5)]
    for d in kept:
        low[d], high[d], steps[d] = 0, shape[d], 1
    sizes = tuple(-(-(b - a) // s) for a, b, s in zip(low, high, steps, strict=True))
    draw.step("slice", f"lax.slice({x}, {tuple(low)}, {tuple(high)}, {tuple(steps)})", [x], sizes)


def _window(draw: Draw, shape: Shape) -> tuple[Shape, list[str], str]:
    """Return sizes that fit into a shape, arguments that are starts, and them as a list."""
    sizes = tuple(s if draw.chance(0.4) else draw.random.randint(1, s) for s in shape)
    starts, names = [], []
    for size, whole in zip(sizes, shape, strict=True):
        if size == whole:
            starts.append("0")
        elif draw.chance(0.5):
            starts.append(str(draw.random.randint(0, whole - size)))
        else:
            name = draw.argument((), INDEX, whole - size + 1)
            names.append(name)
            starts.append(name)
    return sizes, names, f"({', '.join(starts)},)"


def dynamic_slice(draw: Draw) -> None:
    """Draw a slice whose starts are arguments that lie within."""
    x, shape = draw.value()
    sizes, names, starts = _window(draw, shape)
    draw.step("dynamic_slice", f"lax.dynamic_slice({x}, {starts}, {sizes})", [x, *names], sizes)


def dynamic_update(draw: Draw) -> None:
    """Draw an update at starts that lie within."""
    x, shape = draw.value()
    sizes, names, starts = _window(draw, shape)
    y = draw.like(sizes)
    draw.step(
        "dynamic_update_slice",
        f"lax.dynamic_update_slice({x}, {y}, {starts})",
        [x, y, *names],
        shape,
    )


def pad(draw: Draw) -> None:
    """Draw padding, which may be negative and between elements."""
    x, shape = draw.value()
    sizes, sides = [], []
    for size in shape:
        inside = draw.random.choice((0, 0, 0, 1, 2))
        whole = size + (size - 1) * inside
        if draw.chance(0.4):
            low, high, inside, whole = 0, 0, 0, size
        else:
            low = draw.random.randint(-min(2, whole - 1), 3)
            high = draw.random.randint(max(-2, 1 - whole - low), 3)
        sides.append((low, high, inside))
        sizes.append(whole + low + high)
    value = draw.random.choice(("0.0", "0.0", "3.0"))
    draw.step("pad", f"lax.pad({x}, {value}, {tuple(sides)})", [x], tuple(sizes))


def reverse(draw: Draw) -> None:
    """Draw a reversal of some dimensions."""
    x, shape = draw.value()
    chosen = [d for d in range(len(shape)) if draw.chance(0.6)] or [0]
    draw.step("reverse", f"lax.rev({x}, {tuple(chosen)})", [x], shape)


def concatenate(draw: Draw) -> None:
    """Draw a concatenation of two or three values, which may be one value."""
    x, shape = draw.value()
    dimension = draw.random.randrange(len(shape))
    names, size = [x], shape[dimension]
    for _ in range(draw.random.choice((1, 1, 2))):
        if draw.chance(0.3):
            names.append(x)
            size += shape[dimension]
        else:
            more = draw.random.choice((1, 2, 3, shape[dimension]))
            names.append(draw.like(_replaced(shape, dimension, more)))
            size += more
    draw.step(
        "concatenate",
        f"lax.concatenate([{', '.join(names)}], {dimension})",
        names,
        _replaced(shape, dimension, size),
    )


def roll(draw: Draw) -> None:
    """Draw a cyclic shift, by a number or by an argument."""
    x, shape = draw.value()
    dimension = draw.random.randrange(len(shape))
    by, inputs = str(draw.random.randint(-shape[dimension], shape[dimension])), [x]
    if draw.chance(0.3):
        by = draw.argument((), INDEX, shape[dimension])
        inputs.append(by)
    draw.step("roll", f"jnp.roll({x}, {by}, axis={dimension})", inputs, shape)


def halves(draw: Draw) -> None:
    """Draw a rotation of halves, as rotary embeddings have it."""
    x, shape = draw.value()
    dimension = draw.random.randrange(len(shape))
    cut = draw.random.randint(0, shape[dimension])
    front, back = (
        f"lax.slice_in_dim({x}, {s}, axis={dimension})" for s in (f"0, {cut}", f"{cut}, None")
    )
    draw.step("rotated halves", f"lax.concatenate([-{back}, {front}], {dimension})", [x], shape)


def transpose(draw: Draw) -> None:
    """Draw an order of the dimensions."""
    x, shape = draw.value(2)
    order = list(range(len(shape)))
    draw.random.shuffle(order)
    draw.step(
        "transpose", f"lax.transpose({x}, {tuple(order)})", [x], tuple(shape[d] for d in order)
    )


def reshape(draw: Draw) -> None:
    """Draw a shape that splits and merges dimensions."""
    x, shape = draw.value()
    sizes = list(shape)
    for _ in range(draw.random.randint(1, 3)):
        d = draw.random.randrange(len(sizes))
        if draw.chance(0.5) and d + 1 < len(sizes):
            sizes[d : d + 2] = [sizes[d] * sizes[d + 1]]
        elif len(sizes) < 5:
            factor = draw.random.choice([f for f in range(1, sizes[d] + 1) if sizes[d] % f == 0])
            sizes[d : d + 1] = [factor, sizes[d] // factor]
    draw.step("reshape", f"lax.reshape({x}, {tuple(sizes)})", [x], tuple(sizes))


def repeat(draw: Draw) -> None:
    """Draw a repetition of elements or of the whole."""
    x, shape = draw.value()
    dimension = draw.random.randrange(len(shape))
    times = draw.random.choice((2, 3))
    if prod(shape) * times > MOST_ELEMENTS:
        return
    if draw.chance(0.5):
        source = f"jnp.repeat({x}, {times}, axis={dimension})"
    else:
        source = f"jnp.concatenate([{x}] * {times}, axis={dimension})"
    draw.step("repeat", source, [x], _replaced(shape, dimension, shape[dimension] * times))


def stack(draw: Draw) -> None:
    """Draw values beside each other in a new dimension."""
    x, shape = draw.value(1, 3)
    y = draw.like(shape)
    at = draw.random.randint(0, len(shape))
    draw.step("stack", f"jnp.stack([{x}, {y}], {at})", [x, y], (*shape[:at], 2, *shape[at:]))


def take(draw: Draw) -> None:
    """Draw a gather of rows: an embedding."""
    x, shape = draw.value(1, 3)
    axis = draw.random.randrange(len(shape))
    found = draw.shape(draw.random.choice((1, 1, 2)))
    if prod(found) * prod(shape) // shape[axis] > MOST_ELEMENTS:
        return
    indices = draw.argument(found, INDEX, shape[axis])
    mode = draw.random.choice(("fill", "clip", "wrap"))
    draw.step(
        "take",
        f"jnp.take({x}, {indices}, axis={axis}, mode={mode!r})",
        [x, indices],
        (*shape[:axis], *found, *shape[axis + 1 :]),
    )


def take_along(draw: Draw) -> None:
    """Draw a gather with one index for each element."""
    x, shape = draw.value(1, 3)
    axis = draw.random.randrange(len(shape))
    found = _replaced(shape, axis, draw.random.choice((1, 2, shape[axis])))
    indices = draw.argument(found, INDEX, shape[axis])
    draw.step(
        "take_along_axis",
        f"jnp.take_along_axis({x}, {indices}, axis={axis})",
        [x, indices],
        found,
    )


def sliced_rows(draw: Draw) -> None:
    """Draw a slice of each row with a start for each: a gather of windows."""
    x, shape = draw.value(2, 3)
    size = draw.random.randint(1, shape[1])
    starts = draw.argument((shape[0],), INDEX, shape[1] - size + 1)
    draw.step(
        "gather of windows",
        f"jax.vmap(lambda r, i: lax.dynamic_slice_in_dim(r, i, {size}))({x}, {starts})",
        [x, starts],
        _replaced(shape, 1, size),
    )


def updated_rows(draw: Draw) -> None:
    """Draw an update of each row at a start for each: a scatter of windows."""
    x, shape = draw.value(2, 3)
    size = draw.random.randint(1, shape[1])
    starts = draw.argument((shape[0],), INDEX, shape[1] - size + 1)
    y = draw.like(_replaced(shape, 1, size))
    draw.step(
        "scatter of windows",
        "jax.vmap(lambda r, u, i: lax.dynamic_update_slice_in_dim(r, u, i, 0))"
        f"({x}, {y}, {starts})",
        [x, y, starts],
        shape,
    )


def gather_points(draw: Draw) -> None:
    """Draw a gather of points by two index arrays."""
    x, shape = draw.value(2, 3)
    found = draw.shape(1)
    if prod(found) * prod(shape[2:]) > MOST_ELEMENTS:
        return
    rows, columns = (draw.argument(found, INDEX, size) for size in shape[:2])
    draw.step(
        "gather of points", f"{x}[{rows}, {columns}]", [x, rows, columns], (*found, *shape[2:])
    )


def scatter(draw: Draw) -> None:
    """Draw a scatter of rows into an axis: sums, largest ones, products, or rows themselves."""
    x, shape = draw.value(1, 3)
    axis = draw.random.randrange(len(shape))
    kind = draw.random.choice(("add", "add", "max", "min", "set", "multiply"))
    single = kind in {"set", "multiply"}
    count = draw.random.randint(1, shape[axis]) if single else draw.random.choice((1, 3, 4, 8))
    indices = draw.argument((count,), UNIQUE if single else INDEX, shape[axis])
    y = draw.like(_replaced(shape, axis, count))
    mode = draw.random.choice(("drop", "clip", "promise_in_bounds"))
    at = ", ".join([*[":"] * axis, indices])
    draw.step(
        f"scatter {kind}",
        f"{x}.at[{at}].{kind}({y}, mode={mode!r})",
        [x, y, indices],
        shape,
    )


def scatter_points(draw: Draw) -> None:
    """Draw a scatter of points, or of rows at two indices, that adds."""
    x, shape = draw.value(2, 3)
    count = draw.random.choice((1, 3, 4, 8))
    rows, columns = (draw.argument((count,), INDEX, size) for size in shape[:2])
    y = draw.like((count, *shape[2:]))
    draw.step(
        "scatter of points", f"{x}.at[{rows}, {columns}].add({y})", [x, y, rows, columns], shape
    )


def segment_sum(draw: Draw) -> None:
    """Draw sums of the rows of each segment."""
    x, shape = draw.value(1, 3)
    segments = draw.random.choice((2, 3, 4, 8))
    indices = draw.argument(shape[:1], INDEX, segments)
    kind = draw.random.choice(("sum", "max"))
    source = f"jax.ops.segment_{kind}({x}, {indices}, num_segments={segments})"
    if kind == "max":
        source = f"jnp.maximum({source}, -9.0)"
    draw.step(f"segment {kind}", source, [x, indices], (segments, *shape[1:]))


def diagonal(draw: Draw) -> None:
    """Draw the diagonal of a matrix."""
    x, shape = draw.value(2, 2)
    draw.step("diagonal", f"jnp.diagonal({x})", [x], (min(shape),))


MOVING: tuple[Callable[[Draw], None], ...] = (
    strided_slice,
    dynamic_slice,
    dynamic_update,
    pad,
    pad,
    reverse,
    concatenate,
    concatenate,
    roll,
    halves,
    transpose,
    reshape,
    reshape,
    repeat,
    stack,
    take,
    take,
    take_along,
    sliced_rows,
    updated_rows,
    gather_points,
    scatter,
    scatter,
    scatter_points,
    segment_sum,
    diagonal,
)
