"""Configurations that a change cannot affect: their files are as they were, and they need no run.

Plan files and configurations are recognised by their content. Programs run always: they may import
and read anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b, file_digest
from pathlib import Path
from stat import S_ISREG

import msgspec

from pitcheck.cache.meaning import meaning
from pitcheck.commands.reading import file_of
from pitcheck.commands.remembered_pairs import is_read_alone
from pitcheck.errors import UsageError
from pitcheck.sweep.matrix import Planned
from pitcheck.sweep.result import Result
from pitcheck.sweep.results import About, Results


class Inputs:
    """The content of everything that a verdict depends on. Every file is read once."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def of(self, planned: Planned) -> str:
        """Return a number for all that the verdict on a configuration depends on.

        Return "" if that is not known, as for a program, and for a file that is not there.
        """
        digest = blake2b(msgspec.json.encode(planned), digest_size=16)
        try:
            digest.update(meaning().encode())
            for source in planned.sources:
                if not is_read_alone(source):
                    return ""
                digest.update(self._file(source))
        except (OSError, UsageError):
            return ""
        return digest.hexdigest()

    def named(self, planned: Planned) -> str:
        """Return a number for a configuration and all files that it names, those of programs, too.

        What a program imports and reads is not in it, and what is no regular file counts as absent.
        """
        digest = blake2b(msgspec.json.encode(planned), digest_size=16)
        for source in planned.sources:
            named = Path(file_of(source))
            for path in sorted(named.rglob("*")) if named.is_dir() else [named]:
                digest.update(f"{path}\n".encode("utf-8", "surrogateescape"))
                with suppress(OSError):
                    digest.update(self._file(str(path)))
        return digest.hexdigest()

    def _file(self, source: str) -> bytes:
        """Return the digest of a file. Raises OSError for what has no end, such as a device."""
        if source not in self._files:
            if not S_ISREG(Path(source).stat().st_mode):
                raise OSError(f"{source} is no regular file")
            with Path(source).open("rb") as file:
                self._files[source] = file_digest(file, "sha256").digest()
        return self._files[source]


def unaffected(
    planned: Sequence[Planned], earlier: Results, about: About, inputs: Mapping[str, str]
) -> list[Result]:
    """Return the good results of another file that were made from the same inputs.

    ``about`` is the new sweep, ``inputs`` what :class:`Inputs` gives for each name. A sweep with a
    seed takes no result that was drawn by another one.
    """
    if about.fixed and not (earlier.about().fixed and earlier.about().seed == about.seed):
        return []
    found = {each.name: each for each in earlier.results()}
    said = f"not run: nothing that it depends on has changed since {earlier.path}"
    return [
        msgspec.structs.replace(then, status="unchanged", said=said, seconds=0.0, lost=())
        for each in planned
        if (then := found.get(each.name)) is not None
        and inputs[each.name]
        and then.inputs == inputs[each.name]
        and then.proven
    ]


def of_same_files(result: Result, inputs: Mapping[str, str]) -> Result:
    """Return a result, if it is of the files with which the sweep began.

    ``inputs`` has what :class:`Inputs` gave for each name then. Otherwise the result is *crashed*,
    and ``--resume`` runs its configuration again.
    """
    if result.inputs == inputs[result.name] or result.status == "skipped":
        return result
    if result.status == "crashed" and not result.inputs:
        return result  # it was not checked to the end, and says why
    said = "its files changed while the sweep ran; begin anew, or put them back and --resume"
    return msgspec.structs.replace(
        result, status="crashed", verdict="", said=said, inputs="", report=None
    )


def together(planned: Sequence[Planned], inputs: Inputs) -> str:
    """Return a number for the files of all configurations that are known by their files."""
    digest = blake2b(digest_size=16)
    for each in planned:
        digest.update(f"{inputs.of(each)}\n".encode())
    return digest.hexdigest()
