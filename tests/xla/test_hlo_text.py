"""HLO text is read as it stands, and what contradicts itself or is not known is refused."""

from __future__ import annotations

import re
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xla.hlo_lines import ATTRIBUTES, GIVEN, TRUE, WRONG
from xla.hlo_texts import ADD, NAMES, SMALL, dump, dumped, main, module_text, one

import pitcheck
from pitcheck.errors import BudgetError, PlanError, UnsupportedError
from pitcheck.frontends.xla.text.literals import Complex, Special
from pitcheck.frontends.xla.text.parser import parse_hlo, read_hlo
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType, TupleShape
from pitcheck.frontends.xla.text.sharding import Form

F32 = ElementType.F32
_LINE = re.compile(r"^  (?:ROOT )?%(\S+) = (.*?) ([a-z-]+)\((.*)$", re.MULTILINE)
_FRAME = re.compile(r"^(\d+) \{file_location_id=(\d+) parent_frame_id=(\d+)\}$", re.MULTILINE)
_PLACE = re.compile(
    r"^(\d+) \{file_name_id=(\d+) function_name_id=\d+ line=(\d+) .*\}$", re.MULTILINE
)


@pytest.mark.parametrize("name", NAMES)
def test_a_dump_is_read_whole(name: str) -> None:
    """Compare with what a plain expression finds on each line."""
    text, module = dump(name), dumped(name)
    read = [i for c in module.computations.values() for i in c.instructions.values()]
    lines = list(_LINE.finditer(text))
    assert len(read) == len(lines)
    for instruction, line in zip(read, lines, strict=True):
        assert (instruction.name, instruction.opcode) == (line[1], line[3])
        assert text.splitlines()[instruction.line - 1] == line[0]
        arrays = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", re.sub(r"\{.*?\}", "", line[2]))
        shape = instruction.shape
        flat = shape.elements if isinstance(shape, TupleShape) else (shape,)
        assert [str(array) for array in flat] == [f"{kind}[{dims}]" for kind, dims in arrays]
        if instruction.opcode not in ("parameter", "constant"):
            inner = line[4].split(")")[0]
            assert list(instruction.operands) == re.findall(r"%([\w.\-]+)", inner)
        assert (instruction.sharding is not None) == (", sharding=" in line[0])
        for attribute in ("dimensions", "offset_dims", "lhs_contracting_dims", "slice_sizes"):
            found = re.search(rf" {attribute}=\{{([\d,]*)\}}", line[0])
            stated = tuple(int(n) for n in found[1].split(",") if n) if found else None
            assert instruction.attributes.get(attribute) == stated


@pytest.mark.parametrize("name", NAMES)
def test_a_dump_is_read_fast(name: str) -> None:
    text = dump(name)
    start = time.process_time()
    parse_hlo(text)
    assert time.process_time() - start < 2


def test_the_head_of_a_dump() -> None:
    before, after = (dumped(name) for name in NAMES)
    for module in (before, after):
        assert (module.name, module.header.partitions, module.header.replicas) == ("jit_step", 8, 1)
        program = module.computations[module.entry]
        assert program.signature == module.header.layout
        assert len(program.parameters) == 40
        assert module.header.free_parameters == (False,) * 40
    assert before.computations["main.51"].signature[0][0] == ArrayShape(F32, (256, 64))
    assert after.computations["main.51_spmd"].signature[0][0] == ArrayShape(F32, (128, 32))


@pytest.mark.parametrize("name", NAMES)
def test_the_places_of_a_dump_are_in_the_users_program(name: str) -> None:
    """Follow the frames of each instruction by hand."""
    text, module = dump(name), dumped(name)
    files = dict(re.findall(r'^(\d+) "(.*\.py)"$', text, re.MULTILINE))
    places = {n: f"{files[file]}:{line}" for n, file, line in _PLACE.findall(text)}
    frames = {int(n): (places[place], int(up) - 1) for n, place, up in _FRAME.findall(text)}
    checked = 0
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            frame = instruction.metadata.frame
            if not frame:
                assert module.source(instruction) is None
                continue
            innermost = frames[frame][0]
            while frame and "site-packages" in frames[frame][0]:
                frame = frames[frame][1]
            expected = frames[frame][0] if frame else innermost
            assert str(module.source(instruction)) == expected
            checked += 1
    assert checked > 1000


def test_a_small_module() -> None:
    module = parse_hlo(SMALL)
    assert list(module.computations) == ["add", "main"]
    program = module.computations[module.entry]
    assert module.header.attributes == {"input_output_alias": "{ {0}: (0, {}, may-alias) }"}
    assert module.header.frontend_attributes == {"a.b": "c"}
    assert program.parameters == ("x",)
    assert program.root == "both"
    both, x, rows, everywhere = (
        program.instructions[name] for name in ("both", "x", "rows", "all")
    )
    assert both.shape == TupleShape((ArrayShape(F32, (2,)), ArrayShape(F32, ())))
    assert isinstance(both.sharding, tuple)
    assert [sharding.form for sharding in both.sharding] == [Form.REPLICATED, Form.MAXIMAL]
    assert x.metadata.name == "x['a']"
    assert rows.calls == ("add",)
    assert rows.get("dimensions", ()) == (0,)
    assert str(module.source(rows)) == "model.py:7"
    assert everywhere.attributes["replica_groups"] == ((0, 1),)
    assert everywhere.attributes["use_global_device_ids"] is True


