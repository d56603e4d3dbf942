"""A finding as text: its table of values, its repair as changed lines, and its width."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report.report_samples import DRAWN, MESH, SHOWN, samples

from pitcheck.report.findings.text import PART_LINES
from pitcheck.report.findings.value_table import MOST_ROWS, table_lines
from pitcheck.report.lines import LEAST_WIDTH, WIDTH, Line
from pitcheck.report.pictures import HeldValue, HeldValues
from pitcheck.report.report import Edit, Finding, Report, TriedRepair
from pitcheck.report.text import render

WIDTHS = [1, 40, 60, 80, 120, 200]
FIRST_CELL = 13
"""The columns before the text of a labelled line, the most of all lines."""
NAMES = st.text(max_size=60) | st.sampled_from(
    ["\x1b[31mred\x1b[0m", "a\nb", "\u202eright to left", "\u2066isolated", "\r\x07", "שלום עולם"]
)


def shown(finding: Finding, *, width: int = WIDTH, verbose: bool = False) -> list[Line]:
    """The lines of a report with one finding."""
    report = Report(
        verdict="mismatch",
        shown=SHOWN,
        mesh=MESH,
        ranks=8,
        microbatches=2,
        differing=("w", "x"),
        findings=(finding,),
    )
    return render(report, width=width, verbose=verbose)


def said(finding: Finding, *, width: int = WIDTH, verbose: bool = False) -> str:
    return "\n".join(line.text for line in shown(finding, width=width, verbose=verbose))


def finding(**fields: Any) -> Finding:
    known = {"code": "PIT100", "verdict": "mismatch", "title": "t", "output": "w"}
    return Finding(**{**known, **fields})


def holding(*values: HeldValue, due: str = "3", **fields: Any) -> HeldValues:
    return HeldValues(output="w", element=(0,), reference_value=due, values=values, **fields)


def obeys(lines: list[str], width: int) -> bool:
    """True if only words that cannot be broken make a line wider than ``width``."""
    longest = max((len(word) for line in lines for word in line.split(" ")), default=0)
    return all(len(line) <= max(width, LEAST_WIDTH, FIRST_CELL + longest) for line in lines)


# --- width, and names that would steer a terminal


@given(NAMES, NAMES, NAMES, st.text(max_size=400), st.sampled_from(WIDTHS))
def test_no_line_is_wider_than_the_terminal_and_none_steers_it(
    operator: str, axis: str, value: str, cause: str, width: int
) -> None:
    held = holding(
        HeldValue(value=value, ranks=axis, microbatch=0),
        HeldValue(value="2", ranks=f"{axis}=0 of every {operator}"),
        due=value,
        terms=len(axis) % 2 == 0,
        sums=(HeldValue(value=value, ranks=axis), HeldValue(value="1", ranks=operator)),
    )
    hostile = finding(
        title=operator or "t",
        operator=operator,
        source=f"{axis}:3",
        cause=cause,
        repair=cause or "r",
        edits=(Edit(sign="-", text=operator), Edit(sign="+", text=cause)),
        held=held,
        element=(0,),
        reference_value=value,
        parallel_value=value,
        witness=axis,
    )
    for verbose in (False, True):
        lines = [line.text for line in shown(hostile, width=width, verbose=verbose)]
        assert all(line.isprintable() for line in lines)
        assert obeys(lines, width)


@given(st.lists(st.text("abc", min_size=1, max_size=9), max_size=60), st.sampled_from(WIDTHS))
def test_words_that_fit_are_never_broken_and_lines_are_as_wide_as_the_terminal(
    words: list[str], width: int
) -> None:
    lines = said(finding(cause=" ".join(words), repair="r"), width=width, verbose=True).split("\n")
    assert all(len(line) <= max(width, LEAST_WIDTH) for line in lines)
    cause = " ".join(lines).partition("= cause:")[2].partition("= fix")[0]
    assert cause.split() == words


@pytest.mark.parametrize("name", sorted(samples()))
@pytest.mark.parametrize("width", WIDTHS)
def test_reports_are_as_wide_as_the_terminal(name: str, width: int) -> None:
    for verbose in (False, True):
        report = samples()[name]
        assert obeys([line.text for line in render(report, verbose=verbose, width=width)], width)


def test_names_and_paths_stay_whole_so_that_they_can_be_copied() -> None:
    name, path = "layers." * 30 + "weight", "model/" * 30 + "mlp.py:18"
    text = said(
        finding(title=f"{name!r} differs", source=path, operator=f"op {name}", witness=path),
        width=60,
    )
    assert repr(name) in text and f"--> {path}\n" in text and f"(op\n      {name})" in text
    assert f"\n              {path}" in text or path in text.partition("replay")[2]


def test_ranks_stand_beside_the_place_where_there_is_room_and_below_it_where_not() -> None:
    placed = finding(source="model.py:18", operator="linear:y (linear)", ranks=(0, 1))
    assert "  --> model.py:18   (linear:y (linear))   tp=0..1, " not in said(placed)
    assert "  --> model.py:18   (linear:y (linear))   pp=0, dp=0 of every tp" in said(placed)
    assert "  --> model.py:18   (linear:y (linear))\n      pp=0, dp=0 of every tp" in said(
        placed, width=60
    )


def test_a_long_line_of_a_source_file_is_shown_whole_and_marked_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "y = linear(" + ", ".join(f"argument_{number}" for number in range(12)) + ")"
    Path("model.py").write_text(f"\n    {code}\n")
    lines = said(finding(source="model.py:2"), width=60).split("\n")
    rows = [line for line in lines if re.match(r"   [2 ] \| ", line)]
    assert " ".join(row[7:] for row in rows[::2]) == code
    assert [row.count("^") for row in rows[1::2]] == [len(row[7:]) for row in rows[::2]]
    assert all(len(line) <= 60 for line in lines)


def test_a_long_cause_is_cut_short_and_says_so_and_help_and_witness_stay() -> None:
    long = finding(cause="word " * 1000, repair="do this", witness="w.witness.json")
    text = said(long)
    assert "fix: do this" in text and "pitcheck replay w.witness.json" in text
    assert "… (--verbose shows it whole)" in text and text.count("word") < PART_LINES * 20
    whole = said(long, verbose=True)
    assert whole.count("word") == 1000 and "shows it whole" not in whole


# --- values over ranks


def test_a_finding_has_a_table_of_what_is_there_and_must_be_what_is_wrong_first() -> None:
    held = holding(
        HeldValue(value="3", ranks="tp=0 of every pp, dp"),
        HeldValue(value="-0.0", ranks="tp=1 of every pp, dp"),
    )
    table = said(finding(held=held, element=(0,))).partition("on random inputs\n")[2]
    assert table.split("\n")[:3] == [
        "       where                  is   must be",
        "       tp=1 of every pp, dp    0         3",
        "       tp=0 of every pp, dp    3         3",
    ]
    styles = {line.text.strip(): line.style for line in table_lines(held, 1, 80)}
    assert [style for text, style in styles.items() if text.startswith("tp")] == ["bad", "plain"]


def test_terms_have_their_sums_below_them() -> None:
    held = holding(
        HeldValue(value="1", ranks="tp=0"),
        HeldValue(value="1.5", ranks="tp=1"),
        terms=True,
        sums=(HeldValue(value="2.5", ranks="every rank"),),
    )
    assert [line.text for line in table_lines(held, 1, 80)] == [
        "       where       term   must be",
        "       tp=0           1",
        "       tp=1         1.5",
        "       their sum    2.5         3",
    ]
    sums = HeldValue(value="3", ranks="dp=0"), HeldValue(value="2.5", ranks="dp=1")
    assert [(line.text, line.style) for line in table_lines(replace(held, sums=sums), 1, 80)][
        3:
    ] == [
        ("       sum over dp=1    2.5         3", "bad"),
        ("       sum over dp=0      3         3", "plain"),
    ]


def test_equal_values_of_several_microbatches_are_one_row() -> None:
    values = [
        HeldValue(value=value, ranks="every rank", microbatch=number)
        for number, value in enumerate(["2", "2", "4", "2"])
    ]
    lines = [line.text for line in table_lines(holding(*values), 4, 80)]
    assert [line.split("   ")[2].strip() for line in lines[1:]] == [
        " every rank, micro-batches 0..1, 3".strip(),
        "every rank, micro-batch 2",
    ]
    same = [replace(value, value="2") for value in values]
    (row,) = table_lines(holding(*same), 4, 80)[1:]
    assert "micro-batch" not in row.text


def test_a_table_has_few_rows_unless_all_are_asked_for() -> None:
    values = [HeldValue(value=str(number), ranks=f"rank {number}") for number in range(20, 84)]
    some = [line.text for line in table_lines(holding(*values), 1, 80)]
    assert len(some) == 1 + MOST_ROWS + 1
    assert some[-1].strip() == "… and 56 more values, --verbose shows them"
    every = [line.text for line in table_lines(holding(*values), 1, 80, complete=True)]
    assert len(every) == 1 + 64 and not any("more values" in line for line in every)
    more = table_lines(holding(*values, left_out=3), 1, 80)[-1].text
    assert more.strip() == "… and 59 more values, --verbose shows 56 of them"
    left = table_lines(holding(*values, left_out=3), 1, 80, complete=True)[-1].text
    assert left.strip() == "… and 3 more values"


@pytest.mark.parametrize("width", range(24, 90))
def test_a_table_has_columns_or_stacks_them_and_keeps_every_number(width: int) -> None:
    held = holding(
        HeldValue(value="-1.8839284619203847e-291", ranks="dp=0..1, tp=3 of every pp"),
        due="1.88392846192038465e-291",
    )
    lines = [line.text for line in table_lines(held, 1, width)]
    text = "\n".join(lines)
    assert text.count("-1.8839284619203847e-291") == 1
    assert text.count(" 1.88392846192038465e-291") == 1
    assert all(len(line) <= max(width, 39) for line in lines)
    assert " ".join(re.findall(r"dp=0..1,|tp=3|of|every|pp", text)) == "dp=0..1, tp=3 of every pp"


def test_values_of_the_witness_are_told_from_those_of_the_table() -> None:
    with_witness = said(DRAWN)
    assert "= reference: 6     parallel: tp=0 holds 4, tp=1 holds 2     (on the witness)" in (
        with_witness
    )
    assert "(on a small input)" in said(replace(DRAWN, witness=None))
    assert "= reference:" not in said(replace(DRAWN, reference_value="0.25", witness=None))
    assert "(on the witness)" not in said(replace(DRAWN, held=None))


def test_a_finding_without_values_has_no_table() -> None:
    assert "must be" not in said(replace(DRAWN, held=None))
    for name in ("equivalent", "imprecise", "invalid", "inconclusive", "nothing-checked"):
        text = "\n".join(line.text for line in render(samples()[name], verbose=True))
        assert "must be" not in text and "= values" not in text


def test_the_number_of_outputs_that_differ_is_said() -> None:
    report = replace(
        samples()["mismatch"],
        differing=("a", "b", "w"),
        findings=(finding(output="w"),),
    )

    def output(**fields: Any) -> str:
        one = replace(report, findings=(replace(report.findings[0], **fields),))
        return "\n".join(line.text for line in render(one))

    assert "= output: w; 3 of 12 outputs differ\n" in output()
    assert "= output: w; 1 of 12 outputs differs because of it\n" in output(
        tried=TriedRepair(right=("w",), compared=3)
    )
    assert "= output: other\n" in output(output="other")


# --- repairs as changed lines


def test_a_repair_is_lines_that_go_and_come_and_says_whether_it_was_tried() -> None:
    edits = (Edit(sign="-", text="'y' (mul): 8"), Edit(sign="+", text="'y' (mul): 4"))
    effect = TriedRepair(right=("w",), compared=1, said="tested: with it, every output is right")
    repaired = finding(repair="use 4 (tested: with it, every output is right)", edits=edits)
    tried = replace(repaired, tried=effect)
    lines = "       - 'y' (mul): 8\n       + 'y' (mul): 4\n"
    assert f"   = fix (tested: with it, every output is right)\n{lines}" in said(tried)
    assert f"   = fix: use 4 (tested: with it, every output is right)\n{lines}" in said(
        tried, verbose=True
    )
    assert f"   = fix (not tested)\n{lines}" in said(repaired)
    assert "   = fix: use 4\n" in said(replace(repaired, repair="use 4", edits=()))
    styles = {line.text.strip()[:1]: line.style for line in shown(tried) if "(mul)" in line.text}
    assert styles == {"-": "removed", "+": "added"}


def test_a_finding_without_a_repair_has_no_changed_lines() -> None:
    text = said(finding(cause="c"))
    assert not re.search(r"^ +[-+] ", text, re.MULTILINE) and "help" not in text


def test_many_changed_lines_are_cut_short() -> None:
    many = finding(
        repair="r", edits=tuple(Edit(sign="+", text=f"line {number}") for number in range(20))
    )
    assert said(many).count("+ line") == PART_LINES - 1 and "--verbose" in said(many)
    assert said(many, verbose=True).count("+ line") == 20
