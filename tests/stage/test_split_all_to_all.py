"""All-to-alls that are split into their parts.

The results stay the same, a few rows are enough, and no fault at one sender, receiver or part is
hidden.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from zoo.builder import Builder, lineage, table

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import chains_of
from pitcheck.base.options import Options
from pitcheck.claims.specification import specify
from pitcheck.engine.check import check
from pitcheck.errors import UnsupportedError
from pitcheck.graph.lowering import lower
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import evaluate
from pitcheck.plan.model import Number, Plan
from pitcheck.plan.schedule.matching import match
from pitcheck.prove import stage_proof as prove
from pitcheck.prove.proof import Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.stage.batch import Batch
from pitcheck.stage.building import build_stage
from pitcheck.stage.canonical import canonical_form
from pitcheck.stage.evaluate import evaluate_stage
from pitcheck.stage.reductions.pipeline import measured
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.reductions.split_all_to_all import SplitAllToAll, taken_apart
from pitcheck.stage.shaped_stage import shape_stage
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.stage import Stage, Target

EP, SEQUENCES, LENGTH, HIDDEN, EXPERTS, WIDTH = 8, 2, 6, 5, 2, 7
TOKENS = (EP * SEQUENCES, LENGTH)


def reference() -> Plan:
    """Every expert on every token, added up, and the gradient of the experts' weights."""
    b = Builder("reference")
    x, dy = b.input("x", (*TOKENS, HIDDEN)), b.input("dy", (*TOKENS, WIDTH))
    w = b.parameter("w", (EP * EXPERTS, HIDDEN, WIDTH))
    one = b.op("unsqueeze", x, axis=1)
    each = b.op("matmul", one, w)
    b.output(b.op("sum", b.op("silu", each), out="y", axes=(1,)))
    given = b.op(
        "expand", b.op("unsqueeze", dy, axis=1), sizes=(EP * SEQUENCES, EP * EXPERTS, LENGTH, WIDTH)
    )
    (inner,) = b.back("silu", [each], b.op("silu", each), given, ["di"])
    _, dw = b.back("matmul", [one, w], each, inner, ["dx", "dw"])
    b.gradient(dw, "w")
    return b.plan()


def parallel(
    scale: str = "",
    swapped: bool = False,
    late: bool = False,
    mixed: bool = False,
    mean: bool = False,
) -> Plan:
    """Each rank sends its tokens to all ranks, and gets back what their experts make of them.

    ``scale``: of which tensor ("there", "back", "term") the part of one sender and one receiver is
    doubled; ``swapped``: one rank swaps the parts of two senders behind its experts; ``late``:
    gradients are those of the next sender; ``mixed``: experts normalise over senders.
    """
    b = Builder("parallel", {"ep": EP})
    x = b.input("x", (SEQUENCES, LENGTH, HIDDEN), {0: "ep"})
    dy = b.input("dy", (SEQUENCES, LENGTH, WIDTH), {0: "ep"})
    w = b.parameter("w", (EXPERTS, HIDDEN, WIDTH), {0: "ep"})
    there = _exchanged(b, _copies(b, x, HIDDEN), "there", scale == "there")
    one = b.op("unsqueeze", there, axis=2)
    each = b.op("matmul", one, w)
    acted = b.op("silu", each)
    if mixed:
        acted = b.op("softmax", acted, axis=0)
    added = b.op("sum", acted, out="added", axes=(2,))
    if swapped:
        added = _swapped(b, added)
    back = _exchanged(b, added, "back", scale == "back")
    b.op("sum", back, out="y", axes=(0,))
    b.output("y", spec=lineage("y", {0: "ep"}))
    given = b.op(
        "expand",
        b.op("unsqueeze", _exchanged(b, _copies(b, dy, WIDTH), "given", False), axis=2),
        sizes=(EP, SEQUENCES, EXPERTS, LENGTH, WIDTH),
    )
    if late:
        given = b.op("roll", given, axis=0, shift=1)
    (inner,) = b.back("silu", [each], b.op("silu", each), given, ["di"])
    if scale == "term":
        inner = _doubled(b, inner, "inner2")
    _, dw = b.back("matmul", [one, w], each, inner, ["dx", "dw"])
    b.gradient(b.op("mul", dw, Number("0.125"), out="dw8") if mean else dw, "w", "dw")
    return b.plan()


