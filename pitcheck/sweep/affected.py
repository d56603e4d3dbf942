"""Configurations that a change cannot affect: their files are as they were, and they need no run.

Plan files and configurations are recognised by their content. Programs run always: they may import
and read anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from stat import S_ISREG

import msgspec

from pitcheck.cache.meaning import meaning
from pitcheck.commands.reading import file_of
from pitcheck.commands.remembered_pairs import is_read_alone
from pitcheck.errors import UsageError
from pitcheck.sweep.planned import Planned
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

    def files(self, planned: Planned) -> str:
        """Return a number for the files that a configuration names, without those of folders.

        A folder changes while it is used: it gets the compiled code of a program.
        """
        digest = blake2b(digest_size=16)
        for source in planned.sources:
            digest.update(f"{source}\n".encode())
            with suppress(OSError):
                digest.update(self._file(file_of(source)))
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


@dataclass(frozen=True)
class Begun:
    """The files of a sweep as they were when it began.

    ``inputs`` has what :meth:`Inputs.of` gave for each name, and ``files`` what
    :meth:`Inputs.files` gave.
    """

    planned: Mapping[str, Planned]
    inputs: Mapping[str, str]
    files: Mapping[str, str]

    @classmethod
    def of(cls, planned: Sequence[Planned], inputs: Inputs) -> Begun:
        """Return the files of some configurations as they are now."""
        return cls(
            planned={each.name: each for each in planned},
            inputs={each.name: inputs.of(each) for each in planned},
            files={each.name: inputs.files(each) for each in planned},
        )

    def checked(self, result: Result) -> Result:
        """Return a result, if its files are still those with which the sweep began.

        Otherwise it is *crashed*, and ``--resume`` runs its configuration again.
        """
        unchecked = result.status == "crashed" and not result.inputs
        if result.status == "skipped" or unchecked or self._are_same(result):
            return result
        said = "its files changed while the sweep ran; begin anew, or put them back and --resume"
        return msgspec.structs.replace(
            result, status="crashed", verdict="", said=said, inputs="", report=None
        )

    def _are_same(self, result: Result) -> bool:
        name = result.name
        now = Inputs().files(self.planned[name])
        return (result.inputs, now) == (self.inputs[name], self.files[name])


def together(planned: Sequence[Planned], inputs: Inputs) -> str:
    """Return a number for the files of all configurations that are known by their files."""
    digest = blake2b(digest_size=16)
    for each in planned:
        digest.update(f"{inputs.of(each)}\n".encode())
    return digest.hexdigest()
