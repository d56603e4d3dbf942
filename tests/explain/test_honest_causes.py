"""A cause says no more than the values show: of known bugs, what is said and what must not be."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from bugs.record import Bug
from bugs.records.veomni_338 import parallel
from bugs.table import BUGS, first_of, said
from bugs.token_losses import mean_over_tokens

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Plan

SAID = {
    # A part in another shape is gathered, on any number of ranks along the same dimensions.
    "pytorch_179502": ("PIT107", "gather 'x' over tp along dimension 1", "view", ""),
    # A missing result is named by its function, not by a name that is there.
    "pytorch_190746": ("PIT103", "log_softmax.backward", "no rank computes", "; read 'grad"),
    # The block that a ring fetches of another rank is no part of its own, nor of the reference.
    "axolotl_3608": ("PIT103", "no rank reads 'starts'", "12:einsum", "k:before"),
    # Blocks beside the diagonal are computed in another form.
    "llamafactory_10787": ("PIT102", "'state'", "without a mask", "computed nowhere"),
    # A norm across what ranks have parts of is run again on the whole.
    "gpt_neox_1424": ("PIT104", "along dimension 1 of 'q'", "(tested", ""),
    # A mask of queries and keys is the reference's for the rank's queries.
    "trl_6843": ("PIT102", "'packed.logical_and.9'", "(tested", ""),
    # A number is seldom in the place of a tensor: what is missing is the tensor.
    "transformers_46113": ("PIT103", "'clipped'", "no rank computes", "the number"),
    # They are not where all blocks are joined.
    "megatron_bridge_5900": ("PIT107", "computed nowhere", "'inner'", ""),
}
"""By bug the code, two texts that are said, and one that is not (empty: none)."""


def told(bug: Bug, where: str) -> str:
    """Return all that the first finding of a configuration says."""
    first = first_of(check(*bug.shows[where].wrong(), Options(seed=1)))
    assert first is not None
    return said(first)


@pytest.mark.parametrize("name", SAID)
def test_a_cause_says_what_the_values_show(name: str) -> None:
    code, *words, never = SAID[name]
    for where in BUGS[name].shows:
        text = told(BUGS[name], where)
        assert text.startswith(code), text
        assert all(word in text for word in words), text
        assert not never or never not in text


def test_a_repair_holds_where_axes_have_other_sizes() -> None:
    """With as many ranks over dp as over sp, a sum over dp makes up for the mean over sp."""

    def at(mesh: Mapping[str, int]) -> tuple[Plan, Plan]:
        return mean_over_tokens(), parallel(mesh["dp"], mesh["sp"], True)

    report = check(*at({"dp": 2, "sp": 2}), Options(seed=1), again=at)
    (found,) = report.findings
    assert "over sp" in said(found) and "over dp" not in said(found), said(found)
    assert "at sp=4" in (found.repair or "")
