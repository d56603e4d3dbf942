"""Replaying a witness: the stage with its inputs, in float64, to 60 digits and over a prime field by galois."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pitcheck.algebra.chains import chains_of
from pitcheck.algebra.galois_oracle import GaloisAlgebra
from pitcheck.algebra.precise import PreciseAlgebra
from pitcheck.algebra.real import RealAlgebra
from pitcheck.check.derive import Derived, derive, scaled, take_box
from pitcheck.errors import PitcheckError, PlanError
from pitcheck.explain.sound import BROKEN, check_witness
from pitcheck.explain.witness import Filled, Held, Side, Witness, batch_of, read_witness, scale_of
from pitcheck.plan.numbers import parse_number
from pitcheck.stages.run import literal, run_batch

DIGITS = 60


@dataclass(frozen=True)
class Replayed:
    """Both values at the witness' element in one arithmetic."""

    arithmetic: str
    reference: str
    parallel: str
    differs: bool


def replay_in(witness: Witness, arithmetic: str, algebra: Any, show: Callable[[Any], str]) -> Replayed:
    """Run both sides of a witness that ``check_witness`` passed in one algebra. Raises StepError for an operator that cannot run in it."""
    try:
        with np.errstate(all="ignore"):
            return _replayed(witness, arithmetic, algebra, show)
    except BROKEN as error:
        raise PlanError(f"a step cannot be run ({type(error).__name__}: {error})", arithmetic) from error


def _replayed(witness: Witness, arithmetic: str, algebra: Any, show: Callable[[Any], str]) -> Replayed:
    drawn = {value: _filled(algebra, filled, f"inputs[{value}]") for value, filled in witness.inputs.items()}
    held = {value: _held(algebra, value, h, drawn) for value, h in witness.held.items()}
    sides = [_run(witness.reference, algebra, drawn, dict.fromkeys(drawn, 1), "reference")]
    sides.append(_run(witness.parallel, algebra, held, {v: len(h.rows) for v, h in witness.held.items()}, "parallel"))
    compared = witness.compared
    box = tuple(tuple(intervals) for intervals in compared.box)
    expected = scaled(algebra, take_box(algebra, sides[0][compared.reference], box, "free"), scale_of(compared.scale, "compared.scale"))
    actual = algebra.gather(sides[1][compared.parallel], np.array(compared.rows[:1]))
    if len(compared.rows) > 1:
        actual = algebra.sum(algebra.stack(sides[1][compared.parallel], np.array([compared.rows])), (0,))
    element = (0, *compared.element)
    differs = np.asarray(algebra.differs(actual, expected))[0]
    return Replayed(arithmetic, show(expected.data[(0, 0, *element)]), show(actual.data[(0, 0, *element)]), bool(differs[element]))


def _run(side: Side, algebra: Any, given: dict[int, Any], rows: dict[int, int], name: str) -> dict[int, Any]:
    constants = {v: _filled(algebra, f, f"{name}.constants[{v}]") for v, f in side.constants.items()}
    return run_batch(batch_of(side, {**rows, **dict.fromkeys(constants, 1)}, name), algebra, {**constants, **given})


def _filled(algebra: Any, filled: Filled, place: str) -> Any:
    if len(filled.numbers) == 1:
        value = literal(algebra, parse_number(filled.numbers[0], place))
        return algebra.expand(algebra.cast(value, filled.kind) if filled.kind != "field" else value, tuple(filled.shape))
    integers = np.array([int(n) for n in filled.numbers], dtype=np.int64).reshape(1, 1, *filled.shape)
    return algebra.cast(algebra.integers(integers), filled.kind)


def _held(algebra: Any, value: int, held: Held, drawn: dict[int, Any]) -> Any:
    boxes = tuple(tuple(tuple(intervals) for intervals in box) for box in held.boxes)
    return derive(algebra, Derived(f"witness{value}", held.source, boxes, tuple(held.rows), scale_of(held.scale, f"held[{value}].scale")), drawn[held.source])


def real_arithmetics() -> dict[str, tuple[Callable[[], Any], Callable[[Any], str]]]:
    """The arithmetics on the reals, and how each shows a number."""
    return {
        "float64": (lambda: RealAlgebra(np, 0, [0]), lambda x: f"{float(x):.12g}"),
        f"{DIGITS} digits": (lambda: PreciseAlgebra(DIGITS), lambda x: str(x)[: DIGITS + 2]),
    }


def arithmetics() -> dict[str, tuple[Callable[[], Any], Callable[[Any], str]]]:
    """The arithmetics a witness is replayed in, and how each shows a number."""
    chain = chains_of(4)[0]
    prime = "galois, the lowest prime of the chain left"
    return {**real_arithmetics(), prime: (lambda: GaloisAlgebra(chain, 0, [0]), lambda x: str(int(x)))}


def replay(path: Path) -> tuple[str, int]:
    """(text of all replays, 1 where the difference is there in all arithmetics that apply, else 0). Raises PlanError for a file that is no sound witness."""
    witness = read_witness(path)
    check_witness(witness)
    lines = [f"{witness.code}: {witness.title}", f"  output {witness.output}, element {tuple(witness.compared.element)} of the part compared"]
    seen = []
    for name, (make, show) in arithmetics().items():
        try:
            result = replay_in(witness, name, make(), show)
        except PitcheckError as error:
            if isinstance(error, PlanError) or isinstance(getattr(error, "cause", None), PlanError):
                raise PlanError(str(error), str(path)) from error
            lines.append(f"  {name}: not applicable ({error})")
            continue
        seen.append(result.differs)
        lines.append(f"  {name}: reference {result.reference}, parallel {result.parallel}: {'differs' if result.differs else 'equal'}")
    reproduced = bool(seen) and all(seen)
    lines.append("the difference is reproduced" if reproduced else "the difference is NOT reproduced")
    return "\n".join(lines), 1 if reproduced else 0