def _copies(b: Builder, x: str, size: int) -> str:
    return str(b.op("expand", b.op("unsqueeze", x, axis=0), sizes=(EP, SEQUENCES, LENGTH, size)))


def _exchanged(b: Builder, x: str, out: str, doubled: bool) -> str:
    moved = str(b.op("all_to_all", x, group=("ep",), split_axis=0, concat_axis=0, out=out))
    return _doubled(b, moved, f"{out}2") if doubled else moved


def _doubled(b: Builder, x: str, out: str) -> str:
    """The part of sender 5 doubled on rank 3."""
    first, part, last = b.op(
        "split", x, sizes=(5, 1, 2), axis=0, out=[f"{out}a", f"{out}b", f"{out}c"]
    )
    wrong = b.op(
        "cat", first, b.op("add", part, part), last, axis=0, where=({"ep": (3,)},), out=out
    )
    others = tuple(rank for rank in range(EP) if rank != 3)
    b.op("identity", x, where=({"ep": others},), out=wrong)
    return str(wrong)


def _swapped(b: Builder, x: str) -> str:
    """The parts of senders 5 and 6 swapped on rank 3."""
    parts = b.op("split", x, sizes=(5, 1, 1, 1), axis=0, out=["sa", "sb", "sc", "sd"])
    wrong = b.op(
        "cat", parts[0], parts[2], parts[1], parts[3], axis=0, where=({"ep": (3,)},), out="swapped"
    )
    b.op("identity", x, where=({"ep": tuple(rank for rank in range(EP) if rank != 3)},), out=wrong)
    return str(wrong)


WRONG: dict[str, dict[str, Any]] = {
    "a token doubled on its way to one rank": {"scale": "there"},
    "a result doubled on its way back from one rank": {"scale": "back"},
    "one sender's term of a gradient doubled": {"scale": "term"},
    "the results for two senders swapped on one rank": {"swapped": True},
    "gradients of the wrong senders": {"late": True},
    "a normalisation over senders": {"mixed": True},
    "a mean over senders": {"mean": True},
}


def _stages(plan: Plan) -> list[Stage]:
    graphs = [lower(own, match(own)[0]) for own in (reference(), plan)]
    known = specify(reference(), plan, *graphs)
    targets = [
        Target.at(expected.cut, expected.where, graphs[1], expected.name)
        for expected in known.expected
    ]
    return [build_stage(*graphs, known.initial.get, [target]) for target in targets]


def _targets_of(stage: Stage) -> list[Any]:
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
    shaped = shape_stage(stage, symbolic, symbolic.system.full(), canonical_form(stage)[1])
    keys = dict(zip(shaped.fresh, ("a", "b", "c"), strict=False))
    shaped = shape_stage(stage, symbolic, symbolic.system.full(), keys)
    evaluated = evaluate_stage(shaped, ResidueAlgebra(np, chains_of(3)[0], 7, [0, 1]))
    value = stage.targets[0].cut.value
    algebra = evaluated.algebra
    rows = stage.parallel.rows[value]
    return [
        algebra.gather(evaluated.parallel[value], rows[rows >= 0]),
        evaluated.reference[stage.targets[0].cut.reference],
    ]


def test_both_are_the_right_plan() -> None:
    report = check(reference(), parallel(), Options(seed=1))
    assert report.verdict == "equivalent", [f.title for f in report.findings]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    "coordinates", ["reduced", pytest.param("full", marks=[pytest.mark.slow, pytest.mark.nightly])]
)
def test_a_wrong_one_is_no_equal(wrong: str, coordinates: str) -> None:
    report = check(reference(), parallel(**WRONG[wrong]), Options(seed=1, coordinates=coordinates))
    assert report.verdict == "mismatch"


@pytest.mark.parametrize("wrong", WRONG)
def test_a_stage_of_a_wrong_one_fails(wrong: str) -> None:
    settings = Settings(np, 3, -70.0, 1, False, 1 << 32, templates=Templates(evaluate))
    outcomes = [
        prove_stage(stage, canonical_form(stage)[1], settings).outcome
        for stage in _stages(parallel(**WRONG[wrong]))
    ]
    assert "failed" in outcomes, outcomes


@pytest.mark.parametrize("case", ["right", *WRONG])
def test_taking_apart_changes_no_result(case: str) -> None:
    for stage in _stages(parallel(**WRONG.get(case, {}))):
        apart = taken_apart(stage)
        assert apart is not stage
        assert not any(step.kind == "all_to_all" for step in apart.parallel.steps)
        for own, other in zip(_targets_of(stage), _targets_of(apart), strict=True):
            algebra = ResidueAlgebra(np, chains_of(3)[0], 7, [0, 1])
            assert not np.asarray(algebra.differs(own, other)).any()


