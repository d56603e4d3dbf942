"""Scores of labels over a vocabulary in shards: it becomes smaller together with its labels."""

from __future__ import annotations

import pytest
from xla.hlo_pairs import cases_in, edits, is_right, plans_in

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report

SIZES = (64, 32)
"""The vocabulary, and the part of a device."""
LARGER = ("256", "128")
"""A vocabulary whose every place would take more draws than there are."""


def larger(text: str) -> str:
    """Return the program with a larger vocabulary."""
    sizes = dict(zip(map(str, SIZES), LARGER, strict=True))
    for old, new in sizes.items():
        text = text.replace(f",{old}]", f",{new}]").replace(f"[{old},", f"[{new},")
        text = text.replace(f"constant({old})", f"constant({new})")
        text = text.replace(f"constant({{0, {old}}})", f"constant({{0, {new}}})")
    return text


def report(reference: Plan, parallel: Plan) -> Report:
    return check(reference, parallel, Options(seed=1, explain=False))


def test_every_device_takes_the_labels_of_its_shard() -> None:
    reference, parallel = plans_in(cases_in("labels.jsonl")["labelled"])
    assert is_right(reference, parallel)
    found = report(reference, parallel)
    assert found.verdict == "equivalent"
    assert any(line.startswith("64 -> ") for line in found.reductions)


def test_a_large_vocabulary_is_proven() -> None:
    case = cases_in("labels.jsonl")["labelled"]
    pair = plans_in(case, before=larger(case["before"]), after=larger(case["after"]))
    found = report(*pair)
    assert found.verdict == "equivalent"
    assert any(line.startswith("256 -> ") for line in found.reductions)


WRONG = (
    *(
        (r"constant\(\{0, 32\}\)", f"constant({{{begins}}})")
        for begins in ("0, 31", "0, 33", "0, 0", "32, 0", "1, 32", "0, 64", "0, 16")
    ),
    (r"constant\(\{0, 1, 0, 1\}\)", "constant({0, 1, 1, 0})"),
    (r"constant\(\{0, 1, 0, 1\}\)", "constant({0, 0, 0, 1})"),
    (r"(scatter = f32\[3,32\]\{1,0\} scatter\(%broadcast_in_dim.14, )%subtract", r"\1%reshape.10"),
    (r"constant\(-0.166666672\)", "constant(-0.125)"),
    (r"subtract\((%reshape.10), (%broadcast.9)\)", r"add(\1, \2)"),
)


@pytest.mark.parametrize(
    "wrong", WRONG, ids=[f"{n}: {new[:40]}" for n, (_, new) in enumerate(WRONG)]
)
def test_labels_at_other_places_are_found(wrong: tuple[str, str]) -> None:
    case = cases_in("labels.jsonl")["labelled"]
    found = edits(case["after"], (wrong,))
    assert found
    for what, text in found:
        pair = plans_in(case, after=text)
        assert not is_right(*pair), what
        assert report(*pair).verdict == "mismatch", what
