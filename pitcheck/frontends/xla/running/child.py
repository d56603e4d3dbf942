"""A user's program, compiled by JAX in a child process with a time limit."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from pitcheck.base.nearest import nearest_file
from pitcheck.errors import PlanError, UsageError
from pitcheck.frontends.xla.running import program
from pitcheck.frontends.xla.running.dumping import (
    AFTER_PARTITIONER,
    BEFORE_PARTITIONER,
    Texts,
)

SECONDS = 600.0
"""The time that a program may take if nothing else is said."""
MOST_DEVICES = 4096
_COUNT = re.compile(r"--xla_force_host_platform_device_count=\S*")
_DUMPS = re.compile(r"--xla_dump_\S*")


def partitioned_texts(
    file: str, name: str, devices: int, folder: Path, seconds: float = SECONDS
) -> Texts:
    """Return the texts of a program for ``devices`` devices of the processor, in ``folder``.

    The file is the user's own program, and runs, in a process of its own that is killed after
    ``seconds``. No other device is used.

    Raises:
        PlanError: the file does not exist, raises, takes too long, or ends its process.
        UsageError: ``devices`` is out of range.
    """
    if not 2 <= devices <= MOST_DEVICES:
        raise UsageError(
            f"a program is partitioned for 2 to {MOST_DEVICES} devices, and not for {devices}"
        )
    path = Path(file)
    if not path.is_file():
        raise PlanError(f"no such file{nearest_file(path)}", file)
    command = [sys.executable, "-m", program.__name__, str(path.resolve()), name, str(folder)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if _has_descriptor() else subprocess.DEVNULL,
        env=_environment(devices),
        start_new_session=True,
    )
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise PlanError(
            f"{name} took more than {seconds:g} s and was stopped; --set seconds=N gives it more",
            file,
        ) from None
    finally:
        _kill(process)
    return _texts(folder, code, file)


def _has_descriptor() -> bool:
    """Return True if stderr is a file of the system, which a child can write to."""
    try:
        sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    return True


def _environment(devices: int) -> dict[str, str]:
    """Return the environment of the child: JAX has the processor alone, as so many devices."""
    flags = _DUMPS.sub("", _COUNT.sub("", os.environ.get("XLA_FLAGS", ""))).split()
    wanted = f"--xla_force_host_platform_device_count={devices}"
    return {
        **os.environ,
        "XLA_FLAGS": " ".join([*flags, wanted]),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    }


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a process and its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _texts(folder: Path, code: int, file: str) -> Texts:
    """Return the texts that a process left. Raises PlanError if there are none."""
    said = folder / program.SAID
    if said.exists():
        raise PlanError(said.read_text(), file)
    if code != 0:
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise PlanError(f"JAX's process ended with {ended} while it compiled the program", file)
    files = sorted((folder / program.TEXTS).iterdir())
    (before,) = [each for each in files if each.name.endswith(BEFORE_PARTITIONER)]
    (after,) = [each for each in files if AFTER_PARTITIONER in each.name]
    return Texts(before, after)
