"""The check of a program in a file, in a new process.

A test process has imported modules already: one of the same name from another folder would be
checked in place of the program's. ``python -m pitcheck.pytest_plugin.fresh FILE`` is the new
process: it reads a request from standard input and writes the answer to FILE.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from pitcheck.base.import_path import import_path
from pitcheck.base.options import Options
from pitcheck.errors import PitcheckError, UsageError
from pitcheck.frontends.protocol import Pair
from pitcheck.report.json import encode
from pitcheck.report.report import Report
from pitcheck.torch import Spec


class Request(msgspec.Struct, frozen=True):
    """A program ``FILE.py:NAME``, sizes of its mesh, options, and where its imports are found."""

    source: str
    mesh: dict[str, int]
    options: dict[str, Any]
    path: list[str]


def at_mesh(spec: Spec, mesh: Mapping[str, int]) -> Spec:
    """Return a specification with other sizes of some axes of its mesh; the others stay.

    Raises UsageError for an axis that it does not have.
    """
    unknown = sorted(mesh.keys() - spec.mesh.keys())
    if unknown:
        raise UsageError(
            f"the mesh of the specification has no axis {unknown[0]!r}; its axes are "
            f"{', '.join(spec.mesh)}"
        )
    return replace(spec, mesh={**spec.mesh, **mesh}) if mesh else spec


def checked_in_new_process(source: str, mesh: Mapping[str, int], options: Options) -> Report:
    """Return the report on a program in a file, which runs in a new process alone.

    Raises UsageError for a wrong program or mesh, and PitcheckError if the process gives no answer.
    """
    folder = options.witness_directory
    plain = {**asdict(options), "witness_directory": None if folder is None else str(folder)}
    request = Request(source, dict(mesh), plain, sys.path)
    with TemporaryDirectory(prefix="pitcheck-") as scratch:
        answer = Path(scratch, "answer.json")
        # Nothing is imported from the working directory before the program's own imports are.
        command = [sys.executable, "-P", "-m", __name__, str(answer)]
        environment = {**os.environ, "PYTHONPATH": import_path()}
        ended = subprocess.run(
            command, input=msgspec.json.encode(request), check=False, env=environment
        )
        if not answer.exists():
            raise PitcheckError(
                f"the process that checks {source} ended with exit code {ended.returncode} and "
                f"without an answer; see its standard error"
            )
        return _read(answer.read_bytes())


def _read(answer: bytes) -> Report:
    """Return the report of an answer; raise UsageError for what was wrong with the request."""
    said = msgspec.json.decode(answer, type=Report | str)
    if isinstance(said, str):
        raise UsageError(said)
    return said


def _answer(request: Request) -> Report | str:
    """Return the report, or what is wrong with the request."""
    from pitcheck.commands.checking.sources import checked_pairs  # noqa: PLC0415  the process that asks has it already
    from pitcheck.frontends.torch.capture import captured_pairs  # noqa: PLC0415
    from pitcheck.frontends.torch.load import load_spec  # noqa: PLC0415

    folder = request.options["witness_directory"]
    options = Options(
        **{**request.options, "witness_directory": None if folder is None else Path(folder)}
    )
    file, _, name = request.source.rpartition(":")

    def pairs() -> list[Pair]:
        return captured_pairs(at_mesh(load_spec(file, name), request.mesh), jobs=options.jobs)

    try:
        return checked_pairs(pairs, options)
    except UsageError as error:
        return str(error)


def main() -> int:
    """Answer the request on standard input; return 0."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    sys.path[:] = request.path
    said = _answer(request)
    data = encode(said) if isinstance(said, Report) else msgspec.json.encode(said)
    Path(sys.argv[1]).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
