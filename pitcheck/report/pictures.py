"""The pictures of a finding: the steps around a difference, and the values of ranks."""

from __future__ import annotations

import msgspec


class StageStep(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a plan near a difference.

    ``reads`` and ``results`` are names of tensors. ``ranks`` are those that run it, in words, and
    "" in the reference. ``holds`` is the reference tensor of which the first result holds parts on
    the input that was run; ``None`` if that is unknown, and in the reference. ``differs`` marks the
    first operator whose result differs, and in the reference the one that makes what it should be.
    """

    operator: str
    kind: str
    reads: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    source: str | None = None
    ranks: str = ""
    holds: str | None = None
    differs: bool = False


class StageSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps around a difference on both sides, each in the order of its plan.

    ``reference_left_out`` and ``parallel_left_out`` count the further steps from which the output
    that differs is computed.
    """

    reference: tuple[StageStep, ...]
    parallel: tuple[StageStep, ...]
    reference_left_out: int = 0
    parallel_left_out: int = 0


class HeldValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value, and the ranks that hold it, in words.

    ``microbatch`` is ``None`` for a tensor that exists once for all micro-batches.
    """

    value: str
    ranks: str
    microbatch: int | None = None


class HeldValues(msgspec.Struct, frozen=True, kw_only=True):
    """One element of a compared tensor as every rank holds it on the input that was run.

    With ``terms`` the values are terms, and ``sums`` of them are compared with
    ``reference_value``; the ranks of a sum are those that hold its terms. All values are decimal
    text. ``left_out`` counts the further values.
    """

    output: str
    element: tuple[int, ...]
    reference_value: str
    values: tuple[HeldValue, ...]
    terms: bool = False
    sums: tuple[HeldValue, ...] = ()
    left_out: int = 0
