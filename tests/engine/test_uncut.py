"""Small plans are proven as a whole; where that is an estimate, stages are looked at first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from zoo.pairs import pair, without_hints

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.graph.cuts import Cut
from pitcheck.prove import prover
from pitcheck.prove.prover import Ledger, Prover
from pitcheck.report.report import Report

NAME = "megatron_mlp_gelu"


def _report(name: str = NAME) -> Report:
    reference, parallel = pair(name)
    return checked([lambda: [reference], lambda: [without_hints(parallel)]], Options(seed=1))


def _outputs() -> int:
    return len(pair(NAME)[0].outputs)


def test_a_small_plan_is_proven_as_a_whole() -> None:
    report = _report()
    assert report.verdict == "equivalent"
    assert report.stages.total == _outputs()


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [(prover, "MOST_UNCUT", 1), (Ledger, "estimated", property(lambda _: True))],
    ids=["a larger plan", "the whole is an estimate"],
)
def test_stages_are_cut_out(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, value: object
) -> None:
    monkeypatch.setattr(owner, name, value)
    report = _report()
    assert report.verdict == "equivalent"
    assert report.stages.total > _outputs()


def test_an_estimate_of_the_whole_stands_if_shorter_stages_have_no_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Ledger, "estimated", property(lambda _: True))
    run = Prover.run

    def only_whole(self: Prover, cuts: dict[int, Cut]) -> Ledger:
        ledger = run(self, cuts)
        if not cuts:
            return ledger
        left_open = [
            replace(o, proof=replace(o.proof, outcome="inconclusive")) for o in ledger.obligations
        ]
        return replace(ledger, obligations=left_open)

    monkeypatch.setattr(Prover, "run", only_whole)
    report = _report()
    assert report.verdict == "equivalent"
    assert report.stages.total == _outputs()
    assert report.error_bound_log2 <= Options().error_bound_log2
