"""Rows and scores taken at indices from a vocabulary in shards, which shrinks with its indices.

A device clamps what lies before or behind its shard, takes a row there, and masks it.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from xla.hlo_pairs import cases_in, edits, is_right, plans_in

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.pair import plans_of
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.plan.model import Plan
from pitcheck.refute import counted_differences
from pitcheck.report.report import Report

FILE = "lookups.jsonl.gz"
CASES = tuple(cases_in(FILE))
"""Each program with the size of its vocabulary: 16, 256 or 32000."""


def report(reference: Plan, parallel: Plan) -> Report:
    return check(reference, parallel, Options(seed=1, explain=False))


@pytest.mark.parametrize("name", CASES)
def test_every_device_takes_what_its_shard_has(name: str) -> None:
    pair = plans_in(cases_in(FILE)[name])
    found = report(*pair)
    assert found.verdict == "equivalent", [f.title for f in found.findings]
    size = int(name.rsplit(maxsplit=1)[-1])
    if size > 16:
        assert any(line.startswith(f"{size} -> ") for line in found.reductions), found.reductions
        assert not any(line.startswith(f"{size} whole") for line in found.reductions)
    else:
        assert is_right(*pair)


CLAMP = r"clamp\((%\S+), (%\S+), (%\S+)\)"
OR = r"pred(\S+) or\((%compare\S*), (%compare\S*)\)"
SELECT = r"select\((%broadcast\S*), (%broadcast\S*), (%gather\S*)\)"
GROUPS = r"replica_groups=\[4,2\]<=\[8\]"


def wrong(size: int) -> list[tuple[str, str]]:
    """Return mistakes in a program with a vocabulary of a size, in two shards."""
    own = size // 2
    begins, last, end = rf"constant\(\{{0, {own}\}}\)", own - 1, rf"constant\(\{{{size - 1}\}}\)"
    shards = r"constant\(\{0, 1, 0, 1, 0, 1, 0, 1\}\)"
    return [
        *(
            (begins, f"constant({{{first}, {second}}})")
            for first, second in (
                (0, last),
                (0, own + 1),
                (0, 0),
                (own, 0),
                (1, own),
                (0, size),
                (own, own),
            )
        ),
        (shards, "constant({0, 1, 0, 1, 0, 1, 1, 0})"),
        (shards, "constant({0, 1, 0, 0, 0, 1, 0, 1})"),
        *(
            (rf"s32\[\] constant\({last}\)", f"s32[] constant({number})")
            for number in (last - 1, last // 2, 0, size - 1)
        ),
        *((end, f"constant({{{number}}})") for number in (size - 2, last, 0)),
        (r"(compare\(%clamp.*)direction=LT", r"\1direction=LE"),
        (r"(compare\(%clamp.*)direction=LT", r"\1direction=GT"),
        (r"(compare\(%clamp.*)direction=GT", r"\1direction=GE"),
        (r"(compare\(%clamp.*)direction=GT", r"\1direction=LT"),
        (OR, r"pred\1 and(\2, \3)"),
        (OR, r"pred\1 or(\2, \2)"),
        (OR, r"pred\1 or(\3, \3)"),
        (SELECT, r"select(\1, \3, \2)"),
        (rf"(%select = \S+) {SELECT}", r"\1 copy(\4)"),
        (GROUPS, "replica_groups=[4,2]<=[2,4]T(1,0)"),
        (GROUPS, "replica_groups=[2,4]<=[8]"),
        (r"subtract\((%clamp), (%broadcast\S*)\)", r"add(\1, \2)"),
        (r"(gather\(%\S+, )%subtract(\S*\))", r"\1%clamp\2"),
        (CLAMP, r"clamp(\3, \2, \1)"),
        (CLAMP, r"maximum(\2, \3)"),
        (CLAMP, r"minimum(\2, \1)"),
    ]


TABLE = r"s32\[8\]\{0\} constant\(\{0, 128, 0, 128, 0, 128, 0, 128\}\)"
GATHER = r"(all-gather\(%subtract\).*replica_groups=)\{\{0,2\},\{4,6\},\{1,3\},\{5,7\}\}"
GATHERED = "rows_of_gathered_tokens 256"
OF_GATHERED = [
    *(
        (TABLE, f"s32[8]{{0}} constant({{{numbers}}})")
        for numbers in (
            "0, 128, 128, 0, 0, 128, 128, 0",
            "0, 128, 0, 127, 0, 128, 0, 128",
            "0, 128, 0, 128, 0, 128, 0, 0",
            "0, 129, 0, 129, 0, 129, 0, 129",
            "1, 128, 1, 128, 1, 128, 1, 128",
            "128, 0, 128, 0, 128, 0, 128, 0",
        )
    ),
    *(
        (GATHER, rf"\1{{{groups}}}")
        for groups in (
            "{2,0},{4,6},{1,3},{5,7}",
            "{0,4},{2,6},{1,5},{3,7}",
            "{0,1},{4,5},{2,3},{6,7}",
            "{0,3},{4,6},{2,1},{5,7}",
        )
    ),
    (r"all-gather\(%subtract\)", "all-gather(%clamp)"),
    (r"(gather\(%param, )%all-gather\)", r"\1%clamps)"),
    (r"(compare\(%clamp.*)direction=LT", r"\1direction=LE"),
    (r"(compare\(%clamp.*)direction=GT", r"\1direction=GE"),
    (r"constant\(127\)", "constant(126)"),
    (r"constant\(127\)", "constant(128)"),
]
"""Mistakes where devices exchange indices from which each has subtracted its first row."""


def with_clamped_tokens(text: str) -> str:
    """Return a text that has the tokens of both devices, from which nothing was subtracted."""
    line = next(line for line in text.splitlines() if "all-gather(%subtract)" in line)
    other = line.replace("%all-gather =", "%clamps =").replace("(%subtract)", "(%clamp)")
    other = other.replace("channel_id=15", "channel_id=99")
    return text.replace(line, f"{line}\n{other}")


@pytest.mark.parametrize("fault", OF_GATHERED, ids=lambda fault: fault[1][-40:])
def test_what_is_taken_at_exchanged_places_elsewhere_is_found(fault: tuple[str, str]) -> None:
    case = cases_in(FILE)[GATHERED]
    found = edits(with_clamped_tokens(case["after"]), (fault,))
    assert found
    for what, text in found:
        pair = plans_in(case, after=text)
        assert not is_right(*pair, seeds=range(1, 7)), what
        assert report(*pair).verdict == "mismatch", what


FAULTY = [
    (name, fault)
    for name in ("rows_of_tokens_in_parts 16", "scores_of_labels 256")
    for fault in wrong(int(name.rsplit(maxsplit=1)[-1]))
]


@pytest.mark.parametrize(
    ("name", "fault"),
    FAULTY,
    ids=[f"{n}: {name}: {f[1][:40]}" for n, (name, f) in enumerate(FAULTY)],
)
def test_what_is_taken_elsewhere_is_found(name: str, fault: tuple[str, str]) -> None:
    case = cases_in(FILE)[name]
    found = edits(case["after"], (fault,))
    assert found
    for what, text in found:
        pair = plans_in(case, after=text)
        assert not is_right(*pair, seeds=range(1, 7)), what
        assert report(*pair).verdict == "mismatch", what


@pytest.mark.parametrize("fault", wrong(32000)[:18:3], ids=lambda fault: fault[1][:40])
def test_a_fault_at_one_place_of_many_is_found(fault: tuple[str, str]) -> None:
    case = cases_in(FILE)["scores_of_labels 32000"]
    for what, text in edits(case["after"], (fault,)):
        assert report(*plans_in(case, after=text)).verdict == "mismatch", what


@pytest.mark.parametrize(
    "name",
    [
        "rows_of_tokens_in_parts 16",
        GATHERED,
        pytest.param("scores_of_labels 32000", marks=pytest.mark.slow),
    ],
)
def test_no_fault_is_proven_where_no_run_shows_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs on real numbers find most faults first; proofs must refuse them without that."""
    for look in ("early_look", "second_look"):
        monkeypatch.setattr(counted_differences, look, lambda *_: None)
    unseen = SimpleNamespace(shown=None, draws={})
    monkeypatch.setattr(counted_differences, "count_differences", lambda *_: unseen)
    case = cases_in(FILE)[name]
    assert report(*plans_in(case)).verdict == "equivalent"
    faults = OF_GATHERED if name == GATHERED else wrong(int(name.rsplit(maxsplit=1)[-1]))
    for fault in faults:
        for what, text in edits(
            with_clamped_tokens(case["after"]) if name == GATHERED else case["after"], (fault,)
        ):
            assert report(*plans_in(case, after=text)).verdict == "inconclusive", what


