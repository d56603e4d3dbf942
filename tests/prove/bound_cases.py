"""Pairs of plans that differ, to be tried over tiny primes: how often is one called proven, and
what probability of that does the proof claim?
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from zoo.builder import Builder

from pitcheck.algebra.bound.degree_bounds import Heights
from pitcheck.algebra.keyed import key_of
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.drawn_primes import Family
from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import Specification, specify
from pitcheck.graph.cuts import Cut, resolve
from pitcheck.graph.graph import Graph
from pitcheck.graph.lowering import lower
from pitcheck.plan.model import Lineage, Number, Plan
from pitcheck.plan.schedule.matching import match
from pitcheck.prove.bounds.free_degrees import FreeStageDegrees
from pitcheck.prove.draws.shaped_proof import decide
from pitcheck.prove.error_budget import Attempts
from pitcheck.prove.integers.cases import with_cases
from pitcheck.prove.place_counts import PlaceCounts
from pitcheck.prove.proof import Allowance, Settings
from pitcheck.prove.prover import Prover
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.prove.stage_sizes import Statement, with_enough_places
from pitcheck.prove.stage_trials import StageTrials
from pitcheck.stage.building import build_stage
from pitcheck.stage.canonical import canonical_form
from pitcheck.stage.reductions.protocol import Context
from pitcheck.stage.reductions.weigh_places import WeighPlaces
from pitcheck.stage.run_batch import StepError
from pitcheck.stage.shaped_stage import ShapedStage, shape_reduced
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.stage import Stage, Target, drawn_reference

ACCEPTED = 0.5
Formula = Callable[..., str]


@dataclass(frozen=True)
class Case:
    """``reference`` and ``parallel`` append operators on the inputs named by the letters of
    ``inputs`` and return the output; they are not equal.
    """

    name: str
    primes: tuple[int, ...]
    inputs: str
    reference: Formula
    parallel: Formula
    size: int = 1
    full_shapes: bool = True
    cut: str = ""
    """A tensor of both plans that is taken as a cut."""
    accepted: float = ACCEPTED
    """The accepted error of one obligation, a probability."""
    tables: bool = False
    """Functions are tables of residues, over primes without relation; nothing else is tried."""
    weighted: bool = False
    """Axes are reduced to the places that their degrees ask for, and these have weights."""
    pool: bool = False
    """Every draw has one of the primes."""


@dataclass(frozen=True)
class Measured:
    """``proven`` of ``seeds`` runs were called proven, claiming to be wrong with a probability of
    at most ``bound``.
    """

    case: Case
    seeds: int
    proven: int
    bound: float
    heuristic: bool
    outcomes: frozenset[str]

    @property
    def rate(self) -> float:
        """Share of the runs that were called proven."""
        return self.proven / self.seeds

    @property
    def sigma(self) -> float:
        """Standard deviation of ``rate`` if ``bound`` were the probability."""
        return math.sqrt(self.bound * (1 - self.bound) / self.seeds)


def _plan(case: Case, formula: Formula) -> Plan:
    b = Builder("tiny")
    y = formula(b, *(b.input(letter, (case.size,)) for letter in case.inputs))
    b.output(b.op("identity", y, out="result"))
    return b.plan()


def _graphs(case: Case) -> tuple[Graph, Graph, Specification]:
    plans = [_plan(case, formula) for formula in (case.reference, case.parallel)]
    graphs = []
    for plan in plans:
        matching, violations = match(plan)
        assert matching is not None, violations
        graphs.append(lower(plan, matching))
    return graphs[0], graphs[1], specify(plans[0], plans[1], graphs[0], graphs[1])


@dataclass(frozen=True)
class _Pool:
    """Primes of which every draw takes one, at random by the seed. Some may be bad."""

    primes: tuple[int, ...]
    seed: int

    def chain(self, family: Family, number: int) -> Chain:
        return Chain((self.primes[key_of(self.seed, number) % len(self.primes)],), linked=False)

    def heights(self, family: Family, irrational: int) -> Heights:
        return Heights(len(self.primes), (math.log2(min(self.primes)),), family.linked, irrational)


@dataclass(frozen=True)
class _Always:
    """One chain for all draws, none of whose primes is feared to be bad."""

    primes: Chain

    def chain(self, family: Family, number: int) -> Chain:
        return self.primes

    def heights(self, family: Family, irrational: int) -> Heights:
        return Heights(math.inf, (1.0,) * 4, family.linked, irrational)


def _settings(case: Case, seed: int) -> Settings:
    return Settings(
        np,
        seed,
        math.log2(case.accepted),
        1,
        case.full_shapes,
        1 << 30,
        given_primes=_Pool(case.primes, seed)
        if case.pool
        else _Always(Chain(case.primes, linked=not case.tables)),
        free_functions=case.tables,
        # Full shapes alone: a proof at reduced ones before would make both together rarer.
        allowance=Allowance(1 << 60) if case.full_shapes else None,
    )


def measure(case: Case, seeds: int) -> Measured:
    """Seeds 0, 1, ... of one case."""
    first, second, specification = _graphs(case)
    run = (
        partial(_through_cut, case, first, second, specification)
        if case.cut
        else _by_tables(case, first, second, specification)
        if case.tables
        else _in_one_stage(case, first, second, specification)
    )
    results = [run(seed) for seed in range(seeds)]
    claimed = [2.0**error for outcome, error, _ in results if outcome == "proven"]
    return Measured(
        case,
        seeds,
        len(claimed),
        max(claimed, default=case.accepted),
        any(h for _, _, h in results),
        frozenset(outcome for outcome, _, _ in results),
    )


def _stage(first: Graph, second: Graph, specification: Specification) -> Stage:
    return build_stage(
        first,
        second,
        specification.initial.get,
        [Target.at(e.cut, e.where, second, e.name) for e in specification.expected],
    )


def _by_tables(
    case: Case, first: Graph, second: Graph, specification: Specification
) -> Callable[[int], tuple[str, float, bool]]:
    stage = _stage(first, second, specification)
    shaped = _weighted(stage, _settings(case, 0)) if case.weighted else shape_reduced(stage)
    degrees, cases = FreeStageDegrees.of(shaped), with_cases(shaped)

    def run(seed: int) -> tuple[str, float, bool]:
        trials = StageTrials(
            cases, degrees.family, degrees, _settings(case, seed), 1, refutes=False
        )
        try:
            proof = decide(trials)
        except StepError:
            # Modulo one small prime the argument of a logarithm may be 0 as if integers made it so.
            return "inconclusive", 0.0, False
        assert proof is not None
        return proof.outcome, proof.error_log2, proof.heuristic

    return run


def _weighted(stage: Stage, settings: Settings) -> ShapedStage:
    """The stage at as many places as a proof for every size needs, each with a weight."""
    keys = {value: str(value) for value in drawn_reference(stage)}
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
    statement = Statement(stage, keys, settings, Attempts("", settings.target_log2))
    weighted = WeighPlaces().apply(with_enough_places(statement, symbolic)[0], Context())
    assert weighted is not None
    assert not PlaceCounts.of(weighted).limit(weighted)
    return weighted


def _in_one_stage(
    case: Case, first: Graph, second: Graph, specification: Specification
) -> Callable[[int], tuple[str, float, bool]]:
    stage = _stage(first, second, specification)
    _, keys = canonical_form(stage)

    def run(seed: int) -> tuple[str, float, bool]:
        proof = prove_stage(stage, keys, _settings(case, seed))
        return proof.outcome, proof.error_log2, proof.heuristic

    return run


def _through_cut(
    case: Case, first: Graph, second: Graph, specification: Specification, seed: int
) -> tuple[str, float, bool]:
    """All obligations of the pair, the cut's own among them, and those of widened stages."""
    value, reference = second.number[case.cut], first.number[case.cut]
    cuts: dict[int, Cut] = {
        value: resolve(
            Lineage(case.cut), value, second, reference, first.values[reference].shape, ""
        )
    }
    problem = Problem(first, second, specification)
    ledger = Prover(problem, _settings(case, seed)).run(cuts)
    proofs = [o.proof for o in ledger.obligations if o.output]
    proven = all(proof.outcome == "proven" for proof in proofs)
    return (
        "proven" if proven else proofs[0].outcome,
        ledger.budget.spent_log2,
        any(proof.heuristic for proof in proofs),
    )