def test_one_sender_is_left_of_eight() -> None:
    """One sender, then two, are evaluated for a rank's tokens and for the gradient's terms.

    All of the experts' ranks are.
    """
    for stage, receivers in zip(_stages(parallel()), (1, EP), strict=True):
        apart = taken_apart(stage)
        for variant in (0, 1):
            symbolic = symbolic_pair(apart.reference, apart.parallel, apart.all_cuts())
            found = measured(
                apart, symbolic, {Phase.COORDINATES, Phase.SIZES}, Context(variant=variant)
            )
            fewer, sizes = found.stage, found.sizes
            (target,) = fewer.targets
            assert len(
                np.unique(
                    fewer.parallel.rows[target.cut.value][
                        fewer.parallel.rows[target.cut.value] >= 0
                    ]
                )
            ) == max(receivers, 1 + variant)
            matmuls = [step.count for step in fewer.parallel.steps if step.kind == "matmul"]
            assert matmuls == [EP * (1 + variant)]
            assert "kept" in sizes.describe()[-1]


def test_parts_of_two_axes_are_not_taken_apart() -> None:
    """An all-to-all that joins along another dimension than it splits: parts do not stand in the
    order of the members.
    """
    r, b = Builder("reference"), Builder("parallel", {"ep": EP})
    r.output(r.op("silu", r.input("x", (8, 16)), out="y"))
    own = b.op(
        "all_to_all", b.input("x", (1, 16), {0: "ep"}), group=("ep",), split_axis=1, concat_axis=0
    )
    b.op("all_to_all", b.op("silu", own), group=("ep",), split_axis=0, concat_axis=1, out="y")
    b.output("y", spec=lineage("y", {0: "ep"}))
    graphs = [lower(own, match(own)[0]) for own in (r.plan(), b.plan())]
    known = specify(r.plan(), b.plan(), *graphs)
    stage = build_stage(
        *graphs,
        known.initial.get,
        [Target.at(known.expected[0].cut, known.expected[0].where, graphs[1], "y")],
    )
    assert taken_apart(stage) is stage
    assert check(r.plan(), b.plan(), Options(seed=1)).verdict == "equivalent"


def test_a_rank_that_shifts_its_parts_is_a_class_of_its_own() -> None:
    """A step of one rank alone is kept, whatever is left of the others."""
    shift = table("ep", *(0 if rank != 6 else 1 for rank in range(EP)))
    r, b = Builder("reference"), Builder("parallel", {"ep": EP})
    r.output(r.op("silu", r.input("x", (64, 6)), out="y"))
    own = b.op(
        "all_to_all",
        b.op("reshape", b.input("x", (8, 6), {0: "ep"}), sizes=(8, 1, 6)),
        group=("ep",),
        split_axis=0,
        concat_axis=0,
    )
    moved = b.op("roll", b.op("silu", own), axis=0, shift=shift)
    back = b.op("all_to_all", moved, group=("ep",), split_axis=0, concat_axis=0)
    b.op("reshape", back, sizes=(8, 6), out="y")
    b.output("y", spec=lineage("y", {0: "ep"}))
    assert check(r.plan(), b.plan(), Options(seed=1)).verdict == "mismatch"


@pytest.mark.parametrize("fails", ["to take apart", "when taken apart"])
def test_what_cannot_be_taken_apart_is_proven_as_it_is(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the shorter way is no answer: the stage is tried as the plan has it."""

    def refused(*_: Any) -> Any:
        raise UnsupportedError("parts of parts")

    def refused_without_moves(reference: Batch, parallel: Batch, *more: Any) -> Any:
        moves = any(step.kind == "all_to_all" for step in parallel.steps)
        return symbolic_pair(reference, parallel, *more) if moves else refused()

    if fails == "to take apart":
        monkeypatch.setattr(SplitAllToAll, "apply", refused)
    else:
        monkeypatch.setattr(prove, "symbolic_pair", refused_without_moves)
    settings = Settings(np, 3, -70.0, 1, False, 1 << 32, templates=Templates(evaluate))
    for stage in _stages(parallel()):
        assert prove_stage(stage, canonical_form(stage)[1], settings).outcome == "proven"
