"""Trials and instances, broadcasting and decisions.

Numbers do not depend on the trials and instances that are computed beside them.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.algebra_samples import CHAIN, residues

from pitcheck.algebra.batched import BatchAlgebra
from pitcheck.algebra.reals.precise import PreciseAlgebra
from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.residues.residue_order import order_key
from pitcheck.errors import BudgetError, ShapeError, UnsupportedError


def make(kind: str, seed: int = 0, trials: tuple[int, ...] = (0, 1, 2)) -> Any:
    return {
        "residues": residues,
        "real": lambda s, t: RealAlgebra(np, s, t),
        "precise": lambda s, t: PreciseAlgebra(40, s, t),
    }[kind](seed, trials)


KINDS = ["residues", "real", "precise"]


def test_the_interface_is_kept() -> None:
    algebras: list[BatchAlgebra] = [make(kind) for kind in KINDS]
    assert [a.trials for a in algebras] == [(0, 1, 2)] * 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("domain", ["any", "square", "nonzero"])
def test_fresh_numbers_do_not_depend_on_their_company(kind: str, domain: str) -> None:
    a, b = make(kind, 7, (4, 0, 9)), make(kind, 7, (9, 4))
    x, y = a.fresh("x", (2, 3), 4, domain), b.fresh("x", (2, 3), 2, domain)
    assert np.array_equal(x.data[:, [2, 0], :2], y.data)
    assert not np.array_equal(x.data, a.fresh("y", (2, 3), 4, domain).data)
    assert not np.array_equal(x.data, make(kind, 8, (4, 0, 9)).fresh("x", (2, 3), 4, domain).data)
    assert len(set(x.data.reshape(-1).tolist())) == x.data.size


def test_domains_of_fresh_residues() -> None:
    a = residues()
    for level, p in enumerate(CHAIN.primes):
        squares = a.fresh("s", (50,), 1, "square").data[level].reshape(-1)
        assert all(pow(int(v), (p - 1) // 2, p) == 1 for v in squares)
        plain = a.fresh("s", (50,)).data[level].reshape(-1)
        assert 20 < sum(pow(int(v), (p - 1) // 2, p) == 1 for v in plain) < 80
        assert ((plain >= 0) & (plain < p)).all()


def test_fresh_residues_are_uniform() -> None:
    data = residues(3, tuple(range(8))).fresh("x", (4000,)).data
    for level, p in enumerate(CHAIN.primes):
        counts = np.histogram(data[level], bins=16, range=(0, p))[0]
        assert abs(counts - 2000).max() < 5 * 2000**0.5
        bits = (data[level][..., None] >> np.arange(16)) & 1
        assert abs(bits.mean(axis=(0, 1, 2)) - 0.5).max() < 0.02


def test_fresh_reals_are_normal_and_scaled() -> None:
    a = make("real")
    assert abs(a.fresh("x", (20000,)).data.std() - 1) < 0.02
    assert abs(a.fresh("x", (300, 100)).data.std() - 0.1) < 0.002
    assert abs(RealAlgebra(np, 0, [0], scale=5.0).fresh("x", (20000,)).data.std() - 5) < 0.1
    assert (a.fresh("x", (100,), 1, "square").data > 0).all()
    assert abs(a.fresh("x", (1000,), 1, "nonzero").data).min() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_instances_are_gathered_stacked_and_joined(kind: str) -> None:
    a = make(kind)
    x, one = a.fresh("x", (2, 3), 4), a.fresh("y", (2, 3))
    c = a.expand(a.constant(Fraction(1, 3)), (2, 3))
    assert np.array_equal(a.gather(x, np.array([3, 0, 3])).data, x.data[:, :, [3, 0, 3]])
    assert np.array_equal(a.gather(x, np.arange(4)).data, x.data)
    assert a.gather(one, np.array([0, 0])).data.shape[2] == 2
    stacked = a.stack(x, np.array([[0, 1, 2], [3, 3, 0]]))
    assert a.shape(stacked) == (3, 2, 3)
    assert np.array_equal(stacked.data[:, :, 1, 2], x.data[:, :, 0])
    assert a.shape(a.stack(one, np.array([[0, 0], [0, 0]]))) == (2, 2, 3)
    joined = a.join([x, c, one], [4, 2, 1])
    assert joined.data.shape[1:3] == (3, 7)
    assert not a.differs(a.gather(joined, np.array([5, 4])), c).any()
    assert not a.differs(a.gather(joined, np.array([6])), one).any()
    assert a.join([c, c]).data.shape[2] == 2
    assert not a.differs(a.add(x, one), a.add(x, a.gather(one, np.zeros(4, int)))).any()
    with pytest.raises(ShapeError):
        a.join([x, a.reshape(x, (6,))])


def test_joined_levels_are_the_common_ones() -> None:
    a = residues()
    x = a.fresh("x", (2,))
    joined = a.join([x, a.exp(x)])
    assert a.levels(joined) == range(1, 3)
    assert a.levels(a.add(x, a.exp(x))) == range(1, 3)
    top = a.exp(a.exp(x))
    assert a.levels(a.concatenate([top, x], 0)) == range(2, 3)
    low = a.plain(a.log(x))
    assert a.levels(low) == range(0, 2)
    with pytest.raises(BudgetError):
        a.add(top, low)
    with pytest.raises(BudgetError):
        a.differs(top, low)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**6))
def test_indexing_is_numpys(kind: str, seed: int) -> None:
    a = make(kind, seed)
    generator = np.random.default_rng(seed)
    x = a.fresh("x", (3, 4), 2)
    index = generator.integers(0, 4, (3, 2, 5))
    i = a.integers(index)
    taken = a.take(x, 1, i)
    along_index = generator.integers(0, 4, (1, 2, 3, 6))
    along = a.take_along(x, 1, a.integers(along_index))
    base, source = a.fresh("b", (3, 4)), a.fresh("s", (3, 5), 2)
    added = a.add_at(base, 1, i, source)
    summed = a.add_along(
        base, 1, a.integers(along_index), a.slice(a.concatenate([source, source], 1), 1, 0, 6)
    )
    for t in range(3):
        for n in range(2):
            assert np.array_equal(taken.data[:, t, n], x.data[:, t, n].take(index[t, n], axis=2))
            for level in range(x.data.shape[0]):
                assert np.array_equal(
                    along.data[level, t, n],
                    np.take_along_axis(x.data[level, t, n], along_index[0, n], axis=1),
                )
    one_hot = [
        [a.cast(a.compare("eq", i, a.constant(Fraction(k), "int")), "field")] for k in range(4)
    ]
    expected = [a.sum(a.multiply(source, a.reshape(h[0], (1, 5))), (1,)) for h in one_hot]
    columns = a.concatenate([a.reshape(e, (3, 1)) for e in expected], 1)
    assert not a.differs(added, a.add(base, columns)).any()
    total = a.sum(a.subtract(summed, base), (0, 1))
    assert not a.differs(
        total, a.sum(a.slice(a.concatenate([source, source], 1), 1, 0, 6), (0, 1))
    ).any()


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_refused(kind: str) -> None:
    a = make(kind)
    x, i = a.fresh("x", (2, 3)), a.integers(np.array([0, 3])[None, None])
    b = a.compare("gt", x, a.constant(Fraction(0)))
    for wrong in [
        lambda: a.add(x, a.fresh("y", (4,))),
        lambda: a.add(x, i),
        lambda: a.add(b, b),
        lambda: a.matmul(x, x),
        lambda: a.reshape(x, (5,)),
        lambda: a.transpose(x, (0, 0)),
        lambda: a.expand(x, (2, 4)),
        lambda: a.slice(x, 1, 0, 4),
        lambda: a.concatenate([x, a.fresh("y", (2, 3, 1))], 0),
        lambda: a.take(x, 0, i),
        lambda: a.take(x, 0, x),
        lambda: a.add_at(x, 1, a.integers(np.array([0, 1])[None, None]), x),
        lambda: a.where(x, x, x),
        lambda: a.where(b, x, i),
        lambda: a.logical_and(b, x),
        lambda: a.maximum(b, b),
        lambda: a.sum(b, (0,)),
        lambda: a.reduce_max(a.fresh("e", (2, 0)), 1),
        lambda: a.exp(i),
        lambda: a.join([x, i]),
    ]:
        with pytest.raises(ShapeError):
            wrong()
    with pytest.raises(UnsupportedError):
        a.floor_divide(i, a.integers(np.array([0, 1])[None, None]))
    with pytest.raises(UnsupportedError):
        a.constant(Fraction(1, 2), "int")


@pytest.mark.parametrize("kind", KINDS)
def test_integers_are_what_they_are(kind: str) -> None:
    a = make(kind)
    given_x, given_y = np.array([[[7, -7, 5]]]), np.array([[[2, 2, -3]]])
    x, y = a.integers(given_x), a.integers(given_y)
    for name in ("add", "subtract", "multiply", "floor_divide", "remainder", "maximum", "minimum"):
        assert np.array_equal(
            getattr(a, name)(x, y).data[0], getattr(np, name)(given_x, given_y)
        ), name
    assert a.cast(x, "bool").data.all()
    assert not a.differs(
        a.cast(x, "field"),
        a.concatenate([a.reshape(a.constant(Fraction(v)), (1,)) for v in (7, -7, 5)], 0),
    ).any()
    assert np.array_equal(a.cast(a.cast(x, "field"), "int").data, x.data)
    assert a.order(x, 0, False).data.tolist() == [[[[1, 2, 0]]]]
    ties = a.integers(np.array([[[1, 2, 1, 2]]]))
    assert a.order(ties, 0, True).data.tolist() == [[[[1, 3, 0, 2]]]]
    assert not a.differs(a.extent(a.fresh("x", (3, 4)), (0, 1)), a.constant(Fraction(12))).any()


def test_computed_residues_have_no_integer_part() -> None:
    a = residues()
    with pytest.raises(UnsupportedError):
        a.cast(a.fresh("x", (2,)), "int")


def test_the_order_is_total_odd_and_true_for_literals() -> None:
    p = CHAIN.primes[-1]
    literals = (
        [Fraction(n) for n in (-600, -6, -1, 0, 1, 6, 600)]
        + [Fraction(1, n) for n in (2, 3, 4, 5, 8, 10, 20, 100, 1000)]
        + [Fraction(9, 10), Fraction(-3, 4)]
    )
    keys = {
        q: int(order_key(np, np.array(q.numerator * pow(q.denominator, -1, p) % p), p))
        for q in literals
    }
    assert sorted(literals) == sorted(literals, key=keys.__getitem__)
    everything = np.arange(1439)
    key = order_key(np, everything, 1439)
    assert len(set(key.tolist())) == 1439
    assert np.array_equal(order_key(np, -everything % 1439, 1439), -key)


def test_maximum_keeps_its_laws() -> None:
    a = residues()
    x, y, z = (a.fresh(name, (20,)) for name in "xyz")
    assert not a.differs(a.maximum(x, a.maximum(y, z)), a.maximum(a.maximum(x, y), z)).any()
    assert not a.differs(a.add(a.maximum(x, y), a.minimum(x, y)), a.add(x, y)).any()
    assert not a.differs(a.maximum(x, y), a.negate(a.minimum(a.negate(x), a.negate(y)))).any()
    stacked = a.concatenate([a.reshape(v, (1, 20)) for v in (x, y, z)], 0)
    assert not a.differs(a.reduce_max(stacked, 0), a.maximum(x, a.maximum(y, z))).any()
    step = a.cast(a.compare("gt", x, a.constant(Fraction(0))), "field")
    assert not a.differs(a.maximum(x, a.constant(Fraction(0))), a.multiply(x, step)).any()


@pytest.mark.parametrize("kind", ["residues", "real"])
def test_decisions_are_counted_per_trial_and_instance(kind: str) -> None:
    a = make(kind)
    x, y = a.fresh("x", (10,), 2), a.fresh("y", (10,), 2)
    a.site = "clamp"
    above = a.compare("gt", x, y)
    a.maximum(x, y)
    a.site = "top"
    a.reduce_max(x, 0)
    a.where(above, x, y)
    a.compare("gt", a.constant(Fraction(1)), a.constant(Fraction(0)))
    a.where(a.compare("lt", a.arange(x, 0), a.constant(Fraction(5), "int")), x, y)
    assert [d.site for d in a.decisions] == [
        "clamp#0",
        "clamp#1",
        *(f"top#{slot}" for slot in range(10)),
    ]
    first = a.decisions[0]
    assert (
        np.array_equal(first.true, above.data.sum(axis=(0, 3)))
        and (first.true + first.false == 10).all()
    )
    for t in range(3):
        for n in range(2):
            row = (
                x.data[-1, t, n]
                if kind == "real"
                else order_key(np, x.data[-1, t, n], CHAIN.primes[-1])
            )
            chosen = [int(d.true[t, n]) for d in a.decisions[2:]]
            assert chosen == [int(i == row.argmax()) for i in range(10)]


def test_of_many_elements_an_extremum_records_one_decision() -> None:
    a = residues()
    a.reduce_max(a.fresh("x", (65,)), 0)
    assert len(a.decisions) == 1


def test_draws_are_functions_of_stream_and_index() -> None:
    for kind in KINDS:
        a = make(kind)
        x = a.fresh("x", (8,))
        d = a.draw("dropout", a.arange(x, 0))
        part = a.draw("dropout", a.slice(a.arange(x, 0), 0, 3, 5))
        assert not a.differs(part, a.slice(d, 0, 3, 5)).any()
        assert a.differs(d, a.draw("other", a.arange(x, 0))).all()
    a = residues(0, tuple(range(50)))
    d = a.draw("dropout", a.arange(a.fresh("x", (40,)), 0))
    for probability in (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10), Fraction(1, 20)):
        share = a.compare("ge", d, a.constant(probability)).data.mean()
        assert 0.4 < share < 0.6
    r = RealAlgebra(np, 0, range(50))
    d = r.draw("dropout", r.arange(r.fresh("x", (400,)), 0))
    assert abs(r.compare("ge", d, r.constant(Fraction(1, 10))).data.mean() - 0.9) < 0.01
    assert ((d.data > 0) & (d.data < 1)).all()


def test_keyed_functions() -> None:
    a = residues()
    x, y = a.fresh("x", (4,)), a.fresh("y", (4,))
    half = a.constant(Fraction(1, 2))
    assert not a.differs(a.function("erf", a.negate(x)), a.negate(a.function("erf", x))).any()
    phi = [a.function("normal_cdf", v) for v in (x, a.negate(x))]
    assert not a.differs(a.add(*phi), a.multiply(half, a.constant(Fraction(2)))).any()
    assert not a.differs(
        a.function("normal_density", x), a.function("normal_density", a.negate(x))
    ).any()
    assert a.differs(a.function("kernel", x), a.function("kernel", a.negate(x))).all()
    assert a.differs(a.function("kernel", x, y), a.function("kernel", y, x)).all()
    assert a.differs(a.function("kernel", x), a.function("other", x)).all()
    cut = a.add(x, a.multiply(a.exp(y), a.constant(Fraction(0))))
    assert (
        a.levels(cut) == range(1, 3)
        and not a.differs(a.function("kernel", cut), a.function("kernel", x)).any()
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "index",
    [
        [[0, 1, 2, 3]],
        [[0, 2], [1, 3]],
        [[0, 1], [2, 3]],
        [[3, 2, 1, 0]],
        [[1, 1], [1, 1]],
        [[2]],
        [[0, 1], [1, 0]],
        [[0, 1, 3]],
        [[1, 3], [0, 2]],
    ],
)
def test_a_stack_has_the_members_that_are_named(kind: str, index: list[list[int]]) -> None:
    """Also where these are a regular pattern, which is a view."""
    a = make(kind)
    x = a.fresh("x", (2, 3), 4)
    stacked = a.stack(x, np.array(index))
    assert a.shape(stacked) == (len(index[0]), 2, 3)
    for row, members in enumerate(index):
        for place, member in enumerate(members):
            assert np.array_equal(stacked.data[:, :, row, place], x.data[:, :, member])
    doubled = a.add(stacked, stacked)
    assert np.array_equal(doubled.data[:, :, 0, 0], a.add(x, x).data[:, :, index[0][0]])


def test_a_stack_refuses_members_that_are_not_there() -> None:
    a = make("real")
    with pytest.raises(IndexError):
        a.stack(a.fresh("x", (2,), 4), np.array([[3, 4]]))