# --- formulas


def _sum(b: Builder, *terms: Any) -> str:
    total: str = terms[0]
    for term in terms[1:]:
        total = b.op("add", total, term)
    return total


def _mul(b: Builder, *factors: Any) -> str:
    total: str = factors[0]
    for factor in factors[1:]:
        total = b.op("mul", total, factor)
    return total


def _exp(b: Builder, *summands: Any) -> str:
    power: str = b.op("exp", _sum(b, *summands))
    return power


def _root(b: Builder, *factors: Any) -> str:
    root: str = b.op("sqrt", _mul(b, *factors))
    return root


def _dot(b: Builder, x: Any, y: Any) -> str:
    dot: str = b.op("sum", _mul(b, x, y), axes=[0], keepdim=True)
    return dot


def _norm(b: Builder, x: Any, y: Any) -> str:
    norm: str = b.op("sqrt", _sum(b, _mul(b, x, x), _mul(b, y, y)))
    return norm


def _square_of_root(b: Builder, x: str, y: str, z: str) -> str:
    """(z r)^2 + r with r = sqrt(x^2 + y^2)."""
    root = _norm(b, x, y)
    product = _mul(b, z, root)
    return _sum(b, _mul(b, product, product), root)


def _negative_square_of_root(b: Builder, x: str, y: str, z: str) -> str:
    """-z^2 (x^2 + y^2) + r."""
    square = _sum(b, _mul(b, x, x), _mul(b, y, y))
    return _sum(b, b.op("neg", _mul(b, z, z, square)), _norm(b, x, y))


