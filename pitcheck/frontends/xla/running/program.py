"""The child process that runs a program: ``python -m ...program FILE NAME DEVICES FOLDER PIPE``.

FILE is an absolute path. The texts are written into FOLDER, and if the program cannot be used, one
line with the reason into ``FOLDER/said``. A traceback of the program goes to stderr. Nobody writes
to the pipe whose number is PIPE: when its other end is closed, the process that waits for this one
has ended, and so does this one. The process ends once the texts are written: it does not wait for
XLA to make machine code, which nobody runs.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import sys
import traceback
from pathlib import Path
from shutil import rmtree
from typing import Any, NoReturn

from pitcheck.base.nearest import nearest
from pitcheck.base.process_tree import end_with, kill
from pitcheck.errors import PitcheckError, UsageError
from pitcheck.frontends.xla.running.dumping import (
    call_when_whole,
    dumped_around_partitioner,
)
from pitcheck.frontends.xla.running.lowering import lowered_of

SAID = "said"
"""The file with the reason why there are no texts."""
TEXTS = "texts"
"""The folder of the texts."""
DONE = "done"
"""The file that says that the texts are whole."""


def main(file: str, name: str, devices: str, folder: str, pipe: str) -> int:
    """Return 0 if the texts are written, 1 if not."""

    def end() -> None:
        rmtree(folder, ignore_errors=True)
        kill(os.getpid())

    end_with(int(pipe), end)
    # XLA may abort the process, and the system would leave its memory in the working directory.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return _compiled(file, name, int(devices), Path(folder))


def _compiled(file: str, name: str, devices: int, folder: Path) -> int:
    """Compile a program. Return 0 if its texts are written, 1 if not."""
    said = folder / SAID
    texts = folder / TEXTS
    texts.mkdir()

    def end() -> None:
        (folder / DONE).touch()
        _end(0)

    try:
        lowered = lowered_of(_function(file, name)(), name)
        _check_devices(devices)
        call_when_whole(texts, end)
        dumped_around_partitioner(lowered, texts)
    except PitcheckError as error:
        said.write_text(str(error), encoding="utf-8")
        return 1
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        said.write_text(_reason(error, file), encoding="utf-8")
        return 1
    (folder / DONE).touch()
    return 0


def _check_devices(devices: int) -> None:
    """Check that JAX has the devices that are asked for. Raises UsageError."""
    import jax  # noqa: PLC0415  an extra

    found, platform = jax.device_count(), jax.default_backend()
    if (found, platform) != (devices, "cpu"):
        raise UsageError(
            f"it runs on {found} devices of {platform}, which it chooses itself, and not on "
            f"{devices} of cpu; take jax_num_cpu_devices and jax_platforms out of it, or ask for "
            f"as many devices"
        )


def _function(file: str, name: str) -> Any:
    """Run a file and return its function ``name``. Modules beside it can be imported."""
    path = Path(file)
    sys.path.insert(0, str(path.parent))
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise UsageError("this is no Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules.setdefault(path.stem, module)
    specification.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        names = [each for each, value in vars(module).items() if callable(value)]
        said = "is not there" if function is None else "is no function"
        raise UsageError(f"{name!r} {said}{nearest(name, names)}")
    return function


def _reason(error: BaseException, file: str) -> str:
    """Return one line on an exception, with the last line of the user's file in its traceback."""
    if isinstance(error, ModuleNotFoundError) and error.name in {"jax", "jaxlib"}:
        return "it needs JAX; install pitcheck[jax]"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    place = f" (line {lines[-1]})" if lines else ""
    text = str(error).split("\n", maxsplit=1)[0]
    return f"it raises {type(error).__name__}: {text}{place}"


def _end(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    # The program's threads, and what it has registered for the end, may wait for ever.
    os._exit(code)


if __name__ == "__main__":
    _end(main(*sys.argv[1:]))