def test_an_older_place_stands_in_the_metadata() -> None:
    line = (
        '%x = f32[] parameter(0), metadata={op_type="p" op_name="n" source_file="/a/b.py" '
        "source_line=12}"
    )
    module = parse_hlo(module_text(line))
    instruction = module.computations["main"].instructions["x"]
    assert str(module.source(instruction)) == "/a/b.py:12"


def test_a_place_in_libraries_alone_is_the_innermost() -> None:
    text = SMALL.replace('"model.py"', '"lib/site-packages/other.py"')
    module = parse_hlo(text)
    rows = module.computations["main"].instructions["rows"]
    assert str(module.source(rows)) == "lib/site-packages/jax.py:99"


def test_a_place_in_pitcheck_alone_is_none() -> None:
    """It calls the program, and is no line of it; a caller is, if there is one."""
    package = Path(pitcheck.__file__).parent
    for caller, found in (("lib/site-packages/other.py", None), ("model.py", "model.py")):
        text = SMALL.replace('"model.py"', f'"{caller}"')
        text = text.replace('"lib/site-packages/jax.py"', f'"{package}/jax/__init__.py"')
        assert str(package) in text
        module = parse_hlo(text)
        place = module.source(module.computations["main"].instructions["rows"])
        assert (None if place is None else place.file) == found


@pytest.mark.parametrize(
    ("literal", "shape", "elements"),
    [
        ("7", "s32[]", (7,)),
        ("-128", "s8[]", (-128,)),
        ("18446744073709551615", "u64[]", (2**64 - 1,)),
        ("true", "pred[]", (True,)),
        ("{1, 0, true}", "pred[3]{0}", (True, False, True)),
        ("0.1", "f32[]", (Fraction(1, 10),)),
        ("-1e+30", "f32[]", (Fraction(-(10**30)),)),
        ("64", "bf16[]", (Fraction(64),)),
        ("3.40282347e+38", "f32[]", (Fraction(340282347 * 10**30),)),
        ("4.9406564584124654e-324", "f64[]", (Fraction(49406564584124654, 10**340),)),
        ("inf", "f32[]", (Special.INFINITY,)),
        ("-inf", "f16[]", (Special.MINUS_INFINITY,)),
        ("{nan, -nan, nan(0x7fc00001)}", "f32[3]{0}", (Special.NAN,) * 3),
        ("{-0, 0, -0.0}", "f32[3]{0}", (Special.MINUS_ZERO, Fraction(0), Special.MINUS_ZERO)),
        ("(1, -0.5)", "c64[]", (Complex(Fraction(1), Fraction(-1, 2)),)),
        ("{ { 1, 2 }, { 3, 4 }, /*i=2*/{ 5, 6 } }", "s32[3,2]{1,0}", (1, 2, 3, 4, 5, 6)),
        ("{}", "f32[0]{0}", ()),
        ("{ {}, {} }", "f32[2,0]{1,0}", ()),
    ],
)
def test_a_literal_is_exact(literal: str, shape: str, elements: tuple[object, ...]) -> None:
    read = one(f"%c = {shape} constant({literal})").literal
    assert read is not None
    assert read.elements == elements
    assert list(map(type, read.elements)) == list(map(type, elements))


@given(
    st.lists(st.integers(1, 4), max_size=3).flatmap(
        lambda dims: st.tuples(st.just(dims), st.integers(0, 2**31))
    )
)
def test_a_nested_literal_is_read_row_by_row(drawn: tuple[list[int], int]) -> None:
    """Print the numbers of a counted array as XLA does, with nested braces."""
    dims, start = drawn
    count = start

    def printed(rest: list[int]) -> str:
        nonlocal count
        if not rest:
            count += 1
            return str(count - 1)
        return "{ " + ", ".join(printed(rest[1:]) for _ in range(rest[0])) + " }"

    text = printed(dims)
    shape = f"s64[{','.join(map(str, dims))}]"
    read = one(f"%c = {shape} constant({text})").literal
    assert read is not None
    assert read.elements == tuple(range(start, count))


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("%c = s8[] constant(128)", PlanError, "from -128 to 127"),
        ("%c = u8[] constant(-1)", PlanError, "from 0 to 255"),
        ("%c = s32[] constant(1.5)", PlanError, "whole number"),
        ("%c = pred[] constant(2)", PlanError, "true or false"),
        ("%c = f32[] constant(1e39)", PlanError, "beyond"),
        ("%c = f16[] constant(65520)", PlanError, "beyond"),
        ("%c = f32[] constant(1e999999999)", PlanError, "expected"),
        ("%c = f8e4m3fn[] constant(inf)", PlanError, "no infinity"),
        ("%c = f32[2]{0} constant({1})", PlanError, "','"),
        ("%c = f32[2]{0} constant({1, 2, 3})", PlanError, "'}'"),
        ("%c = f32[2,1]{1,0} constant({1, 2})", PlanError, "'{'"),
        ("%c = f32[99]{0} constant({...})", UnsupportedError, "--xla_dump_large_constants"),
        ("%c = (f32[]) constant((1))", UnsupportedError, "constant of shape"),
        ("%c = f32[4294967296]{0} constant({1})", BudgetError, "4294967296 elements"),
    ],
)
def test_a_wrong_literal_is_refused(line: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)) as caught:
        main(line)
    assert "HLO text:5" in str(caught.value)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_is_read(name: str) -> None:
    line, attribute, value = ATTRIBUTES[name]
    assert one(line, *GIVEN, before=ADD + TRUE).attributes[attribute] == value


