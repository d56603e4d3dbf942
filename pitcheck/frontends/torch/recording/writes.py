"""Checks for writes to memory that no recorded operator explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.frontends.torch.recording.arguments import signature, tensors_in
from pitcheck.frontends.torch.recording.tape import Tape

SEEN = "_pitcheck_seen"
"""The attribute of a tensor that holds the state of its memory when it was last used."""


class _Seen(NamedTuple):
    """The storage of a tensor, its version, and the number of recorded calls that wrote to it."""

    memory: int
    version: int
    writes: int


class Writes:
    """The recorded writes to every storage, and checks that there were no others.

    PyTorch counts the writes to a tensor in its version. A version that has gone up by more than
    the recorded calls is a write that no operator told of. A tensor that has numbers is compared
    with a copy of its bytes.
    """

    def __init__(self, tape: Tape, fake: FakeTensorMode) -> None:
        self._tape = tape
        self._fake = fake
        self._counts: Counter[int] = Counter()
        """Recorded calls that write, by storage."""
        self._real: dict[int, tuple[torch.UntypedStorage, torch.Tensor]] = {}
        """Storages that have numbers, with their bytes when the program first used them.

        They are held so that no other storage gets their address.
        """
        self._lifted: dict[int, tuple[torch.UntypedStorage, torch.Tensor]] = {}
        """Storages of fake tensors that stand for a tensor with numbers, with that tensor.

        NumPy may see the same numbers. The storages are held so that their address stays theirs.
        """

    def check_call(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Check all operands of a call, then count what the call writes.

        What only asks for a device says nothing of writes: autograd asks in the midst of one.
        Raises UnsupportedError as :meth:`check` does.
        """
        if func.namespace == "prim":
            return
        for tensor in tensors_in([*args, *kwargs.values()]):
            self.check(tensor)
        if any(
            argument.alias_info is not None and argument.alias_info.is_write
            for argument in func._schema.arguments
        ):
            for parameter, value in signature(func).bound(args, kwargs):
                if parameter.written:
                    self.count(tensors_in(value))

    def check(self, tensor: torch.Tensor) -> None:
        """Check a tensor that is about to be used.

        Raises UnsupportedError if it belongs to another recording, or if it was written to by
        something that no operator tells of.
        """
        if not isinstance(tensor, FakeTensor):
            return
        if tensor.fake_mode is not self._fake:
            raise self._tape.unsupported(
                f"a tensor of shape {tuple(tensor.shape)} belongs to another FakeTensorMode, of "
                "which nothing is recorded; make it in the program itself, neither unpickled nor "
                "under a mode of its own"
            )
        if tensor.is_inference():
            return
        memory = tensor.untyped_storage()._cdata
        now = _Seen(memory, tensor._version, self._counts[memory])
        before: _Seen | None = tensor.__dict__.get(SEEN)
        if before is not None and before.memory == memory:
            happened, recorded = now.version - before.version, now.writes - before.writes
            if happened > recorded:
                raise self._tape.unsupported(
                    f"a tensor of shape {tuple(tensor.shape)} was written to before by what no "
                    f"operator tells of ({happened} times, of which {recorded} are recorded)"
                )
        tensor.__dict__[SEEN] = now

    def count(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count one recorded write to each tensor, which makes its version go up by one."""
        for tensor in tensors:
            self._counts[tensor.untyped_storage()._cdata] += 1

    def lift(self, fake: torch.Tensor, real: torch.Tensor) -> None:
        """Note that a fake tensor stands for a tensor that has numbers."""
        self._lifted[fake.untyped_storage()._cdata] = fake.untyped_storage(), real

    def check_numbers(self, tensor: torch.Tensor) -> None:
        """Raise UnsupportedError if a tensor that has numbers has changed, as through NumPy."""
        real: torch.Tensor | None = tensor
        if isinstance(tensor, FakeTensor):
            _, real = self._lifted.get(tensor.untyped_storage()._cdata, (None, None))
        if real is not None and self._changed(real.untyped_storage()):
            raise self._tape.unsupported(
                f"the numbers of a tensor of shape {tuple(real.shape)} were changed by what no "
                "operator tells of, as through NumPy; change them by operators of PyTorch, or "
                "make a new tensor"
            )

    def _changed(self, held: torch.UntypedStorage) -> bool:
        """Return True if the bytes of a storage differ from those at its first use.

        A storage that is not in the CPU's memory cannot be compared and counts as unchanged.
        """
        if held.device.type != "cpu":
            return False
        with _disable_current_modes():
            now = torch.empty(0, dtype=torch.uint8).set_(held)
            _, first = self._real.setdefault(held._cdata, (held, now.clone()))
            return not torch.equal(first, now)
