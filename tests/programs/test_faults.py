"""A mistake at one place of a plan of many ranks is caught there: one group, one rank, one layer,
one micro-batch, and for what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace
from programs.faults import (
    Change,
    Place,
    at_place,
    dropped,
    first_operand,
    of_microbatch,
    over,
    over_ranks,
    reading,
    with_attributes,
)
from programs.program_cases import Case, case, llama, said
from support.by_day import some_at_once

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge_often
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import MICROBATCH_AXIS, Operator, Plan, Table
from pitcheck.programs.configuration import Configuration, read_configuration
from pitcheck.report.report import Finding, Report
from pitcheck.witness.replay import replay


@dataclass(frozen=True)
class Fault:
    """A change of operator ``identity`` at ``place``, the codes that name it rightly, and where it
    shows (default: at ``place``).
    """

    identity: str
    place: Place
    change: Callable[[Plan], Change]
    codes: tuple[str, ...]
    shown: Place = field(default_factory=dict)


def _plainly(change: Change) -> Callable[[Plan], Change]:
    return lambda _: change


def _half_of_group(plan: Plan) -> Change:
    """Two groups of half the data-parallel ranks, at the second tensor-parallel rank of the second
    pipeline stage.
    """
    coordinates = Coordinates.of(plan)
    mask = coordinates.mask(({"tp": (1,), "pp": (1,)},)).any(axis=1)
    ranks = [rank for rank in range(coordinates.ranks) if mask[rank]]
    return over_ranks((ranks[: len(ranks) // 2], ranks[len(ranks) // 2 :]))


def _one_later(operator: Operator) -> Operator:
    """The second rank's rows begin one later."""
    table = operator.attributes["offset"]
    assert isinstance(table, Table)
    first, second, *others = (int(str(value)) for value in table.values)
    return with_attributes(offset=Table(table.over, (first, second + 1, *others)))(operator)


def _all_but_last(plan: Plan) -> Change:
    return with_attributes(microbatches=tuple(range(plan.microbatches - 1)))


SHALLOW = llama()
MANY = case(SHALLOW, 64, dp=16, tp=2, pp=2, microbatches=4)
"""64 ranks, 64 blocks of the batch."""
RING = case(SHALLOW, 64, dp=16, cp=2, pp=2, microbatches=4)
SHARDS = case(SHALLOW, 64, dp=16, tp=2, pp=2, microbatches=4, zero=1, bucket=300)


def _in_reverse(plan: Plan) -> Change:
    """The ranks that have the experts, for one replica in the first pipeline stage, in the other
    order.
    """
    mask = Coordinates.of(plan).mask(({"pp": (0,), "dp": (3,)},)).any(axis=1)
    return over_ranks(([rank for rank in range(len(mask)) if mask[rank]][::-1],))


