"""The line of the user's code, and the module, that an operator belongs to.

The autograd engine numbers its nodes in the order in which forward operators make them. An operator
that runs for a node in the backward pass gets the line of the operator that made the node.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
import typing_extensions
from torch.nn.modules import module as hooks

import pitcheck
from pitcheck.frontends.torch.recording.tape import Place

PITCHECK = f"{Path(pitcheck.__file__).parent}{os.sep}"
OWN = (
    f"{Path(torch.__file__).parent}{os.sep}",
    f"{Path(multiprocessing.__file__).parent}{os.sep}",
    PITCHECK,
)
"""The folders of code that is not the user's."""
WRAPPING = frozenset(
    str(module.__file__) for module in (contextlib, functools, typing_extensions, warnings)
)
"""The files that decorators come from.

A deprecated function, say, is called by the line that calls its wrapper.
"""


def short(path: str) -> str:
    """Return a path relative to the working directory if it lies below it."""
    return path.removeprefix(f"{Path.cwd()}{os.sep}")


class Blame:
    """A context that knows which line of the user's code is running.

    It is entered in a function with the code ``outermost``; what called that function is not part
    of the program.
    """

    def __init__(self, outermost: CodeType) -> None:
        self._outermost = outermost
        self.paths: dict[int, str] = {}
        self._modules: list[tuple[str, int]] = []
        self._calls: Counter[str] = Counter()
        self._nodes: dict[int, Place] = {}
        self._own: dict[CodeType, bool] = {}
        self._handles: list[Any] = []

    def name(self, paths: Mapping[int, str]) -> None:
        """Add the paths of modules, by the module's id."""
        self.paths.update(paths)

    def __enter__(self) -> Blame:
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        path = self.paths.get(id(module))
        if path is None:
            self._modules.append(self._running)
        else:
            self._calls[path] += 1
            self._modules.append((path, self._calls[path]))

    def _leave(self, *_: Any) -> None:
        if self._modules:
            self._modules.pop()

    @property
    def _running(self) -> tuple[str, int]:
        """Return the path of the module that runs, and how often it has been called."""
        return self._modules[-1] if self._modules else ("", 0)

    def place(self) -> Place:
        """Return the place in the user's code at which the program is."""
        # None outside the backward pass, though its type does not say so.
        node: Any = torch._C._current_autograd_node()
        source, in_engine = self._source(node is not None)
        module, call = self._running
        if node is None:
            place = Place(source, module, call=call)
            # The node of the operator that is running has the number before the next one.
            self._nodes.setdefault(torch._C._autograd._get_sequence_nr() - 1, place)
            return place
        made = self._nodes.get(node._sequence_nr())
        if made is None:
            return Place(source, module, True, call)
        return Place(made.source if in_engine else source, made.module, True, made.call)

    def _source(self, in_backward: bool) -> tuple[str, bool]:
        """Return the innermost line outside of torch.

        Returns:
            The line as "file:line", "" if there is none. And True if the autograd engine was called
                from there and runs no code of the user's.
        """
        frame: FrameType | None = sys._getframe(1)
        engine = False
        while frame is not None and frame.f_code is not self._outermost:
            code = frame.f_code
            if not self._is_own(code):
                return f"{short(code.co_filename)}:{frame.f_lineno}", engine
            engine = engine or (in_backward and code.co_name == "_engine_run_backward")
            frame = frame.f_back
        return "", engine

    def _is_own(self, code: CodeType) -> bool:
        found = self._own.get(code)
        if found is None:
            found = self._own[code] = (
                code.co_filename.startswith((*OWN, "<")) or code.co_filename in WRAPPING
            )
        return found