def test_names_and_shapes_may_be_left_out_or_stated() -> None:
    text = module_text(
        "x = f32[2]{0} parameter(0)",
        "y.1-a = f32[2]{0:T(128)S(1)} add(f32[2]{0} x, f32[2] %x)",
    )
    assert parse_hlo(text).computations["main"].instructions["y.1-a"].operands == ("x", "x")


CALLS = {
    "while": ("%r = f32[4,6]{1,0} while(%x), condition=%still, body=%yes", ("still", "yes")),
    "call": ("%r = f32[4,6]{1,0} call(%x), to_apply=%yes", ("yes",)),
    "conditional of two": (
        "%r = f32[4,6]{1,0} conditional(%b, %x, %y), true_computation=%yes, false_computation=%yes",
        ("yes", "yes"),
    ),
    "conditional of a list": (
        "%r = f32[4,6]{1,0} conditional(%i, %x), branch_computations={%yes}",
        ("yes",),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_called_computations(name: str) -> None:
    line, calls = CALLS[name]
    assert one(line, *GIVEN, before=TRUE).calls == calls


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_line_is_refused_by_its_number(name: str) -> None:
    line, error, message = WRONG[name]
    text = module_text(*GIVEN, line, before=ADD + TRUE, head=", num_partitions=2")
    with pytest.raises(error, match=re.escape(message)) as caught:
        parse_hlo(text, "dump.txt")
    number = text.splitlines().index(f"  {line}") + 1
    assert f"dump.txt:{number}: " in str(caught.value)


WHOLE: dict[str, tuple[str, str, str]] = {
    "no entry": ("ENTRY %main", "%main", "no computation is ENTRY"),
    "two entries": ("%add (a", "ENTRY %add (a", "a second computation is ENTRY"),
    "no root": ("ROOT %both", "%both", "has no ROOT"),
    "two roots": ("%all =", "ROOT %all =", "second ROOT"),
    "computation twice": ("ENTRY %main", "ENTRY %add", "a second computation"),
    "layout": ("(f32[4,2]{1,0})->", "(f32[4,3]{1,0})->", "entry_computation_layout"),
    "head": ("%main (x: f32[4,2])", "%main (x: f32[2,4])", "differ in the shapes"),
    "result": ("-> (f32[2], f32[]) {", "-> (f32[2], s32[]) {", "differ in the shapes"),
    "number beyond": ("f32[] parameter(1)", "f32[] parameter(2)", "numbered 2"),
    "number twice": ("f32[] parameter(1)", "f32[] parameter(0)", "two parameters 0"),
    "attribute": ("num_partitions=2", "num_partitions=2, frob={1}", "'frob'"),
    "attribute twice": ("num_partitions=2", "num_partitions=2, num_partitions=2", "twice"),
    "flags": (
        "num_partitions=2",
        "num_partitions=2, allow_spmd_sharding_propagation_to_output={true,true,true}",
        "3 values for 2",
    ),
    "caller below": ("parent_frame_id=1}", "parent_frame_id=3}", "callers stand before"),
    "caller itself": ("parent_frame_id=2}", "parent_frame_id=3}", "callers stand before"),
    "caller zero": ("parent_frame_id=2}", "parent_frame_id=0}", "callers stand before"),
    "place beyond": ("file_location_id=2", "file_location_id=3", "place 3"),
    "file beyond": ("file_name_id=2", "file_name_id=3", "file 3"),
    "entry skipped": ('2 "model.py"', '3 "model.py"', "entry 3"),
    "field missing": (" line=7", "", "lacks line"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_module_that_contradicts_itself_is_refused(name: str) -> None:
    old, new, message = WHOLE[name]
    assert SMALL.count(old)
    with pytest.raises((PlanError, UnsupportedError), match=re.escape(message)) as caught:
        parse_hlo(SMALL.replace(old, new, 1), "dump.txt")
    assert re.search(r"dump\.txt:\d+: ", str(caught.value))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_bytes(b"HloModule m\n\n\xff")
    with pytest.raises(PlanError, match=r"dump\.txt:3"):
        read_hlo(path)
