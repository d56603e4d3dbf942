"""A result that a program computes twice is one tensor; one that it communicates twice is two."""

from __future__ import annotations

from pathlib import Path

from pitcheck.frontends.xla.lowering.building import Building
from pitcheck.frontends.xla.text.module import Module
from pitcheck.frontends.xla.text.parser import read_hlo
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Group

TEXT = """HloModule small, num_partitions=2

ENTRY main {
  ROOT x = f32[2]{0} parameter(0)
}
"""
SHAPE = ArrayShape(ElementType.F32, (2,))


def _building(folder: Path) -> Building:
    file = folder / "small.txt"
    file.write_text(TEXT)
    module: Module = read_hlo(file)
    return Building(module, 2)


def test_factors_in_either_order_give_one_product(tmp_path: Path) -> None:
    b = _building(tmp_path)
    assert b.emit("mul", ("x", "y"), SHAPE) == b.emit("mul", ("y", "x"), SHAPE)
    assert len(b.operators) == 1


def test_what_differs_stays_apart(tmp_path: Path) -> None:
    b = _building(tmp_path)
    made = [
        b.emit("sub", ("x", "y"), SHAPE),
        b.emit("sub", ("y", "x"), SHAPE),
        b.emit("pow", ("x",), SHAPE, {"exponent": 2}),
        b.emit("pow", ("x",), SHAPE, {"exponent": 3}),
        b.emit("exp", ("x",), SHAPE),
        b.emit("exp", ("x",), ArrayShape(ElementType.BF16, (2,))),
    ]
    assert len(set(made)) == len(made)


def test_each_communication_stays(tmp_path: Path) -> None:
    b = _building(tmp_path)
    group = Group(axes=("device",))
    first, second = (b.emit("all_reduce", ("x",), SHAPE, group=group) for _ in range(2))
    assert first != second
