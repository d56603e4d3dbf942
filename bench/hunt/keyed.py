"""Random operators that take random numbers from keys: dropout, noise, rows by random indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hunt.drawing import Draw
from hunt.programs import KEY, Argument

WORDS = {"threefry2x32": 2, "rbg": 4}
"""The algorithms, and the words of a key of each."""
KEPT = (0.5, 0.75, 0.9)
"""The shares that a dropout keeps."""


class Key(NamedTuple):
    """A key as Python has it, its algorithm, and the arguments that it is made of."""

    source: str
    algorithm: str
    inputs: tuple[str, ...]


def _key(draw: Draw) -> Key:
    """Return a key: a constant, or one of an argument, folded or split or as it is."""
    if draw.chance(0.1):
        return Key(f"jax.random.key({draw.random.randint(0, 9)})", "threefry2x32", ())
    algorithm = "rbg" if draw.chance(0.15) else "threefry2x32"
    name = _words(draw, WORDS[algorithm])
    key = f"jax.random.wrap_key_data({name}, impl={algorithm!r})"
    if draw.chance(0.3):
        key = f"jax.random.fold_in({key}, {draw.random.randint(0, 9)})"
    if draw.chance(0.3):
        count = draw.random.randint(2, 4)
        key = f"jax.random.split({key}, {count})[{draw.random.randrange(count)}]"
    return Key(key, algorithm, (name,))


def _words(draw: Draw, count: int) -> str:
    """Return an argument that holds the words of a key: one that exists, or a new one."""
    found = [a.name for a in draw.arguments if a.kind == KEY and a.shape == (count,)]
    if found and draw.chance(0.4):
        return draw.random.choice(found)
    name = f"x{len(draw.arguments)}"
    draw.arguments.append(Argument(name, (count,), KEY, 0, ((),)))
    return name


def dropout(draw: Draw) -> None:
    """Draw a dropout of elements, or of whole rows."""
    x, shape = draw.value()
    key = _key(draw)
    kept = draw.random.choice(KEPT)
    drawn = tuple(1 if draw.chance(0.2) else size for size in shape)
    source = f"jnp.where(jax.random.bernoulli({key.source}, {kept}, {drawn}), {x} / {kept}, 0.0)"
    draw.step("dropout", source, [x, *key.inputs], shape)


def noise(draw: Draw) -> None:
    """Draw noise that is added, or a random factor."""
    x, shape = draw.value()
    key = _key(draw)
    law = draw.random.choice(("normal", "uniform", "gumbel", "exponential", "rademacher"))
    sign = draw.random.choice("+*")
    draw.step(
        f"random {law}",
        f"{x} {sign} jax.random.{law}({key.source}, {shape})",
        [x, *key.inputs],
        shape,
    )


def mixed(draw: Draw) -> None:
    """Draw a choice between two values by random numbers."""
    x, shape = draw.value()
    y = draw.like(shape)
    key = _key(draw)
    source = f"jnp.where(jax.random.uniform({key.source}, {shape}) < 0.5, {x}, {y})"
    draw.step("random choice", source, [x, y, *key.inputs], shape)


def random_rows(draw: Draw) -> None:
    """Draw rows at random indices."""
    x, shape = draw.value(1, 3)
    key = _key(draw)
    count = draw.random.choice((1, 2, 4, 6, 8))
    source = f"{x}[jax.random.randint({key.source}, ({count},), 0, {shape[0]})]"
    draw.step("random rows", source, [x, *key.inputs], (count, *shape[1:]))


def dropout_in_a_loop(draw: Draw) -> None:
    """Draw a loop in which each iteration has a key, and drops some elements out."""
    x, shape = draw.value(1, 3)
    key = _key(draw)
    count = draw.random.randint(1, 3)
    keys = f"jax.random.key_data(jax.random.split({key.source}, {count}))"
    own = f"jax.random.wrap_key_data(k, impl={key.algorithm!r})"
    mask = f"jax.random.bernoulli({own}, 0.75, {shape})"
    source = f"lax.scan(lambda c, k: (jnp.where({mask}, 2 * c, 1.0), None), {x}, {keys})[0]"
    draw.step("dropout in a loop", source, [x, *key.inputs], shape)


KEYED: tuple[Callable[[Draw], None], ...] = (
    dropout,
    dropout,
    noise,
    mixed,
    random_rows,
    dropout_in_a_loop,
)
