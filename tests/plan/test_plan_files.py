"""Reading and writing plan files."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import msgspec
import pytest
import zstandard
from plan.plan_samples import change, linear_parallel, linear_reference, pipeline, with_operator

from pitcheck.errors import PlanError, UsageError
from pitcheck.plan.files import encode_json, read_plan, write_plan
from pitcheck.plan.model import Number, Operator, Plan, Table

SUFFIXES = (".plan.json", ".plan.zst")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "plan",
    [linear_reference(), linear_parallel(), pipeline()],
    ids=["reference", "parallel", "pipeline"],
)
def test_a_written_plan_is_read_back_equal_and_writes_the_same_bytes(
    plan: Plan, suffix: str, tmp_path: Path
) -> None:
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    write_plan(plan, first)
    write_plan(read_plan(first), second)
    assert read_plan(first) == plan
    assert first.read_bytes() == second.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [first.name, second.name]


def test_every_kind_of_attribute_survives_both_formats(tmp_path: Path) -> None:
    attributes = {
        "b": True,
        "i": 1,
        "f": 1.0,
        "s": "x",
        "n": None,
        "t": (1, 2),
        "p": ((1, 2), (3, 4)),
        "w": ("a",),
        "e": (),
        "v": Table(("tp",), (1, (2, 3))),
    }
    plan = with_operator(linear_parallel(), 0, attributes=attributes)
    for suffix in SUFFIXES:
        write_plan(plan, tmp_path / f"a{suffix}")
        again = read_plan(tmp_path / f"a{suffix}").operators[0].attributes
        assert again == attributes
        assert {k: type(v) for k, v in again.items()} == {k: type(v) for k, v in attributes.items()}


def test_the_order_of_attributes_and_blocks_does_not_change_the_bytes() -> None:
    plan = pipeline()
    turned = change(plan, blocks=dict(reversed(plan.blocks.items())))
    assert encode_json(plan) == encode_json(turned)


def test_json_is_one_record_a_line() -> None:
    text = encode_json(linear_parallel()).decode()
    assert text.startswith(
        '{\n "format": "pitcheck.plan/1",\n "mesh": [\n  {"name":"tp","size":2}\n ],\n'
    )
    assert json.loads(text)["operators"][1]["group"] == {"axes": ["tp"]}


def test_an_unknown_suffix_names_the_known_ones(tmp_path: Path) -> None:
    for act in (read_plan, lambda path: write_plan(linear_reference(), path)):
        with pytest.raises(UsageError, match=r"\.plan\.json or \.plan\.zst"):
            act(tmp_path / "a.json")


def test_a_missing_file_and_a_missing_folder_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan(tmp_path / "a.plan.json")
    with pytest.raises(UsageError, match="cannot be written"):
        write_plan(linear_reference(), tmp_path / "none" / "a.plan.json")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.plan.zst"
    write_plan(linear_reference(), path)
    old = path.read_bytes()
    for attributes in (
        {"x": float("nan")},
        {"x": 2**70},
        {"x": "\ud800"},
        {"x": Table((), (float("inf"),))},
    ):
        with pytest.raises(PlanError):
            write_plan(with_operator(linear_reference(), 0, attributes=attributes), path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["a.plan.zst"]


def test_a_literal_that_is_no_finite_number_is_refused_as_a_number_and_kept_as_text(
    tmp_path: Path,
) -> None:
    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        with pytest.raises(PlanError, match=r"operators\[0\]\.inputs\[0\]"):
            write_plan(
                with_operator(linear_reference(), 0, inputs=(Number(float("inf")), "w")), path
            )
        plan = with_operator(linear_reference(), 0, inputs=(Number("-inf"), "w"))
        write_plan(plan, path)
        assert read_plan(path) == plan


def test_the_collector_is_as_before_after_reading(tmp_path: Path) -> None:
    write_plan(linear_reference(), tmp_path / "a.plan.zst")
    (tmp_path / "b.plan.json").write_text("{")
    assert gc.isenabled()
    read_plan(tmp_path / "a.plan.zst")
    assert gc.isenabled()
    with pytest.raises(PlanError):
        read_plan(tmp_path / "b.plan.json")
    assert gc.isenabled()
    gc.disable()
    try:
        read_plan(tmp_path / "a.plan.zst")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_zip_bomb_is_refused_before_it_unfolds(tmp_path: Path) -> None:
    bomb = zstandard.ZstdCompressor().compress(b" " * (1 << 28))
    assert len(bomb) < 1 << 16
    (tmp_path / "a.plan.zst").write_bytes(bomb)
    with pytest.raises(PlanError, match="larger than the limit of 1000000 bytes"):
        read_plan(tmp_path / "a.plan.zst", limit=1_000_000)


def test_the_limit_also_bounds_json(tmp_path: Path) -> None:
    path = tmp_path / "a.plan.json"
    write_plan(linear_reference(), path)
    size = path.stat().st_size
    assert read_plan(path, limit=size) == linear_reference()
    with pytest.raises(PlanError, match="larger than the limit"):
        read_plan(path, limit=size - 1)


def test_bytes_after_the_frame_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.plan.zst"
    write_plan(linear_reference(), path)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(PlanError, match="4 bytes follow the zstd frame"):
        read_plan(path)


def test_a_stream_without_its_size_is_read_too(tmp_path: Path) -> None:
    packed = msgspec.msgpack.encode(linear_reference())
    stream = zstandard.ZstdCompressor().compressobj()
    (tmp_path / "a.plan.zst").write_bytes(stream.compress(packed) + stream.flush())
    assert read_plan(tmp_path / "a.plan.zst") == linear_reference()


def test_a_large_plan_is_written_and_read_in_time(tmp_path: Path) -> None:
    operators = tuple(
        Operator(
            f"o{i}", "neg", (f"t{i}",), (f"t{i + 1}",), source="model.py:3", module=f"layers.{i}"
        )
        for i in range(20_000)
    )
    plan = change(linear_reference(), operators=operators)
    write_plan(plan, tmp_path / "a.plan.zst")
    assert (tmp_path / "a.plan.zst").stat().st_size < 1_000_000
    assert read_plan(tmp_path / "a.plan.zst") == plan
