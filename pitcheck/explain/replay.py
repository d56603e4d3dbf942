"""Replaying a witness: the stage with its inputs, in float64, to 60 digits and over a prime field by galois."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from pitcheck.algebra.chains import chains_of
from pitcheck.algebra.galois_oracle import GaloisAlgebra
from pitcheck.algebra.precise import PreciseAlgebra
from pitcheck.algebra.real import RealAlgebra
from pitcheck.check.derive import Derived, derive, scaled, take_box
from pitcheck.errors import BudgetError, PitcheckError, PlanError
from pitcheck.explain.witness import Filled, Held, Witness, batch_of, read_witness
from pitcheck.plan.numbers import parse_number
from pitcheck.stages.run import literal, run_batch

MOST_ELEMENTS = 1 << 24
DIGITS = 60


@dataclass(frozen=True)
class Replayed:
    """Both values at the witness' element in one arithmetic."""

    arithmetic: str
    reference: str
    parallel: str
    differs: bool


def replay_in(witness: Witness, arithmetic: str, algebra: Any, show: Callable[[Any], str]) -> Replayed:
    """Run both sides in one algebra. Raises PlanError for a witness that contradicts itself, StepError for an operator that cannot run."""
    drawn = {value: _filled(algebra, filled, f"inputs[{value}]") for value, filled in witness.inputs.items()}
    sides = []
    rows = {value: 1 for value in drawn}
    reference = batch_of(witness.reference, {**rows, **{v: 1 for v in witness.reference.constants}})
    constants = {v: _filled(algebra, f, f"reference.constants[{v}]") for v, f in witness.reference.constants.items()}
    sides.append(run_batch(reference, algebra, {**constants, **drawn}))
    held = {value: _held(algebra, value, h, drawn) for value, h in witness.held.items()}
    constants = {v: _filled(algebra, f, f"parallel.constants[{v}]") for v, f in witness.parallel.constants.items()}
    given = {**{v: len(h.rows) for v, h in witness.held.items()}, **{v: 1 for v in constants}}
    sides.append(run_batch(batch_of(witness.parallel, given), algebra, {**constants, **held}))
    compared = witness.compared
    if compared.reference not in sides[0] or compared.parallel not in sides[1]:
        raise PlanError("what is compared is not computed", "compared")
    box = tuple(tuple(intervals) for intervals in compared.box)
    expected = scaled(algebra, take_box(algebra, sides[0][compared.reference], box, "free"), _scale(compared.scale))
    actual = algebra.gather(sides[1][compared.parallel], np.array(compared.rows[:1]))
    if len(compared.rows) > 1:
        actual = algebra.sum(algebra.stack(sides[1][compared.parallel], np.array([compared.rows])), (0,))
    element = (0, *compared.element)
    differs = np.asarray(algebra.differs(actual, expected))[0]
    return Replayed(arithmetic, show(expected.data[(0, 0, *element)]), show(actual.data[(0, 0, *element)]), bool(differs[element]))


def _scale(text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise PlanError(f"scale {text!r} is not a rational", "compared.scale") from None


def _filled(algebra: Any, filled: Filled, place: str) -> Any:
    count = prod(filled.shape)
    if count > MOST_ELEMENTS or len(filled.numbers) not in (1, count):
        raise PlanError(f"{len(filled.numbers)} numbers for shape {tuple(filled.shape)}", place)
    if len(filled.numbers) == 1:
        value = literal(algebra, parse_number(filled.numbers[0], place))
        return algebra.expand(algebra.cast(value, filled.kind) if filled.kind != "field" else value, tuple(filled.shape))
    try:
        integers = np.array([int(n) for n in filled.numbers], dtype=np.int64).reshape(1, 1, *filled.shape)
    except (ValueError, OverflowError):
        raise PlanError("inputs are integers", place) from None
    return algebra.cast(algebra.integers(integers), filled.kind)


def _held(algebra: Any, value: int, held: Held, drawn: dict[int, Any]) -> Any:
    if held.source not in drawn:
        raise PlanError(f"input {held.source} is not there", f"held[{value}]")
    boxes = tuple(tuple(tuple(intervals) for intervals in box) for box in held.boxes)
    if any(not 0 <= box < len(boxes) or not 0 <= term < terms for box, term, terms in held.rows):
        raise PlanError("a row holds a box or term that is not there", f"held[{value}]")
    derived = Derived(f"witness{value}", held.source, boxes, tuple(held.rows), _scale(held.scale))
    return derive(algebra, derived, drawn[held.source])


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
    """(text of all replays, 1 where the difference is there in the exact arithmetics, else 0). Raises PlanError for a bad file."""
    witness = read_witness(path)
    lines = [f"{witness.code}: {witness.title}", f"  output {witness.output}, element {tuple(witness.compared.element)} of the part compared"]
    seen = []
    for name, (make, show) in arithmetics().items():
        try:
            result = replay_in(witness, name, make(), show)
        except BudgetError as error:
            lines.append(f"  {name}: not applicable ({error})")
            continue
        except PlanError:
            raise
        except PitcheckError as error:
            lines.append(f"  {name}: not applicable ({error})")
            continue
        seen.append(result.differs)
        lines.append(f"  {name}: reference {result.reference}, parallel {result.parallel}: {'differs' if result.differs else 'equal'}")
    reproduced = bool(seen) and all(seen)
    lines.append("the difference is reproduced" if reproduced else "the difference is NOT reproduced")
    return "\n".join(lines), 1 if reproduced else 0