def _factored(b: Builder, x: str, y: str, z: str) -> str:
    return _mul(b, x, _sum(b, y, z))


def _expanded_wrong(b: Builder, x: str, y: str, z: str) -> str:
    """x y + x z + (x - y)(y - z)."""
    return _sum(b, _mul(b, x, y), _mul(b, x, z), _mul(b, b.op("sub", x, y), b.op("sub", y, z)))


def _inner(b: Builder, x: str, y: str, z: str, out: Any) -> str:
    """h = x y, and what ``out`` makes of it."""
    made: str = out(b.op("mul", x, y, out="h"))
    return made


def _wrong_inner(b: Builder, x: str, y: str, z: str) -> str:
    """h = x y + (y - z), then h z."""
    return _mul(b, b.op("add", _mul(b, x, y), b.op("sub", y, z), out="h"), z)


CASES = (
    Case("ring: x(y+z) and xy+xz+(x-y)(y-z)", (23,), "xyz", _factored, _expanded_wrong),
    Case("ring, two residues of one draw", (11, 23), "xyz", _factored, _expanded_wrong),
    Case(
        "ring, two sets of reduced sizes",
        (23,),
        "xyz",
        lambda b, x, y, z: _dot(b, x, y),
        lambda b, x, y, z: _dot(b, x, z),
        32,
        False,
        accepted=0.1,
    ),
    Case("ring, several draws", (11,), "xyz", _factored, _expanded_wrong, accepted=0.05),
    Case("x e^x and x", (83, 167), "x", lambda b, x: _mul(b, x, _exp(b, x)), lambda b, x: x),
    Case(
        "x e^x and x, two dependent residues",
        (41, 83, 167),
        "x",
        lambda b, x: _mul(b, x, _exp(b, x)),
        lambda b, x: x,
    ),
    Case(
        "e^(xy) and e^(xz)",
        (83, 167),
        "xyz",
        lambda b, x, y, z: _exp(b, _mul(b, x, y)),
        lambda b, x, y, z: _exp(b, _mul(b, x, z)),
    ),
    Case(
        "e^(e^x) and e^(e^y)",
        (89, 179, 359),
        "xy",
        lambda b, x, y: _exp(b, _exp(b, x)),
        lambda b, x, y: _exp(b, _exp(b, y)),
    ),
    Case(
        "u e^x + v e^y and u e^y + v e^x",
        (179, 359),
        "uvxy",
        lambda b, u, v, x, y: _sum(b, _mul(b, u, _exp(b, x)), _mul(b, v, _exp(b, y))),
        lambda b, u, v, x, y: _sum(b, _mul(b, u, _exp(b, y)), _mul(b, v, _exp(b, x))),
    ),
    Case(
        "u e^x + v e^y + w e^z, x and y exchanged for z",
        (179, 359),
        "uvwxyz",
        lambda b, u, v, w, x, y, z: _sum(
            b, _mul(b, u, _exp(b, x)), _mul(b, v, _exp(b, y)), _mul(b, w, _exp(b, z))
        ),
        lambda b, u, v, w, x, y, z: _sum(
            b, _mul(b, u, _exp(b, z)), _mul(b, v, _exp(b, x)), _mul(b, w, _exp(b, y))
        ),
    ),
    Case(
        "e^x + e^y and e^(x+y) + e^z",
        (83, 167),
        "xyz",
        lambda b, x, y, z: _sum(b, _exp(b, x), _exp(b, y)),
        lambda b, x, y, z: _sum(b, _exp(b, x, y), _exp(b, z)),
    ),
    Case(
        "e^x + e^y and e^2x + e^(y-x)",
        (83, 167),
        "xy",
        lambda b, x, y: _sum(b, _exp(b, x), _exp(b, y)),
        lambda b, x, y: _sum(b, _exp(b, x, x), _exp(b, b.op("sub", y, x))),
    ),
    Case(
        "e^x / (e^x + e^y) and e^x / (e^x + e^z)",
        (179, 359),
        "xyz",
        lambda b, x, y, z: b.op("div", _exp(b, x), _sum(b, _exp(b, x), _exp(b, y))),
        lambda b, x, y, z: b.op("div", _exp(b, x), _sum(b, _exp(b, x), _exp(b, z))),
    ),
    Case("sqrt(x^2) and x", (83, 167), "x", lambda b, x: _root(b, x, x), lambda b, x: x),
    Case("sqrt(x^2) and x, one residue", (23,), "x", lambda b, x: _root(b, x, x), lambda b, x: x),
    Case(
        "x sqrt(y) and sqrt(x^2 y)",
        (23,),
        "xy",
        lambda b, x, y: _mul(b, x, _root(b, y)),
        lambda b, x, y: _root(b, x, x, y),
    ),
    Case(
        "x sqrt(y+z) and sqrt(x^2 (y+z))",
        (23,),
        "xyz",
        lambda b, x, y, z: _mul(b, x, b.op("sqrt", _sum(b, y, z))),
        lambda b, x, y, z: _root(b, x, x, _sum(b, y, z)),
    ),
    Case(
        "sqrt(x) and sqrt(y)", (47,), "xy", lambda b, x, y: _root(b, x), lambda b, x, y: _root(b, y)
    ),
    Case(
        "sqrt(x) sqrt(y) and sqrt(x) sqrt(z)",
        (83,),
        "xyz",
        lambda b, x, y, z: _mul(b, _root(b, x), _root(b, y)),
        lambda b, x, y, z: _mul(b, _root(b, x), _root(b, z)),
    ),
    Case(
        "sqrt(x^2 + y^2) and sqrt(x^2 + z^2)",
        (11,),
        "xyz",
        lambda b, x, y, z: _norm(b, x, y),
        lambda b, x, y, z: _norm(b, x, z),
    ),
    Case(
        "x / sqrt(x^2 + y^2) and z / sqrt(x^2 + y^2)",
        (23,),
        "xyz",
        lambda b, x, y, z: b.op("div", x, _norm(b, x, y)),
        lambda b, x, y, z: b.op("div", z, _norm(b, x, y)),
    ),
    Case(
        "sqrt(x^2 + y^2)^2 and sqrt(x^2 + z^2)^2",
        (23,),
        "xyz",
        lambda b, x, y, z: b.op(
            "square", b.op("sqrt", _sum(b, b.op("square", x), b.op("square", y)))
        ),
        lambda b, x, y, z: b.op(
            "square", b.op("sqrt", _sum(b, b.op("square", x), b.op("square", z)))
        ),
    ),
    Case(
        "(z r)^2 and -(z r)^2, r = sqrt(x^2 + y^2)",
        (179, 359),
        "xyz",
        _square_of_root,
        _negative_square_of_root,
        accepted=0.2,
    ),
    Case(
        "x / y and x^2 / y, zeros drawn anew",
        (23,),
        "xy",
        lambda b, x, y: b.op("div", x, y),
        lambda b, x, y: b.op("div", _mul(b, x, x), y),
    ),
    Case(
        "1 / x + 1 / y and 1 / x + 1 / z, zeros drawn anew",
        (47,),
        "xyz",
        lambda b, x, y, z: _sum(b, b.op("reciprocal", x), b.op("reciprocal", y)),
        lambda b, x, y, z: _sum(b, b.op("reciprocal", x), b.op("reciprocal", z)),
    ),
    Case(
        "a cut that does not hold",
        (83,),
        "xyz",
        lambda b, x, y, z: _inner(b, x, y, z, lambda h: _mul(b, h, z)),
        _wrong_inner,
        cut="h",
        accepted=0.1,
    ),
    Case(
        "a stage that fails and is widened",
        (83,),
        "xyz",
        lambda b, x, y, z: _inner(b, x, y, z, lambda h: _mul(b, h, z)),
        lambda b, x, y, z: _inner(b, x, y, z, lambda h: _mul(b, h, y)),
        cut="h",
        accepted=0.1,
    ),
)


