"""Files made to break the reader.

Each soon ends in a PlanError with a place, or in a plan that validation can take.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from plan.plan_samples import change, linear_parallel, linear_reference, pipeline

from pitcheck.errors import PlanError
from pitcheck.plan.files import decode_plan, encode_json, read_plan, write_plan
from pitcheck.plan.model import FORMAT, Axis, Plan
from pitcheck.plan.validate import validate

SAMPLES = {"reference": linear_reference(), "parallel": linear_parallel(), "pipeline": pipeline()}
SECONDS = 5.0


def survives(data: bytes, encoding: str = "json") -> str:
    """Return "error" (with a place) or "plan" (that validation can take).

    Any other exception is a failure of the test.
    """
    start = time.monotonic()
    try:
        plan = decode_plan(data, "file", encoding)
    except PlanError as error:
        assert error.place
        assert len(str(error)) < 2000
        return "error"
    found = validate(plan, SAMPLES["reference"])
    assert all(violation.place and violation.message for violation in found)
    assert time.monotonic() - start < SECONDS
    return "plan"


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("part", range(20))
def test_truncated_json(name: str, part: int) -> None:
    data = encode_json(SAMPLES[name])
    assert survives(data[: len(data.rstrip()) * part // 20]) == "error"


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("part", range(10))
def test_truncated_msgpack(name: str, part: int) -> None:
    data = msgspec.msgpack.encode(SAMPLES[name])
    assert survives(data[: len(data) * part // 10], "msgpack") == "error"


@pytest.mark.parametrize("part", range(20))
def test_truncated_and_damaged_zstd(part: int, tmp_path: Path) -> None:
    path = tmp_path / "a.plan.zst"
    write_plan(SAMPLES["pipeline"], path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * part // 20])
    with pytest.raises(PlanError) as truncated:
        read_plan(path)
    assert truncated.value.place
    at = len(data) * part // 20
    path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
    # The checksum of the frame catches what the format does not; a flipped bit of the header that
    # has no meaning may pass.
    try:
        assert read_plan(path) == SAMPLES["pipeline"]
    except PlanError as error:
        assert error.place


@settings(max_examples=150)
@given(st.sampled_from(sorted(SAMPLES)), st.integers(0, 2**32), st.integers(1, 4))
def test_flipped_bits_in_json(name: str, seed: int, count: int) -> None:
    data = bytearray(encode_json(SAMPLES[name]))
    draw = random.Random(seed)
    for _ in range(count):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    survives(bytes(data))


@settings(max_examples=100)
@given(st.sampled_from(sorted(SAMPLES)), st.integers(0, 2**32), st.integers(1, 4))
def test_flipped_bits_in_msgpack(name: str, seed: int, count: int) -> None:
    data = bytearray(msgspec.msgpack.encode(SAMPLES[name]))
    draw = random.Random(seed)
    for _ in range(count):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    survives(bytes(data), "msgpack")


@settings(max_examples=50)
@given(st.binary(max_size=200))
def test_noise(data: bytes) -> None:
    assert survives(data) == "error"
    assert survives(data, "msgpack") == "error"


NUMBERS = (True, -1, 0, 7, 2**31, 2**62, -(2**62), 1.5)
JUNK: tuple[Any, ...] = (
    None,
    *NUMBERS,
    "",
    "x",
    "tp",
    "nan",
    "0/0",
    [],
    [[]],
    [-1],
    [0, 0],
    [2**40],
    {},
    {"tp": [5]},
    [{"tp": [-1]}],
)


def places_in(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    return [path] + [found for key, value in inner for found in places_in(value, (*path, key))]


@settings(max_examples=400)
@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_a_value_replaced_by_another(name: str, data: st.DataObject) -> None:
    tree = json.loads(encode_json(SAMPLES[name]))
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(places_in(tree)[1:]))
        holder = tree
        for key in path[:-1]:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[path[-1]] = data.draw(st.sampled_from(JUNK))
        elif isinstance(holder, list):
            holder.insert(0, holder[path[-1]])
        else:
            del holder[path[-1]]
    survives(json.dumps(tree).encode())


def with_text(old: str, new: str) -> bytes:
    text = encode_json(linear_parallel()).decode()
    assert old in text
    return text.replace(old, new, 1).encode()


@pytest.mark.parametrize(
    ("data", "place", "message"),
    [
        (b"", "byte 0", "truncated"),
        (b"[]", "file", "Expected `object`"),
        (b"{}", "format", "does not name its format"),
        (with_text(FORMAT, "pitcheck.plan/2"), "format", "reads 'pitcheck.plan/1'"),
        (with_text('"size":2', '"size":NaN'), "byte", "NaN and Infinity are not JSON"),
        (with_text('"size":2', '"size":-Infinity'), "byte", "NaN and Infinity are not JSON"),
        (with_text('"size":2', '"size":1e999'), "mesh[0].size", "out of range"),
        (with_text('"size":2', '"size":"2"'), "mesh[0].size", "Expected `int`, got `str`"),
        (with_text('"size":2', '"size":' + "9" * 10_000), "mesh[0].size", "out of range"),
        (with_text('"size":2', '"size":1000000000000'), "mesh", "at most 1048576"),
        (with_text('"size":2', '"size":0'), "mesh[0].size", "at least 1"),
        (with_text('"size":2', '"size":-2'), "mesh[0].size", "at least 1"),
        (with_text('"name":"tp"', '"name":"mb"'), "mesh[0].name", "cannot be called 'mb'"),
        (with_text('"size":2', '"size":2,"size":3'), "mesh[0].size", "stands twice"),
        (
            with_text('"reduction":"sum"', '"reduction":"sum","reduction":"max"'),
            "operators[1].attributes.reduction",
            "stands twice",
        ),
        (with_text('"kind":"matmul"', '"kinds":"matmul"'), "operators[0]", "unknown field `kinds`"),
        (with_text('"id":"product",', ""), "operators[0]", "missing required field `id`"),
        (
            with_text('"inputs":["x","w"]', '"inputs":["x",3]'),
            "operators[0].inputs[1]",
            "got `int`",
        ),
        (with_text('"x"', "[" * 100_000), "file", "nested too deeply"),
        (
            with_text('"reduction":"sum"', '"reduction":' + "[" * 100_000),
            "file",
            "nested too deeply",
        ),
        (
            with_text('"reduction":"sum"', '"reduction":[[[1]]]'),
            "operators[1].attributes",
            "got `array`",
        ),
        (with_text('"role":"input"', '"role":"inputs"'), "tensors[0].role", "Invalid enum value"),
        (with_text('"microbatches": 1', '"microbatches": 0'), "microbatches", "at least 1"),
        (with_text('"microbatches": 1', '"microbatches": 1000000000'), "microbatches", "at most"),
        (b"\xef\xbb\xbf" + encode_json(linear_parallel()), "byte 0", "malformed"),
        (encode_json(linear_parallel()).decode().encode("utf-16"), "byte 0", "malformed"),
        (encode_json(linear_parallel()) + b"{}", "byte", "malformed"),
    ],
)
def test_the_place_and_the_reason_are_named(data: bytes, place: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        decode_plan(data)
    assert error.value.place.startswith(place)
    assert error.value.place
    assert message in error.value.message


def test_lying_sizes_in_msgpack_allocate_nothing() -> None:
    for lie in (
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x81\xa6format\xdb\xff\xff\xff\xff",
    ):
        assert survives(lie, "msgpack") == "error"
    assert survives(b"\x91" * 100_000, "msgpack") == "error"


def test_a_frame_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    packed = zstandard.ZstdCompressor(write_content_size=True).compress(b"x" * 1000)
    (tmp_path / "a.plan.zst").write_bytes(packed[:5] + b"\xff\xff" + packed[7:])
    with pytest.raises(PlanError):
        read_plan(tmp_path / "a.plan.zst")


def test_gigantic_meshes_built_in_python_are_violations() -> None:
    many = change(linear_parallel(), mesh=tuple(Axis(f"a{i}", 1) for i in range(100)))
    for plan in (
        change(linear_parallel(), mesh=(Axis("tp", 2**80),)),
        change(linear_parallel(), microbatches=2**80),
        many,
    ):
        found = validate(plan, linear_reference())
        assert {violation.code for violation in found} == {"PIT001"}


def test_the_samples_themselves_are_read_and_valid() -> None:
    for plan in SAMPLES.values():
        assert survives(encode_json(plan)) == "plan"
        assert isinstance(decode_plan(encode_json(plan)), Plan)
