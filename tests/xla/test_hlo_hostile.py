"""A damaged or hostile text is refused with its line, fast, and by no other error."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xla.hlo_lines import ATTRIBUTES, GIVEN, TRUE, WRONG
from xla.hlo_texts import ADD, NAMES, SMALL, dump, module_text

from pitcheck.errors import BudgetError, PitcheckError, PlanError, UnsupportedError
from pitcheck.frontends.xla.text import limits
from pitcheck.frontends.xla.text.parser import parse_hlo, read_hlo

LONG = 1_000_000
DEEP = 100_000


def refused(text: str, seconds: float = 1.0) -> PitcheckError | None:
    """Return the error of a text, None if it is read. It names a line, and comes in time."""
    start = time.process_time()
    error: PitcheckError | None = None
    try:
        parse_hlo(text, "dump.txt")
    except (PlanError, UnsupportedError, BudgetError) as raised:
        error = raised
    assert time.process_time() - start < seconds
    if error is not None:
        found = re.match(r"dump\.txt:(\d+): ", str(error))
        assert found, error
        assert 1 <= int(found[1]) <= text.count("\n") + 1
        assert len(str(error)) < 2000
    return error


FRAGMENTS = st.one_of(
    st.sampled_from(
        (
            *"{}[](),:=%\"'\\/*-<>?#+~. \n\0\x7fé",
            "<=",
            "->",
            "...",
            "/*",
            "*/",
            "inf",
            "nan",
            "ROOT",
        )
    ),
    st.sampled_from(("ENTRY", "HloModule", "mesh", "f32[", "f32[]", "-1", "9" * 30, "9" * 5000)),
    st.sampled_from(("1e5", "0_0x1_1", "3x3", "b01f_01io->b01f", "token[]", "u64[2]{0:T(8)}")),
    st.text(max_size=4),
)


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """Draw a text with some places cut out, put in, or exchanged."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from((0, 0, 1, 1, 2, 5, 20, 200))))
        text = text[:start] + draw(FRAGMENTS) + text[end:]
    return text


LINES = module_text(
    *GIVEN,
    *(
        line.replace("%r =", f"%r{number} =")
        for number, (line, _, _) in enumerate(ATTRIBUTES.values())
    ),
    "%m = f32[4,6] all-gather(%x), dimensions={0}, channel_id=1, use_global_device_ids=true, "
    "replica_groups=mesh['a'=2,'b'=4], device_ids=([2,4]T(1,0)) {'a','b':(2)2}, "
    "sharding={mesh['a'=2,'b'=4], [{'a'}, {}], unreduced={'b'}}",
    before=ADD + TRUE,
)


@settings(max_examples=400)
@given(damaged(SMALL))
def test_a_damaged_module_gives_no_other_error(text: str) -> None:
    refused(text)


@settings(max_examples=600)
@given(damaged(LINES))
def test_damaged_attributes_give_no_other_error(text: str) -> None:
    refused(text)


def test_the_lines_that_are_damaged_are_right() -> None:
    assert refused(SMALL) is None
    assert refused(LINES) is None


@given(st.integers(0, len(SMALL.rstrip()) - 1))
def test_a_cut_module_is_refused(end: int) -> None:
    assert refused(SMALL[:end]) is not None


@settings(max_examples=15)
@given(st.data())
@pytest.mark.parametrize("name", NAMES)
def test_a_cut_dump_is_refused(name: str, data: st.DataObject) -> None:
    text = dump(name)
    assert refused(text[: data.draw(st.integers(0, len(text.rstrip()) - 1))], 2.0) is not None


@settings(max_examples=15)
@given(st.data())
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_dump_gives_no_other_error(name: str, data: st.DataObject) -> None:
    refused(data.draw(damaged(dump(name))), 2.0)


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_bytes_give_no_other_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("hlo") / "dump.txt"
    path.write_bytes(b"HloModule m\n" + data)
    with pytest.raises(PlanError, match=r"dump\.txt:\d+"):
        read_hlo(path)