EXPERTS = read_configuration(
    Path(__file__).parents[2] / "plans" / "mixtral-tiny.toml",
    ["dp=16", "microbatches=4", "sequences=64"],
)
FAULTS: dict[str, tuple[Case | Configuration, Fault]] = {
    "a sum over tensor-parallel ranks is dropped in one replica": (
        MANY,
        Fault("layers.1.mlp.down", {"dp": 11}, _plainly(dropped), ("PIT104",)),
    ),
    "it is dropped in one micro-batch": (
        MANY,
        Fault("layers.0.mlp.down", {"dp": 3, MICROBATCH_AXIS: 2}, _plainly(dropped), ("PIT104",)),
    ),
    "a gradient is not summed over replicas": (
        MANY,
        Fault("grad:layers.1.mlp.up.weight", {"tp": 1}, _plainly(dropped), ("PIT104",)),
    ),
    "it is summed over half of them": (
        MANY,
        Fault("grad:layers.1.mlp.up.weight", {"tp": 1}, _half_of_group, ("PIT106",)),
    ),
    "it is summed over other ranks": (
        MANY,
        Fault("grad:layers.0.attention.o.weight", {}, _plainly(over("tp")), ("PIT106",)),
    ),
    "a shard of the vocabulary begins one later": (
        MANY,
        Fault(
            "embedding.rows.begin", {"dp": 5}, _plainly(_one_later), ("PIT107",), {"dp": 5, "tp": 1}
        ),
    ),
    "the mask of another micro-batch": (
        MANY,
        Fault(
            "loss.tokens.counted",
            {"dp": 9, MICROBATCH_AXIS: 3},
            _plainly(of_microbatch(1, 2)),
            ("PIT108",),
        ),
    ),
    "activations that are overwritten too late": (
        MANY,
        Fault(
            "layers.1.mlp.down:term",
            {"dp": 9, MICROBATCH_AXIS: 1},
            _plainly(of_microbatch(0, 0)),
            ("PIT108",),
        ),
    ),
    "a moment of the step before": (
        MANY,
        Fault(
            "clipped:layers.0.mlp.up.weight",
            {"dp": 7},
            _plainly(reading(0, "first:layers.0.mlp.up.weight")),
            ("PIT103",),
        ),
    ),
    "a micro-batch is missing in one rank's sum": (
        MANY,
        Fault(
            "accumulated:layers.1.mlp.gate.weight", {"dp": 4, "tp": 1}, _all_but_last, ("PIT108",)
        ),
    ),
    "the loss is averaged twice": (
        MANY,
        Fault("loss", {"tp": 1}, _plainly(with_attributes(reduction="avg")), ("PIT101", "PIT111")),
    ),
    "a shard of the rank before": (
        SHARDS,
        Fault(
            "layers.1.mlp.up.weight:own",
            {"pp": 1, "tp": 1},
            _plainly(with_attributes(position=Table(("dp",), (15, *range(15))))),
            ("PIT107", "PIT102", "PIT103"),
        ),
    ),
    "tokens go to other experts": (
        EXPERTS,
        Fault("layers.1.mlp.packed:there", {"pp": 0, "dp": 3}, _in_reverse, ("PIT106", "PIT107")),
    ),
    "a sum of a hop is not rescaled": (
        RING,
        Fault("layers.1.attention.rescale.1", {"dp": 6}, _plainly(first_operand), ("PIT102",)),
    ),
}
FAST = ("a sum over tensor-parallel ranks is dropped in one replica",)


def _rescaled(plan: Plan, identity: str) -> str:
    """The first product with a factor."""
    return next(o.id for o in plan.operators if o.kind == "mul" and identity in o.inputs)


def _wrong(plan: Plan, fault: Fault) -> tuple[Plan, str]:
    identity = _rescaled(plan, fault.identity) if ".rescale." in fault.identity else fault.identity
    return at_place(plan, identity, fault.place, fault.change(plan)), identity


def _ranks_at(plan: Plan, identity: str, place: Place) -> set[int]:
    """The ranks that run an operator at a place."""
    operator = next(o for o in plan.operators if o.id == identity)
    coordinates = Coordinates.of(plan)
    mask = coordinates.mask(operator.where) & coordinates.mask(
        ({axis: (at,) for axis, at in place.items()},) if place else ()
    )
    return {rank for rank in range(coordinates.ranks) if mask[rank].any()}


def _assert_caught(plan: Plan, fault: Fault, identity: str, report: Report) -> Finding:
    """A mismatch whose first finding names the operator, the place and the cause."""
    assert report.verdict == "mismatch", said(report)
    finding = report.findings[0]
    assert finding.code in fault.codes, said(report)
    assert identity in f"{finding.operator} {finding.cause}", said(report)
    place = fault.shown or fault.place
    ranks = _ranks_at(plan, identity, place)
    assert set(finding.ranks) <= ranks and finding.ranks, (finding.ranks, sorted(ranks))
    if MICROBATCH_AXIS in place:
        assert finding.microbatches == (place[MICROBATCH_AXIS],)
    assert finding.output is not None and finding.reference_value != finding.parallel_value
    return finding


@pytest.mark.parametrize(
    "name", some_at_once(sorted(FAULTS, key=lambda name: name not in FAST), len(FAULTS), 2)
)
def test_a_fault_is_caught_at_its_place(name: str, tmp_path: Path) -> None:
    right, fault = FAULTS[name]
    reference, parallel = (
        (right.reference(), right.parallel()) if isinstance(right, Configuration) else right.plans()
    )
    wrong, identity = _wrong(parallel, fault)
    finding = _assert_caught(
        parallel,
        fault,
        identity,
        check(reference, wrong, Options(seed=1, witness_directory=tmp_path)),
    )
    if finding.witness is not None:
        assert replay(Path(finding.witness))[1] == 1


