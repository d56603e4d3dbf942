"""Facts about operators stand with the operators: no other room compares or lists their names."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import pitcheck
from pitcheck.ops.meanings.collectives import REDUCTIONS
from pitcheck.ops.registry import BACKWARD, operator_names

ROOT = Path(pitcheck.__file__).parent
MAKERS = ("ops", "execution", "frontends", "programs", "models")
"""Rooms that make operators, or are a second opinion on what they mean: they name them."""
OF_ALGEBRAS = (
    "algebra",
    "certificate/arithmetic.py",
    "certificate/stage.py",
    "prove/domains/guards.py",
    "prove/known_ranges.py",
    "prove/reals/thresholds.py",
)
"""Places where such names are those of an algebra's operations, which have no traits."""
NAMES = {*operator_names(), *(f"{name}{BACKWARD}" for name in operator_names())}
VALUES = {*REDUCTIONS, "mean", "none"}
"""Values of the attribute ``reduction``, some of which are operators, too."""


def _texts(nodes: list[ast.expr | None]) -> list[str]:
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def _is_list(nodes: list[ast.expr | None]) -> bool:
    """Return True if all elements are names of operators, and not of reductions alone."""
    texts = _texts(nodes)
    return len(texts) == len(nodes) > 0 and set(texts) <= NAMES and not set(texts) <= VALUES


def _is_kind(node: ast.expr) -> bool:
    """Return True if an expression is the kind of an operator.

    It is ``x.kind``, ``kind``, or one of these without its ending.
    """
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "removesuffix"
    ):
        return _is_kind(node.func.value)
    return (isinstance(node, ast.Attribute) and node.attr == "kind") or (
        isinstance(node, ast.Name) and node.id in ("kind", "plain")
    )


def _named(node: ast.expr) -> bool:
    if isinstance(node, (ast.Tuple, ast.Set, ast.List)):
        return False  # counted as a list
    return bool(NAMES.intersection(_texts([node])))


def found_in(tree: ast.AST) -> Iterator[int]:
    """Return the lines on which names of operators are listed, or compared with a kind."""
    for node in ast.walk(tree):
        if (isinstance(node, (ast.Set, ast.Tuple, ast.List)) and _is_list(list(node.elts))) or (
            isinstance(node, ast.Dict) and _is_list(list(node.keys))
        ):
            yield node.lineno
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(_is_kind, sides)) and any(map(_named, sides)):
                yield node.lineno


def _count() -> Counter[str]:
    found: Counter[str] = Counter()
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if not place.startswith(tuple(f"{room}/" for room in MAKERS)) and not place.startswith(
            OF_ALGEBRAS
        ):
            found[place.split("/", maxsplit=1)[0]] += sum(
                1 for _ in found_in(ast.parse(path.read_text(encoding="utf-8")))
            )
    return +found


def test_no_other_room_lists_or_compares_names() -> None:
    """What is new asks for a trait (pitcheck/ops/traits.py) or a fact of the declaration.

    Those in ``prove`` are names of operations of an algebra: guards, and decisions by integers.
    """
    assert _count() == {"prove": 17}


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ('SUMS = frozenset({"all_reduce", "reduce_scatter"})', 1),
        ('TAIL = ("view", "view.backward")', 1),
        ('SAID = {"all_reduce": 1, "reduce": 2}', 1),
        ('step.kind == "exp"', 1),
        ('step.kind.removesuffix(BACKWARD) != "mean"', 1),
        ('kind in ("sqrt", "rsqrt")', 1),
        ('"wait" == operator.kind', 1),
        ('value.kind == "field"', 0),
        ('attributes["reduction"] == "sum"', 0),
        ('attributes["reduction"] in ("sum", "max")', 0),
        ('REDUCTIONS = ("sum", "max", "min")', 0),
        ("step.kind in kinds_with(Trait.CUTS)", 0),
        ('("view", size)', 0),
        ('COPIES = VIEWS | {"cast"}', 1),
    ],
)
def test_what_is_counted(code: str, number: int) -> None:
    assert len(list(found_in(ast.parse(code)))) == number
