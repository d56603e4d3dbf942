"""The digests of both plans of a certificate: it is of these bytes, and of no others.

>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> Digests.of_plans("pair", plan, plan).names
('pair.reference.plan.json', 'pair.parallel.plan.json')
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path

from pitcheck.errors import UsageError
from pitcheck.plan.files import encode_json
from pitcheck.plan.model import Plan


@dataclass(frozen=True)
class Digests:
    """The names of both plans and the SHA-256 of their bytes, the reference first.

    ``files`` are those that were read, () for plans that have no files.
    """

    names: tuple[str, str]
    digests: tuple[str, str]
    files: tuple[str, ...] = ()

    @classmethod
    def of_files(cls, reference: str, parallel: str) -> Digests:
        """Return those of two files. Raises UsageError for a file that cannot be read."""
        names = Path(reference).name, Path(parallel).name
        return cls(names, (_digest(reference), _digest(parallel)), (reference, parallel))

    @classmethod
    def of_plans(cls, name: str, reference: Plan, parallel: Plan) -> Digests:
        """Return those of the files ``.plan.json`` that hold two plans."""
        first, second = (sha256(encode_json(plan)).hexdigest() for plan in (reference, parallel))
        names = f"{name}.reference.plan.json", f"{name}.parallel.plan.json"
        return cls(names, (first, second))

    def check_unchanged(self) -> None:
        """Raise UsageError if a file has changed since: the plan may be of other bytes."""
        for file, digest in zip(self.files, self.digests, strict=False):
            if _digest(file) != digest:
                raise UsageError(f"{file} was changed while it was read; run the command again")


def _digest(file: str) -> str:
    path = Path(file)
    if path.exists() and not path.is_file():
        raise UsageError(f"{file}: a certificate is of files, which are read twice; this is none")
    try:
        with path.open("rb") as stream:
            return file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror or error}") from None
