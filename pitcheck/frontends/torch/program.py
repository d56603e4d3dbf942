"""The specification that a user writes: both programs, the mesh and the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pitcheck.frontends.torch.routing import Axes, Router, Routing


@dataclass(frozen=True)
class Input:
    """A tensor of the batch.

    - ``shape``: the shape of the whole tensor.
    - ``dtype``: its name, such as "float32", "int64" or "bool".
    - ``bounds``: the half-open range of the values of an integer tensor.
    - ``split``: the mesh axes that divide a dimension among the ranks, such as {0: "dp"} or {0:
      ("dp", "cp"), 1: "tp"}. Other dimensions are whole.
    - ``values``: the elements of a tensor of integers, of bool or of whole numbers as floats, such
      as a mask: an array or nested lists of its shape, or one list, row-major. Every trial has
      these elements, and the program may look at them.
    - ``tokens``: the dimension along which the documents of a packing lie one after another, 1 in a
      batch of sequences and 0 in a single sequence. None: documents have no parts of it.
    - ``packed``: what of the packing the input is, such as "position_ids" or "cu_seqlens"
      (``docs/packing.md`` lists them). It has its values, shape and dtype from the packing.
    """

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    bounds: tuple[int, int] | None = None
    split: Mapping[int, Axes] = field(default_factory=dict)
    values: Any = None
    tokens: int | None = None
    packed: str = ""


@dataclass(frozen=True)
class Packing:
    """The documents of a batch, which lie one after another in its sequences.

    - ``lengths``: the numbers of their tokens, in one list, or in one list for each sequence of the
      batch. None stands for several packings: one document that fills a sequence, boundaries at and
      beside the edges between ranks, a document of one token, and lengths that are drawn.
    - ``multiple``: every document takes a multiple of so many tokens; the rest of it is padding.
      Whatever the documents leave of a sequence is padding, too.
    - ``parts``: the number of equal parts of a sequence at whose edges boundaries are tried. None:
      as many as inputs split their tokens into over the mesh. In zigzag order there are twice as
      many.
    - ``seed``: draws the random lengths.
    """

    lengths: Sequence[int] | Sequence[Sequence[int]] | None = None
    multiple: int = 1
    parts: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Part:
    """The part of an output, or of a parameter, that each rank holds.

    Along ``split`` it is a part of every dimension named. Over the axes of ``sum`` and ``mean`` the
    ranks hold the terms of a sum and of a mean: the loss of a rank may be a term of a sum over "cp"
    and of a mean over "dp". A parameter can only be split.
    """

    split: Mapping[int, Axes] = field(default_factory=dict)
    sum: Axes = ()
    mean: Axes = ()


StatedPart = Part | Mapping[int, Sequence[tuple[int, int]]]
"""The part of a parameter on a rank: even stretches, or half-open intervals by dimension."""


@dataclass(frozen=True)
class Program:
    """A program that is ready to train.

    - ``model``: a module or tensors by name. The step begins with its parameters and buffers and
      leaves their gradients. Several modules (the chunks of a pipeline rank) are a list.
    - ``step``: runs forward and backward on a batch (a dict of tensors). The reference of a packing
      gets a list of them, one for each document. It returns the loss, or
      outputs by name ({"loss": ...}), or None on a rank that has none.
    - ``optimizer``: one or more optimizers that ``step`` steps. Their state and the new parameters
      are compared.
    - ``names``: the reference's name of a parameter, by its name here. If several modules have
      parameters of one name, these begin with the module's place, as in "0.weight".
    - ``parts``: the parts of parameters and state that nothing else tells, by their name here or a
      pattern of names ("*.experts.*.weight", as of the shell; "*" matches dots, too). Optimizer
      state is "KEY:PARAMETER", as in "momentum:*", else it is held as its parameter is. A part is
      ``Part(split={0: "ep"})`` if all ranks hold equal stretches. Otherwise it has, for each
      dimension, the half-open intervals of the reference's dimension that this rank holds.
    - ``scattered``: the elements that this rank has of gradients which ranks scatter among each
      other, while the memory here has room for all of a gradient. It maps a parameter's name here
      to the first element of the flattened gradient and to the end. What lies beside is left over
      from communication, and is not compared. All ranks together must have every element.
    - ``state``: further tensors that the step keeps for the next one, by their names in the
      reference, or a function that returns them after a call of ``step``. Kept tensors that it
      does not name are called after the way to them ("step.momentum.0").
    - ``assumptions``: sentences that the report says beside the verdict.
    """

    model: Any
    step: Callable[[Any], Any]
    optimizer: Any = None
    names: Callable[[str], str] | None = None
    parts: Mapping[str, StatedPart] = field(default_factory=dict)
    scattered: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    state: Callable[[], Mapping[str, Any]] | Mapping[str, Any] | None = None
    assumptions: Sequence[str] = ()


@dataclass(frozen=True)
class Rank:
    """The rank that a program is built for: its number, the mesh, and its coordinate by axis."""

    number: int
    mesh: Mapping[str, int]
    coordinate: Mapping[str, int]


@dataclass(frozen=True)
class Dropout:
    """Every rank draws masks for the elements that it holds; those of the reference are theirs.

    Ranks that hold different elements must draw from different states of their generators. Ranks
    that hold the same elements must draw from the same one, as must a recomputation.

    - ``alike``: mesh axes along which ranks may draw the same numbers for different elements, as
      data-parallel ranks do that are all seeded with one number.
    """

    alike: Axes = ()


@dataclass(frozen=True)
class Spec:
    """A pair of programs to compare.

    - ``mesh``: the size of every axis. Ranks are numbered row-major.
    - ``batch``: the whole batch, by name.
    - ``packings``: the packings of the batch, each of which is a check of its own.
    - ``outputs``: the parts that ranks hold of outputs that are not whole and equal on every rank
      that has them. The name is that of the output ("loss"), or "grad:NAME" for a gradient.
    - ``buffered_sends``: a send that blocks returns before its receive has begun, whatever its
      size. NCCL's sends do not: two ranks that both send first hang.
    - ``routings``: the ways in which tokens choose experts, each of which is checked. The indices
      of a router's top-k are then known, in both programs for the same tokens; the scores from
      which it chooses are compared as outputs. Without any, nothing is known of a top-k.
    - ``router``: what the batch does not tell of the routers.
    - ``dropout``: who draws which part of a mask of dropout. None: masks are the same only if the
      state of the generator and the shape are.
    - ``drawn``: the memory of random numbers that the file draws when it is imported, without a
      seed. It is filled in where the file is read.
    """

    reference: Callable[[], Program]
    parallel: Callable[[Rank], Program]
    mesh: Mapping[str, int]
    batch: Mapping[str, Input]
    outputs: Mapping[str, Part] = field(default_factory=dict)
    buffered_sends: bool = False
    routings: Sequence[Routing] = ()
    router: Router = field(default_factory=Router)
    packings: Sequence[Packing] = ()
    dropout: Dropout | None = None
    drawn: Mapping[int, Any] = field(default_factory=dict, repr=False, compare=False)
