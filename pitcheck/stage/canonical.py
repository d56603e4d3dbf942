"""The canonical form of a stage: equal forms are one statement, which is proven once.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan, other = (one_operator(kind, [(2, 3)], (2, 3)) for kind in ("exp", "tanh"))
>>> forms = [canonical_form(Problem.of(p, p).whole_stage())[0] for p in (plan, plan, other)]
>>> len(set(forms))
2
"""

from __future__ import annotations

import hashlib

from pitcheck.stage.batch import Argument, Batch
from pitcheck.stage.stage import Stage, compared_rows, drawn_reference


def canonical_form(stage: Stage) -> tuple[str, dict[int, str]]:
    """Return the canonical form of a stage.

    Names, layers, ranks and micro-batches are left out: values are numbered as the steps meet them.
    Constants, literals, dtype kinds, full shapes, gather tables, parts, bounds and what is known to
    be positive or not negative are in.

    Returns:
        SHA-256 of everything that decides if the stage holds; the canonical key of every reference
        input.
    """
    digest = hashlib.sha256()
    reference = _Numbering(stage.reference)
    parallel = _Numbering(stage.parallel)
    for numbering in (reference, parallel):
        for line in numbering.lines():
            digest.update(line)
    for value, cut in stage.cuts.items():
        digest.update(
            repr(
                (parallel.of(value), reference.of(cut.reference), cut.parts.digest, cut.scale)
            ).encode()
        )
        digest.update(stage.parallel.inputs[value].tobytes())
    for target in stage.targets:
        compared, sums, _ = compared_rows(target, stage.parallel)
        said = (
            parallel.of(target.cut.value),
            reference.of(target.cut.reference),
            target.cut.parts.digest,
            target.cut.scale,
            compared.shape,
            sums.shape,
        )
        digest.update(repr(said).encode())
        digest.update(compared.tobytes() + sums.tobytes())
    keys = {value: f"r{reference.of(value)}" for value in drawn_reference(stage)}
    if stage.nonnegative:  # what is positive is among these
        facts = [sorted(map(reference.of, of)) for of in (stage.positive, stage.nonnegative)]
        digest.update(repr(facts).encode())
    for numbering in (reference, parallel):
        digest.update(repr(numbering.described()).encode())
    return digest.hexdigest(), keys


class _Numbering:
    """The numbers of a batch's values, in the order in which its steps meet them."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._numbers: dict[int, int] = {}

    def of(self, value: int) -> int:
        """Return the number of a value."""
        return self._numbers.setdefault(value, len(self._numbers))

    def lines(self) -> list[bytes]:
        """Return a line for every step."""
        result = []
        for step in self.batch.steps:
            parts: list[bytes] = [
                step.kind.encode(),
                repr(sorted(step.attributes.items())).encode(),
            ]
            for operand in step.inputs:
                if isinstance(operand, Argument):
                    parts.append(self._argument(operand))
                elif isinstance(operand, tuple):
                    parts.append(b"stack" + b"".join(self._argument(a) for a in operand))
                else:
                    parts.append(repr(operand).encode())
            parts.append(repr([None if o is None else self.of(o) for o in step.outputs]).encode())
            result.append(b"|".join(parts))
        return result

    def _argument(self, argument: Argument) -> bytes:
        """Return the number and the rows of an argument."""
        return (
            repr((self.of(argument.value), argument.rows.shape)).encode() + argument.rows.tobytes()
        )

    def described(self) -> list[tuple[object, ...]]:
        """Return what is known of every value that was met."""
        values = self.batch.graph.values
        known: list[tuple[object, ...]] = []
        for value, number in self._numbers.items():
            info = values[value]
            given = value in self.batch.inputs
            known.append(
                (
                    number,
                    self.batch.shape(value),
                    info.kind,
                    given,
                    info.tensor.value if given else None,
                    info.tensor.bounds if given else None,
                )
            )
        return known
