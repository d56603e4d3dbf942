"""Questions that reduced shapes leave open.

They are tried at larger sizes and at full ones, within an allowance and at the cost of the error
bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from support.verdicts import said
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Plan
from pitcheck.prove import stage_sizes
from pitcheck.prove.bounds.free_degrees import FreeStageDegrees
from pitcheck.prove.bounds.stage_degrees import StageDegrees
from pitcheck.refute import larger_sizes as larger
from pitcheck.report.report import Report
from pitcheck.stage import shapes

ROWS, WIDTH = 4, 6


def stages(mesh: dict[str, int] | None, wrong: bool = False) -> Plan:
    """Two layers of tanh(x w) without a bias, and the gradients of a sum of squares. On two ranks
    both layers give their tensors the same names, as recorded programs do, so that no tensor in
    between holds one reference tensor; ``wrong``: the gradient that is sent back is that of the
    squares alone."""
    b = Builder("stages", mesh)
    first, last = ({"pp": (0,)}, {"pp": (1,)}) if mesh else ((), ())
    x, w0, w1 = (
        b.input("x", (ROWS, WIDTH), {}),
        b.parameter("w0", (WIDTH, WIDTH), {}),
        b.parameter("w1", (WIDTH, WIDTH), {}),
    )
    names = (("h", "a"), ("h", "a")) if mesh else (("h0", "a0"), ("h1", "a1"))
    a = b.op(
        "tanh", b.op("matmul", x, w0, out=names[0][0], where=first), out=names[0][1], where=first
    )
    if mesh:
        b.send(a, 1, first)
        a = b.receive(a, "met", 0, last)
    y = b.op(
        "tanh", b.op("matmul", a, w1, out=names[1][0], where=last), out=names[1][1], where=last
    )
    b.output(
        b.op("sum", b.op("square", y, where=last), axes=(0, 1), out="loss", where=last),
        "loss" if mesh else "",
    )
    dy = b.op(
        "mul", y, y if wrong else b.op("full_like", y, value=2, where=last), out="dy", where=last
    )
    b.back("tanh", [names[1][0]], y, dy, ["dh1"], where=last)
    b.back("matmul", [a, w1], names[1][0], "dh1", ["da", "dw1"], where=last)
    if mesh:
        b.send("da", 0, last)
        b.receive("da", "back", 1, first)
    b.back("tanh", [names[0][0]], names[0][1], "back" if mesh else "da", ["dh0"], where=first)
    b.back("matmul", [x, w0], names[0][0], "dh0", ["", "dw0"], where=first)
    b.gradient("dw0", w0)
    b.gradient("dw1", w1)
    return b.plan()


@contextmanager
def bound_unless(holds: Callable[[Any], bool]) -> Iterator[None]:
    """A bound that is vacuous but for stages at sizes of which something holds."""
    with _bound_of(StageDegrees, holds), _bound_of(FreeStageDegrees, holds):
        yield


@contextmanager
def _bound_of(degrees_of: Any, holds: Callable[[Any], bool]) -> Iterator[None]:
    made, bounded = degrees_of.of, degrees_of.error
    sizes: dict[int, Any] = {}
    kept: list[Any] = []

    def of(shaped: Any, *more: Any) -> Any:
        found = made(shaped, *more)
        kept.append(found)
        sizes[id(found)] = shaped.sizes
        return found

    def error(degrees: Any, *more: Any) -> Any:
        one, rejected = bounded(degrees, *more)
        return (
            one
            if holds(sizes[id(degrees)])
            else one._replace(levels=tuple(0.0 for _ in one.levels))
        ), rejected

    with patch.object(degrees_of, "of", of), patch.object(degrees_of, "error", error):
        yield


def verdict(parallel: Plan, **more: Any) -> Report:
    return check(stages(None), parallel, Options(seed=3, **more))


def test_two_layers_of_tanh_are_proven_at_reduced_shapes() -> None:
    report = verdict(stages({"pp": 2}))
    assert report.verdict == "equivalent", said(report)
    assert any(f"{WIDTH} -> " in line for line in report.reductions)


def test_a_wrong_gradient_is_caught() -> None:
    assert verdict(stages({"pp": 2}, wrong=True)).verdict == "mismatch"


def test_full_shapes_are_tried() -> None:
    with bound_unless(lambda sizes: sizes.identity):
        reports = [verdict(stages({"pp": 2})) for _ in range(2)]
        caught = verdict(stages({"pp": 2}, wrong=True))
    assert {report.verdict for report in reports} == {"equivalent"}, said(reports[0])
    assert stage_sizes.FULL in reports[0].reductions
    assert reports[0].reductions == reports[1].reductions
    assert caught.verdict == "mismatch"


def test_all_attempts_count() -> None:
    plain = verdict(stages({"pp": 2}), error_bound_log2=-40.0)
    with bound_unless(lambda sizes: sizes.identity):
        after = verdict(stages({"pp": 2}), error_bound_log2=-40.0)
    assert after.verdict == plain.verdict == "equivalent"
    assert plain.error_bound_log2 < after.error_bound_log2 <= -40.0


def test_in_vain() -> None:
    with bound_unless(lambda _: False):
        report = verdict(stages({"pp": 2}))
    assert report.verdict == "inconclusive"
    assert all(
        "nor at larger sizes and full shapes" in finding.title for finding in report.findings
    ), said(report)


def test_no_more_than_is_allowed() -> None:
    with bound_unless(lambda sizes: sizes.identity), patch.object(larger, "MOST_ELEMENTS", 100):
        report = verdict(stages({"pp": 2}))
    assert report.verdict == "inconclusive"
    assert all("nor at" not in finding.title for finding in report.findings), said(report)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_tie_that_is_missing_across_the_pair(wrong: bool) -> None:
    """Sizes that are no one assignment are refused: what is proven then is proven at full shapes,
    and nothing wrong is.
    """

    def untied(*_: Any) -> None:
        pass

    with patch.object(shapes, "_tie", untied):
        report = verdict(stages({"pp": 2}, wrong))
    if wrong:
        assert report.verdict in ("mismatch", "inconclusive"), said(report)
    else:
        assert report.verdict == "equivalent", said(report)
        assert stage_sizes.FULL in report.reductions
