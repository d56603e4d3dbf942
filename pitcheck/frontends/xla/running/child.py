"""A user's program, compiled by JAX in a child process with a time limit."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pitcheck.base.import_path import import_path
from pitcheck.base.nearest import nearest_file
from pitcheck.base.process_tree import kill
from pitcheck.base.streams import messages
from pitcheck.errors import PlanError, UsageError
from pitcheck.frontends.xla.running import program
from pitcheck.frontends.xla.running.dumping import Texts, texts_in

SECONDS = 600.0
"""The time that a program may take if nothing else is said."""
MOST_DEVICES = 4096
MOST_KEPT = 1 << 12
"""The last bytes that a program prints among which its last line is looked for."""
LAST_WORDS = 5.0
"""The seconds that are waited for the output of a process that has ended."""
_COUNT = re.compile(r"--xla_force_host_platform_device_count=\S*")
_DUMPS = re.compile(r"--xla_dump_\S*")


def partitioned_texts(
    file: str, name: str, devices: int, folder: Path, seconds: float = SECONDS
) -> Texts:
    """Return the texts of a program for ``devices`` devices of the processor, in ``folder``.

    The file is the user's own program, and runs, in a process of its own that is killed after
    ``seconds`` with all that it has started. It is killed, too, if this process ends before. No
    other device is used. What the program prints goes to standard error.

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
    arguments = [str(path.resolve()), name, str(devices), str(folder)]
    with _started(arguments, _environment(devices, folder)) as (process, last):
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise PlanError(
                f"{name} took more than {seconds:g} s and was stopped; --set seconds=N gives it "
                f"more",
                file,
            ) from None
    return _texts(folder, process.returncode, bytes(last), file)


@contextmanager
def _started(
    arguments: list[str], environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], bytearray]]:
    """Start a process; yield it with the last bytes that it has printed.

    At the end all that is left of it is killed. It ends by itself when nobody holds its lifeline.
    """
    read, lifeline = os.pipe()
    try:
        process = subprocess.Popen(
            # Nothing is imported from the working directory, which may hold other code.
            [sys.executable, "-P", "-m", program.__name__, *arguments, str(read)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            pass_fds=(read,),
        )
        last = bytearray()
        reader = threading.Thread(target=_hand_on, args=(process.stdout, last), daemon=True)
        reader.start()
        try:
            yield process, last
        finally:
            kill(process.pid)
            process.wait()
            reader.join(LAST_WORDS)
    finally:
        os.close(read)
        os.close(lifeline)


def _hand_on(stream: IO[bytes], last: bytearray) -> None:
    """Print a stream to standard error, and keep its last bytes."""
    with stream:
        while chunk := os.read(stream.fileno(), MOST_KEPT):
            last += chunk
            del last[:-MOST_KEPT]
            with messages() as errors:
                errors.write(chunk.decode("utf-8", "backslashreplace"))


def _environment(devices: int, folder: Path) -> dict[str, str]:
    """Return the environment of the child: JAX has the processor alone, as so many devices.

    What the child leaves in the folder of temporary files, or beside the program, would stay.
    """
    flags = _DUMPS.sub("", _COUNT.sub("", os.environ.get("XLA_FLAGS", ""))).split()
    wanted = f"--xla_force_host_platform_device_count={devices}"
    return {
        **os.environ,
        "XLA_FLAGS": " ".join([*flags, wanted]),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "PYTHONPATH": import_path(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(folder),
    }


def _texts(folder: Path, code: int, last: bytes, file: str) -> Texts:
    """Return the texts that a process left. Raises PlanError if there are none."""
    if code == 0 and (folder / program.DONE).exists():
        return texts_in(folder / program.TEXTS)
    said = folder / program.SAID
    if said.exists():
        raise PlanError(said.read_text(encoding="utf-8"), file)
    raise PlanError(_ended(code, last), file)


def _ended(code: int, last: bytes) -> str:
    """Return how a process ended that left no texts, and the last line that it printed."""
    how = f"exit code {code}"
    if code < 0:
        how = f"signal {-code}"
        with contextlib.suppress(ValueError):
            how = f"{how} ({signal.Signals(-code).name})"
    lines = [line for line in last.decode("utf-8", "backslashreplace").split("\n") if line.strip()]
    line = f"; its last line is: {lines[-1].strip()}" if lines else ""
    return f"JAX's process ended with {how} while it compiled the program{line}"
