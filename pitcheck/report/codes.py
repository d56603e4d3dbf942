"""The codes of findings: their titles, the verdicts they lead to, their pages (``docs/causes``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal as OneOf

from pitcheck.base.nearest import nearest
from pitcheck.errors import UsageError
from pitcheck.report.report import FindingVerdict
from pitcheck.resources import shipped


@dataclass(frozen=True)
class Code:
    """A code, its short title, and the verdict that a finding of this code leads to."""

    code: str
    title: str
    verdict: FindingVerdict
    of_finding: str = "{output!r} differs from the reference"
    """The title of a finding: ``{output}`` is the output that differs, ``{result}`` the tensor at
    fault.
    """

    def page(self) -> str:
        """Return the page, in Markdown.

        Raises UsageError if the installation lacks it.
        """
        path = shipped("causes", "docs/causes") / f"{self.code}.md"
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"cannot read the page {path}: {error.strerror or error}; install pitcheck anew"
            ) from None


SEVERITIES: Mapping[FindingVerdict, OneOf["error", "warning"]] = {
    "mismatch": "error",
    "invalid": "error",
    "inconclusive": "warning",
    "nothing-checked": "error",
    "warning": "warning",
    "imprecise": "error",
}
"""Verdict of a finding -> its severity for code scanners and CI."""

CODES: tuple[Code, ...] = (
    Code("PIT001", "a plan cannot be read", "invalid"),
    Code("PIT002", "a tensor is written twice or read before it is written", "invalid"),
    Code("PIT003", "shapes or dtypes do not fit the operator", "invalid"),
    Code("PIT004", "a group of ranks is wrong", "invalid"),
    Code("PIT005", "a send without its receive, or a receive without its send", "invalid"),
    Code("PIT006", "collectives are met out of step", "invalid"),
    Code("PIT007", "deadlock", "invalid"),
    Code("PIT008", "lineage does not fit the shapes", "invalid"),
    Code("PIT009", "a rank's program is wrong", "invalid"),
    Code("PIT010", "a buffer is used while it is still being written or read", "invalid"),
    Code("PIT011", "the outputs are not well declared", "invalid"),
    Code("PIT012", "sends wait for their receives in a circle", "invalid"),
    Code("PIT013", "a configuration is wrong", "invalid"),
    Code("PIT100", "values differ, and no cause was recognised", "mismatch"),
    Code(
        "PIT101",
        "values differ by a constant factor",
        "mismatch",
        "{result!r} is off by a constant factor",
    ),
    Code(
        "PIT102",
        "an operator has another attribute or literal",
        "mismatch",
        "an operator computes {result!r} otherwise than the reference",
    ),
    Code(
        "PIT103",
        "an operator reads another tensor",
        "mismatch",
        "{result!r} is computed from another tensor than in the reference",
    ),
    Code(
        "PIT104", "a reduction is missing", "mismatch", "{result!r} is not summed where it must be"
    ),
    Code("PIT105", "a reduction is repeated", "mismatch", "{result!r} is reduced more than once"),
    Code(
        "PIT106",
        "a reduction runs over another group",
        "mismatch",
        "{result!r} is reduced over another group than it must be",
    ),
    Code(
        "PIT107",
        "another slice or another order of the same elements",
        "mismatch",
        "{result!r} holds another part than it should",
    ),
    Code(
        "PIT108",
        "a term or micro-batch is missing or doubled",
        "mismatch",
        "a term or micro-batch is missing or doubled in {result!r}",
    ),
    Code("PIT109", "replicas differ", "mismatch", "replicas of {output!r} differ"),
    Code("PIT110", "a part of a reference tensor is held by no rank", "mismatch"),
    Code(
        "PIT111",
        "a reduction of another kind",
        "mismatch",
        "{result!r} is reduced in another way than it must be",
    ),
    Code(
        "PIT112",
        "a mean of means of unequal counts",
        "mismatch",
        "{output!r} is a mean of means of unequal counts",
    ),
    Code(
        "PIT113",
        "a norm over part of the parameters",
        "mismatch",
        "a norm leaves out some of the parameters: {result!r}",
    ),
    Code(
        "PIT114",
        "random numbers are shared or split wrongly",
        "mismatch",
        "{result!r} is drawn from other random numbers than it must be",
    ),
    Code("PIT115", "a layer is lost", "mismatch", "a layer is lost before {result!r}"),
    Code(
        "PIT116",
        "another version of a buffer, or the wrong order in time",
        "mismatch",
        "{result!r} is computed from another version of a buffer, or out of order",
    ),
    Code(
        "PIT117",
        "the parts of a fused tensor are interleaved otherwise",
        "mismatch",
        "the parts of a fused tensor are interleaved otherwise in {result!r}",
    ),
    Code("PIT118", "a result depends on memory that nobody has written to", "mismatch"),
    Code(
        "PIT119",
        "a broadcast or a scatter from another rank than the one that has the value",
        "mismatch",
        "{result!r} comes from another rank than it must",
    ),
    Code("PIT200", "an operator has no meaning here", "inconclusive"),
    Code("PIT201", "an output is missing or has no lineage", "inconclusive"),
    Code("PIT202", "a stage is not proven, but no real input shows a difference", "inconclusive"),
    Code("PIT203", "a budget was reached", "inconclusive"),
    Code("PIT204", "an outcome of a decision was never seen", "inconclusive"),
    Code("PIT205", "no common level of the exponential", "inconclusive"),
    Code("PIT206", "random draws do not map one to one", "inconclusive"),
    Code("PIT207", "a result may depend on memory that nobody has written to", "inconclusive"),
    Code("PIT208", "a bound is an estimate, and a theorem is asked for", "inconclusive"),
    Code("PIT301", "a sum or a norm in a narrower dtype than the reference's", "warning"),
    Code(
        "PIT302",
        "a cast of the reference is missing, or there is one more to a narrower dtype",
        "warning",
    ),
    Code("PIT303", "a gradient is accumulated in two buffers of different dtype", "warning"),
    Code("PIT401", "a comment that ignores warnings names no code that it can", "warning"),
    Code("PIT500", "nothing was compared", "nothing-checked"),
    Code("PIT900", "internal error", "invalid"),
)


def find(code: str) -> Code:
    """Return the code of that name, in upper or lower case.

    Raises UsageError, which lists all codes, for an unknown one.
    """
    wanted = code.strip().upper()
    for each in CODES:
        if each.code == wanted:
            return each
    near = nearest(wanted, [each.code for each in CODES])
    raise UsageError(f"unknown code {code!r}{near}; the codes are\n{listing()}")


def listing() -> str:
    """Return all codes with their titles, one per line."""
    return "\n".join(f"  {each.code}  {each.title}" for each in CODES)
