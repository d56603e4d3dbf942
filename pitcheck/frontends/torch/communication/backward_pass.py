"""The place of a call in a backward pass, as the frames of the interpreter tell it.

Autograd's engine is C++, and so is the reducer of DistributedDataParallel that it calls. The
engine runs in a frame of ``torch.autograd.graph``, its final callbacks included.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import torch
from torch.autograd.graph import _engine_run_backward

from pitcheck.frontends.torch.recording.blame import PITCHECK

RECORDING = (
    *(str(Path(torch.__file__).parent / name) for name in ("_compile.py", "_dynamo/eval_frame.py")),
    *(f"{PITCHECK}frontends{os.sep}torch{os.sep}{name}" for name in ("communication", "recording")),
)
"""The files and folders whose functions stand between a call and what is recorded of it.

Patches stand in the place of Python's functions. C++ does not call them.
"""


def in_backward() -> bool:
    """Return True within a backward pass, or within what it calls when it has ended."""
    return any(_runs(frame) for frame in _frames())


def called_by_engine() -> bool:
    """Return True if C++ of a backward pass has called what is recorded, and no Python has."""
    caller = next((each for each in _frames() if not _is_own(each)), None)
    return caller is not None and _runs(caller)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_own(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(RECORDING)


def _runs(frame: FrameType) -> bool:
    return frame.f_code is _engine_run_backward.__code__