def test_texts_of_two_vocabularies_are_not_one_program() -> None:
    small, large = (cases_in(FILE)[f"scores_of_labels {size}"] for size in (16, 256))
    resized = small["after"].replace("constant({15})", "constant({255})")
    pair = plans_in(small, after=resized)
    # Indices lie in the vocabulary, so that a bound above it does nothing.
    assert is_right(*pair)
    assert report(*pair).verdict == "equivalent"
    with pytest.raises(PlanError, match="its sharding makes it"):
        plans_of(parse_hlo(small["before"]), parse_hlo(large["after"]))


def test_what_is_masked_by_another_mask_is_found() -> None:
    """Labels of one token mask the scores of the token before it."""
    case = cases_in(FILE)["scores_of_labels 256"]
    line = next(x for x in case["after"].splitlines() if " select(%broadcast" in x)
    mask = line.split("select(")[1].split(",")[0]
    turned = f"  %turned = pred[2,1]{{1,0}} reverse({mask}), dimensions={{0}}\n"
    text = case["after"].replace(line, turned + line.replace(f"select({mask}", "select(%turned"))
    pair = plans_in(case, after=text)
    assert not is_right(*pair)
    assert report(*pair).verdict == "mismatch"


SWAPPED = "{{0,2},{2,0},{4,6},{6,4},{1,3},{3,1},{5,7},{7,5}}"
ACROSS = "{{0,1},{1,0},{2,3},{3,2},{4,5},{5,4},{6,7},{7,6}}"
ORDER, REVERSED = "{0,2},{4,6},{1,3},{5,7}", "{2,0},{6,4},{3,1},{7,5}"


