"""The backward pass over the records of a tape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pitcheck.errors import PlanError
from pitcheck.models.records import Entry, Where
from pitcheck.plan.model import Lineage, Operand

if TYPE_CHECKING:
    from pitcheck.models.tape import Tape

AGAIN = ":again"
"""The ending of the names of recomputed tensors."""


class Backward:
    """One walk back over the entries of a tape.

    Gradients are kept per tensor and coordinates: ranks that use a tensor differently have
    different sums.
    """

    def __init__(self, tape: Tape, partial: str, split: bool) -> None:
        self.tape = tape
        self.partial = partial
        self.split = split
        self.entries = list(tape.entries)
        self.expected: Counter[tuple[str, Where]] = Counter()
        self.arrived: Counter[tuple[str, Where]] = Counter()
        self.named: Counter[tuple[str, Where]] = Counter()
        self.gradients: dict[str, dict[Where, str]] = {}
        self.again: dict[str, str] = {}
        self.segments: set[int] = set()

    def run(self, roots: Mapping[str, str]) -> dict[str, str]:
        """Walk back from ``roots`` (tensor -> its first gradient); return parameter -> gradient.

        Raises PlanError if a gradient has different names at overlapping coordinates, or a
        hand-written derivative gives the wrong number of gradients.
        """
        self._count(roots)
        for root, seed in roots.items():
            self.gradients[root] = {(): seed}
            self.expected[root, ()] += 1
            self.arrived[root, ()] += 1
        for entry in reversed(self.entries):
            given = [self._gradient(name, entry.where) for name in entry.outputs]
            if not entry.outputs and entry.hook is not None:
                with self.tape.placed(entry.where, counterpart(entry.block), entry.module):
                    entry.hook(())
            if entry.tracked and any(given):
                self._differentiate(entry, given)
        parameters = [name for name in self.gradients if self.tape.role(name) == "parameter"]
        return {name: self._complete(name) for name in parameters}

    def _count(self, roots: Mapping[str, str]) -> None:
        """Count the gradients that each tensor will get at each place."""
        reached = set(roots)
        for entry in reversed(self.entries):
            if entry.tracked and not reached.isdisjoint(entry.outputs):
                reached.update(entry.tracked)
                self.expected.update((name, entry.where) for name in entry.tracked)

    def _gradient(self, name: str, where: Where) -> str | None:
        found = self.gradients.get(name)
        if found is None:
            return None
        return found[where] if where in found else self._complete(name)

    def _complete(self, name: str) -> str:
        names = set(self.gradients[name].values())
        if len(names) > 1:
            raise PlanError(
                f"its gradient is computed at overlapping coordinates under different names "
                f"({', '.join(sorted(names))})",
                name,
            )
        return next(iter(names))

    # --- one entry

    def _differentiate(self, entry: Entry, given: Sequence[str | None]) -> None:
        if entry.segment is not None and entry.segment not in self.segments:
            self._run_again(entry.segment)
        tape = self.tape
        with tape.placed(entry.where, counterpart(entry.block), entry.module):
            if entry.hook is not None:
                found = entry.hook(given)
                if len(found) != len(entry.inputs):
                    raise PlanError(
                        f"a derivative written by hand gives {len(found)} gradients for "
                        f"{len(entry.inputs)} inputs",
                        ", ".join(entry.outputs),
                    )
                for name, gradient in zip(entry.inputs, found, strict=True):
                    if gradient is not None and isinstance(name, str):
                        self._arrive(name, gradient, entry.source)
                return
            leaves = {name for name in entry.tracked if tape.role(name) == "parameter"}
            if not self.split or not leaves or leaves.issuperset(entry.tracked):
                self._record(entry, given, set(entry.tracked))
                return
            self._record(entry, given, set(entry.tracked) - leaves)
        with tape.placed(entry.where, counterpart(entry.block, "weight"), entry.module):
            self._record(entry, given, leaves)

    def _record(self, entry: Entry, given: Sequence[str | None], wanted: set[str]) -> None:
        """Record ``KIND.backward`` for the gradients of the inputs in ``wanted``."""
        tape = self.tape
        results = self._results(entry)
        gradients = tuple(name for name in given if name is not None)
        operands = (*(self._operand(operand) for operand in entry.inputs), *results, *gradients)
        attributes = dict(entry.attributes)
        if len(entry.outputs) > 1:
            attributes |= {
                "forward_outputs": len(results),
                "gradients": tuple(i for i, name in enumerate(given) if name is not None),
            }
        microbatched = tape.runs_per_microbatch(operands)
        outputs: list[str] = []
        for operand in entry.inputs:
            if not isinstance(operand, str) or operand not in wanted:
                outputs.append("")
                continue
            name = self.contribution_name(operand)
            forward = tape.tensors[operand]
            tape.write(
                name, (forward.shape, forward.dtype), microbatched, self._hint(operand, name)
            )
            outputs.append(name)
        tape.append(
            f"{entry.kind}.backward",
            operands,
            tuple(outputs),
            attributes,
            entry.group,
            entry.source,
        )
        for operand, name in zip(entry.inputs, outputs, strict=True):
            if name and isinstance(operand, str):
                self._arrive(operand, name, entry.source)

    def _results(self, entry: Entry) -> tuple[str, ...]:
        return tuple(self.value(name) for name in entry.outputs)

    def _operand(self, operand: Operand) -> Operand:
        return self.value(operand) if isinstance(operand, str) else operand

    def value(self, name: str) -> str:
        """Return the tensor that holds the value of ``name`` in the backward pass."""
        return self.again.get(name, name)

    # --- sums

    def _prefix(self, name: str) -> str:
        return self.partial if self.tape.role(name) == "parameter" else "grad:"

    def _hint(self, name: str, gradient: str) -> Lineage | None:
        return self.tape.gradient_hint(name) if gradient == self._prefix(name) + name else None

    def contribution_name(self, name: str) -> str:
        """Return a name for the next term of the gradient of ``name`` at the present place."""
        key = name, self.tape.where
        self.named[key] += 1
        whole = self._prefix(name) + name
        return whole if self.expected[key] <= 1 else f"{whole}:part{self.named[key]}"

    def _arrive(self, name: str, gradient: str, source: str) -> None:
        """Add a term of a gradient to the terms that have arrived before."""
        tape, where = self.tape, self.tape.where
        key = name, where
        self.arrived[key] += 1
        sums = self.gradients.setdefault(name, {})
        if where not in sums:
            sums[where] = gradient
            return
        whole = self._prefix(name) + name
        last = self.arrived[key] == self.expected[key]
        total = whole if last else f"{whole}:sum{self.arrived[key]}"
        operands = (sums[where], gradient)
        forward = tape.tensors[name]
        tape.write(
            total,
            (forward.shape, forward.dtype),
            tape.runs_per_microbatch(operands),
            self._hint(name, total),
        )
        tape.append("add", operands, (total,), {}, None, source)
        sums[where] = total

    # --- recomputation

    def _run_again(self, segment: int) -> None:
        """Record the forward pass of a segment again, in the backward block of its records."""
        tape = self.tape
        self.segments.add(segment)
        for entry in self.entries:
            if entry.segment != segment or entry.hook is not None:
                continue
            inputs = tuple(self._operand(operand) for operand in entry.inputs)
            for name in entry.outputs:
                forward = tape.tensors[name]
                self.again[name] = name + AGAIN
                tape.write(
                    name + AGAIN,
                    (forward.shape, forward.dtype),
                    forward.microbatched,
                    forward.lineage,
                )
            outputs = tuple(self.again[name] for name in entry.outputs)
            attributes = (
                {**entry.attributes, "tag": f"{entry.attributes['tag']}{AGAIN}"}
                if "tag" in entry.attributes
                else entry.attributes
            )
            with tape.placed(entry.where, counterpart(entry.block), entry.module):
                tape.append(entry.kind, inputs, outputs, attributes, entry.group, entry.source)


def counterpart(block: str, kind: str = "backward") -> str:
    """Return the block ``KIND...`` of a block ``forward...``; any other block is its own."""
    return kind + block.removeprefix("forward") if block.startswith("forward") else block
