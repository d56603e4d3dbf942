"""The destinations of reports: ``FORMAT[:FILE]`` options, files, open descriptors, and the console.

Files are written whole or not at all.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from errno import EBADF
from pathlib import Path
from traceback import print_exception

from pitcheck.base.nearest import nearest
from pitcheck.base.streams import flush_or_drop, messages, say
from pitcheck.errors import PitcheckError, UsageError

STDOUT = "-"

_STREAMS = ("/dev/stdin", "/dev/stdout", "/dev/stderr")
_DESCRIPTOR = re.compile("(?:/dev/fd|/proc/self/fd)/([0-9]{1,9})")


@dataclass(frozen=True)
class Destination:
    """A format and the file that takes it; ``-`` is standard output."""

    format: str
    file: str

    @property
    def name(self) -> str:
        """The file as messages name it."""
        return "standard output" if self.file == STDOUT else self.file


TEXT = Destination("text", STDOUT)
"""The output that is made unless another format is asked for."""


def parse_destination(text: str, formats: Collection[str]) -> Destination:
    """Return the destination of ``FORMAT:FILE``, or of ``FORMAT`` for standard output.

    Raises UsageError for a format that is none of ``formats``, and for a missing file.
    """
    format_, colon, file = text.partition(":")
    if format_ not in formats:
        raise UsageError(
            f"output {text!r}: unknown format {format_!r}; the formats are {', '.join(formats)} "
            f"(as in json:report.json){nearest(format_, formats)}"
        )
    if colon and not file:
        raise UsageError(
            f"output {text!r}: no file; write {format_}:FILE, or {format_} for standard output"
        )
    if "\0" in file:
        raise UsageError(f"output {text!r}: the name of a file cannot hold a NUL character")
    return Destination(format_, STDOUT if _descriptor(file) == 1 else file or STDOUT)


def check_destinations(destinations: Sequence[Destination], plans: Sequence[str] = ()) -> None:
    """Raise UsageError, before any work, for destinations that collide or cannot be written.

    Two names of one file collide. So does a file with a standard output that is redirected to it,
    and with one of the ``plans``, the files that are read.
    """
    everywhere = _with_stdout(destinations)
    read = [_identity(plan) for plan in plans]
    for each in everywhere:
        _check_writable(each)
        if _identity(each.file) in read:
            raise UsageError(f"an output goes to {each.name}, which is a plan; name another file")
    files = [_identity(each.file) for each in everywhere]
    for i, file in enumerate(files):
        if file in files[:i]:
            names = dict.fromkeys([everywhere[files.index(file)].name, everywhere[i].name])
            raise UsageError(
                f"two outputs go to {', which is '.join(names)}; give each a file of its own"
            )


def write_everywhere(
    destinations: Sequence[Destination], encode: Callable[[Destination], bytes]
) -> None:
    """Write what ``encode`` gives to every destination, by default as text to standard output.

    Every destination is tried, standard output last. Then UsageError is raised for those that
    failed. If all of them did, the text is printed to standard error. A standard output that nobody
    reads any more is not a failure.
    """
    everywhere = _with_stdout(destinations)
    failures = [failure for each in everywhere if (failure := _failure(each, encode))]
    if len(failures) == len(everywhere):
        _failure(Destination("text", "/dev/stderr"), encode)
    if failures:
        raise UsageError("; ".join(failures))


def write_before(
    destinations: Sequence[Destination], encode: Callable[[Destination], bytes]
) -> None:
    """Write what ``encode`` gives before long work to every destination that is a plain file.

    However the work ends, none of them is left from an earlier run. Raises UsageError.
    """
    plain = [each for each in destinations if _is_plain(each.file)]
    failures = [failure for each in plain if (failure := _failure(each, encode))]
    if failures:
        raise UsageError("; ".join(failures))


def _is_plain(file: str) -> bool:
    path = Path(file)
    named = file != STDOUT and _descriptor(file) is None
    return named and (path.is_file() or not path.exists())


def exit_code_after(code: int, write: Callable[[], None]) -> int:
    """Return ``code`` after ``write`` has written the outputs.

    Outputs that cannot be written raise UsageError if the code is 0. Any other code stands, and
    the error is a message: what is wrong stays wrong.
    """
    try:
        write()
    except UsageError as error:
        if code == 0:
            raise
        say(f"pitcheck: {error}")
    return code


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` so that the file is never half-written.

    It is written beside the file first, then moved into its place. Devices and pipes, which cannot
    be replaced, are written to. Raises OSError.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    path = Path(os.path.realpath(path))
    name = os.fsdecode(os.fsencode(path.name)[:200])  # a name has 255 bytes at most
    beside = path.with_name(f".{name}.{os.getpid()}.part")
    try:
        with beside.open("xb") as file:
            file.write(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def print_bytes(data: bytes) -> None:
    """Print UTF-8 bytes whatever the locale's encoding.

    A reader that has gone is not a failure; raises UsageError for any other.
    """
    try:
        _print(data)
    except OSError as error:
        raise UsageError(f"cannot write to standard output: {_reason(error)}") from None


def _print(data: bytes) -> None:
    buffer = getattr(sys.stdout, "buffer", None)
    try:
        if buffer is None:
            sys.stdout.write(data.decode("utf-8"))
        else:
            sys.stdout.flush()
            buffer.write(data)
        sys.stdout.flush()
    except OSError as error:
        flush_or_drop(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise


def _with_stdout(destinations: Sequence[Destination]) -> list[Destination]:
    """Return the destinations, standard output last, with text for it if it has no format."""
    files = [each for each in destinations if each.file != STDOUT]
    return files + ([each for each in destinations if each.file == STDOUT] or [TEXT])


def _failure(each: Destination, encode: Callable[[Destination], bytes]) -> str:
    """Return why a destination was not written, "" if it was."""
    try:
        _write(each.file, encode(each))
    except Exception as error:
        return f"cannot write to {each.name}: {_reason(error)}"
    return ""


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return "it is closed" if error.errno == EBADF else error.strerror or str(error)
    if isinstance(error, PitcheckError):
        return str(error)
    # A bug in one format must not cost the others, nor the verdict.
    with messages() as stream:
        print_exception(error, file=stream)
    return f"internal error: {type(error).__name__}: {error}"


def _write(file: str, data: bytes) -> None:
    descriptor = _descriptor(file)
    if file == STDOUT:
        _print(data)
    elif descriptor is None:
        write_whole(Path(file), data)
    else:
        # Opened by its name, a file would be written from its start, and a socket not at all.
        with os.fdopen(os.dup(descriptor), "wb") as opened:
            opened.write(data)


def _descriptor(file: str) -> int | None:
    """Return the number of the open file that ``/dev/stderr``, ``/dev/fd/3`` and the like name."""
    if file in _STREAMS:
        return _STREAMS.index(file)
    found = _DESCRIPTOR.fullmatch(file)
    return None if found is None else int(found[1])


def _check_writable(each: Destination) -> None:
    descriptor = _descriptor(each.file)
    if descriptor is not None:
        _check_descriptor(each.file, descriptor)
    elif each.file != STDOUT:
        _check_path(each.file, Path(os.path.realpath(each.file)))


def _check_descriptor(file: str, descriptor: int) -> None:
    try:
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError:
        mode = os.O_RDONLY
    if mode == os.O_RDONLY:
        raise UsageError(
            f"output {file}: descriptor {descriptor} is not open for writing; redirect it, as in "
            f"{descriptor}>FILE, or name a file"
        )


def _check_path(file: str, path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"output {file} is a directory; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"output {file}: directory {path.parent} does not exist; create it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise UsageError(f"output {file}: no permission to write {path}; name another file")
    if (path.is_file() or not path.exists()) and not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"output {file}: no permission to write in directory {path.parent}, where the file is "
            f"put together before it takes its name; name a file elsewhere"
        )


def _identity(file: str) -> object:
    """Return what all names of a file have in common.

    Terminals and ``/dev/null`` take any number of outputs: there, only equal names collide.
    """
    name = file if file == STDOUT else os.path.realpath(file)
    try:
        status = os.fstat(sys.stdout.fileno()) if file == STDOUT else Path(file).stat()
    except OSError:
        return name
    return name if stat.S_ISCHR(status.st_mode) else (status.st_dev, status.st_ino)
