"""What a change can affect: configurations whose files are what they were need not run again.

Plan files and configurations are recognised by their content. Programs run always: they may import
and read anything.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from pitcheck.cache.meaning import meaning
from pitcheck.commands.remembered_pairs import is_read_alone
from pitcheck.errors import UsageError
from pitcheck.sweep.matrix import Planned
from pitcheck.sweep.result import Result, without_report
from pitcheck.sweep.results import Results


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

    def _file(self, source: str) -> bytes:
        if source not in self._files:
            self._files[source] = blake2b(Path(source).read_bytes(), digest_size=16).digest()
        return self._files[source]


def unaffected(
    planned: Sequence[Planned], since: str, inputs: Mapping[str, str], sweep: Path
) -> list[Result]:
    """Return the results of configurations that nothing changed for.

    ``since`` is a file of results or a revision of git, ``inputs`` what :class:`Inputs` gives for
    each name, and ``sweep`` the file of the sweep. Raises UsageError for any other ``since``.
    """
    if Path(since).is_file():
        return list(_as_in(planned, Results(Path(since)), inputs))
    return list(_as_at(planned, since, inputs, sweep))


def _as_in(
    planned: Sequence[Planned], earlier: Results, inputs: Mapping[str, str]
) -> Iterator[Result]:
    """Yield good results of another file that were made from the same inputs."""
    found = {each.name: each for each in earlier.results()}
    for each in planned:
        then, now = found.get(each.name), inputs[each.name]
        if then is not None and now and then.inputs == now and then.proven:
            said = f"not run: nothing that it depends on has changed since {earlier.path}"
            yield msgspec.structs.replace(then, status="unchanged", said=said, seconds=0.0)


def _as_at(
    planned: Sequence[Planned], revision: str, inputs: Mapping[str, str], sweep: Path
) -> Iterator[Result]:
    """Yield configurations none of whose files was changed since a revision.

    What they were then is not known, so they have no verdict. If the file of the sweep has changed,
    everything runs.
    """
    root, changed = _changed(revision, sweep)
    kept = _tracked(root) - changed
    if sweep.resolve() not in kept or any(_is_code(path) for path in changed):
        return
    for each in planned:
        if inputs[each.name] and all(Path(source).resolve() in kept for source in each.sources):
            said = f"not run: none of its files has changed since {revision}"
            yield without_report(each, 0, "unchanged", said)


def _tracked(root: Path) -> frozenset[Path]:
    """Return the files whose changes git reports: none in submodules, none that it skips."""
    entries = _git(root, "ls-files", "-v", "-z").split("\0")
    return frozenset((root / each[2:]).resolve() for each in entries if each.startswith("H "))


def _is_code(path: Path) -> bool:
    """Return True for a file of pitcheck's own code."""
    return path.is_relative_to(Path(__file__).resolve().parents[1])


def _changed(revision: str, near: Path) -> tuple[Path, frozenset[Path]]:
    """Return the folder of a repository, and its files that are not what they were."""
    folder = near.resolve().parent
    root = Path(_git(folder, "rev-parse", "--show-toplevel").strip()).resolve()
    _git(folder, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    said = _git(root, "diff", "--name-only", "--no-renames", "-z", revision, "--")
    return root, frozenset((root / name).resolve() for name in said.split("\0") if name)


def _git(folder: Path, *arguments: str) -> str:
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        ).stdout
    except FileNotFoundError:
        raise UsageError("--since names no file of results, and git is not installed") from None
    except subprocess.CalledProcessError as error:
        why = (error.stderr.strip().splitlines() or ["git failed"])[-1]
        raise UsageError(
            f"--since names neither a file of results nor a revision of git: {why}"
        ) from None
