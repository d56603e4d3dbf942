"""The tape on which programs are written and differentiated.

Every call appends one record to a plan and remembers what its derivative needs. The reference and
the parallel programs are both written over it, as PyTorch's autograd serves one device and a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from pitcheck.base.dtypes import DType
from pitcheck.errors import PlanError
from pitcheck.models.autograd import Backward
from pitcheck.models.plan_builder import Literal, PlanBuilder, lineage_of, number_of
from pitcheck.models.records import Entry, Hint, Hook, gradient_lineage
from pitcheck.models.result_types import Signature, Signatures, kind_of
from pitcheck.ops.registry import operator_kind
from pitcheck.plan.model import Group, Lineage, Number, Operand, Tensor, Use


class Tape(PlanBuilder):
    """A recorder of operators that can be differentiated; ``plan()`` returns what it recorded.

    ``mesh``: axis -> size, outermost first, or None for a single device. Names of tensors are
    unique, but several records that run at disjoint coordinates may write one tensor. The complete
    gradient of a tensor NAME is called ``grad:NAME``.
    """

    def __init__(
        self, name: str, mesh: Mapping[str, int] | None = None, microbatches: int = 1
    ) -> None:
        super().__init__(name, mesh, microbatches)
        self.entries: list[Entry] = []
        self.tracked: set[str] = set()
        self.undecayed: set[str] = set()
        self._expected: dict[str, Lineage | None] = {}
        self._signatures = Signatures()
        self._tracking = True
        self._segment: int | None = None
        self._segments = 0
        self._every = False
        self._backward: Backward | None = None

    def parameter(
        self,
        name: str,
        shape: Sequence[int],
        lineage: Hint = None,
        *,
        dtype: DType = "float32",
        gradient: Lineage | bool = False,
        decays: bool = True,
    ) -> str:
        """Add a trainable parameter and return its name; arguments as of ``input``.

        ``gradient``: a hint for what the backward pass computes for it, as in ``op``; one device
        needs none. ``decays``: False for norms, biases and sinks, which the optimizer only moves.
        """
        if not decays:
            self.undecayed.add(name)
        self._given(
            Tensor(name, tuple(shape), dtype, "parameter", lineage=lineage_of(name, lineage))
        )
        self.tracked.add(name)
        self._expect(name, gradient)
        return name

    # --- operators

    def op(
        self,
        kind: str,
        *operands: Operand | Literal,
        name: str = "",
        group: Group | str | Sequence[str] | None = None,
        hint: Hint = None,
        gradient: Lineage | bool = True,
        **attributes: Any,
    ) -> str:
        """Append a record with one output; return the output's name.

        ``operands``: tensors, uses, literals. ``group``: an axis, axes, or a Group. ``hint``: what
        the output holds, as a Lineage or, of the reference's tensor of the same name, dimension ->
        axes. ``gradient``: what the output's gradient holds: with True the same part as the hint,
        with False nothing is known. Raises PlanError and UnsupportedError as the operator's meaning
        does, and where a derivative would be lost (a collective outside ``untracked``).
        """
        return self.several(
            kind,
            *operands,
            names=(name,),
            group=group,
            hints=(hint,),
            gradient=gradient,
            depth=2,
            **attributes,
        )[0]

    def several(
        self,
        kind: str,
        *operands: Operand | Literal,
        names: Sequence[str],
        group: Group | str | Sequence[str] | None = None,
        hints: Sequence[Hint] = (),
        gradient: Lineage | bool = True,
        depth: int = 1,
        **attributes: Any,
    ) -> tuple[str, ...]:
        """Append a record with as many outputs as ``names``; return the outputs' names.

        An empty name is replaced by a new one. ``depth``: how many calls up the source line is, 1
        for the caller. Raises PlanError for a wrong number of names. Everything else is as in
        ``op``.
        """
        inputs = tuple(
            operand if isinstance(operand, (str, Use, Number)) else number_of(operand)
            for operand in operands
        )
        found = _group(group)
        signatures = self._signatures.outputs(
            kind,
            tuple(self._signature(operand) for operand in inputs),
            attributes,
            self._members(found),
        )
        if len(signatures) != len(names):
            raise PlanError(
                f"{kind} has {len(signatures)} outputs, but {len(names)} are named",
                ", ".join(names),
            )
        outputs = tuple(name or self._fresh(kind, number) for number, name in enumerate(names))
        microbatched = kind != "accumulate" and (self._every or self.runs_per_microbatch(inputs))
        for number, (output, signature) in enumerate(zip(outputs, signatures, strict=True)):
            hint = hints[number] if number < len(hints) else None
            self.write(output, signature, microbatched, lineage_of(output, hint))
            if output not in self._expected:
                self._expect(output, gradient)
        source = self._source(depth)
        self.append(kind, inputs, outputs, attributes, found, source)
        tracked = self._tracked_inputs(kind, inputs, outputs)
        if tracked or self._segment is not None:
            self._remember(kind, inputs, outputs, attributes, source, found, tracked)
        return outputs

    def send(self, tensor: str, peer: Any, **attributes: Any) -> None:
        """Send ``tensor`` to rank ``peer`` (a number or a table), without output or derivative.

        ``region`` gives it a derivative.
        """
        self._record_silently("send", (tensor,), (), {"peer": peer, **attributes})

    def receive(
        self,
        like: str,
        peer: Any,
        name: str,
        hint: Hint = None,
        *,
        gradient: Lineage | bool = True,
        **attributes: Any,
    ) -> str:
        """Receive a tensor of the shape and dtype of ``like`` from rank ``peer``; return ``name``.

        ``region`` gives it a derivative.
        """
        tensor = self.tensors[like]
        self.write(name, (tensor.shape, tensor.dtype), tensor.microbatched, lineage_of(name, hint))
        self._expect(name, gradient)
        self._record_silently("receive", (), (name,), {"peer": peer, **attributes})
        return name

    def wait_sent(self, tensor: str) -> None:
        """Wait until the asynchronous send of ``tensor`` ends; its buffer is in use until then."""
        self._record_silently("wait", (tensor,), (), {})

    def _record_silently(
        self,
        kind: str,
        inputs: tuple[Operand, ...],
        outputs: tuple[str, ...],
        attributes: dict[str, Any],
    ) -> None:
        source = self._source(2)
        self.append(kind, inputs, outputs, attributes, None, source)
        if self._segment is not None:
            self._remember(kind, inputs, outputs, attributes, source)

    def _signature(self, operand: Operand) -> Signature | None:
        if isinstance(operand, Number):
            return None
        name = operand if isinstance(operand, str) else operand.tensor
        tensor = self.tensors.get(name)
        if tensor is None:
            raise PlanError("no tensor of this name has been recorded", name)
        return tensor.shape, tensor.dtype

    def _members(self, group: Group | None) -> int | None:
        if group is None:
            return None
        return len(group.ranks[0]) if group.ranks else prod(self.sizes[axis] for axis in group.axes)

    # --- what is remembered for the backward pass

    def region(self, inputs: Sequence[str], outputs: Sequence[str], backward: Hook) -> None:
        """Give a hand-written derivative to the records that computed ``outputs`` from ``inputs``.

        Record the forward pass within ``untracked()`` first. ``backward`` gets the name of each
        output's gradient, or None if there is none. It records the operators that compute the
        gradients of the inputs, and returns their names, or None for no gradient; what it computes
        for x is called ``gradient_name(x)``. It is called at the coordinates of the forward pass,
        in the backward block, and may change both.
        """
        tracked = tuple(name for name in inputs if name in self.tracked)
        if not tracked:
            return
        self.tracked.update(outputs)
        self._remember(
            "region",
            tuple(inputs),
            tuple(outputs),
            {},
            self._source(1),
            tracked=tracked,
            hook=backward,
        )

    def on_backward(self, action: Callable[[], None]) -> None:
        """Call ``action`` when the backward pass comes to this place of the program.

        Nothing recorded before this place is differentiated until then.
        """

        def hook(_: Sequence[str | None]) -> Sequence[str | None]:
            action()
            return ()

        self._remember("region", (), (), {}, self._source(1), hook=hook)

    def _remember(
        self,
        kind: str,
        inputs: tuple[Operand, ...],
        outputs: tuple[str, ...],
        attributes: dict[str, Any],
        source: str,
        group: Group | None = None,
        tracked: tuple[str, ...] = (),
        hook: Hook | None = None,
    ) -> None:
        self.entries.append(
            Entry(
                kind,
                inputs,
                outputs,
                attributes,
                group,
                self._where,
                self._block,
                self._module,
                source,
                tracked,
                hook,
                self._segment,
            )
        )

    def _tracked_inputs(
        self, kind: str, inputs: tuple[Operand, ...], outputs: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the inputs that have a gradient, and track the outputs if a gradient reaches them.

        Raises PlanError for communication, whose derivative has to be written by hand.
        """
        if not self._tracking or kind == "detach":
            return ()
        tracked = tuple(name for name in inputs if isinstance(name, str) and name in self.tracked)
        if not tracked:
            return ()
        declared = operator_kind(kind)
        if declared.derivative is not None:
            self.tracked.update(
                name for name in outputs if kind_of(self.tensors[name].dtype) == "field"
            )
            return tracked
        if declared.collective or kind in ("accumulate", "wait"):
            raise PlanError(
                f"{kind} has no derivative of its own: record it within untracked() and write "
                f"its derivative with region()",
                tracked[0],
            )
        return ()

    @contextmanager
    def untracked(self) -> Iterator[None]:
        """Record without derivatives within."""
        before, self._tracking = self._tracking, False
        try:
            yield
        finally:
            self._tracking = before

    @contextmanager
    def recomputed(self) -> Iterator[None]:
        """Drop what is recorded within after the forward pass.

        The backward pass records it again before it differentiates it, under names that end in
        ``:again``.
        """
        self._segments += 1
        before, self._segment = self._segment, self._segments
        try:
            yield
        finally:
            self._segment = before

    @contextmanager
    def every_microbatch(self) -> Iterator[None]:
        """Run what is recorded within for every micro-batch, even if all its inputs are shared."""
        before, self._every = self._every, True
        try:
            yield
        finally:
            self._every = before

    # --- the backward pass

    def backward(
        self, roots: Mapping[str, str], *, partial: str = "grad:", split: bool = False
    ) -> dict[str, str]:
        """Record the derivative of the sum of ``roots``; return parameter -> gradient.

        ``roots`` maps a tensor to the tensor that is its gradient to begin with. Records are those
        of ``KIND.backward``, in reverse order. The gradients of a tensor that is used more than
        once are added up as they arrive. A record runs at the coordinates of the one that it
        differentiates, in block ``backward...`` for ``forward...``; with ``split`` the gradients of
        parameters go to ``weight...``. The gradient of parameter P is called ``partial`` + P: give
        another prefix if it is a term of the complete gradient.
        """
        walk = self._backward = Backward(self, partial, split)
        with self.untracked():
            return walk.run(roots)

    def _walk(self) -> Backward:
        if self._backward is None:
            raise PlanError("is asked for outside of a backward pass", "gradient")
        return self._backward

    def gradient_name(self, name: str) -> str:
        """Return the name for the next term of the gradient of ``name``, in a backward pass.

        It is ``grad:NAME`` if the term is the whole gradient. Raises PlanError outside of a
        backward pass.
        """
        return self._walk().contribution_name(name)

    def saved(self, name: str) -> str:
        """Return the tensor that holds the value of ``name`` in the backward pass.

        It is another tensor if the value was recomputed. Raises PlanError outside of a backward
        pass.
        """
        return self._walk().value(name)

    def held_again(self, name: str, by: str) -> None:
        """Let ``by`` stand for ``name``, which was not kept, in the rest of the backward pass.

        Raises PlanError outside of a backward pass.
        """
        self._walk().again[name] = by

    def gradient_hint(self, name: str) -> Lineage | None:
        """Return what the complete gradient of a tensor holds, or None if that is not known."""
        return self._expected.get(name)

    def _expect(self, name: str, gradient: Lineage | bool) -> None:
        known = (
            gradient_lineage(self.tensors[name].lineage) if gradient is True else gradient or None
        )
        if known is not None:
            self._expected[name] = known


def _group(group: Group | str | Sequence[str] | None) -> Group | None:
    if group is None or isinstance(group, Group):
        return group
    return Group(axes=(group,) if isinstance(group, str) else tuple(group))
