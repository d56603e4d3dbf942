"""Every trait holds of every operator that claims it.

It holds of no other one without a reason that stands here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from ops.ops_law_cases import Case, Watching, cases_of, distinct
from ops.ops_laws import LAWS, broken_by, claims, gradients_are_sums, many_digits

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import chains_of
from pitcheck.errors import PlanError, ShapeError
from pitcheck.ops.declaration import OperatorKind, Pair
from pitcheck.ops.registry import (
    collective_kinds,
    communication_of,
    has_trait,
    inner_dimensions,
    kinds_with,
    operator_kind,
    operator_names,
    shared_operands,
)
from pitcheck.ops.traits import ALSO_OF_DERIVATIVES, Communication, Trait

CHAIN = chains_of(3)[0]
POSTAL = "send and receive are lowered to copies, and no rule asks them"
DRAWN = "a draw is no function of operands; the rules know draws by their streams"
ROOTED = "one member alone has the result, or gives the data, and the rule is about all of them"
LIMITED = "holds, but no proof has needed it: what is computed behind a freed step ends before it"
ASKED_ELSEWHERE = "another trait says more, and the rule asks that one first"

WITHHELD: Mapping[Trait, Mapping[str, str]] = {
    Trait.KEEPS_ORDER: {"send": POSTAL, "receive": POSTAL},
    Trait.SHOWS_ALL: {
        "send": POSTAL,
        "receive": POSTAL,
        "wait": "its operand is in flight: a copy that the lowering removes",
        "detach": "no gradient comes back through it, and gradients of views are views",
    },
    Trait.REARRANGES: {
        "flip": "places along the dimension change their order, and what stands behind sums is "
        "compared place by place from the front",
        "roll": "as flip",
    },
    Trait.SELECTS: {"squeeze": ASKED_ELSEWHERE, "broadcast": ROOTED},
    Trait.ROUNDS_NOTHING: {
        "cast": "it rounds to its dtype, which no algebra knows",
        "uniform": DRAWN,
        "normal": DRAWN,
        "send": POSTAL,
        "receive": POSTAL,
    },
    Trait.ADDS_TERMS: {
        **dict.fromkeys(("cumsum", "index_add", "scatter_add"), ASKED_ELSEWHERE),
        "nll_loss": ASKED_ELSEWHERE,
    },
    Trait.NORMALIZES: {
        **dict.fromkeys(
            (
                "sum",
                "mean",
                "cumsum",
                "all_reduce",
                "reduce",
                "reduce_scatter",
                "scan",
                "accumulate",
            ),
            ASKED_ELSEWHERE,
        ),
        **dict.fromkeys(
            ("linear", "matmul", "bmm", "einsum", "scaled_dot_product_attention"),
            "devices add up products of matrices in float32",
        ),
        "rotary": "an element is made of two, whatever the sizes are",
    },
    Trait.LEAVES_OTHER_AXES: {
        **dict.fromkeys(("reduce", "gather_to", "broadcast", "scatter_from"), ROOTED),
        "accumulate": "it joins micro-batches of one rank, and no buffer is made of these",
    },
    Trait.PLACE_BY_PLACE: {
        **dict.fromkeys(
            ("clamp", "gelu", "cast", "where", "masked_fill", "full_like"), "no proof has needed it"
        ),
        **dict.fromkeys(("identity", "contiguous", "detach", "multiref"), ASKED_ELSEWHERE),
        "cat": "of one operand alone",
        "dropout": DRAWN,
        "send": POSTAL,
        "receive": POSTAL,
        "wait": POSTAL,
    },
    Trait.MULTILINEAR: {"dropout": "its mask is a decision, not a number"},
    Trait.SCALES: {"dropout": "its mask is a decision, not a number"},
    Trait.CONTRACTS: {"rotary": "an element is made of two pairs, whatever the sizes are"},
    Trait.TOTAL: {
        **dict.fromkeys(
            (
                "scale_by_size",
                "einsum",
                "rotary",
                "var",
                "cumsum",
                "repeat_interleave",
                "pad",
                "flip",
                "roll",
                "tril",
                "triu",
                "scatter_value",
            ),
            LIMITED,
        ),
        **dict.fromkeys(("nll_loss", "mse_loss", "dropout", "all_to_all", "wait"), LIMITED),
        **dict.fromkeys(
            ("positions", "boundary", "causal_mask"),
            "of the shape alone: nothing of the operand is left",
        ),
        **dict.fromkeys(("uniform", "normal", "dropout_mask"), DRAWN),
        **dict.fromkeys(("gather_to", "broadcast", "scatter_from"), ROOTED),
        "send": POSTAL,
        "receive": POSTAL,
    },
    Trait.DEFINED_FOR_POSITIVE: {"div": "asked of its second operand alone, by DIVIDES"},
    Trait.GIVES_POSITIVE: {
        **dict.fromkeys(
            ("sigmoid", "softplus", "softmax"),
            "residues have 0 where exponentials add up to -1: no algebra keeps what is true of "
            "real numbers",
        ),
        "uniform": DRAWN,
    },
    Trait.KEEPS_POSITIVE: {
        **dict.fromkeys(
            (
                "pow",
                "scale_by_size",
                "square",
                "reciprocal",
                "sqrt",
                "rsqrt",
                "exp",
                "abs",
                "sign",
                "clamp",
            ),
            LIMITED,
        ),
        **dict.fromkeys(
            (
                "sigmoid",
                "silu",
                "tanh",
                "softplus",
                "relu",
                "erf",
                "gelu",
                "softmax",
                "logsumexp",
                "rms_norm",
                "var",
            ),
            LIMITED,
        ),
        **dict.fromkeys(
            (
                "linear",
                "matmul",
                "bmm",
                "einsum",
                "scaled_dot_product_attention",
                "mse_loss",
                "dropout",
            ),
            LIMITED,
        ),
        **dict.fromkeys(
            ("amax", "amin", "max", "min", "topk", "sort", "maximum", "minimum", "cumsum", "full"),
            LIMITED,
        ),
        **dict.fromkeys(
            (
                "repeat_interleave",
                "chunk",
                "slice",
                "select",
                "split",
                "unbind",
                "cat",
                "stack",
                "flip",
                "roll",
                "all_to_all",
                "wait",
            ),
            LIMITED,
        ),
        **dict.fromkeys(("reduce", "gather_to", "broadcast", "scatter_from"), ROOTED),
        "uniform": DRAWN,
        "send": POSTAL,
        "receive": POSTAL,
    },
    Trait.PICKS_PLACES: dict.fromkeys(
        ("min", "argmin"), "tokens go where their scores are greatest"
    ),
    Trait.CHANGES_BELOW: dict.fromkeys(
        ("eq", "ne"), "the number itself is tried, and is where they change"
    ),
    Trait.CHANGES_ABOVE: dict.fromkeys(
        ("eq", "ne"), "the number itself is tried, and is where they change"
    ),
    Trait.FLIPS_SIGNS: {"nll_loss": "it gives floating-point numbers alone, whose opposites fit"},
    Trait.STEPS: {
        **dict.fromkeys(("positions", "boundary", "causal_mask", "full_like"), ASKED_ELSEWHERE),
        **dict.fromkeys(("uniform", "normal", "dropout_mask"), DRAWN),
    },
    Trait.READS_SHAPE: dict.fromkeys(("uniform", "normal"), DRAWN),
}
"""By trait the operators of which its law holds on all rows although they do not claim it, and why
they do not.
"""

_rows = cache(cases_of)


def _claimed(name: str, trait: Trait) -> tuple[list[Case], list[Case]]:
    """Return the rows with whose attributes an operator claims a trait, and the others."""
    claimed = [claims(operator_kind(name), trait, case.attributes) for case in _rows(name)]
    return [c for c, yes in zip(_rows(name), claimed, strict=True) if yes], [
        c for c, yes in zip(_rows(name), claimed, strict=True) if not yes
    ]


@pytest.mark.parametrize("trait", Trait)
def test_the_law_holds_of_what_is_claimed(trait: Trait) -> None:
    kinds = [
        operator_kind(name)
        for name in operator_names()
        if trait in operator_kind(name).traits | set(operator_kind(name).conditional)
    ]
    assert kinds, "a trait that no operator has"
    assert [broken_by(kind, trait, _claimed(kind.name, trait)[0]) for kind in kinds] == [""] * len(
        kinds
    )


@pytest.mark.parametrize("trait", Trait)
def test_what_is_not_claimed_is_refuted_or_withheld_for_a_reason(trait: Trait) -> None:
    others = {name: rows for name in operator_names() if (rows := _claimed(name, trait)[1])}
    left = {
        name for name, rows in others.items() if not broken_by(operator_kind(name), trait, rows)
    }
    assert left == set(WITHHELD.get(trait, {}))


@pytest.mark.parametrize("name", sorted(kinds_with(Trait.ROUNDS_NOTHING)))
def test_what_rounds_nothing_stays_in_range(name: str) -> None:
    """Narrow integers rest on it: results are operands, their opposites, 0, 1, -1 or literals."""
    flips = name in kinds_with(Trait.FLIPS_SIGNS)
    for case in _claimed(name, Trait.ROUNDS_NOTHING)[0]:
        given = case.of(many_digits)
        numbers = [n for n in case.attributes.values() if isinstance(n, int | float)]
        held = {0.0, 1.0, -1.0, *map(float, numbers)}
        held.update(x for array in given.inputs for x in array.astype(float).reshape(-1).tolist())
        results = {y for array in given.real_outputs() for y in array.reshape(-1).tolist()}
        assert all(y in held or (flips and -y in held) for y in results if math.isfinite(y))


@pytest.mark.parametrize(
    ("name", "trait"),
    [
        ("sub", Trait.KEEPS_POSITIVE),
        ("log", Trait.KEEPS_POSITIVE),
        ("add", Trait.KEEPS_POSITIVE),
        ("exp", Trait.REARRANGES),
        ("square", Trait.REARRANGES),
        ("slice", Trait.REARRANGES),
        ("expand", Trait.REARRANGES),
        ("multiref", Trait.REARRANGES),
        ("detach", Trait.REARRANGES),
        ("flip", Trait.SHOWS_ALL),
        ("repeat_interleave", Trait.SHOWS_ALL),
        ("transpose", Trait.KEEPS_ORDER),
        ("select", Trait.CUTS),
        ("div", Trait.TOTAL),
        ("amax", Trait.TOTAL),
        ("cast", Trait.TOTAL),
        ("all_reduce", Trait.TOTAL),
        ("sigmoid", Trait.TOTAL),
        ("softmax", Trait.TOTAL),
        ("pow", Trait.DEFINED_FOR_POSITIVE),
        ("all_reduce", Trait.ADDS_MEMBERS),
        ("all_gather", Trait.ADDS_MEMBERS),
        ("reduce_scatter", Trait.ADDS_PLAINLY),
        ("reduce_scatter", Trait.KEEPS_SIZES),
        ("all_to_all", Trait.KEEPS_SIZES),
        ("all_to_all", Trait.LEAVES_OTHER_AXES),
        ("scale_by_size", Trait.PLACE_BY_PLACE),
        ("softmax", Trait.PLACE_BY_PLACE),
        ("cumsum", Trait.PLACE_BY_PLACE),
        ("flip", Trait.PLACE_BY_PLACE),
        ("matmul", Trait.PLACE_BY_PLACE),
        ("linear", Trait.MULTILINEAR),
        ("mean", Trait.ROUNDS_NOTHING),
        ("layer_norm", Trait.TAKES_ROOT),
        ("sum", Trait.AVERAGES),
        ("gt", Trait.CHANGES_BELOW),
        ("sort", Trait.PICKS_PLACES),
        ("full_like", Trait.DIVIDES),
        ("any", Trait.READS_SHAPE),
        ("relu", Trait.FLIPS_SIGNS),
        ("argmax", Trait.GIVES_BITS),
        ("abs", Trait.SQUARES),
        ("mul", Trait.SQUARES),
        ("full_like", Trait.CONVERTS),
        ("identity", Trait.CONVERTS),
        ("sub", Trait.COMMUTES),
        ("pow", Trait.COMMUTES),
        ("add", Trait.COMMUTES),
        ("tanh", Trait.LIMITS),
        ("masked_fill", Trait.LIMITS),
        ("sign", Trait.LIMITS),
        ("abs", Trait.LIMITS),
        ("clamp", Trait.STEPS),
        ("topk", Trait.STEPS),
    ],
)
def test_a_wrong_claim_fails_at_once(name: str, trait: Trait) -> None:
    operator = operator_kind(name)
    wrong = replace(operator, traits=operator.traits | {trait})
    assert broken_by(wrong, trait, _rows(name))


def test_a_reason_says_something() -> None:
    assert all(len(reason) > 5 for reasons in WITHHELD.values() for reason in reasons.values())
    assert set(LAWS) == set(Trait)


@pytest.mark.parametrize("trait", sorted(ALSO_OF_DERIVATIVES))
def test_derivatives_have_the_traits_that_the_law_asks_of_them(trait: Trait) -> None:
    assert all(
        has_trait(f"{name}.backward", trait, {})
        for name in kinds_with(trait)
        if not name.endswith(".backward")
    )
    assert all(operator_kind(name).derivative for name in kinds_with(trait))


def test_derivatives_have_no_other_trait() -> None:
    derived = {
        (name, trait)
        for trait in Trait
        for name in operator_names()
        if has_trait(f"{name}.backward", trait, {})
    }
    assert {trait for _, trait in derived} == ALSO_OF_DERIVATIVES
    assert not has_trait("view.backward", Trait.SHOWS_ALL, {}) and not has_trait(
        "exp.backward", Trait.REARRANGES, {}
    )


def test_a_trait_by_attributes() -> None:
    assert has_trait("all_reduce", Trait.ADDS_MEMBERS, {}) and has_trait(
        "all_reduce", Trait.ADDS_MEMBERS, {"reduction": "sum"}
    )
    assert not has_trait("all_reduce", Trait.ADDS_MEMBERS, {"reduction": "max"})
    assert "all_reduce" not in kinds_with(Trait.ADDS_MEMBERS) and "accumulate" in kinds_with(
        Trait.ADDS_MEMBERS
    )
    assert has_trait("pow", Trait.TAKES_ROOT, {"exponent": "1/2"}) and not has_trait(
        "pow", Trait.TAKES_ROOT, {"exponent": 2}
    )
    assert not has_trait("add", Trait.KEEPS_POSITIVE, {"alpha": "inf"}) and not has_trait(
        "add", Trait.KEEPS_POSITIVE, {"alpha": "nan"}
    )
    with pytest.raises(PlanError, match="alpha"):
        has_trait("add", Trait.KEEPS_POSITIVE, {"alpha": "many"})


def test_what_is_unknown_has_no_trait() -> None:
    assert not any(has_trait("flash_attention", trait, {}) for trait in Trait)
    assert (
        communication_of("flash_attention")
        is communication_of("send.backward")
        is Communication.NONE
    )


def test_who_meets_in_an_operator() -> None:
    of_group = {
        name
        for name in operator_names()
        if communication_of(name) in (Communication.COLLECTIVE, Communication.BARRIER)
    }
    assert of_group == (collective_kinds() - {"accumulate"}) | {"barrier"}
    paired = {
        communication_of(name)
        for name in operator_names()
        if "peer" in operator_kind(name).attributes
    }
    assert paired == {Communication.SEND, Communication.RECEIVE}
    assert [name for name in operator_names() if communication_of(name) is Communication.WAIT] == [
        "wait"
    ]


@pytest.mark.parametrize("name", sorted(collective_kinds()))
def test_what_a_collective_divides(name: str) -> None:
    """Try sizes that are not multiples of the number of members along each axis.

    Only the divided axis may refuse them.
    """
    operator = operator_kind(name)
    found = set()
    for case in _rows(name):
        stack = case.inputs[0]
        for axis in range(stack.ndim - 1) if len(stack) > 1 else ():
            odd = np.ones(
                [len(stack) + 1 if i == axis + 1 else n for i, n in enumerate(stack.shape)]
            )
            own = case.attributes.get(operator.divided_axis)
            if not _runs(replace(case, inputs=(odd,))):
                found.add(own is not None and own % (stack.ndim - 1) == axis)
    assert found == ({True} if operator.divided_axis else set())


def _runs(case: Case) -> bool:
    try:
        case.run()
    except ShapeError:
        return False
    return True


@pytest.mark.parametrize("name", sorted(kinds_with(Trait.TOTAL)))
def test_numbers_that_are_read_as_truths_are_named(name: str) -> None:
    """Give numbers as truths to every total operator.

    It decides by a number only if that stands for a truth, and names the place of that operand.
    """
    found = set()
    for case in _rows(name):
        for place in [i for i, x in enumerate(case.inputs) if x.dtype == np.bool_]:
            algebra = Watching()
            replace(
                case,
                inputs=tuple(
                    x.astype(float) if i == place else x for i, x in enumerate(case.inputs)
                ),
            ).run(algebra)
            found |= {place for what, _ in algebra.calls if what == "cast"}
    assert found == set(operator_kind(name).conditions)


LINEAR_IN = {
    Trait.ADDS_TERMS: "together",
    Trait.ADDS_WITHIN: "together",
    Trait.ADDS_MEMBERS: "together",
    Trait.ADDS_ALONG: "together",
    Trait.REARRANGES: "together",
    Trait.MULTILINEAR: "each",
    Trait.SCALES: "first",
}


@pytest.mark.parametrize("trait", LINEAR_IN)
def test_what_is_linear_is_linear_on_residues(trait: Trait) -> None:
    """f(x + y) = f(x) + f(y) for residues that are drawn."""
    asked = 0
    for name in operator_names():
        for case in [
            c
            for c in _claimed(name, trait)[0]
            if c.fields and (LINEAR_IN[trait] != "first" or 0 in c.fields)
        ]:
            together = {
                "together": [case.fields],
                "each": [[place] for place in case.fields],
                "first": [[0]],
            }[LINEAR_IN[trait]]
            assert all(_is_additive_on_residues(case, places) for places in together), (
                name,
                dict(case.attributes),
            )
            asked += 1
    assert asked > 0


@pytest.mark.parametrize("name", ["square", "div", "mul", "reciprocal"])
def test_what_is_not_linear_is_not_linear_on_residues(name: str) -> None:
    assert not all(
        _is_additive_on_residues(case, case.fields) for case in _rows(name) if case.fields
    )


def _is_additive_on_residues(case: Case, places: list[int]) -> bool:
    algebra = ResidueAlgebra(np, CHAIN, 5, (0, 1))

    def drawn(place: int, key: str) -> Any:
        x = case.inputs[place]
        return (
            algebra.fresh(f"{place} {key if place in places else ''}", x.shape)
            if place in case.fields
            else algebra.integers(x[None, None])
        )

    first, second = ([drawn(place, key) for place in range(len(case.inputs))] for key in ("x", "y"))
    both = [
        algebra.add(a, b) if place in places else a
        for place, (a, b) in enumerate(zip(first, second, strict=True))
    ]
    of_first, of_second, of_both = (
        case.operator.meaning(algebra, operands, case.attributes)
        for operands in (first, second, both)
    )
    return all(
        np.array_equal(algebra.add(a, b).data, c.data)
        for a, b, c in zip(of_first, of_second, of_both, strict=True)
    )


SHARING = [name for name in operator_names() if operator_kind(name).shared]


@pytest.mark.parametrize("name", SHARING)
def test_gradients_of_shared_operands_are_sums(name: str) -> None:
    found = {gradients_are_sums(case) for case in _rows(name)}
    assert found <= {True, None} and True in found


@pytest.mark.parametrize("name", [name for name in SHARING if name != "embedding"])
def test_gradients_that_are_no_sums(name: str) -> None:
    """The gradient of the first operand has the leading places itself."""
    operator = replace(operator_kind(name), shared=(0,))
    assert False in {gradients_are_sums(replace(case, operator=operator)) for case in _rows(name)}


def test_which_gradients_are_sums() -> None:
    assert shared_operands("linear.backward") == (1, 2)
    assert (
        shared_operands("linear")
        == shared_operands("mul.backward")
        == shared_operands("flash_attention.backward")
        == ()
    )
    assert [inner_dimensions(operator_kind("rms_norm"), a) for a in ({}, {"dims": 2})] == [1, 2]


@pytest.mark.parametrize("name", operator_names())
def test_where_parts_begin(name: str) -> None:
    """Compare the shorter one of an input and an output with the stretch of the longer one.

    It is the stretch that begins at the offset.
    """
    offset, found = operator_kind(name).offset, []
    for case in _rows(name) if offset is not None else ():
        given = case.of(distinct)
        outputs, axis = given.run(), case.attributes["axis"] % case.inputs[0].ndim
        shapes = [x.shape for x in case.inputs], [y.shape for y in outputs]
        for source, result in itertools.product(range(len(case.inputs)), range(len(outputs))):
            begin = (
                offset(Pair(case.attributes, *shapes, source, result, axis))
                if offset is not None
                else None
            )
            x, y = given.inputs[source], outputs[result]
            y = y if x.ndim == y.ndim else np.expand_dims(y, axis)
            if not isinstance(begin, int):
                assert case.attributes.get("step", 1) != 1
            elif begin > 0 or y.shape[axis] <= x.shape[axis]:
                found.append(np.array_equal(y, x.take(range(begin, begin + y.shape[axis]), axis)))
            else:
                found.append(np.array_equal(x, y.take(range(-begin, -begin + x.shape[axis]), axis)))
    assert all(found) and bool(found) == (offset is not None)


def test_traits_of_an_operator_are_frozen() -> None:
    kinds: list[OperatorKind] = [operator_kind(name) for name in operator_names()]
    assert all(isinstance(kind.traits, frozenset) for kind in kinds)
    assert all(not kind.traits & set(kind.conditional) for kind in kinds)
    with pytest.raises(TypeError):
        operator_kind("add").conditional[Trait.DIVIDES] = lambda _: True  # type: ignore[index]