@pytest.mark.slow
def test_faults_are_faults() -> None:
    """By the executor that shares no code with the checker, on fewer ranks."""
    reference, parallel = case(SHALLOW, 8, dp=2, tp=2, pp=2, microbatches=2).plans()
    for identity, place, change in (
        ("layers.1.mlp.down", {"dp": 1}, dropped),
        ("grad:layers.1.mlp.up.weight", {"tp": 1}, dropped),
        ("loss.tokens.counted", {"dp": 1, MICROBATCH_AXIS: 1}, of_microbatch(1, 0)),
        ("layers.1.mlp.down:term", {"dp": 1, MICROBATCH_AXIS: 1}, of_microbatch(0, 0)),
        ("loss", {"tp": 1}, with_attributes(reduction="avg")),
    ):
        assert not judge_often(
            reference, at_place(parallel, identity, place, change), range(4)
        ).same, identity


@pytest.mark.slow
def test_the_same_seed_gives_the_same_findings() -> None:
    reference, parallel = MANY.plans()
    _, fault = FAULTS["a micro-batch is missing in one rank's sum"]
    wrong, _ = _wrong(parallel, fault)
    reports = [check(reference, wrong, Options(seed=5)) for _ in range(2)]
    assert reports[0].findings == reports[1].findings


DEEP = case(llama(16), 1024, dp=64, tp=2, pp=16, microbatches=16)
"""2,048 ranks, 1,024 blocks of the batch."""
AT_SCALE: dict[str, Fault] = {
    "sum": Fault(
        "layers.9.mlp.down", {"dp": 37, MICROBATCH_AXIS: 11}, _plainly(dropped), ("PIT104",)
    ),
    "gradient": Fault("grad:layers.9.mlp.up.weight", {"tp": 1}, _plainly(dropped), ("PIT104",)),
    "shard": Fault(
        "embedding.rows.begin", {"dp": 37}, _plainly(_one_later), ("PIT107",), {"dp": 37, "tp": 1}
    ),
    "micro-batch": Fault(
        "loss.tokens.counted",
        {"dp": 63, MICROBATCH_AXIS: 15},
        _plainly(of_microbatch(1, 3)),
        ("PIT108",),
    ),
    "stale": Fault(
        "layers.9.mlp.down:term",
        {"dp": 0, MICROBATCH_AXIS: 8},
        _plainly(of_microbatch(0, 7)),
        ("PIT108",),
    ),
    "missing": Fault(
        "accumulated:layers.9.mlp.gate.weight", {"dp": 37, "tp": 1}, _all_but_last, ("PIT108",)
    ),
    "average": Fault(
        "loss", {"tp": 1}, _plainly(with_attributes(reduction="avg")), ("PIT101", "PIT111")
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.nightly] if place else [])
        for place, name in enumerate(AT_SCALE)
    ],
)
def test_a_fault_among_thousands_of_ranks_is_caught_at_its_place(name: str) -> None:
    fault = AT_SCALE[name]
    reference, parallel = DEEP.plans()
    wrong, identity = _wrong(parallel, fault)
    report = check(reference, wrong, Options(seed=1))
    _assert_caught(parallel, fault, identity, report)
    assert report.peak_memory_mb < 3000


@pytest.mark.slow
def test_a_false_hint_is_no_fault() -> None:
    """A stage over a false hint does not hold, and no input shows a difference: the hint is
    dropped.
    """
    reference, parallel = MANY.plans()
    hint = next(t for t in parallel.tensors if t.name == "layers.1.mlp.down")
    assert hint.lineage is not None
    false = replace(hint, lineage=replace(hint.lineage, reference="layers.0.mlp.down"))
    plan = replace(
        parallel, tensors=tuple(false if t.name == hint.name else t for t in parallel.tensors)
    )
    assert check(reference, plan, Options(seed=1)).verdict == "equivalent"