def _table(name: str, inputs: str, reference: Formula, parallel: Formula, *primes: int) -> Case:
    return Case(f"tables: {name}", primes, inputs, reference, parallel, tables=True)


def _sum_of_powers(b: Builder, *names: Any) -> str:
    return _sum(b, *(b.op("exp", name) for name in names))


def _laurent(b: Builder, x: str, y: str) -> str:
    """5 X + 2 Y + 7 / X + 1 / Y + 2 X / Y + Y / X, with X = e^x and Y = e^y."""
    up, other = b.op("exp", x), b.op("exp", y)
    down, below = b.op("exp", b.op("neg", x)), b.op("exp", b.op("neg", y))
    return _sum(
        b,
        _mul(b, up, Number(5)),
        _mul(b, other, Number(2)),
        _mul(b, down, Number(7)),
        below,
        _mul(b, b.op("exp", b.op("sub", x, y)), Number(2)),
        b.op("exp", b.op("sub", y, x)),
    )


def _where_all(b: Builder, x: str, y: str, *names: str) -> str:
    """Return x where every one of some numbers exceeds y, and y elsewhere."""
    held = [b.op("gt", name, y) for name in names]
    for other in held[1:]:
        held[0] = b.op("logical_and", held[0], other)
    return str(b.op("where", held[0], x, y))


