"""Altered certificates: none is accepted whose claim is false, whatever was altered.

The claim of a certificate is that both of its plans compute the same, with the specification and
the bound that it states. For a wrong plan it is false, whatever else a certificate says.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from certificate.certified_pairs import (
    accepted,
    altered,
    forged,
    parallel,
    reference,
    result,
    statement,
    wrong_plans,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from pitcheck.certificate.statement import Bound, Stage, Statement, Target, decode, encode
from pitcheck.errors import PitcheckError
from pitcheck.plan.model import Lineage, Shard, Table

MANY = 10_000
NAMES = (*tuple(tensor.name for tensor in (*parallel().tensors, *reference().tensors)), "none")
PLANS = {"right": parallel(), **wrong_plans()}
numbers = st.integers(-1, 8)
intervals = st.tuples(st.integers(-2, 8), st.integers(0, 8))
shards = st.one_of(
    st.builds(Shard, st.integers(0, 2), st.sampled_from([(), ("tp",), ("mb",), ("tp", "tp")])),
    st.builds(
        lambda dim, values: Shard(dim, intervals=Table(("tp",), values)),
        st.integers(0, 1),
        st.tuples(st.tuples(intervals), st.tuples(intervals)),
    ),
)
lineages = st.builds(
    Lineage,
    st.just(""),
    st.lists(shards, max_size=2).map(tuple),
    st.sampled_from([(), ("tp",), ("mb",), ("tp", "mb")]),
    st.sampled_from([(), ((0, 1),), ((0,), (1,)), ((1, 0),)]),
    st.sampled_from(["sum", "max"]),
    st.sampled_from(["1", "2", "1/2", "0", "-1", "x"]),
)
targets = st.builds(Target, st.sampled_from(NAMES), st.sampled_from(("", *NAMES)), numbers, numbers)


def _entry(name: str, entries: st.SearchStrategy[Any]) -> st.SearchStrategy[Callable[..., Any]]:
    """Return alterations of one entry of a list of the predicate: other, absent, twice or new."""

    def change(way: str, place: int, new: Any) -> Callable[[Statement], Statement]:
        def apply(found: Statement) -> Statement:
            own = list(getattr(found.predicate, name))
            at = place % (len(own) or 1)
            if way == "new" or not own:
                own.insert(at, new)
            elif way == "other":
                own[at] = new
            elif way == "twice":
                own.insert(at, own[at])
            elif way == "exchanged":
                own[at], own[0] = own[0], own[at]
            else:
                del own[at]
            return altered(found, **{name: tuple(own)})

        return apply

    ways = st.sampled_from(["new", "other", "twice", "exchanged", "absent"])
    return st.builds(change, ways, numbers, entries)


def _renumbered(place: int, field: str, number: int) -> Callable[[Statement], Statement]:
    def apply(found: Statement) -> Statement:
        own = list(found.predicate.cuts)
        if own:
            at = place % len(own)
            own[at] = msgspec.structs.replace(own[at], **{field: number})
        return altered(found, cuts=tuple(own))

    return apply


def _without(place: int) -> Callable[[Statement], Statement]:
    """Return what takes a cut out as a forger would: nothing else names its stage or lineage."""

    def apply(found: Statement) -> Statement:
        cuts = found.predicate.cuts
        kept = tuple(own for n, own in enumerate(cuts) if n != place % (len(cuts) or 1))
        return altered(found, cuts=kept)

    return apply


def _bounded(log2: float) -> Callable[[Statement], Statement]:
    return lambda found: altered(found, bound=Bound(log2))


def _specified(name: str, value: Any) -> Callable[[Statement], Statement]:
    def apply(found: Statement) -> Statement:
        stated = msgspec.structs.replace(found.predicate.specification, **{name: value})
        return altered(found, specification=stated)

    return apply


def _versioned(version: int) -> Callable[[Statement], Statement]:
    return lambda found: altered(found, version=version)


alterations = st.one_of(
    _entry("lineages", lineages),
    _entry("cuts", targets),
    _entry("stages", st.builds(Stage, st.integers(-1, 4))),
    st.builds(_renumbered, numbers, st.sampled_from(["lineage", "stage"]), numbers),
    st.builds(_without, numbers),
    st.builds(_bounded, st.sampled_from([0.0, -1.0, -64.0, -100.0, -300.0])),
    st.builds(
        _specified, st.sampled_from(["assumptions", "exceptions"]), st.just(("all is well",))
    ),
    st.builds(_specified, st.just("outputs"), st.lists(targets, max_size=2).map(tuple)),
    st.builds(
        _specified,
        st.just("given"),
        st.lists(
            st.tuples(st.sampled_from(NAMES), st.sampled_from(("", *NAMES)), numbers), max_size=3
        ).map(tuple),
    ),
    st.builds(_versioned, st.integers(0, 3)),
)


def used_alone(found: Statement) -> Statement:
    """Return a statement in which all lineages and stages are named, as a careful forger would."""
    predicate = found.predicate
    stated = predicate.specification
    every = (*predicate.cuts, *stated.outputs)
    wanted = [t.lineage for t in every] + [n for *_, n in stated.given]
    if not all(0 <= n < len(predicate.lineages) for n in wanted):
        return found
    if not all(0 <= t.stage < len(predicate.stages) for t in every):
        return found
    kept = {old: new for new, old in enumerate(sorted(set(wanted)))}
    stages = {old: new for new, old in enumerate(sorted({t.stage for t in every}))}

    def moved(own: Target) -> Target:
        return Target(own.tensor, own.reference, kept[own.lineage], stages[own.stage])

    specification = msgspec.structs.replace(
        stated,
        outputs=tuple(map(moved, stated.outputs)),
        given=tuple((name, own, kept[n]) for name, own, n in stated.given),
    )
    return altered(
        found,
        lineages=tuple(predicate.lineages[n] for n in kept),
        stages=tuple(predicate.stages[n] for n in stages),
        cuts=tuple(map(moved, predicate.cuts)),
        specification=specification,
    )


def believes_nothing_false(
    changes: list[Callable[[Statement], Statement]], name: str, seed: int
) -> None:
    """Alter a certificate, forge it for a plan, and ask the verifier."""
    found = statement()
    for change in changes:
        found = used_alone(change(found))
    found = forged(found, reference(), PLANS[name])
    try:
        said = result(found, PLANS[name], seed=seed)
    except PitcheckError:
        return
    if name != "right":
        assert not accepted(said)
    elif accepted(said):
        assert said.bound_log2 <= found.predicate.bound.log2
        assert found.predicate.specification.exceptions == ()


cases = given(
    st.lists(alterations, max_size=4), st.sampled_from(sorted(PLANS)), st.integers(0, 2**64)
)


@cases
def test_no_altered_certificate_is_believed(
    changes: list[Callable[[Statement], Statement]], name: str, seed: int
) -> None:
    believes_nothing_false(changes, name, seed)


@pytest.mark.slow
@pytest.mark.nightly
@settings(max_examples=MANY)
@cases
def test_no_altered_certificate_of_many_is_believed(
    changes: list[Callable[[Statement], Statement]], name: str, seed: int
) -> None:
    believes_nothing_false(changes, name, seed)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3))
def test_altered_bytes_are_a_clear_error_or_the_same_claim(changes: list[tuple[int, int]]) -> None:
    data = bytearray(encode(statement()))
    for place, byte in changes:
        data[place % len(data)] = byte
    try:
        found = decode(bytes(data), "certificate")
        said = result(found, parallel())
    except PitcheckError:
        return
    if accepted(said):
        assert said.bound_log2 <= found.predicate.bound.log2
