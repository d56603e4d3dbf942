"""Repairs of copies of an addend, which should be copies of the sum or the mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.families import COPIES
from pitcheck.explain.repairs.missing_collective import replicas
from pitcheck.explain.rerun.changes import Override, held_at
from pitcheck.explain.rerun.site import Candidate, Site, reduced, sites_of
from pitcheck.explain.term_groups import groups_present, reduced_anyway
from pitcheck.graph.graph import Source
from pitcheck.graph.grids import Codes

COPIED_TERM = Kind(
    "PIT104",
    "operator {operator!r} copies what a rank has of {called}, a term of a {what} over {over}, "
    "where it should copy that {what}",
    "a reduction({reduction}) over {over} in its place makes it right",
    ("reduction", "over"),
    edits=(
        "- {operator!r} ({kind}) of {called}",
        "+ {operator!r} ({kind}) of the {what} of {called} over {over}",
    ),
)
COPIED_TERMS = Kind(
    COPIED_TERM.code,
    "operators {operators} copy what a rank has of {called}, a term of a {what} over {over}, where "
    "they should copy that {what}",
    "reduce {called} ({reduction}) over {over} before it is copied",
    ("reduction", "over"),
    edits=("+ all-reduce({reduction}) over {over} of {called}, read by {operators}",),
)


def unreduced_part(site: Site) -> Iterator[Candidate]:
    """Copy the sum, or a part of it, and not the addend of the rank."""
    yield from _copied(site, "sum")


def unaveraged_part(site: Site) -> Iterator[Candidate]:
    """Copy the mean, or a part of it, and not the addend of the rank."""
    yield from _copied(site, "avg")


def unreduced_parts(site: Site) -> Iterator[Candidate]:
    """Let all copies of one addend be copies of the sum, but those that are reduced anyway.

    Parts of a gradient may be reduced while others stay as they are.
    """
    source = _read(site)
    every = [] if source is None else _copies(site, source)
    if source is None or len(every) < 2 or every[0].numbers != site.numbers:
        return
    for over, table in _tables(site, source):
        copies = [each for each in every if not reduced_anyway(site.evidence, each.value, table)]
        overrides = _of_total(copies, source, table, "sum") if len(copies) > 1 else []
        if overrides:
            names = dict.fromkeys(repr(each.name) for each in copies)
            facts = {**_facts(site, source, over, "sum"), "operators": " and ".join(names)}
            yield site.diagnosis(COPIED_TERMS, **facts), overrides


def _copies(site: Site, source: int) -> list[Site]:
    """Return the sites that copy a value, in the order of the program."""
    numbers = (step.node for step in site.evidence.readers.get(source, []))
    return [each for each in sites_of(site.rerun, numbers) if _read(each) == source]


def _copied(site: Site, reduction: str) -> Iterator[Candidate]:
    source = _read(site)
    if source is None:
        return
    for over, table in _tables(site, source):
        if reduced_anyway(site.evidence, source, table):
            continue
        overrides = _of_total([site], source, table, reduction)
        if overrides:
            yield site.diagnosis(COPIED_TERM, **_facts(site, source, over, reduction)), overrides


def _read(site: Site) -> int | None:
    """Return the addend that a site copies; None for other sites."""
    source = site.nodes[0].inputs[0] if site.nodes[0].inputs else None
    if site.kind not in COPIES or len(site.nodes[0].inputs) != 1:
        return None
    if not isinstance(source, Source) or source.members:
        return None
    # A value that holds parts of a reference's tensor is no addend.
    return None if site.evidence.is_true(source.value) else source.value


def _tables(site: Site, value: int) -> Iterator[tuple[str, Codes]]:
    """Yield the groups whose members may hold addends in a value: name, shape (groups, members)."""
    for grouping in site.evidence.groupings:
        table = groups_present(site.evidence, value, grouping)
        if table is not None and not replicas(site, value, table):
            yield grouping.name, table


def _of_total(sites: Sequence[Site], value: int, table: Codes, reduction: str) -> list[Override]:
    """Return what sites give if a value is reduced over groups before they read it."""
    rerun = sites[0].rerun
    total = reduced(rerun, value, table, reduction)
    if total is None:
        return []
    known = {value: held_at(total.data, total.codes, rerun.graph.codes)}
    return [each for site in sites for each in site.redone(site.as_given, known=known) or []]


def _facts(site: Site, value: int, over: str, reduction: str) -> dict[str, object]:
    what = "sum" if reduction == "sum" else "mean"
    called = site.evidence.called(value)
    return {"called": called, "what": what, "over": over, "reduction": reduction}
