"""A recording within this process, of a function that is given a tensor without numbers."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from pitcheck.frontends.torch.patches.bypasses import bypass_patches
from pitcheck.frontends.torch.patches.patching import patched
from pitcheck.frontends.torch.patches.reads import read_patches
from pitcheck.frontends.torch.recording.numberless import Numberless
from pitcheck.frontends.torch.recording.recorder import Recorder
from pitcheck.frontends.torch.recording.tape import Kind, Place, Tape


def recorded(program: Callable[[torch.Tensor], Any]) -> Tape:
    """Return the tape of ``program(g)``, where nobody knows the numbers of ``g``, 4 by 3 floats.

    Raises whatever the program raises, and the refusal even if the program has caught it.
    """
    tape = Tape(lambda: Place(_line(program)))
    with ExitStack() as stack:
        fake = stack.enter_context(Numberless(allow_non_fake_inputs=True))
        recorder = Recorder(tape, fake)
        stack.enter_context(patched(bypass_patches(recorder)))
        stack.enter_context(patched(read_patches(tape.reads)))
        stack.enter_context(recorder)
        g = torch.empty(4, 3)
        recorder.storages.write(g, tape.give(Kind((4, 3), torch.float32), "input", "g"))
        try:
            program(g)
        except Exception:
            if tape.refused is None:
                raise
    if tape.refused is not None:
        raise tape.refused
    return tape


def _line(program: Callable[[torch.Tensor], Any]) -> str:
    """Return the present line of a program, its text in place of its file."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != program.__code__.co_filename:
        frame = frame.f_back
    return "" if frame is None else linecache.getline(frame.f_code.co_filename, frame.f_lineno)
