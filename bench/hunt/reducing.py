"""Random operators that combine elements: windows, sums, sorts, products and loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from hunt.drawing import MOST_ELEMENTS, Draw
from hunt.programs import PERMUTED


@dataclass(frozen=True)
class Side:
    """A dimension of a window, as XLA has it."""

    window: int
    stride: int
    pads: tuple[int, int]
    base: int
    dilation: int

    def places(self, size: int) -> int:
        """Return the number of places of the window in a dimension."""
        whole = (size - 1) * self.base + 1 + sum(self.pads)
        return (whole - (self.window - 1) * self.dilation - 1) // self.stride + 1


NO_WINDOW = Side(1, 1, (0, 0), 1, 1)


def _fitting(side: Side, size: int) -> Side:
    """Return a side of a window if it has a place in a dimension, or none."""
    return side if side.places(size) > 0 else NO_WINDOW


def _pooled(draw: Draw) -> Side:
    """Return a side of a window, which is often none."""
    if draw.chance(0.4):
        return NO_WINDOW
    choice, integer = draw.random.choice, draw.random.randint
    window, stride = integer(1, 4), choice((1, 1, 2, 3))
    base, dilation = choice((1, 1, 1, 2)), choice((1, 1, 1, 2))
    return Side(window, stride, (integer(0, 2), integer(0, 2)), base, dilation)


def _convolved(draw: Draw) -> Side:
    """Return a side of the window of a convolution."""
    choice, integer = draw.random.choice, draw.random.randint
    window, stride = choice((1, 2, 3, 3, 5)), choice((1, 1, 1, 2, 3))
    base, dilation = choice((1, 1, 1, 2, 3)), choice((1, 1, 1, 2))
    return Side(window, stride, (integer(0, 3), integer(0, 3)), base, dilation)


def reduce_window(draw: Draw) -> None:
    """Draw a pooling: sums or largest elements of windows, with strides, padding and dilation."""
    x, shape = draw.value(1, 4)
    sides = [_fitting(_pooled(draw), size) for size in shape]
    sizes = tuple(side.places(size) for side, size in zip(sides, shape, strict=True))
    # A window may hold padding alone, so the largest element has a finite start.
    kind, start = ("add", "0.0") if draw.chance(0.6) else ("max", "-9.0")
    draw.step(
        f"reduce_window {kind}",
        f"lax.reduce_window({x}, {start}, lax.{kind}, {tuple(s.window for s in sides)}, "
        f"{tuple(s.stride for s in sides)}, {tuple(s.pads for s in sides)}, "
        f"{tuple(s.base for s in sides)}, {tuple(s.dilation for s in sides)})",
        [x],
        sizes,
    )


def max_pool(draw: Draw) -> None:
    """Draw a pooling of largest elements, whose gradient selects and scatters."""
    x, shape = draw.value(2, 3)
    window = [draw.random.randint(1, min(3, size)) for size in shape]
    strides = [draw.random.choice((1, 2, w)) for w in window]
    padding = draw.random.choice(("SAME", "VALID"))
    sizes = [
        -(-size // s) if padding == "SAME" else (size - w) // s + 1
        for size, w, s in zip(shape, window, strides, strict=True)
    ]
    draw.step(
        "max_pool",
        f"lax.reduce_window({x}, -jnp.inf, lax.max, {tuple(window)}, {tuple(strides)}, "
        f"{padding!r})",
        [x],
        tuple(sizes),
    )


def convolution(draw: Draw) -> None:
    """Draw a convolution over one or two dimensions, with all that a window can have."""
    choice = draw.random.choice
    spatial, groups = choice((1, 1, 2)), choice((1, 1, 1, 2, 4))
    batched = groups > 1 and draw.chance(0.3)
    batch, features, out = choice((1, 2, 4)), choice((1, 2, 4)), choice((1, 2, 4))
    image = [choice((2, 3, 4, 5, 6, 8)) for _ in range(spatial)]
    sides = [_fitting(_convolved(draw), size) for size in image]
    window = [side.window for side in sides]
    sizes = [side.places(size) for side, size in zip(sides, image, strict=True)]
    if batched:
        left, right = (batch * groups, features, *image), (out * groups, features, *window)
        shape, option = (batch, out * groups, *sizes), f", batch_group_count={groups}"
    else:
        left, right = (batch, features * groups, *image), (out * groups, features, *window)
        shape, option = (batch, out * groups, *sizes), f", feature_group_count={groups}"
    x = draw.like(left)
    x = next((step.name for step in reversed(draw.steps) if step.shape == left), x)
    k = draw.like(right)
    kernel = f"lax.rev({k}, {tuple(range(2, 2 + spatial))})" if draw.chance(0.15) else k
    draw.step(
        "convolution",
        f"lax.conv_general_dilated({x}, {kernel}, {tuple(s.stride for s in sides)}, "
        f"{[s.pads for s in sides]}, {tuple(s.base for s in sides)}, "
        f"{tuple(s.dilation for s in sides)}{option if groups > 1 else ''})",
        [x, k],
        shape,
    )


def cumulative(draw: Draw) -> None:
    """Draw running sums, or running largest elements."""
    x, shape = draw.value()
    kind = draw.random.choice(("cumsum", "cumsum", "cummax", "cummin", "cumlogsumexp"))
    axis = draw.random.randrange(len(shape))
    draw.step(kind, f"lax.{kind}({x}, axis={axis}, reverse={draw.chance(0.3)})", [x], shape)


def reduction(draw: Draw) -> None:
    """Draw a reduction over some dimensions."""
    x, shape = draw.value()
    kind = draw.random.choice(("sum", "sum", "max", "min", "mean", "any"))
    axes = tuple(d for d in range(len(shape)) if draw.chance(0.5)) or (0,)
    if len(axes) == len(shape) and draw.chance(0.7):
        axes = axes[1:] or (0,)
    kept = draw.chance(0.3)
    sizes = tuple(1 if d in axes else size for d, size in enumerate(shape) if kept or d not in axes)
    source = f"jnp.{kind}({x}, axis={axes}, keepdims={kept})"
    if kind == "any":
        source = f"jnp.any({x} > 3, axis={axes}, keepdims={kept}).astype(jnp.float32)"
    draw.step(f"reduce {kind}", source, [x], sizes)


def argmax(draw: Draw) -> None:
    """Draw the places of the largest or least elements, equal ones among them."""
    x, shape = draw.value(1, 3)
    axis = draw.random.randrange(len(shape))
    kind = draw.random.choice(("argmax", "argmin"))
    draw.step(
        kind,
        f"jnp.{kind}({x}, axis={axis}).astype(jnp.float32)",
        [x],
        (*shape[:axis], *shape[axis + 1 :]),
    )


def sort(draw: Draw) -> None:
    """Draw a sort of elements, of their places, or of another value by keys."""
    x, shape = draw.value(1, 3)
    axis = draw.random.randrange(len(shape))
    kind = draw.random.choice(("sort", "argsort", "sort by keys"))
    if kind == "sort":
        draw.step(kind, f"lax.sort({x}, dimension={axis})", [x], shape)
    elif kind == "argsort":
        source = f"jnp.argsort({x}, axis={axis}, descending={draw.chance(0.4)})"
        draw.step(kind, f"{source}.astype(jnp.float32)", [x], shape)
    else:
        keys = draw.argument(shape, PERMUTED)
        draw.step(kind, f"lax.sort_key_val({keys}, {x}, dimension={axis})[1]", [x, keys], shape)


def top_k(draw: Draw) -> None:
    """Draw the largest elements, or their places."""
    x, shape = draw.value(1, 3)
    k = draw.random.randint(1, shape[-1])
    part = draw.random.choice(("0", "1"))
    draw.step("top_k", f"lax.top_k({x}, {k})[{part}].astype(jnp.float32)", [x], (*shape[:-1], k))


def product(draw: Draw) -> None:
    """Draw an einsum of two values with batch, contracted and free dimensions."""
    x, shape = draw.value(1, 3)
    letters = "ijkl"[: len(shape)]
    sizes = dict(zip(letters, shape, strict=True))
    second = [each for each in letters if draw.chance(0.6)] or [letters[0]]
    if draw.chance(0.7):
        second.append("n")
        sizes["n"] = draw.random.choice((2, 3, 4, 8))
    draw.random.shuffle(second)
    result = [
        e for e in sorted({*letters, *second}) if e == "n" or e not in second or draw.chance(0.4)
    ]
    draw.random.shuffle(result)
    found = tuple(sizes[e] for e in result)
    if prod(found) > MOST_ELEMENTS:
        return
    y = draw.like(tuple(sizes[e] for e in second))
    text = f"{letters},{''.join(second)}->{''.join(result)}"
    draw.step("einsum", f"jnp.einsum({text!r}, {x}, {y})", [x, y], found)


def elementwise(draw: Draw) -> None:
    """Draw an operator on each element."""
    x, shape = draw.value()
    y = draw.like(shape)
    source = draw.random.choice(
        ("{x} + {y}", "{x} * {y}", "jnp.maximum({x}, {y})", "jnp.where({x} > {y}, {x}, 1.0)")
    )
    draw.step("elementwise", source.format(x=x, y=y), [x, y], shape)


def placed(draw: Draw) -> None:
    """Draw a choice of elements by their places."""
    x, shape = draw.value()
    d = draw.random.randrange(len(shape))
    places = f"lax.broadcasted_iota(jnp.float32, {shape}, {d})"
    draw.step(
        "iota",
        draw.random.choice((f"{x} * {places}", f"jnp.where({places} < 2, {x}, 0.0)")),
        [x],
        shape,
    )


def lower_triangle(draw: Draw) -> None:
    """Draw the lower triangle of matrices."""
    x, shape = draw.value(2)
    draw.step("tril", f"jnp.tril({x}, {draw.random.randint(-1, 2)})", [x], shape)


def scanned(draw: Draw) -> None:
    """Draw a loop over the first dimension."""
    x, shape = draw.value(2, 3)
    carry = draw.like(shape[1:])
    reverse = draw.chance(0.3)
    body = "lambda c, r: (jnp.maximum(c, r), c - r)"
    source = f"lax.scan({body}, {carry}, {x}, reverse={reverse})[1]"
    draw.step("scan", source, [x, carry], shape)


def scanned_over_blocks(draw: Draw) -> None:
    """Draw a loop that reads and writes blocks of rows at an index of the loop."""
    x, shape = draw.value(1, 3)
    blocks = draw.random.choice([n for n in range(1, shape[0] + 1) if shape[0] % n == 0])
    rows = shape[0] // blocks
    body = (
        f"lambda i, c: lax.dynamic_update_slice_in_dim(c, 2 * lax.dynamic_slice_in_dim({x}, "
        f"i * {rows}, {rows}), ({blocks} - 1 - i) * {rows}, 0)"
    )
    draw.step("loop over blocks", f"lax.fori_loop(0, {blocks}, {body}, {x})", [x], shape)


def associative_scan(draw: Draw) -> None:
    """Draw running sums as a tree."""
    x, shape = draw.value(1, 3)
    axis = draw.random.randrange(len(shape))
    draw.step(
        "associative_scan",
        f"lax.associative_scan(jnp.add, {x}, axis={axis}, reverse={draw.chance(0.4)})",
        [x],
        shape,
    )


def triangular_solve(draw: Draw) -> None:
    """Draw the solution of triangular systems, whose diagonal is one."""
    n, m = draw.random.choice((2, 3, 4, 8)), draw.random.choice((1, 2, 4))
    x = draw.like((n, m))
    a = draw.argument((n, n))
    draw.step(
        "triangular_solve",
        f"lax.linalg.triangular_solve({a} / 8, {x}, left_side=True, lower=True, "
        "unit_diagonal=True)",
        [a, x],
        (n, m),
    )


def fourier(draw: Draw) -> None:
    """Draw a Fourier transform and a part of it."""
    x, shape = draw.value(1, 3)
    part = draw.random.choice(("real", "imag"))
    draw.step("fft", f"jnp.{part}(jnp.fft.fft({x}))", [x], shape)


REDUCING: tuple[Callable[[Draw], None], ...] = (
    reduce_window,
    reduce_window,
    max_pool,
    convolution,
    convolution,
    convolution,
    cumulative,
    cumulative,
    reduction,
    argmax,
    sort,
    top_k,
    product,
    product,
    elementwise,
    placed,
    lower_triangle,
    scanned,
    scanned_over_blocks,
    associative_scan,
)
RARE: tuple[Callable[[Draw], None], ...] = (triangular_solve, fourier)
"""Operators whose results are rounded."""