def after(line: str) -> Callable[[], str]:
    """Return a maker of a module that has this line below its parameters."""
    return lambda: module_text(*GIVEN, line, before=ADD + TRUE)


HOSTILE: dict[str, tuple[Callable[[], str], type[PitcheckError], str]] = {
    "empty": (lambda: "", PlanError, "HloModule"),
    "blank": (lambda: " \n" * LONG, PlanError, "HloModule"),
    "open string": (after('%r = f32[] copy(%p), backend_config="' + "a\\" * LONG), PlanError, ""),
    "open quote": (after("%r = f32[] copy(%p), sharding={mesh['" + "a" * LONG), PlanError, ""),
    "open comment": (lambda: "HloModule m /*" + "*" * LONG, PlanError, ""),
    "comments": (lambda: "HloModule m " + "/**/" * (LONG // 4) + "\0", PlanError, "begins nothing"),
    "deep tuple": (after("%r = " + "(" * DEEP), BudgetError, "nested"),
    "deep text": (
        after("%r = f32[] copy(%p), backend_config=" + "{[" * DEEP),
        BudgetError,
        "nested",
    ),
    "deep origin": (after("%r = f32[] copy(%p), origin=" + "{(" * DEEP), BudgetError, "nested"),
    "deep metadata": (
        after("%r = f32[] copy(%p), metadata={a=" + "{" * DEEP),
        BudgetError,
        "nested",
    ),
    "deep literal": (after("%r = f32[] constant(" + "{" * DEEP), PlanError, "expected"),
    "deep dimensions": (after("%r = f32[" + "1," * DEEP + "1] iota()"), BudgetError, "dimensions"),
    "deep operands": (after("%r = f32[] add(" * DEEP), PlanError, "stands above"),
    "deep sharding": (after("%r = f32[] copy(%p), sharding=" + "{" * DEEP), PlanError, "'devices'"),
    "large array": (
        after("%r = f32[9999999999,9999999999] iota(), iota_dimension=0"),
        BudgetError,
        "elements",
    ),
    "large array of none": (
        after("%r = f32[9999999999,9999999999,0] iota(), iota_dimension=0"),
        BudgetError,
        "elements",
    ),
    "large size": (after("%r = f32[" + "9" * LONG + "] iota()"), PlanError, "size"),
    "large number": (after("%r = s32[] constant(" + "9" * LONG + ")"), PlanError, "whole number"),
    "large decimal": (after("%r = f32[] constant(0." + "9" * LONG + ")"), PlanError, "number"),
    "large exponent": (after("%r = f32[] constant(1e-9999999)"), PlanError, "number"),
    "large padding": (
        after("%r = f32[] pad(%p, %p), padding=" + "0_0x" * DEEP + "0_0"),
        PlanError,
        "padding",
    ),
    "large window": (
        after("%r = f32[] reduce-window(%p, %p), window={size=" + "1x" * DEEP + "1}"),
        BudgetError,
        "too many",
    ),
    "large literal": (
        after("%r = f32[9999999] constant({" + "1," * DEEP + "1})"),
        BudgetError,
        "elements",
    ),
    "short literal": (
        after("%r = f32[3000000,0] constant({" + "{}," * (DEEP // 2) + "{}})"),
        PlanError,
        "','",
    ),
    "many devices": (
        after("%r = f32[] copy(%p), sharding={devices=[99999,99999]<=[9999800001]}"),
        BudgetError,
        "devices",
    ),
    "many axes": (
        after("%r = f32[] all-reduce(%p), to_apply=%add, replica_groups=mesh["
              + ",".join(f"'a{n}'=1" for n in range(DEEP)) + "] {}"),
        BudgetError,
        "dimensions",
    ),
    "many uses of an axis": (
        after("%r = f32[] copy(%p), sharding={mesh['a'=1], [" + "{'a'}," * DEEP + "{'a'}]}"),
        BudgetError,
        "axes",
    ),
    "many sizes": (
        after("%r = f32[] all-reduce(%p), to_apply=%add, replica_groups=[1,1]<=["
              + "1," * DEEP + "1]T(0)"),
        BudgetError,
        "dimensions",
    ),
    "long name": (after("%" + "r" * LONG + " = f32[] copy(%" + "s" * LONG + ")"), PlanError, ""),
    "long opcode": (after("%r = f32[] " + "r" * LONG + "(%p)"), UnsupportedError, "opcode"),
    "long attribute": (after("%r = f32[] copy(%p), " + "r" * LONG + "=1"), UnsupportedError, ""),
    "long word": (
        after("%r = f32[] compare(%p, %p), direction=" + "E" * LONG),
        UnsupportedError,
        "direction",
    ),
    "long tuple": (
        after("%r = (" + "f32[]," * DEEP + "f32[]) tuple(%p)"),
        PlanError,
        "in all",
    ),
    "long labels": (
        after("%r = f32[] convolution(%p, %p), dim_labels=" + "0" * LONG + "_01->01"),
        PlanError,
        "once",
    ),
    "half a million words": (lambda: "HloModule m " + "a " * (LONG // 2), PlanError, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_refused_in_time(name: str) -> None:
    make, kind, message = HOSTILE[name]
    error = refused(make())
    assert type(error) is kind, error
    assert message in str(error)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_line_is_refused_in_time(name: str) -> None:
    assert refused(
        module_text(*GIVEN, WRONG[name][0], before=ADD + TRUE, head=", num_partitions=2")
    )


def test_a_text_that_is_too_long_is_refused_unread(tmp_path: Path) -> None:
    text = "HloModule m\n" + "\n" * limits.LARGEST_TEXT
    assert type(refused(text)) is BudgetError
    path = tmp_path / "dump.txt"
    with path.open("wb") as file:
        file.truncate(limits.LARGEST_TEXT + 1)
    with pytest.raises(BudgetError, match=r"dump\.txt"):
        read_hlo(path)


def test_instructions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pitcheck.frontends.xla.text.parser.LONGEST_PROGRAM", 4)
    assert refused(module_text("%x = f32[] parameter(0)")) is None
    error = refused(module_text(*(f"%x{n} = f32[] parameter({n})" for n in range(4))))
    assert type(error) is BudgetError


def test_many_lists_of_devices_are_bounded() -> None:
    """A text of a few kilobytes asks for lists of millions of devices."""
    lines = [
        f"%r{number} = f32[] all-reduce(%p), to_apply=%add, replica_groups=[{2**number},"
        f"{2 ** (16 - number)}]<=[65536]"
        for number in range(17)
    ]
    assert refused(module_text(*GIVEN, *lines[:15], before=ADD)) is None
    error = refused(module_text(*GIVEN, *lines, before=ADD))
    assert type(error) is BudgetError
    assert "in all" in str(error)


def large_tuple(calls: int) -> str:
    """Return a program that passes a large tuple to a computation many times."""
    shape = "(" + ", ".join(["f32[]"] * 20_000) + ")"
    takes = f"%take (t: {shape}) -> f32[] {{\n  %t = {shape} parameter(0)\n"
    takes += "  ROOT %o = f32[] get-tuple-element(%t), index=3\n}\n"
    lines = [f"%r{number} = f32[] call(%t), to_apply=%take" for number in range(calls)]
    return module_text(f"%t = {shape} parameter(0)", *lines, before=takes)


def test_a_large_tuple_is_compared_in_no_time() -> None:
    """The time for many calls is that of few, and of the text that they add."""
    assert refused(large_tuple(10)) is None
    assert refused(large_tuple(10_000), 2.0) is None


def test_elements_of_a_large_tuple_are_taken_in_no_time() -> None:
    count = 10_000
    shape = "(" + ", ".join(["f32[2]{0}"] * count) + ")"
    lines = [f"%e{n} = f32[2]{{0}} get-tuple-element(%t), index={n}" for n in range(count)]
    whole = f"%w = {shape} tuple({', '.join(f'%e{n}' for n in range(count))})"
    assert refused(module_text(f"%t = {shape} parameter(0)", *lines, whole), 3.0) is None
