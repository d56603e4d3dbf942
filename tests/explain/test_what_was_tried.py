"""What findings say of repairs that were tried: where, on what inputs, in the user's sizes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pitcheck.algebra.discrete import Decision
from pitcheck.base.options import Options
from pitcheck.claims.real_numbers import seen_differences
from pitcheck.explain import messages
from pitcheck.explain.search import _one_sided
from pitcheck.report.report import TriedRepair


def numbers(*trials: tuple[float, ...]) -> SimpleNamespace:
    return SimpleNamespace(data=np.array(trials)[None, :, None, :])


def test_a_trial_of_rounding_alone_is_no_difference() -> None:
    """The second trial is 0 but for rounding, which the order of its sums decides."""
    right = numbers((0.3, -0.2), (1e-19, -3e-19))
    other_order = numbers((0.3, -0.2), (-2e-19, 1e-19))
    assert not seen_differences(other_order, right).any()


@pytest.mark.parametrize("wrong", [(1e-9, 0.0), (2e-12, 0.0), (np.nan, 0.0), (np.inf, 0.0)])
def test_a_small_trial_above_rounding_differs(wrong: tuple[float, float]) -> None:
    assert seen_differences(numbers((0.3, -0.2), wrong), numbers((0.3, -0.2), (0.0, 0.0))).any()


def decided(site: str, true: int, false: int) -> Decision:
    return Decision(site, np.array([[true]]), np.array([[false]]))


def test_a_repair_names_the_clamp_whose_other_side_no_input_showed() -> None:
    clamp, relu = "'clip' (clamp) at model.py:12", "'act' (relu) at model.py:7"
    one_sided = _one_sided([decided(f"{clamp}#0", 0, 4), decided(f"{relu}#0", 4, 0)])
    assert one_sided == (clamp, relu)
    both = [decided(f"{clamp}#0", 0, 4), decided(f"{clamp}#1", 1, 0)]
    assert _one_sided(both) == ()
    effect = TriedRepair(right=("loss",), compared=1)
    said = messages.tried(effect, mended=True, everything=1, one_sided=(clamp,))
    assert said == (
        f"tested only on inputs for which {clamp} decides one way: with it, every output is right"
    )


def test_a_view_is_told_in_the_sizes_of_the_program() -> None:
    torch = pytest.importorskip("torch")
    assert torch.__name__
    from pitcheck.torch import Input, Part, Program, Spec, check  # noqa: PLC0415

    spec = Spec(
        lambda: Program({}, lambda batch: {"y": batch["x"].reshape(2, 8, 5)}),
        lambda _: Program({}, lambda batch: {"y": batch["x"].reshape(2, 4, 5)}),
        mesh={"tp": 2},
        batch={"x": Input((16, 5), split={0: "tp"})},
        outputs={"y": Part(split={1: "tp"})},
    )
    report = check(spec, Options(seed=1))
    assert report.verdict == "mismatch"
    assert "on every rank as [2, 4, 5]" in str(report.findings[0].cause)
