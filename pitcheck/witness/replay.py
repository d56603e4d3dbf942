"""Replay of a witness: in float64, to many digits, and over a prime field by galois.

float64 is only a hint: it rounds away what is small, and of a true 0 it leaves rounding. A witness
is reproduced if the other two show the difference; to many digits it must not be what is left of
addends that cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pitcheck.algebra.reals.noisy import Noise
from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.reals.watched import WatchedAlgebra
from pitcheck.algebra.residues.chains import chains_of
from pitcheck.algebra.residues.galois_oracle import GaloisAlgebra
from pitcheck.base.numbers import parse_number
from pitcheck.errors import PitcheckError, PlanError
from pitcheck.stage.drawn_inputs import derive, scaled, take_box
from pitcheck.stage.inputs import Derived
from pitcheck.stage.run_batch import literal, run_batch
from pitcheck.witness.sound import BROKEN, check_witness
from pitcheck.witness.witness import Filled, Held, Side, Witness, batch_of, read_witness, scale_of

DIGITS = 60
"""Digits that are shown."""
COMPUTED, AGAIN = 200, 260
"""Digits of the first run, and of a second one for a difference that may be rounding."""
SURE = 1e-60
"""Size from which a difference is no rounding of so many digits, for addends up to 10^100."""
STAYS = 0.01
"""Share by which a difference may change from one number of digits to the next."""
DISTURBED = 1e-4
"""Share of a difference by which disturbed last digits may move either side."""


@dataclass(frozen=True)
class Replayed:
    """The two values at the element of a witness, in one arithmetic."""

    arithmetic: str
    reference: str
    parallel: str
    differs: bool
    difference: Any = 0
    """Parallel minus reference in that arithmetic."""


def replay_in(
    witness: Witness, arithmetic: str, algebra: Any, show: Callable[[Any], str]
) -> Replayed:
    """Run both sides of a witness in one algebra.

    Args:
        witness: one that ``check_witness`` passed.
        arithmetic: the name of the algebra.
        algebra: the algebra.
        show: turns a number of it into text.

    Raises:
        StepError: an operator cannot run in the algebra.
        PlanError: a step is broken.
    """
    try:
        with np.errstate(all="ignore"):
            return _replayed(witness, arithmetic, algebra, show)
    except BROKEN as error:
        raise PlanError(
            f"a step cannot be run ({type(error).__name__}: {error})", arithmetic
        ) from error


def _replayed(
    witness: Witness, arithmetic: str, algebra: Any, show: Callable[[Any], str]
) -> Replayed:
    drawn = {
        value: _filled(algebra, filled, f"inputs[{value}]")
        for value, filled in witness.inputs.items()
    }
    held = {value: _held(algebra, value, h, drawn) for value, h in witness.held.items()}
    sides = [_run(witness.reference, algebra, drawn, dict.fromkeys(drawn, 1), "reference")]
    sides.append(
        _run(
            witness.parallel,
            algebra,
            held,
            {v: len(h.rows) for v, h in witness.held.items()},
            "parallel",
        )
    )
    compared = witness.compared
    box = tuple(tuple(intervals) for intervals in compared.box)
    expected = scaled(
        algebra,
        take_box(algebra, sides[0][compared.reference], box, "free"),
        scale_of(compared.scale, "compared.scale"),
    )
    actual = algebra.gather(sides[1][compared.parallel], np.array(compared.rows[:1]))
    if len(compared.rows) > 1:
        actual = algebra.sum(
            algebra.stack(sides[1][compared.parallel], np.array([compared.rows])), (0,)
        )
    element = (0, *compared.element)
    differs = np.asarray(algebra.differs(actual, expected))[0]
    first, second = expected.data[(0, 0, *element)], actual.data[(0, 0, *element)]
    difference = second - first if expected.kind == "field" else int(second) - int(first)
    return Replayed(arithmetic, show(first), show(second), bool(differs[element]), difference)


def replay_to_digits(witness: Witness, name: str) -> Replayed:
    """Run both sides to many digits.

    A difference that may be the rest of addends that cancel, or that hangs on such a number, is
    none.

    Raises:
        StepError: an operator is not known to so many digits.
    """
    algebra = WatchedAlgebra(COMPUTED, 0, [0])
    result = replay_in(witness, name, algebra, _to_digits)
    if not result.differs or algebra.undecided:
        return replace(result, differs=False)
    if _finite(result.difference) and abs(result.difference) <= SURE:
        again = replay_in(witness, name, WatchedAlgebra(AGAIN, 0, [0]), _to_digits)
        return replace(
            result,
            differs=again.differs
            and abs(again.difference - result.difference) <= STAYS * abs(result.difference),
        )
    return result


def _to_digits(number: Any) -> str:
    return str(number.context.nstr(number, DIGITS)) if hasattr(number, "context") else str(number)


def _finite(number: Any) -> bool:
    return bool(number - number == 0)


def stands_disturbed(witness: Witness) -> bool:
    """Return True if the difference in float64 is no rounding.

    It is if other last digits of every result change either side by a visible share of it. Raises
    StepError if an operator cannot run.
    """
    plain, moved = (
        replay_in(witness, "float64", algebra, repr)
        for algebra in (RealAlgebra(np, 0, [0]), _Disturbed())
    )
    if not _finite(plain.difference) or plain.difference == 0:
        return plain.differs
    return bool(abs(moved.difference - plain.difference) <= DISTURBED * abs(plain.difference))


class _Disturbed(Noise):
    """float64 with disturbed last digits, the same ones in every run."""

    def __init__(self) -> None:
        super().__init__(np, 0, [0])
        self.generator = np.random.default_rng(0)


def _run(
    side: Side, algebra: Any, given: dict[int, Any], rows: dict[int, int], name: str
) -> dict[int, Any]:
    constants = {
        v: _filled(algebra, f, f"{name}.constants[{v}]") for v, f in side.constants.items()
    }
    return run_batch(
        batch_of(side, {**rows, **dict.fromkeys(constants, 1)}, name),
        algebra,
        {**constants, **given},
    )


def _filled(algebra: Any, filled: Filled, place: str) -> Any:
    if len(filled.numbers) == 1:
        value = literal(algebra, parse_number(filled.numbers[0], place))
        return algebra.expand(
            algebra.cast(value, filled.kind) if filled.kind != "field" else value,
            tuple(filled.shape),
        )
    integers = np.array([int(n) for n in filled.numbers], dtype=np.int64).reshape(
        1, 1, *filled.shape
    )
    return algebra.cast(algebra.integers(integers), filled.kind)


def _held(algebra: Any, value: int, held: Held, drawn: dict[int, Any]) -> Any:
    boxes = tuple(tuple(tuple(intervals) for intervals in box) for box in held.boxes)
    return derive(
        algebra,
        Derived(
            f"witness{value}",
            held.source,
            boxes,
            tuple(held.rows),
            scale_of(held.scale, f"held[{value}].scale"),
        ),
        drawn[held.source],
    )


FLOAT64 = "float64"


def in_float64(witness: Witness) -> Replayed:
    """Run both sides in float64. Raises StepError if an operator cannot run."""
    return replay_in(witness, FLOAT64, RealAlgebra(np, 0, [0]), lambda x: f"{float(x):.12g}")


def _over_a_prime(witness: Witness) -> Replayed:
    chain = chains_of(4)[0]
    return replay_in(witness, "galois", GaloisAlgebra(chain, 0, [0]), lambda x: str(int(x)))


ARITHMETICS: Mapping[str, Callable[[Witness], Replayed]] = {
    FLOAT64: in_float64,
    f"{DIGITS} digits": lambda witness: replay_to_digits(witness, f"{DIGITS} digits"),
    "galois, the lowest prime of the chain left": _over_a_prime,
}
"""The arithmetics in which a witness is replayed."""


def replay(path: Path) -> tuple[str, int]:
    """Replay a witness file in all arithmetics.

    float64 decides only if no other arithmetic applies.

    Returns:
        The text of all replays, and the exit code: 1 if every arithmetic that decides shows the
        difference, else 0.

    Raises:
        PlanError: the file is no sound witness.
    """
    witness = read_witness(path)
    check_witness(witness)
    lines = [
        f"{witness.code}: {witness.title}",
        f"  output {witness.output}, element {tuple(witness.compared.element)} of the part "
        f"compared",
    ]
    seen: dict[str, bool] = {}
    for name, run in ARITHMETICS.items():
        try:
            result = run(witness)
        except PitcheckError as error:
            if isinstance(error, PlanError) or isinstance(getattr(error, "cause", None), PlanError):
                raise PlanError(str(error), str(path)) from error
            lines.append(f"  {name}: not applicable ({error})")
            continue
        seen[name] = result.differs
        lines.append(
            f"  {name}: reference {result.reference}, parallel {result.parallel}: "
            f"{'differs' if result.differs else 'equal'}"
        )
    telling = [differs for name, differs in seen.items() if name != FLOAT64 or len(seen) == 1]
    reproduced = bool(telling) and all(telling)
    lines.append(
        "the difference is reproduced" if reproduced else "the difference is NOT reproduced"
    )
    return "\n".join(lines), 1 if reproduced else 0
