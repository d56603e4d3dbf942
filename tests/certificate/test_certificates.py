"""Certificates of right pairs are verified; those of wrong ones, forged, are not."""

from collections.abc import Callable

import msgspec
import pytest
from certificate.certified_pairs import (
    accepted,
    altered,
    certificate,
    digests_of,
    forged,
    over,
    parallel,
    reference,
    replaced,
    result,
    statement,
    with_tensor,
    wrong_plans,
)
from certificate.certified_pairs import operator as op
from syrupy.assertion import SnapshotAssertion

from pitcheck.base.options import Options
from pitcheck.certificate.digests import Digests
from pitcheck.certificate.statement import Bound, Stage, Statement, Target, decode
from pitcheck.certificate.verify import verify
from pitcheck.engine.certifying import Certifier
from pitcheck.engine.check import check
from pitcheck.errors import CertificateError, PitcheckError, UnsupportedError, UsageError
from pitcheck.plan.model import Group, Lineage, Operator, Output, Plan, Shard, Table, Tensor
from pitcheck.report.report import Report


def refuses(found: Statement, other: Plan) -> bool:
    """Return True if a statement is not accepted for a plan."""
    try:
        return not accepted(result(found, other))
    except PitcheckError:
        return True


def test_a_right_certificate_is_verified() -> None:
    found = result(statement(), parallel())
    assert accepted(found)
    assert (found.stages, found.distinct, found.sampled) == (5, 4, 0)
    assert found.bound_log2 < -64


def test_fresh_seeds_verify_it_too() -> None:
    assert accepted(result(statement(), parallel(), seed=None))


def test_the_format(snapshot: SnapshotAssertion) -> None:
    assert certificate().decode() == snapshot


def test_equal_seeds_give_equal_bytes() -> None:
    assert certificate.__wrapped__() == certificate()


@pytest.mark.parametrize("name", wrong_plans())
def test_a_certificate_forged_for_a_wrong_plan_is_refused(name: str) -> None:
    wrong = wrong_plans()[name]
    assert refuses(forged(statement(), reference(), wrong), wrong)


def test_the_stage_that_does_not_hold_is_named() -> None:
    wrong = wrong_plans()["missing all-reduce"]
    found = result(forged(statement(), reference(), wrong), wrong)
    assert found.refused[0] == "y: both sides differ at a random point"


def test_a_domain_that_grows_smaller_is_not_verified() -> None:
    wrong = wrong_plans()["no value at 0"]
    found = result(forged(statement(), reference(), wrong), wrong)
    assert not found.refused
    assert "outside of its domain" in found.open[0]


def test_another_pair_is_refused_by_its_digest() -> None:
    with pytest.raises(CertificateError, match="another parallel plan"):
        result(statement(), wrong_plans()["mean"])


def test_exchanged_plans_are_refused() -> None:
    digests = digests_of(parallel(), reference())
    with pytest.raises(CertificateError, match="another reference plan"):
        verify(statement(), parallel(), reference(), digests)


@pytest.mark.parametrize("verdict", ["inconclusive", "invalid", "nothing-checked"])
def test_only_an_equivalent_pair_has_a_certificate(verdict: str) -> None:
    certifier = Certifier(Digests.of_plans("pair", reference(), parallel()), 0)
    check(reference(), parallel(), Options(seed=certifier.seed), decided=certifier.keep)
    with pytest.raises(UsageError, match=verdict):
        certifier.encode(Report(verdict=verdict))  # type: ignore[arg-type]


# --- forgeries, one for each way in which a wrong pair might pass


def without_cut(name: str) -> Statement:
    """Return the statement without one cut, and with the stages that are left."""
    found = statement()
    cuts = tuple(target for target in found.predicate.cuts if target.tensor != name)
    return altered(found, cuts=cuts)


def test_a_stage_without_targets_is_refused() -> None:
    with pytest.raises(CertificateError, match="stages"):
        result(without_cut("a"), parallel())


def test_an_omitted_output_is_refused() -> None:
    found = statement()
    stated = found.predicate.specification
    fewer = msgspec.structs.replace(stated, outputs=stated.outputs[:1])
    assert refuses(altered(found, specification=fewer), parallel())


def test_an_output_that_the_plan_omits_is_not_verified() -> None:
    fewer = msgspec.structs.replace(parallel(), outputs=(Output("y", "y"),))
    with pytest.raises(UnsupportedError, match="names no tensor"):
        result(forged(statement(), reference(), fewer), fewer)


