"""Tests of what is kept for each class of dimensions of a stage."""

from __future__ import annotations

from collections.abc import Callable

from pitcheck.claims.problem import Problem
from pitcheck.plan.example import one_operator
from pitcheck.stage.reductions.spans import once_per_class
from pitcheck.stage.shapes import SymbolicPair, symbolic_pair
from pitcheck.stage.stage import Stage


def test_results_of_other_functions_classes_and_arguments_are_not_mixed_up() -> None:
    calls: list[tuple[int, int]] = []

    def made(sign: int) -> Callable[[Stage, SymbolicPair, int, int], int]:
        @once_per_class
        def found(stage: Stage, symbolic: SymbolicPair, root: int, segments: int) -> int:
            calls.append((root, segments))
            return sign * (10 * root + segments)

        return found

    plan = one_operator("exp", [(4, 3)], (4, 3))
    stage = Problem.of(plan, plan).whole_stage()
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
    one, other = made(1), made(-1)  # functions of one name
    for _ in range(2):
        assert [one(stage, symbolic, *given) for given in ((0, 2), (1, 2), (0, 3))] == [2, 12, 3]
        assert other(stage, symbolic, 0, 2) == -2
    assert len(calls) == 4, "each is computed once"