def _in_order(b: Builder, number: int, *numbers: str) -> str:
    """Number ``number``, counted from 0, of the numbers in ascending order."""
    ordered = b.op("sort", b.op("cat", *numbers, axis=0), out=["ordered", ""], axis=0)[0]
    return str(b.op("slice", ordered, axis=0, start=number, stop=number + 1))


def _where(b: Builder, comparison: str, first: str, second: str, x: str, y: str) -> str:
    return str(b.op("where", b.op(comparison, first, second), x, y))


_FORTY = tuple(n for n in range(307, 570) if all(n % d for d in range(2, 24)))[:40]

TABLES = (
    _table(
        "f(g(x) + y) and f(g(x) + z)",
        "xyz",
        lambda b, x, y, z: b.op("exp", _sum(b, b.op("erf", x), y)),
        lambda b, x, y, z: b.op("exp", _sum(b, b.op("erf", x), z)),
        127,
    ),
    _table(
        "f(f(x)) and f(f(y))",
        "xy",
        lambda b, x, y: _exp(b, _exp(b, x)),
        lambda b, x, y: _exp(b, _exp(b, y)),
        127,
    ),
    _table(
        "f(x^2) and f(y^2)",
        "xy",
        lambda b, x, y: _exp(b, _mul(b, x, x)),
        lambda b, x, y: _exp(b, _mul(b, y, y)),
        127,
    ),
    _table(
        "f(f(x)) and f(f(y)), two primes",
        "xy",
        lambda b, x, y: _exp(b, _exp(b, x)),
        lambda b, x, y: _exp(b, _exp(b, y)),
        11,
        23,
    ),
    _table(
        "an even f(x) and f(y)",
        "xy",
        lambda b, x, y: b.op("cos", x),
        lambda b, x, y: b.op("cos", y),
        127,
    ),
    _table(
        "an odd f(x) and f(y)",
        "xy",
        lambda b, x, y: b.op("sin", x),
        lambda b, x, y: b.op("sin", y),
        127,
    ),
    _table(
        "an odd f(x) and -f(y)",
        "xy",
        lambda b, x, y: b.op("sin", x),
        lambda b, x, y: b.op("neg", b.op("sin", y)),
        127,
    ),
    _table(
        "six exponentials, one of another number",
        "uvwxyz",
        lambda b, u, v, w, x, y, z: _sum_of_powers(b, u, v, w, x, y, y),
        _sum_of_powers,
        251,
    ),
    _table(
        "e^(a - b) and e^(c - 1)",
        "abc",
        lambda b, x, y, z: b.op("exp", b.op("sub", x, y)),
        lambda b, x, y, z: b.op("exp", b.op("sub", z, Number(1))),
        127,
    ),
    _table(
        "a Laurent polynomial and 0",
        "xy",
        _laurent,
        lambda b, x, y: b.op("sub", x, x),
        1019,
    ),
    _table(
        "log(e^x + e^y) and log(e^x + e^z)",
        "xyz",
        lambda b, x, y, z: b.op("log", _sum_of_powers(b, x, y)),
        lambda b, x, y, z: b.op("log", _sum_of_powers(b, x, z)),
        503,
    ),
    _table(
        "u log(e^x + e^y) and u log(e^x + e^z)",
        "uxyz",
        lambda b, u, x, y, z: _mul(b, u, b.op("log", _sum_of_powers(b, x, y))),
        lambda b, u, x, y, z: _mul(b, u, b.op("log", _sum_of_powers(b, x, z))),
        251,
    ),
    _table(
        "sqrt(x^2 + y^2) and sqrt(x^2 + z^2)",
        "xyz",
        lambda b, x, y, z: _norm(b, x, y),
        lambda b, x, y, z: _norm(b, x, z),
        127,
    ),
    _table(
        "r s and t t, roots r, s and t of squares",
        "xyz",
        lambda b, x, y, z: _mul(b, _norm(b, x, y), _norm(b, x, z)),
        lambda b, x, y, z: _mul(b, _norm(b, y, z), _norm(b, y, z)),
        127,
    ),
    _table(
        "max(x, y) and max(x, z)",
        "xyz",
        lambda b, x, y, z: b.op("maximum", x, y),
        lambda b, x, y, z: b.op("maximum", x, z),
        127,
    ),
    _table(
        "e^x / (e^x + e^y) and e^x / (e^x + e^z)",
        "xyz",
        lambda b, x, y, z: b.op("div", _exp(b, x), _sum(b, _exp(b, x), _exp(b, y))),
        lambda b, x, y, z: b.op("div", _exp(b, x), _sum(b, _exp(b, x), _exp(b, z))),
        251,
    ),
    _table(
        "x where a > y, b > y and c > y, else y, and y",
        "abcxy",
        lambda b, u, v, w, x, y: _where_all(b, x, y, u, v, w),
        lambda b, u, v, w, x, y: b.op("identity", y),
        251,
    ),
    _table(
        "x where a > b, else y, and x where a >= b",
        "abxy",
        lambda b, u, v, x, y: _where(b, "gt", u, v, x, y),
        lambda b, u, v, x, y: _where(b, "ge", u, v, x, y),
        127,
    ),
    _table(
        "x where a = b, else y, and x where a = c",
        "abcxy",
        lambda b, u, v, w, x, y: _where(b, "eq", u, v, x, y),
        lambda b, u, v, w, x, y: _where(b, "eq", u, w, x, y),
        127,
    ),
    _table(
        "a where a > b, else b, and the maximum of a and c",
        "abc",
        lambda b, x, y, z: _where(b, "gt", x, y, x, y),
        lambda b, x, y, z: b.op("maximum", x, z),
        127,
    ),
    _table(
        "the second of a, b and c in their order, and of a, b and d",
        "abcd",
        lambda b, w, x, y, z: _in_order(b, 1, w, x, y),
        lambda b, w, x, y, z: _in_order(b, 1, w, x, z),
        127,
    ),
    _table(
        "the largest of a, b and c, and the second of a, b, c and d",
        "abcd",
        lambda b, w, x, y, z: _in_order(b, 2, w, x, y),
        lambda b, w, x, y, z: _in_order(b, 2, w, x, y, z),
        127,
    ),
    Case(
        "tables: f(x) and f(x + c), primes drawn from 40 of which 3 divide c",
        _FORTY,
        "x",
        lambda b, x: b.op("exp", x),
        lambda b, x: b.op("exp", b.op("add", x, Number(_FORTY[0] * _FORTY[7] * _FORTY[20]))),
        tables=True,
        pool=True,
    ),
)
"""Functions as tables of random residues: the claimed bound is a theorem."""


