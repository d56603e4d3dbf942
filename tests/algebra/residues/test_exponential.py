"""exp and log of a chain, and the identities of softmax that rest on them.

They are homomorphisms, which is checked with Python's integers.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.algebra.residues.backend_residues import Logarithms, ResidueAlgebra
from pitcheck.algebra.residues.chains import Chain, chains_of
from pitcheck.algebra.residues.exponential import draw_exponents
from pitcheck.algebra.value import Value
from pitcheck.errors import BudgetError

CHAIN = chains_of(4)[0]
BOXES = [np.array([[0, 1], [1, 2]]), np.array([[0, 3], [1, 2]])]
"""The places of two boxes along the rows and along the columns of a matrix."""


def algebra(
    seed: int = 0, trials: tuple[int, ...] = (0, 1), chain: Chain = CHAIN
) -> ResidueAlgebra:
    return ResidueAlgebra(np, chain, seed, trials)


def test_exp_is_the_power_of_w() -> None:
    a = algebra(5, (3, 8))
    x = a.fresh("x", (7,))
    y = a.exp(x)
    assert a.levels(y) == range(1, 4)
    exponents = draw_exponents(CHAIN.primes, 5, (3, 8))
    for level in (1, 2, 3):
        p = CHAIN.primes[level]
        for trial in (0, 1):
            w = pow(4, exponents[level - 1][trial], p)
            assert w != 1 and pow(w, (p - 1) // 2, p) == 1
            assert y.data[level - 1, trial, 0].tolist() == [
                pow(w, int(v), p) for v in x.data[level - 1, trial, 0]
            ]


@given(st.integers(0, 2**40))
def test_exp_is_a_homomorphism(seed: int) -> None:
    a = algebra(seed)
    x, y = a.fresh("x", (3,)), a.fresh("y", (3,))
    assert not a.differs(a.exp(a.add(x, y)), a.multiply(a.exp(x), a.exp(y))).any()
    assert not a.differs(a.exp(a.negate(x)), a.divide(a.constant(Fraction(1)), a.exp(x))).any()
    assert not a.differs(a.exp(a.constant(Fraction(0))), a.constant(Fraction(1))).any()
    assert a.differs(a.exp(a.multiply(x, y)), a.multiply(a.exp(x), a.exp(y))).all()
    half = a.constant(Fraction(1, 2))
    assert not a.differs(a.sqrt(a.exp(x)), a.exp(a.multiply(x, half))).any()


@given(st.integers(0, 2**40))
def test_log_is_a_homomorphism_and_undoes_exp(seed: int) -> None:
    a = algebra(seed)
    x, y = a.fresh("x", (2,), 1, "nonzero"), a.fresh("y", (2,), 1, "nonzero")
    log = [a.plain(a.log(v)) for v in (x, y, a.multiply(x, y), a.negate(x))]
    assert a.levels(log[0]) == range(0, 3)
    assert not a.differs(a.add(log[0], log[1]), log[2]).any()
    assert not a.differs(log[0], log[3]).any()
    assert not a.differs(a.plain(a.log(a.exp(x))), x).any()
    square = a.fresh("s", (2,), 1, "square")
    assert not a.differs(a.exp(a.plain(a.log(square))), square).any()
    assert a.differs(log[0], log[1]).all()


def test_the_logarithm_is_that_of_python() -> None:
    chain = Chain((23, 47))
    a = ResidueAlgebra(np, chain, 1, (0, 1))
    exponents = draw_exponents(chain.primes, 1, (0, 1))
    numbers = np.arange(1, 47)
    found = a.plain(
        a.log(
            Value(
                "field",
                np.stack([numbers % 23, numbers])[:, None, None]
                + np.zeros((2, 1, 1, 46), dtype=np.int64),
            )
        )
    )
    for trial in (0, 1):
        w = pow(4, exponents[0][trial], 47)
        for n, r in zip(numbers, found.data[0, trial, 0], strict=True):
            assert pow(w, int(r), 47) in (n, 47 - n)


def rows(a: ResidueAlgebra, x: Value, f: str) -> Value:
    """max or sum over the last dimension, kept at size 1."""
    axis = x.rank - 1
    reduced = a.reduce_max(x, axis) if f == "max" else a.sum(x, (axis,))
    return a.reshape(reduced, (*a.shape(x)[:-1], 1))


def softmax(a: ResidueAlgebra, x: Value) -> Value:
    e = a.exp(a.subtract(x, rows(a, x, "max")))
    return a.divide(e, rows(a, e, "sum"))


def online(a: ResidueAlgebra, x: Value, v: Value, block: int, rescale: bool = True) -> Value:
    """Return softmax(x) @ v, one block of columns after the other, with a running maximum.

    See Milakov, Gimelshein 2018.
    """
    m = total = out = None
    for start in range(0, a.shape(x)[1], block):
        part = a.slice(x, 1, start, start + block)
        values = a.slice(v, 0, start, start + block)
        if m is None:
            m = rows(a, part, "max")
            e = a.exp(a.subtract(part, m))
            total, out = rows(a, e, "sum"), a.matmul(e, values)
            continue
        new = a.maximum(m, rows(a, part, "max"))
        e = a.exp(a.subtract(part, new))
        shrink = a.exp(a.subtract(m, new)) if rescale else a.constant(Fraction(1))
        total = a.add(a.multiply(total, shrink), rows(a, e, "sum"))
        out = a.add(a.multiply(out, shrink), a.matmul(e, values))
        m = new
    return a.divide(out, total)


def test_online_softmax_is_softmax() -> None:
    a = algebra(3, (0, 1, 2))
    x, v = a.fresh("x", (6, 6)), a.fresh("v", (6, 4))
    expected = a.matmul(softmax(a, x), v)
    assert not a.differs(online(a, x, v, 2), expected).any()
    assert not a.differs(online(a, x, v, 3), expected).any()


def test_a_dropped_rescale_is_seen() -> None:
    a = algebra(3, (0, 1, 2))
    x, v = a.fresh("x", (6, 6)), a.fresh("v", (6, 4))
    wrong = a.differs(online(a, x, v, 2, rescale=False), a.matmul(softmax(a, x), v))
    assert wrong.any(axis=(1, 2, 3)).all()


def lse(a: ResidueAlgebra, x: Value) -> Value:
    m = rows(a, x, "max")
    return a.add(m, a.log(rows(a, a.exp(a.subtract(x, m)), "sum")))


def test_merged_softmax_is_softmax() -> None:
    """Two blocks with their log-sum-exp merged, as ring attention does."""
    a = algebra(9)
    x, v = a.fresh("x", (3, 6)), a.fresh("v", (6, 4))
    blocks = [(a.slice(x, 1, s, s + 3), a.slice(v, 0, s, s + 3)) for s in (0, 3)]
    outs = [a.matmul(softmax(a, part), values) for part, values in blocks]
    sums = [lse(a, part) for part, _ in blocks]
    top = a.maximum(sums[0], sums[1])
    merged = a.add(
        top, a.log(a.add(a.exp(a.subtract(sums[0], top)), a.exp(a.subtract(sums[1], top))))
    )
    out = a.add(
        *(a.multiply(o, a.exp(a.subtract(s, merged))) for o, s in zip(outs, sums, strict=True))
    )
    assert not a.differs(out, a.matmul(softmax(a, x), v)).any()
    assert not a.differs(merged, lse(a, x)).any()
    assert a.differs(merged, sums[0]).all()


def test_forms_of_log_sum_exp() -> None:
    a = algebra(11)
    x = a.fresh("x", (3, 5))
    direct = a.log(rows(a, a.exp(x), "sum"))
    assert not a.differs(lse(a, x), direct).any()
    assert not a.differs(a.plain(lse(a, x)), direct).any()
    assert not a.differs(a.exp(a.subtract(x, direct)), softmax(a, x)).any()
    assert not a.differs(a.exp(lse(a, x)), rows(a, a.exp(x), "sum")).any()
    third = a.constant(Fraction(1, 3))
    assert not a.differs(
        a.multiply(a.sum(direct, (0,)), third), a.sum(a.multiply(lse(a, x), third), (0,))
    ).any()
    assert a.differs(lse(a, x), a.multiply(direct, a.constant(Fraction(2)))).all()
    assert a.differs(lse(a, x), a.log(rows(a, a.exp(a.slice(x, 1, 0, 4)), "sum"))).all()


def test_vocabulary_parallel_cross_entropy() -> None:
    a = algebra(13)
    x = a.fresh("x", (4, 6))
    target = a.integers(np.array([0, 5, 2, 3])[None, None])
    picked = a.take_along(x, 1, a.reshape(target, (4, 1)))
    whole = a.sum(a.subtract(lse(a, x), picked), (0, 1))
    parts = [a.slice(x, 1, 0, 3), a.slice(x, 1, 3, 6)]
    m = a.maximum(*(rows(a, p, "max") for p in parts))
    total = a.add(*(rows(a, a.exp(a.subtract(p, m)), "sum") for p in parts))
    parallel = a.sum(a.subtract(a.log(total), a.subtract(picked, m)), (0, 1))
    assert not a.differs(whole, parallel).any()
    quarter = a.constant(Fraction(1, 4))
    assert not a.differs(
        a.divide(whole, a.constant(Fraction(4))), a.multiply(parallel, quarter)
    ).any()


def test_formal_logarithms_survive_structure_and_choice() -> None:
    a = algebra(17)
    x = a.fresh("x", (3, 4), 2, "nonzero")
    log = a.log(x)
    plain = a.plain(log)
    index = a.integers(np.array([2, 0, 1, 2])[None, None])
    keep = a.compare("gt", a.fresh("c", (3, 4)), a.constant(Fraction(0)))
    zero = a.constant(Fraction(0))
    for move in [
        lambda v: a.transpose(v, (1, 0)),
        lambda v: a.reshape(v, (12,)),
        lambda v: a.take(v, 0, index),
        lambda v: a.concatenate([v, a.flip(v, 0)], 0),
        lambda v: a.concatenate([v, x], 1),
        lambda v: a.join([v, x]),
        lambda v: a.stack(v, np.array([[0, 1], [1, 1], [1, 0]])),
        lambda v: a.gather(v, np.array([1, 1, 0])),
        lambda v: a.boxes(v, BOXES, 2),
        lambda v: a.where(keep, v, zero),
        lambda v: a.sum(v, (0, 1)),
        lambda v: a.multiply(v, a.constant(Fraction(-3))),
        lambda v: a.subtract(a.add(v, x), v),
        a.negate,
    ]:
        kept = move(log)
        assert not a.differs(kept, move(plain)).any()
        assert not a.differs(a.exp(kept), a.exp(move(plain))).any() or (
            kept.logs and _up_to_sign(a, kept, move(plain))
        )


def test_boxes_of_formal_logarithms_are_told_apart() -> None:
    a = algebra(17)
    log = a.log(a.fresh("x", (3, 4), 1, "nonzero"))
    rows, columns = BOXES
    right, wrong = (a.boxes(log, [rows, own], 2) for own in (columns, columns[:, ::-1]))
    found = a.boxes(a.plain(log), BOXES, 2)
    assert right.logs
    assert not a.differs(right, found).any()
    assert a.differs(wrong, found).all()


def _up_to_sign(a: ResidueAlgebra, kept: Value, plain: Value) -> bool:
    squares = [a.power(a.exp(v), 2) for v in (kept, plain)]
    return not a.differs(*squares).any()


def test_levels_run_out() -> None:
    a = algebra(chain=chains_of(2)[0])
    x = a.exp(a.fresh("x", (2,)))
    with pytest.raises(BudgetError, match="longer chain"):
        a.exp(x)
    b = algebra(chain=chains_of(1)[0])
    with pytest.raises(BudgetError, match="longer chain"):
        b.log(b.fresh("x", (2,)))
    c = algebra(chain=chains_of(2)[0])
    with pytest.raises(BudgetError, match="in common"):
        c.differs(c.exp(c.fresh("x", (2,))), c.plain(c.log(c.fresh("y", (2,)))))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 2**40))
def test_a_trial_that_is_asked_for_several_times_is_the_same_each_time(
    trials: list[int], seed: int
) -> None:
    together, alone = algebra(seed, tuple(trials)), {t: algebra(seed, (t,)) for t in trials}
    for shape in ((3,), (130, 130)):  # of SHAKE128, and of Philox
        drawn = together.fresh("x", shape)
        found = together.exp(together.slice(drawn, 0, 0, 2))
        for place, trial in enumerate(trials):
            own = alone[trial].fresh("x", shape)
            assert (drawn.data[:, place] == own.data[:, 0]).all()
            power = alone[trial].exp(alone[trial].slice(own, 0, 0, 2))
            assert (found.data[:, place] == power.data[:, 0]).all()


def test_logarithms_of_a_chain_are_shared() -> None:
    shared = Logarithms()
    other = chains_of(3)[1]
    assert shared.of(np, CHAIN) is shared.of(np, CHAIN)
    assert shared.of(np, CHAIN) is not shared.of(np, other)
    third = Fraction(1, 3)
    for chain in (CHAIN, other, CHAIN):
        with_shared = ResidueAlgebra(np, chain, 7, (0, 1), shared.of(np, chain))
        anew = ResidueAlgebra(np, chain, 7, (0, 1))
        found, expected = (
            a.multiply(a.log(a.fresh("x", (5,))), a.constant(third)) for a in (with_shared, anew)
        )
        assert (found.data == expected.data).all()
