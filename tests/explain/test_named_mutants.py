"""Single mistakes in right plans of a few operators: what is named first, and what is told of it.
The right plans are pairs of the zoo, whose tests prove them.
"""

from __future__ import annotations

import re

import pytest
from support.explain_plans import said
from zoo.pairs import builders

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.mutation.kinds import KINDS
from pitcheck.mutation.mutants import mutants
from pitcheck.report.report import Report

NAMED: dict[tuple[str, str], tuple[str, str]] = {
    # Collectives that a rank calls in another order: with two members, and with four of which three
    # still meet.
    ("megatron_mlp_silu", "collective-order: 3:all_reduce: after 7:all_reduce where tp=1"): (
        "PIT116",
        "tensors of one meet the other's",
    ),
    ("megatron_mlp_gelu", "collective-order: 3:all_reduce: after 7:all_reduce where tp=3"): (
        "PIT116",
        "called in another order",
    ),
    ("ulysses", "collective-order: 0:all_to_all: after 1:all_to_all where sp=1"): (
        "PIT116",
        "'0:all_to_all' and '1:all_to_all'",
    ),
    # A group that is too small, where no axis of the mesh is such a group.
    ("data_parallel_avg", "regroup: 9:all_reduce: over two halves"): (
        "PIT106",
        "over part of that group",
    ),
    # A term that is missing on one rank, or wholly; a number; what a normalisation adds.
    ("row_parallel_bias_after", "term: 2:add: only operand 0 (tp=0)"): (
        "PIT108",
        "the term 'c' is missing",
    ),
    ("pipeline", "term: 4:sub: only operand 0"): ("PIT108", "without the term 't'"),
    ("rms_norm_hidden", "term: 4:add: only operand 0"): ("PIT108", "without the term 1/1000"),
    # An operator that is left out: whose derivative stays, that the reference has within another
    # one, after which nothing else comes.
    ("transposed_weights", "skip: 10:square: left out"): ("PIT102", "where square of it should be"),
    ("literal_sizes", "skip: 5:rsqrt: left out"): ("PIT102", "where rsqrt of it should be"),
    ("different_ranks", "skip: 0:mul: left out"): ("PIT115", "which no rank computes"),
    ("zigzag", "skip: 0:rms_norm: left out"): ("PIT115", "(rms_norm) makes of it"),
    ("rms_norm_hidden", "skip: 7:mul: left out (tp=0)"): (
        "PIT102",
        "which other ranks or micro-batches run",
    ),
    # What is the same on all ranks is no term of a sum; the smallest of what ranks have is no
    # extremum where it is always that of one of them.
    ("views_of_heads", "function: 4:sum: mean instead of sum"): (
        "PIT102",
        "'mean' where it should be 'sum'",
    ),
    ("cross_entropy_ranges", "skip: 19:log: left out (tp=1)"): (
        "PIT102",
        "stands in the place of '19:log'",
    ),
    # The parts of what is joined, on all ranks and on one.
    ("rotary_half", "exchange: 3:cat: the first two parts exchanged"): (
        "PIT107",
        "joins its parts in another order: 'slice_0' and 'neg_2' are exchanged",
    ),
    ("gated_mlp", "exchange: 11:cat: the first two parts exchanged (tp=1)"): (
        "PIT107",
        "'ds' and 'dh' are exchanged",
    ),
    # A divisor, for one operator or for an output; the other term of a moment, which is computed
    # for nothing then.
    ("zero_adamw", "skip: 15:div: left out"): (
        "PIT102",
        "operator '16:mul' reads 'm_new' (copied as 'div_15') without the divisor 'add_13'",
    ),
    ("cross_entropy_vocabulary_parallel", "skip: 17:div: left out"): (
        "PIT102",
        "without the divisor 'all_reduce_6'",
    ),
    ("ring_attention_2", "skip: 27:div: left out"): ("PIT102", "without the divisor 'add_23'"),
    ("zero_adamw", "term: 11:add: operand 0 twice (dp=1)"): (
        "PIT108",
        "has the term 'mul_8' twice, where 'mul_10' should be one of them",
    ),
    # What is given in another order than the program takes it in, over ranks and over
    # micro-batches.
    ("data_parallel_avg", "given: x: parts of dimension 0 in reverse"): (
        "PIT107",
        "'x': parts lie in another order than the program takes them in",
    ),
    ("microbatches", "given: t: parts of dimension 0 in reverse"): (
        "PIT107",
        "'t': parts lie in another order",
    ),
    ("attention_heads_causal", "given: wv: parts of dimension 0 in reverse"): (
        "PIT107",
        "'wv': parts lie in another order",
    ),
    ("data_parallel_microbatches", "given: x: dimension 0 cut in the other order of axes"): (
        "PIT107",
        "is cut over dp first, and each part over mb",
    ),
    # A sum of sums.
    ("zero_sgd", "repeat-reduction: 3:reduce_scatter: twice"): (
        "PIT105",
        "the same on all members already",
    ),
    # A number and a tensor exchanged.
    ("gradient_clipping", "exchange: 13:div: operands 0 and 1 exchanged"): ("PIT103", "exchanged"),
}


def report_on(plan: str, mutant: str) -> Report:
    """The report on the mutant of that name."""
    reference, parallel = builders()[plan]()
    kinds = tuple(kind for kind in KINDS if mutant.startswith(f"{kind}:"))
    found = next(
        (
            m
            for seed in range(SEEDS)
            for m in mutants(parallel, MOST, seed, kinds)
            if m.name == mutant
        ),
        None,
    )
    assert found is not None, [m.name for m in mutants(parallel, MOST, 0, kinds)]
    return check(reference, found.plan, Options(seed=1))


ONE_SIDED = r" only on inputs for which .* decides one way"
"""Said of a repair behind a choice of which no input that was tried shows the other side."""
TRIED = re.compile(rf"\(tested({ONE_SIDED})?: with it, every output (that differs )?is right\)$")
SEEDS = 4
MOST = 60


@pytest.mark.parametrize(("plan", "mutant"), NAMED)
def test_the_mistake_is_named_and_its_repair_tried(plan: str, mutant: str) -> None:
    code, words = NAMED[plan, mutant]
    report = report_on(plan, mutant)
    assert report.verdict == "mismatch"
    assert report.findings[0].code == code, said(report)
    assert words in (report.findings[0].cause or ""), said(report)
    assert TRIED.search(report.findings[0].repair or ""), said(report)
