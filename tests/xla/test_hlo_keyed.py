"""JAX programs with random numbers: they are proven, and mistakes in them are not.

``keyed_programs.py`` has made the texts, and run each mistake by XLA.
"""

from __future__ import annotations

import numpy as np
import pytest
from xla.code_values import values
from xla.hlo_pairs import Case, cases_in
from xla.keyed_faults import faults

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.execution.executor import execute
from pitcheck.frontends.xla.lowering.index_ranges import index_ranges
from pitcheck.frontends.xla.lowering.pair import attempts_on
from pitcheck.frontends.xla.lowering.random.draws import Draws
from pitcheck.frontends.xla.lowering.side import Side, parameters_of
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.plan.model import Output
from pitcheck.plan.validate import validate

PROGRAMS = (
    "trained",
    "masked",
    "normal",
    "picked",
    "parted",
    "scanned",
    "carried",
    "mapped",
    "folded",
    "short",
    "filled",
    "bits",
    "columns",
    "spread",
    "fixed",
)
KINDS = ("threefry2x32", "threefry2x32 of halves", "rbg")
NAMES = [f"{program}, {kind}" for kind in KINDS for program in PROGRAMS]
ASSUMED = "random numbers with one key, algorithm and place are the same before and after"


def _cases() -> dict[str, Case]:
    found: dict[str, Case] = cases_in("keyed.jsonl.gz")
    return found


def _verdict(before: str, after: str, stated: str | None = None) -> str:
    """Return the verdict of the command on two texts; "refused" for one without a meaning.

    ``stated``: the text of a sharded program of which ``before`` is the plain one.
    """
    verdict = "refused"
    sharded = None if stated is None else parse_hlo(stated)
    try:
        for attempt in attempts_on(parse_hlo(before), parse_hlo(after), sharded):
            reference, parallel = attempt.plans
            assert not [*validate(reference), *validate(parallel, reference=reference)]
            found = check(reference, parallel, Options(seed=1, jobs=1, explain=False)).verdict
            if found == "equivalent" or attempt.decides:
                verdict = found
            if found == "equivalent":
                break
    except (PlanError, UnsupportedError):
        return "refused"
    return verdict


def test_the_texts_are_those_of_all_programs() -> None:
    assert set(_cases()) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_partitioned_program_is_proven(name: str) -> None:
    case = _cases()[name]
    assert _verdict(case["before"], case["after"]) == "equivalent"


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("rbg")])
def test_the_random_numbers_are_those_of_jax(name: str) -> None:
    """Python computes the numbers that codes stand for, and the plan the results of JAX."""
    case = _cases()[name]
    module, draws = parse_hlo(case["before"]), Draws()
    side = Side(module, 1, list(parameters_of(module)), index_ranges(module), drawing=draws)
    plan = side.plan([Output(each) for each in side.named_results()], ())
    arrays = [np.array(each) for each in case["inputs"]]
    integers = {n: x.reshape(-1).tolist() for n, x in enumerate(arrays) if x.dtype.kind != "f"}
    numbers = values(draws.book, integers)
    initial = {
        (draw.name, 0, 0): np.array(
            [numbers[code] for code in draw.codes.reshape(-1).tolist()]
        ).reshape(draw.codes.shape)
        for draw in draws.all
    }
    given = [tensor.name for tensor in plan.tensors if tensor.role == "input"]
    rest = [each for each in given if (each, 0, 0) not in initial]
    reals = [x for x in arrays if x.dtype.kind == "f"]
    initial |= {(each, 0, 0): x for each, x in zip(rest, reals, strict=True)}
    held = execute(plan, initial)
    for output, expected in zip(plan.outputs, case["outputs"], strict=True):
        found = held[output.tensor, 0, 0]
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def _wrong(name: str) -> list[tuple[str, str]]:
    """Return the mistakes by which XLA computes other numbers."""
    case = _cases()[name]
    found = faults(case["after"])
    return [(what, text) for what, text in found if case["judged"].get(what, False)]


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("normal")])
def test_mistakes_are_not_proven(name: str) -> None:
    for what, text in _wrong(name)[::6]:
        assert _verdict(_cases()[name]["before"], text) != "equivalent", what


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_no_mistake_is_proven(name: str) -> None:
    """By no mistake that is proven does XLA compute other numbers."""
    for what, text in _wrong(name):
        assert _verdict(_cases()[name]["before"], text) != "equivalent", what


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", ["trained", "masked", "scanned"])
def test_mistakes_with_masks_are_found(program: str, kind: str) -> None:
    case = _cases()[f"{program}, {kind}"]
    lines = case["after"].splitlines()
    found = []
    for what, text in _wrong(case["name"]):
        line = lines[int(what.split()[-1]) - 1]
        if what.startswith(("the complement", "the other choice")) and "pred[]" not in line:
            found.append(_verdict(case["before"], text))
    assert set(found) == {"mismatch"}


@pytest.mark.parametrize("name", NAMES)
def test_no_mistake_is_found_where_xla_computes_the_same(name: str) -> None:
    case = _cases()[name]
    texts = dict(faults(case["after"]))
    for what, differs in case["judged"].items():
        # The square of a random number may be on the same side of a limit for one key.
        if not differs and not what.startswith("one operand twice"):
            assert _verdict(case["before"], texts[what]) != "mismatch", what


@pytest.mark.parametrize(
    ("name", "expected"), [("sliced", "equivalent"), ("local", "mismatch"), ("own", "refused")]
)
def test_a_shard_map_that_draws_beside_a_plain_program(name: str, expected: str) -> None:
    case = cases_in("keyed_maps.jsonl.gz")[name]
    assert _verdict(case["plain"], case["after"], case["before"]) == expected
    assert _verdict(case["before"], case["after"]) == "equivalent"


def test_the_report_says_what_is_assumed() -> None:
    case = _cases()["trained, threefry2x32"]
    *_, last = attempts_on(parse_hlo(case["before"]), parse_hlo(case["after"]))
    assumed = last.plans[1].assumptions
    assert any(each.startswith(ASSUMED) for each in assumed)
    # The key is no tensor of the plans, so nothing is assumed of its words.
    assert not [each for each in assumed if "integers in" in each]
