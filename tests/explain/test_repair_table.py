"""The table of repairs: its order is its own, whatever the functions in it are called, and a
diagnosis is data until it is told.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import import_module
from pkgutil import walk_packages
from string import Formatter

import pytest
from explain.along_plans import biased, norms
from explain.repair_plans import chain, gradients
from support.explain_plans import Pair, row_parallel, run

from pitcheck import explain
from pitcheck.errors import BudgetError, ExplanationWarning, UnsupportedError
from pitcheck.explain import messages, observe
from pitcheck.explain import search as tried
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.observations.observation import Observation
from pitcheck.explain.repairs.copied_terms import COPIED_TERM
from pitcheck.explain.repairs.repair import Repair, along_program, from_outputs
from pitcheck.explain.table import AT_OPERATOR, AT_OUTPUT, ON_THE_WAY, REPAIRS
from pitcheck.explain.term_groups import NOT_REDUCED

KINDS = list(
    dict.fromkeys(
        kind
        for module in walk_packages(explain.__path__, "pitcheck.explain.")
        for each in vars(import_module(module.name)).values()
        for kind in (each.values() if isinstance(each, dict) else [each])
        if isinstance(kind, Kind)
    )
)
PAIRS: dict[str, Pair] = {
    "a missing sum and a mean": gradients({0: "missing", 2: "avg"}),
    "a factor": chain(True),
    "a bias on every rank": biased(True),
    "a norm": norms((1,)),
}


def renamed(repair: Repair) -> Repair:
    """The same repair under another name, by a function of another name."""

    def anything(*given):
        yield from repair.candidates(*given)

    return replace(repair, name=f"not {repair.name}", candidates=partial(anything))


@pytest.mark.parametrize("name", PAIRS)
def test_names_of_repairs_and_of_functions_decide_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(PAIRS[name]).findings
    monkeypatch.setattr(tried, "REPAIRS", tuple(map(renamed, REPAIRS)))
    assert run(PAIRS[name]).findings == before
    assert all(finding.tried is not None for finding in before)


def test_phases_have_the_order_of_the_table_whatever_repairs_are_called() -> None:
    for phases in (along_program, from_outputs):
        names = [[repair.name for repair in phase] for phase in phases(REPAIRS)]
        others = [
            [repair.name.removeprefix("not ") for repair in phase]
            for phase in phases(tuple(map(renamed, REPAIRS)))
        ]
        assert names == others
    assert len({repair.name for repair in REPAIRS}) == len(REPAIRS)


def test_without_its_repair_a_mistake_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    (before,) = run(PAIRS["a bias on every rank"]).findings
    monkeypatch.setattr(
        tried,
        "REPAIRS",
        tuple(repair for repair in REPAIRS if repair.name != "added on every rank"),
    )
    assert run(PAIRS["a bias on every rank"]).findings[0].cause != before.cause


def test_what_a_repair_raises_on_purpose_leaves_the_others_and_anything_else_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(site):
        raise UnsupportedError("no meaning")
        yield site

    def broken(site):
        raise LookupError("a mistake of this program")
        yield site

    before = run(PAIRS["a factor"]).findings
    monkeypatch.setattr(tried, "REPAIRS", (Repair("refused", refused, along=0, search=0), *REPAIRS))
    assert run(PAIRS["a factor"]).findings == before
    monkeypatch.setattr(tried, "REPAIRS", (Repair("broken", broken, along=0, search=0), *REPAIRS))
    with pytest.raises(ExplanationWarning, match="a mistake of this program"):
        run(PAIRS["a factor"])


def test_what_costs_too_much_ends_the_search() -> None:
    def costly(site):
        raise BudgetError("too much")
        yield site

    class Leading:
        leads = True

    with pytest.raises(BudgetError):
        list(Repair("costly", costly).of(Leading()))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.code} {kind.said[:30]}")
def test_every_kind_of_mistake_has_words_of_its_facts(kind: Kind) -> None:
    names = {
        name
        for text in (kind.said, kind.repair)
        for _, name, _, _ in Formatter().parse(text)
        if name
    }
    assert kind.said and set(kind.same) <= names | {"ratio", "number"}
    diagnosis = Diagnosis(kind, {name: f"<{name}>" for name in names})
    for text in (messages.said(diagnosis), messages.repair(diagnosis)):
        assert "{" not in text and " due" not in text and "alike" not in text and " own" not in text


@pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if kind.repair],
    ids=lambda kind: f"{kind.code} {kind.said[:30]}",
)
def test_every_repair_is_lines_that_go_and_come_made_of_facts(kind: Kind) -> None:
    names = {
        name
        for text in (kind.said, kind.repair, *kind.edits)
        for _, name, _, _ in Formatter().parse(text)
        if name
    }
    diagnosis = Diagnosis(kind, {name: f"<{name}>" for name in names})
    edits = messages.edits([diagnosis])
    assert edits and [edit.sign for edit in edits] == sorted(
        (edit.sign for edit in edits), reverse=True
    )
    assert all(line[:2] in ("- ", "+ ") for line in kind.edits)
    assert len({edit.text for edit in edits}) == len(edits)
    assert all("{" not in edit.text and "<" in edit.text for edit in edits)


def test_a_repair_at_several_places_has_the_lines_of_each_of_some_once() -> None:
    places = [
        Diagnosis(NOT_REDUCED, {"result": name, "over": "dp", "reduction": "sum"})
        for name in ("a", "b", "a", *map(str, range(messages.MOST_PLACES)))
    ]
    lines = [edit.text for edit in messages.edits(places)]
    assert lines[:2] == ["all-reduce(sum) over dp of 'a'", "all-reduce(sum) over dp of 'b'"]
    assert len(lines) == messages.MOST_PLACES - 1
    assert messages.edits([Diagnosis(Kind("PIT100", "nothing is known"))]) == ()


def test_mistakes_of_one_family_differ_in_names_alone() -> None:
    one, other = (
        Diagnosis(NOT_REDUCED, {"result": name, "over": "dp", "reduction": "sum"}) for name in "ab"
    )
    assert one.family == other.family
    assert (
        one.family
        != Diagnosis(NOT_REDUCED, {"result": "a", "over": "tp", "reduction": "sum"}).family
    )
    assert (
        one.family
        != Diagnosis(COPIED_TERM, {"result": "a", "over": "dp", "reduction": "sum"}).family
    )


@pytest.mark.parametrize("table", [AT_OPERATOR, ON_THE_WAY, AT_OUTPUT])
def test_observations_of_a_place_have_names_of_their_own(table: tuple[Observation, ...]) -> None:
    assert len({each.name for each in table}) == len(table) > 1


def test_what_is_only_observed_is_told_by_the_first_that_sees_it_and_never_called_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tried, "REPAIRS", ())
    monkeypatch.setattr(tried, "PLACEMENTS", ())
    (before,) = run(row_parallel(False)).findings
    assert before.code == "PIT104" and before.tried is None
    assert "tested" not in (before.repair or "")

    def seen(view):
        return Diagnosis(Kind("PIT101", "seen at {name!r}", "look"), {"name": view.step.kind})

    table = (Observation("blind", lambda view: None), Observation("seen", seen), *AT_OPERATOR)
    monkeypatch.setattr(observe, "AT_OPERATOR", table)
    monkeypatch.setattr(observe, "ON_THE_WAY", ())
    monkeypatch.setattr(observe, "AT_OUTPUT", ())
    (after,) = run(row_parallel(False)).findings
    assert (after.code, after.repair, after.tried) == ("PIT101", "look", None)
    assert (after.cause or "").startswith("seen at ")
