"""Processes that try programs; one that XLA aborts is replaced."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from hunt.judging import ABORTED
from hunt.programs import Program

DEVICES = 8
BENCH = Path(__file__).resolve().parents[1]
_CHECK = re.compile(r"^F\d+ [\d:.]+ +\d+ (.*)$", re.MULTILINE)
"""The line in which XLA says why it aborts."""


class Worker:
    """A process of JAX that tries one program after the other."""

    def __init__(self, seconds: float, *, checked: bool) -> None:
        self._arguments = [str(seconds), "checked" if checked else "run"]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed in __exit__
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._errors.close()

    def tried(self, program: Program) -> dict[str, Any]:
        """Return the record of a program."""
        process = self._started()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        line = json.dumps(program.as_json())
        answer = ""
        try:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            pass
        if answer:
            record: dict[str, Any] = json.loads(answer)
            return record
        process.wait()
        self._process = None
        return {"class": ABORTED, "reason": self._last_words(process.returncode)}

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._errors.truncate(0)
            self._errors.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hunt.worker", *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env=_environment(),
            )
        return self._process

    def _last_words(self, code: int) -> str:
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "backslashreplace")
        found = _CHECK.search(text)
        return found[1].strip() if found else f"exit code {code}: {text[-200:]}"


def _environment() -> dict[str, str]:
    """Return the environment: eight devices, quick compilation, and no messages of XLA."""
    paths = (str(BENCH), str(BENCH.parent), os.environ.get("PYTHONPATH", ""))
    flags = (
        f"--xla_force_host_platform_device_count={DEVICES}",
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
    )
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "XLA_FLAGS": " ".join(flags),
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
