"""What a user hands over: how to build the single-device program and that of a rank, and how the
batch is divided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Axes = str | tuple[str, ...]
"""One mesh axis or several, in the order in which they divide."""


@dataclass(frozen=True)
class Input:
    """A tensor of the batch: its whole shape, and its dtype ("float32", "int64", "bool").
    ``bounds``: of an integer the half-open range of its values.

    ``split``: mesh axes by dimension, over which the batch of a rank is a part: {0: "dp"}, {0:
    ("dp", "cp"), 1: "tp"}; a dimension that is not named is whole. ``values``: the elements,
    row-major, of an integer or bool tensor that every trial has as they are, such as a mask; then
    the program may look at them.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    bounds: tuple[int, int] | None = None
    split: Mapping[int, Axes] = field(default_factory=dict)
    values: Sequence[int] | None = None


@dataclass(frozen=True)
class Part:
    """What the ranks hold of an output: along ``split`` a part of every dimension named, and the
    terms of a ``sum`` or of a ``mean`` over mesh axes.
    """

    split: Mapping[int, Axes] = field(default_factory=dict)
    sum: Axes = ()
    mean: Axes = ()


@dataclass(frozen=True)
class Program:
    """A program that is ready to train.

    ``model``: a module or tensors by name, whose parameters and buffers the step begins with and
    whose gradients it leaves; several modules (the chunks of a pipeline rank) as a list. ``step``:
    runs forward and backward on a batch (a dict of tensors), and returns the loss, or outputs by
    name ({"loss": ...}), or None on a rank that has none. ``optimizer``: one or more optimizers
    that ``step`` steps; their state and the new parameters are compared then. ``names``: the
    reference's name of a parameter, of its name here; where several modules have parameters of one
    name, these are preceded by the module's place, as "0.weight". ``parts``: of parameters whose
    part nothing else tells, by their name here: per dimension the half-open intervals of the
    reference's dimension that this rank holds. ``state``: gives, after a call of ``step``, further
    tensors that it keeps for the next one, by their names in the reference; those that it does not
    name are called after the way to them ("step.momentum.0").
    """

    model: Any
    step: Callable[[Mapping[str, Any]], Any]
    optimizer: Any = None
    names: Callable[[str], str] | None = None
    parts: Mapping[str, Mapping[int, Sequence[tuple[int, int]]]] = field(default_factory=dict)
    state: Callable[[], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Rank:
    """The rank that a program is built for: its number, the mesh, and its coordinate by axis."""

    number: int
    mesh: Mapping[str, int]
    coordinate: Mapping[str, int]


@dataclass(frozen=True)
class Spec:
    """A pair of programs to compare. ``mesh``: the size of every axis, ranks row-major. ``batch``:
    the whole batch, by name.

    ``outputs``: what ranks hold of an output that is not whole and equal on every rank that has it,
    by its name ("loss", "grad:NAME" of a gradient). ``buffered_sends``: a send that blocks returns
    before its receive has begun, whatever its size. NCCL's do not, and two ranks that both send
    first hang.
    """

    reference: Callable[[], Program]
    parallel: Callable[[Rank], Program]
    mesh: Mapping[str, int]
    batch: Mapping[str, Input]
    outputs: Mapping[str, Part] = field(default_factory=dict)
    buffered_sends: bool = False
