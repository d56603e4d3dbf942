"""Which line of the user's code, and which module, an operator belongs to.

The autograd engine numbers its nodes as forward operators make them. What runs for a node, in the
backward pass, gets the line of the operator that was running when the node was made.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
import typing_extensions
from torch.nn.modules import module as hooks

import pitcheck
from pitcheck.frontends.torch.tape import Place

PITCHECK = f"{Path(pitcheck.__file__).parent}{os.sep}"
OWN = (
    *(
        f"{folder}{os.sep}"
        for folder in (Path(torch.__file__).parent, Path(multiprocessing.__file__).parent)
    ),
    PITCHECK,
)
WRAPPING = frozenset(
    str(module.__file__) for module in (contextlib, functools, typing_extensions, warnings)
)
"""What decorators come from: a function that is deprecated, say, is called by the line that calls
its wrapper.
"""
ENGINE = ("_engine_run_backward",)


def short(path: str) -> str:
    """A path as seen from the working directory, where it lies below it."""
    return path.removeprefix(f"{Path.cwd()}{os.sep}")


class Blame:
    """Knows where the program is. To be used as a context around it, in a function of the code
    ``outermost``: what called that is not the program.
    """

    def __init__(self, outermost: CodeType) -> None:
        self._outermost = outermost
        self.paths: dict[int, str] = {}
        self._modules: list[str] = []
        self._nodes: dict[int, Place] = {}
        self._own: dict[CodeType, bool] = {}
        self._handles: list[Any] = []

    def name(self, modules: Mapping[str, torch.nn.Module]) -> None:
        """The modules whose paths are to be known."""
        self.paths.update({id(module): path for path, module in modules.items()})

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
        self._modules.append(self.paths.get(id(module), self._modules[-1] if self._modules else ""))

    def _leave(self, *_: Any) -> None:
        if self._modules:
            self._modules.pop()

    def place(self) -> Place:
        """Where the program is now."""
        # None outside the backward pass, though its type does not say so.
        node: Any = torch._C._current_autograd_node()
        source, in_engine = self._source(node is not None)
        if node is None:
            place = Place(source, self._modules[-1] if self._modules else "")
            # The node of the operator that is running has the number before the next one.
            self._nodes.setdefault(torch._C._autograd._get_sequence_nr() - 1, place)
            return place
        made = self._nodes.get(node._sequence_nr())
        if made is None:
            return Place(source, self._modules[-1] if self._modules else "", True)
        return Place(made.source if in_engine else source, made.module, True)

    def _source(self, in_backward: bool) -> tuple[str, bool]:
        """The last line outside torch; and whether the autograd engine was called from there, and
        no code of the user's within it.
        """
        frame: FrameType | None = sys._getframe(1)
        engine = False
        while frame is not None and frame.f_code is not self._outermost:
            code = frame.f_code
            if not self._is_own(code):
                return f"{short(code.co_filename)}:{frame.f_lineno}", engine
            engine = engine or (in_backward and code.co_name in ENGINE)
            frame = frame.f_back
        return "", engine

    def _is_own(self, code: CodeType) -> bool:
        found = self._own.get(code)
        if found is None:
            found = self._own[code] = (
                code.co_filename.startswith((*OWN, "<")) or code.co_filename in WRAPPING
            )
        return found
