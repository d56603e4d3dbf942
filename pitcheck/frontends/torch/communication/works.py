"""Works and futures of recorded communication: the objects for which a program waits.

They are objects of Python, so that a wait in the C++ of a library arrives here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

if TYPE_CHECKING:
    from pitcheck.frontends.torch.communication.calls import Communication


class Launched(Work):
    """The work of an operator that has been recorded."""

    def __init__(self, communication: Communication) -> None:
        super().__init__()
        self._communication = communication

    def wait(self, timeout: timedelta | None = None) -> bool:  # noqa: ARG002  torch names it
        """Complete the operator: its results may be read from now on."""
        self._communication.waited(self)
        return True

    def synchronize(self) -> None:
        """Complete the operator as ``wait`` does."""
        self.wait()

    def block_current_stream(self) -> None:
        """Complete the operator as ``wait`` does."""
        self.wait()

    def is_completed(self) -> bool:
        """Raise UnsupportedError: the answer is another one in every run."""
        raise self._communication.refused("Work.is_completed() depends on time; call wait()")

    def get_future(self) -> Future:
        """Return the future of the tensors that the operator writes to."""
        return Future(self._communication, self.wait, self._communication.targets(self))


class Future(torch.futures.Future[Any]):
    """The future of a work, or of a callback that runs once a work is over.

    Whoever waits for it, or looks at its value, has waited for the work. A callback runs at some
    time after the work: it is recorded at once, and the memory that it uses stays in use until the
    program has waited for the callback's future.
    """

    def __init__(
        self, communication: Communication, settle: Callable[[], object], value: Any
    ) -> None:
        super().__init__()
        self._communication = communication
        self._settle = settle
        self.set_result(value)

    def wait(self) -> Any:
        """Wait for what the future stands for; return its value."""
        self._settle()
        return super().wait()

    def value(self) -> Any:
        """Return the value, once what the future stands for is over."""
        self._settle()
        return super().value()

    def done(self) -> bool:
        """Raise UnsupportedError: the answer is another one in every run."""
        raise self._communication.refused("Future.done() depends on time; call wait()")

    def then(self, callback: Callable[[Any], Any]) -> Future:
        """Return the future of what a callback returns, given this future."""
        settle, value = self._communication.run_later(self._settle, lambda: callback(self))
        return Future(self._communication, settle, value)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Run a callback for whose end nobody can wait."""
        self.then(callback)


def collected(
    communication: Communication, original: Callable[[list[Any]], Any]
) -> Callable[[list[Any]], Any]:
    """Return the function that makes one future of several; it waits for all of them."""

    def collect(futures: list[Any]) -> Any:
        def settle() -> None:
            for future in futures:
                future.wait()

        if not any(isinstance(future, Future) for future in futures):
            return original(futures)
        return Future(communication, settle, list(futures))

    return collect
