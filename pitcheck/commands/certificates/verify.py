"""``pitcheck verify``: a certificate, established again for two plans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pitcheck.base.nearest import nearest_file
from pitcheck.certificate.digests import Digests
from pitcheck.certificate.statement import SIZE_LIMIT, decode
from pitcheck.commands.checking.sources import sources
from pitcheck.errors import UsageError
from pitcheck.plan.model import Plan
from pitcheck.report.destinations import print_bytes
from pitcheck.report.lines import printable
from pitcheck.report.report import EXIT_CODES

if TYPE_CHECKING:
    from pitcheck.certificate.verify import Verified

MOST_NAMED = 20


def run(
    *,
    certificate: str,
    reference: str,
    parallel: str | None,
    assignments: Sequence[str],
    seed: int | None,
    quiet: bool,
) -> int:
    """Print what is verified; return 0, or 1 for a stage that does not hold, or 3 for an open one.

    Raises:
        UsageError: a file cannot be read.
        CertificateError: the certificate cannot be read, or is of other plans.
    """
    statement = decode(_bytes(certificate), certificate)
    files = sources(reference, parallel, assignments)
    before = None if parallel is None else Digests.of_files(reference, parallel)
    plans: list[Plan] = [plan for file in files for plan in file()]
    found = before or Digests.of_plans(reference, *plans)
    found.check_unchanged()
    from pitcheck.certificate.verify import verify  # noqa: PLC0415  heavy: wrong files need not wait for it

    verified = verify(statement, plans[0], plans[1], found.digests, seed)
    print_bytes("".join(f"{printable(line)}\n" for line in _lines(verified, quiet)).encode())
    return EXIT_CODES[
        "mismatch" if verified.refused else "inconclusive" if verified.open else "equivalent"
    ]


def _bytes(file: str) -> bytes:
    """Return the content of a certificate, and no more than it may have."""
    path = Path(file)
    if path.is_dir():
        raise UsageError(f"{file}: this is a directory; name a file")
    try:
        with path.open("rb") as stream:
            return stream.read(SIZE_LIMIT + 1)
    except OSError as error:
        near = "" if path.exists() else nearest_file(path)
        raise UsageError(f"{file}: cannot be read: {error.strerror or error}{near}") from None


def _lines(found: Verified, quiet: bool) -> list[str]:
    """Return the text of a result."""
    wrong, left = len(found.refused), len(found.open)
    if wrong:
        first = f"refused: {wrong} of {found.stages} stages do not hold"
    elif left:
        first = f"not verified: {left} of {found.stages} stages are not decided"
    else:
        first = f"verified: {found.stages} of {found.stages} stages hold"
    if quiet:
        return [first]
    told = [*found.refused, *found.open]
    lines = [first, *(f"  {line}" for line in told[:MOST_NAMED])]
    lines += [f"  and {len(told) - MOST_NAMED} more"] * (len(told) > MOST_NAMED)
    lines += [f"exception    {line}" for line in found.exceptions]
    lines += [f"assuming     {line}" for line in found.assumptions]
    if not wrong and not left:
        lines.append(
            f"error bound  this is wrong with probability at most 2^{found.bound_log2:.1f}, over "
            f"the draws of this run"
        )
        lines.append(
            "claim        where every quotient, root and logarithm of the reference has a value, "
            "at full shapes"
        )
    if found.sampled:
        lines.append(
            f"sampled      {found.sampled} stages hold at the integers and truths that were drawn; "
            f"the bound says nothing of others"
        )
    lines.append(f"checked      {found.distinct} distinct stages, {found.draws} draws")
    return lines
