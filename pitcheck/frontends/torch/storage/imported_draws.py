"""Random numbers that a file draws when it is imported, before it has seeded the generator.

The file is imported once, for all ranks. In training every process imports it, and draws others.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.arguments import dtype_name, tensors_in
from pitcheck.frontends.torch.recording.blame import OWN, short
from pitcheck.frontends.torch.recording.generator_state import UNSEEDED, begin, is_seeded
from pitcheck.frontends.torch.recording.tape import FILLS, Kind, Tape

Drawn = Mapping[int, tuple[str, torch.UntypedStorage]]
"""The lines that drew numbers, and the memory that holds these, by its handle."""
_OVERWRITING = frozenset({"copy_", "fill_", "zero_"})
"""The operators in place, beside those that draw, that do not read what they write to."""
_UNWRITTEN = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
)
"""The operators whose results nobody has written to: they hold what every process left there."""


class ImportedDraws(TorchDispatchMode):
    """A mode that notes the memory of such numbers, and of what is made of them.

    ``drawn`` has the user's line that drew them, by the handle of the memory. It holds the memory,
    so that no other gets its handle.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn: dict[int, tuple[str, torch.UntypedStorage]] = {}
        begin("import")

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        for tensor in _seen(func, args):
            self.check_unseen(tensor)
        name = func._schema.name.partition("::")[2]
        draws = torch.Tag.nondeterministic_seeded in func.tags
        is_open = name in _UNWRITTEN or (draws and not is_seeded(given.get("generator")))
        result = func(*args, **given)
        overwrites = name in _OVERWRITING or (draws and name.endswith("_"))
        read = [*args[1:], *given.values()] if overwrites else [*args, *given.values()]
        lines = [] if f"{name}.default" in FILLS else list(map(self._line, tensors_in(read)))
        line = _place() if is_open else next(filter(None, lines), "")
        for tensor in filter(torch._C._has_storage, tensors_in(result)):
            held = tensor.untyped_storage()
            if line:
                self.drawn.setdefault(held._cdata, (line, held))
            elif overwrites and _fills(tensor, held):
                self.drawn.pop(held._cdata, None)
        return result

    def patches(self) -> list[tuple[object, str, Any]]:
        """Return the patches of the ways past operators in which a program sees numbers."""
        names = ("tolist", "numpy", "__array__", "__reduce_ex__", "__dlpack__", "apply_", "map_")
        return [(torch.Tensor, name, self._seeing(getattr(torch.Tensor, name))) for name in names]

    def _seeing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def see(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self.check_unseen(tensor)
            return original(tensor, *args, **kwargs)

        return see

    def check_unseen(self, tensor: torch.Tensor) -> None:
        """Raise UnsupportedError if a program is about to see such numbers."""
        line = self._line(tensor)
        if line:
            raise UnsupportedError(
                f"{_place()} looks at a number that is drawn at {line} when the file is imported, "
                f"without a seed: every process draws another; call torch.manual_seed before, or "
                f"draw it where the program is built"
            )

    def _line(self, tensor: torch.Tensor) -> str:
        """Return the line that drew the numbers of a tensor; "" if they are no such numbers."""
        if not torch._C._has_storage(tensor):
            return ""
        line, _ = self.drawn.get(tensor.untyped_storage()._cdata, ("", None))
        return line


def adopted(tape: Tape, tensor: torch.Tensor, memory: Drawn, process: str) -> int | None:
    """Return the value of a tensor of the file as draws of a process; None if it is no draw.

    Raises UnsupportedError for integers and truths, whose range nothing tells.
    """
    storage = tensor.untyped_storage()._cdata
    if storage not in memory:
        return None
    line, _ = memory[storage]
    if not tensor.dtype.is_floating_point:
        raise tape.unsupported(
            f"{dtype_name(tensor.dtype)} {tuple(tensor.shape)} is made of random numbers that are "
            f"drawn at {line} when the file is imported, without a seed: every process draws "
            f"others; call torch.manual_seed before, or draw them where the program is built"
        )
    kind = Kind(tuple(tensor.shape), tensor.dtype)
    place = f"{list(memory).index(storage)} {tensor.storage_offset()} {tuple(tensor.stride())}"
    stream = f"{UNSEEDED}import at {line} of {process}, {place}"
    arguments = (kind.shape, dtype_name(kind.dtype), None, None, None, stream)
    return tape.one("randn.default", arguments, kind.shape, kind.dtype)


def _seen(func: OpOverload, args: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors whose numbers an operator shows, in its result or the shape of that."""
    if torch.Tag.data_dependent_output in func.tags:
        return tensors_in(args)
    if torch.Tag.dynamic_output_shape in func.tags:
        # A mask or indices decide the shape of a choice, and not the tensor that it is taken of.
        return tensors_in(args[1:]) or tensors_in(args[:1])
    return []


def _fills(tensor: torch.Tensor, held: torch.UntypedStorage) -> bool:
    """Return True if the elements of a tensor are all of a memory, each at its own place."""
    dense = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != dense:
            return False
        dense *= size
    return dense * tensor.itemsize == held.nbytes()


def _place() -> str:
    """Return the innermost line outside of torch and of this package, as "file:line"."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((*OWN, "<")):
        frame = frame.f_back
    return "" if frame is None else f"{short(frame.f_code.co_filename)}:{frame.f_lineno}"
