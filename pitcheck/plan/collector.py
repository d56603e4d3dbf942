"""The garbage collector, held off while many objects are made at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Hold the garbage collector off in this context, and restore it afterwards.

    Reading and folding make many objects and no cycles: the collector would only walk them again
    and again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