@pytest.mark.parametrize(
    ("pairs", "groups", "expected"),
    [
        (SWAPPED, REVERSED, "equivalent"),
        (SWAPPED, ORDER, "mismatch"),
        (ACROSS, ORDER, "mismatch"),
        (SWAPPED.replace("{0,2},", ""), REVERSED, "mismatch"),
    ],
)
def test_places_that_were_sent_before_they_are_gathered(
    pairs: str, groups: str, expected: str
) -> None:
    case = cases_in(FILE)[GATHERED]
    line = next(x for x in case["after"].splitlines() if "all-gather(%subtract)" in x)
    sent = (
        "  %sent = s32[2,2,1]{2,1,0} collective-permute(%subtract), channel_id=99, "
        f"source_target_pairs={pairs}\n"
    )
    gathered = line.replace("(%subtract)", "(%sent)").replace(ORDER, groups)
    pair = plans_in(case, after=case["after"].replace(line, sent + gathered))
    assert is_right(*pair) == (expected == "equivalent")
    assert report(*pair).verdict == expected


MANY = cases_in("many_tokens.jsonl")["rows_of_many_tokens"]


def test_the_first_row_of_a_shard_is_known_for_each_of_many_tokens() -> None:
    """Each of 8 devices repeats its first row for 16,384 tokens: few rows stand for all then."""
    assert check(*plans_in(MANY), Options(seed=1, max_memory=1 << 22)).verdict == "equivalent"


@pytest.mark.parametrize(("old", "new"), [("(1023)", "(1022)"), ("5120, 6144", "5120, 6145")])
def test_another_row_for_each_of_many_tokens_is_found(old: str, new: str) -> None:
    assert old in MANY["after"]
    wrong = plans_in(MANY, after=MANY["after"].replace(old, new))
    assert check(*wrong, Options(seed=1, explain=False)).verdict == "mismatch"
