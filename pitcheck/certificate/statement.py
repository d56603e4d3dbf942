"""The file of a certificate: an in-toto statement, read strictly and written in one way."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import msgspec

from pitcheck.errors import CertificateError
from pitcheck.plan.model import Lineage

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://pypi.org/project/pitcheck/certificate/v1"
VERSION = 1
SIZE_LIMIT = 8 << 20
MOST_DRAWS = 256
LEAST_BOUND_LOG2 = -4096.0
BOUND_LOG2 = -64.0
"""log2 of the error that is accepted at most, whatever a certificate says."""


class Subject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of both plans: the name of its file, and the digest of its bytes."""

    name: str
    digest: dict[str, str]


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A tensor of the parallel plan and of the reference, and the numbers of lineage and stage.

    ``reference`` is "" for a tensor of the same name.
    """

    tensor: str
    reference: str
    lineage: int
    stage: int


class Stated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The specification that was proven."""

    given: tuple[tuple[str, str, int], ...]
    outputs: tuple[Target, ...]
    assumptions: tuple[str, ...]
    exceptions: tuple[str, ...]


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A distinct stage of the prover's, and its draws."""

    draws: int


class Seed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The seed of the run: made of both digests and ``salt``."""

    salt: int
    value: str


class Bound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """log2 of a bound on the probability that the claim is false."""

    log2: float


class Predicate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The proof that a certificate states: its question, its cuts, its stages and its bound.

    Lineages are of the form that plans have, and leave open of which reference tensor they are.
    """

    version: int
    seed: Seed
    specification: Stated
    lineages: tuple[Lineage, ...]
    cuts: tuple[Target, ...]
    stages: tuple[Stage, ...]
    bound: Bound

    def lineage(self, number: int, tensor: str, reference: str) -> Lineage:
        """Return the lineage of a tensor."""
        return msgspec.structs.replace(self.lineages[number], reference=reference or tensor)


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An in-toto statement, v1."""

    type: str = msgspec.field(name="_type")
    subject: tuple[Subject, ...]
    predicate_type: str = msgspec.field(name="predicateType")
    predicate: Predicate


def derived_seed(digests: tuple[str, str], salt: int) -> int:
    """Return the seed of a run that is certified, 128 bits."""
    said = f"{PREDICATE}\n{digests[0]}\n{digests[1]}\n{salt}".encode()
    return int.from_bytes(sha256(said).digest()[:16], "big")


def encode(statement: Statement) -> bytes:
    """Return a statement as JSON, a line for each entry of a list."""
    fields = msgspec.to_builtins(statement)
    predicate = fields.pop("predicate")
    text = json.dumps(fields, indent=1, ensure_ascii=False)[:-2]
    lines = ",\n".join(f'  "{name}": {_listed(value)}' for name, value in predicate.items())
    return f'{text},\n "predicate": {{\n{lines}\n }}\n}}\n'.encode()


def _listed(value: Any) -> str:
    one = _compact(value)
    if not isinstance(value, (list, tuple)) or not value:
        return one
    return "[\n  " + ",\n  ".join(map(_compact, value)) + "\n ]"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def decode(data: bytes, origin: str) -> Statement:
    """Return the statement in ``data``.

    Raises:
        CertificateError: it is anything else; with the place.
    """
    if len(data) > SIZE_LIMIT:
        raise CertificateError(f"the file is larger than {SIZE_LIMIT} bytes", origin)
    try:
        json.loads(data, object_pairs_hook=_once)
        found = msgspec.json.decode(data, type=Statement)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        said = str(error).encode("unicode_escape").decode()
        raise CertificateError(f"this is no certificate: {said}", origin) from None
    _check(found, origin)
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return dict(pairs)


def _check(found: Statement, origin: str) -> None:
    """Raise CertificateError for values that no certificate has."""
    predicate = found.predicate
    targets = (*predicate.cuts, *predicate.specification.outputs)
    numbers = [t.lineage for t in targets] + [n for *_, n in predicate.specification.given]
    stages = range(len(predicate.stages))
    rules = (
        ("_type", found.type == STATEMENT, f"it is {STATEMENT!r}"),
        ("predicateType", found.predicate_type == PREDICATE, f"it is {PREDICATE!r}"),
        ("predicate.version", predicate.version == VERSION, f"this version reads {VERSION}"),
        ("subject", len(found.subject) == 2, "it has the reference plan and the parallel one"),
        ("subject", all([*s.digest] == ["sha256"] for s in found.subject), "a digest is sha256"),
        (
            "predicate.bound.log2",
            LEAST_BOUND_LOG2 <= predicate.bound.log2 <= BOUND_LOG2,
            f"it lies between {LEAST_BOUND_LOG2} and {BOUND_LOG2}",
        ),
        (
            "predicate.stages",
            all(1 <= stage.draws <= MOST_DRAWS for stage in predicate.stages),
            f"a stage has 1 to {MOST_DRAWS} draws",
        ),
        (
            "predicate.stages",
            {t.stage for t in targets} == set(stages),
            "each has a target, and each target has one",
        ),
        (
            "predicate.lineages",
            set(numbers) == set(range(len(predicate.lineages))),
            "each is of a tensor, and each tensor has one",
        ),
        (
            "predicate.lineages",
            all(lineage.reference == "" for lineage in predicate.lineages),
            "the tensors are named with the cuts",
        ),
        (
            "predicate.cuts",
            len({t.tensor for t in predicate.cuts}) == len(predicate.cuts),
            "no tensor is cut twice",
        ),
    )
    for place, holds, rule in rules:
        if not holds:
            raise CertificateError(f"{place}: {rule}", origin)