def test_a_relation_of_an_output_that_the_plan_does_not_state_is_refused() -> None:
    found, wrong = statement(), wrong_plans()["missing all-reduce"]
    lineages = tuple(
        msgspec.structs.replace(own, partial=("tp",)) if own == Lineage("") else own
        for own in found.predicate.lineages
    )
    assert refuses(forged(altered(found, lineages=lineages), reference(), wrong), wrong)


def test_a_weaker_cut_does_not_carry_what_stands_on_it() -> None:
    """Terms that add up to y say less than y on every rank: y is not proven from them."""
    found, wrong = statement(), wrong_plans()["missing all-reduce"]
    lineages = (*found.predicate.lineages, Lineage("", partial=("tp",)))
    number = len(lineages) - 1
    cuts = tuple(
        Target(own.tensor, "y", number, own.stage) if own.tensor == "y" else own
        for own in found.predicate.cuts
    )
    weak = forged(altered(found, lineages=lineages, cuts=cuts), reference(), wrong)
    said = result(weak, wrong)
    assert [line.split(":")[0] for line in said.refused] == ["y", "loss"]


def test_terms_of_two_tensors_are_not_taken_for_each_other() -> None:
    """Each of p and p2 adds up to y over the ranks, but p + p2 over one rank each does not."""
    right = parallel()
    more = with_tensor(right, Tensor("p2", (4, 4)), Tensor("d", (4, 4)))
    crossed = replaced(
        more,
        "q",
        op("p2", "add", "p", "y", alpha=0),
        op("d", "sub", "p", "p2"),
        op("q", "square", "d"),
    )
    zero = Plan(
        (),
        (*reference().tensors, Tensor("o", (4, 4))),
        (
            *reference().operators[:3],
            op("o", "sub", "y", "y"),
            op("q", "square", "o"),
            *reference().operators[4:],
        ),
        reference().outputs,
    )
    found = statement()
    lineages = (*found.predicate.lineages, Lineage("", partial=("tp",)))
    cuts = (
        *found.predicate.cuts,
        Target("p", "y", len(lineages) - 1, 0),
        Target("p2", "y", len(lineages) - 1, 0),
    )
    crossing = forged(altered(found, lineages=lineages, cuts=cuts), zero, crossed)
    said = result(crossing, crossed, zero)
    assert any(line.startswith("loss") for line in said.refused)


def test_a_cut_does_not_prove_itself() -> None:
    """y and its copy name each other's part of the reference; neither is right."""
    wrong = replaced(
        with_tensor(parallel(), Tensor("z", (4, 4))),
        "y",
        op("z", "identity", "p"),
        op("y", "identity", "z"),
    )
    found = statement()
    number = next(t.lineage for t in found.predicate.cuts if t.tensor == "y")
    cuts = (*found.predicate.cuts, Target("z", "y", number, 0))
    said = result(forged(altered(found, cuts=cuts), reference(), wrong), wrong)
    assert [line.split(":")[0] for line in said.refused] == ["z"]
    assert not accepted(said)


def test_a_cut_of_another_reference_tensor_is_refused() -> None:
    found = statement()
    cuts = tuple(
        msgspec.structs.replace(own, reference="q") if own.tensor == "y" else own
        for own in found.predicate.cuts
    )
    assert refuses(altered(found, cuts=cuts), parallel())


@pytest.mark.parametrize("draws", [0, -1, 10**6])
def test_draws_out_of_range_are_refused(draws: int) -> None:
    stages = tuple(Stage(draws) for _ in statement().predicate.stages)
    with pytest.raises(CertificateError, match="draws"):
        result(altered(statement(), stages=stages), parallel())


@pytest.mark.parametrize("log2", [0.0, -10.0, -1e9, float("-inf"), float("nan")])
def test_a_bound_out_of_range_is_refused(log2: float) -> None:
    found = altered(statement(), bound=Bound(log2))
    assert refuses(found, parallel())


def test_a_smaller_bound_is_established_and_not_believed() -> None:
    found = altered(statement(), bound=Bound(-700.0))
    said = result(found, parallel())
    assert accepted(said)
    assert said.bound_log2 <= -700
    assert said.draws > result(statement(), parallel()).draws