# --- weights


def _total(b: Builder, *factors: Any) -> str:
    """The sum of a product along the only axis."""
    return str(b.op("sum", _mul(b, *factors) if len(factors) > 1 else factors[0]))


def _minor(b: Builder, x: str, first: str, second: str) -> str:
    """The determinant of the 2 x 2 sums of products of two columns with themselves."""
    square = _mul(b, _total(b, first, first), _total(b, second, second))
    across = _total(b, first, second)
    return _sum(b, _total(b, x), b.op("sub", square, _mul(b, across, across)))


def _weights(name: str, inputs: str, reference: Formula, parallel: Formula, prime: int) -> Case:
    return Case(
        f"weights: {name}",
        (prime,),
        inputs,
        reference,
        parallel,
        size=4096,
        full_shapes=False,
        tables=True,
        weighted=True,
    )


WEIGHTS = (
    _weights(
        "sum x sum y and n sum xy",
        "xy",
        lambda b, x, y: _mul(b, _total(b, x), b.op("mean", y)),
        _total,
        127,
    ),
    _weights(
        "sum x, and with a Gram determinant that is 0 for one place",
        "xyz",
        lambda b, x, y, z: _sum(b, _total(b, x), b.op("sub", _total(b, y), _total(b, y))),
        _minor,
        127,
    ),
    _weights(
        "the mean of squares and the square of the mean",
        "x",
        lambda b, x: b.op("mean", _mul(b, x, x)),
        lambda b, x: _mul(b, b.op("mean", x), b.op("mean", x)),
        127,
    ),
)
"""Sums whose places have weights, at the sizes at which a proof is one for every size."""