def test_a_rank_that_lacks_an_output_is_not_verified() -> None:
    right = parallel()
    operators = tuple(
        msgspec.structs.replace(own, where=({"tp": (0,)},)) if own.id == "loss" else own
        for own in right.operators
    )
    lost = msgspec.structs.replace(right, operators=operators)
    said = result(forged(statement(), reference(), lost), lost)
    assert accepted(said), "one copy of the loss is enough, as for the check"


def test_an_output_of_which_a_part_is_missing_is_not_verified() -> None:
    right = parallel()
    half = with_tensor(right, Tensor("s", (4, 2)))
    cut = msgspec.structs.replace(
        half,
        operators=(
            *half.operators,
            Operator("s", "slice", ("y",), ("s",), {"axis": 1, "start": 0, "stop": 2}),
        ),
        outputs=(
            Output("s", "y", Lineage("y", (Shard(1, intervals=_halves()),))),
            Output("loss", "loss"),
        ),
    )
    assert refuses(forged(statement(), reference(), cut), cut)


def _halves() -> Table:
    return Table((), (((0, 2),),))


def test_memory_that_nobody_wrote_is_not_verified() -> None:
    wrong = replaced(
        with_tensor(parallel(), Tensor("z", (4, 4))),
        "y",
        Operator("z", "reduce", ("p",), ("z",), {"root": 0}, Group(("tp",))),
        op("y", "identity", "z"),
    )
    said = result(forged(statement(), reference(), wrong), wrong)
    assert any("nobody has written" in line for line in said.open)


def test_a_given_part_that_is_another_one_is_refused() -> None:
    right = parallel()
    other = with_tensor(right, Tensor("w1", (6, 4), role="parameter", lineage=over("w1", 1)))
    whole = with_tensor(other, Tensor("x", (4, 6), role="input", lineage=Lineage("x", scale="2")))
    assert refuses(forged(statement(), reference(), whole), whole)


# --- files that are no certificates

ALTER: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "binary": lambda data: b"\x00\xff" * 100,
    "deep": lambda data: b"[" * 100_000,
    "huge": lambda data: data + b" " * (9 << 20),
    "byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "no UTF-8": lambda data: data.replace(b"reference", b"refer\xe9nce", 1),
    "more behind it": lambda data: data + b"{}",
    "0 behind it": lambda data: data + b"\0",
    "decimal version": lambda data: data.replace(b'"version": 1', b'"version": 1.0'),
    "true version": lambda data: data.replace(b'"version": 1', b'"version": true'),
    "endless version": lambda data: data.replace(b'"version": 1', b'"version": 1' + b"0" * 5000),
    "endless bound": lambda data: data.replace(b'"log2":', b'"log2":-1e999, "x":'),
    "decimal draws": lambda data: data.replace(b'"draws":', b'"draws":1.0, "x":'),
    "one subject": lambda data: data.replace(b'  },\n  {\n   "name"', b'  }], "x": [{"name"', 1),
    "two digests": lambda data: data.replace(b'"sha256":', b'"sha512": "", "sha256":', 1),
    "no digest": lambda data: data.replace(b'"sha256"', b'"x"', 1),
    "key twice": lambda data: data.replace(b'"version": 1', b'"version": 2, "version": 1'),
    "unknown field": lambda data: data.replace(b'"version": 1', b'"version": 1, "more": 1'),
    "primes of its choice": lambda data: data.replace(b'"bound": {', b'"bound": {"primes":[2],'),
    "sizes of its choice": lambda data: data.replace(b'"version": 1', b'"version": 1, "sizes":[1]'),
    "another version": lambda data: data.replace(b'"version": 1', b'"version": 2'),
    "another type": lambda data: data.replace(b"Statement/v1", b"Statement/v2"),
    "another predicate": lambda data: data.replace(b"certificate/v1", b"certificate/v2"),
    "number for text": lambda data: data.replace(b'"_type": "', b'"_type": 1, "x": "'),
    "NaN": lambda data: data.replace(b'"log2":', b'"log2":NaN, "x":'),
    "another digest": lambda data: data.replace(b'"sha256"', b'"md5"'),
    "index out of range": lambda data: data.replace(b'["a","",0,0]', b'["a","",0,99]'),
    "negative index": lambda data: data.replace(b'["a","",0,0]', b'["a","",-1,0]'),
}


@pytest.mark.parametrize("name", ALTER)
def test_a_file_that_is_no_certificate_is_refused(name: str) -> None:
    changed = ALTER[name](certificate())
    assert changed != certificate()
    with pytest.raises(CertificateError, match=r"file\.json"):
        decode(changed, "file.json")
