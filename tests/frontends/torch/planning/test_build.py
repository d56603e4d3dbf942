"""From traces to plans: what things are called, what is compared, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.planning.build import parallel_plan, reference_plan
from pitcheck.frontends.torch.program import Input, Part, Spec
from pitcheck.frontends.torch.trace import Argument, Event, Given, Ref, Result, Trace, Value

WHOLE: Any = (((0, 4),),)
LEFT, RIGHT = (((0, 2),),), (((2, 4),),)
TWO = {"dp": 2}


class Step:
    """One rank's trace in the making."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.values: list[Value] = []
        self.events: list[Event] = []
        self.given: list[Given] = []
        self.results: list[Result] = []

    def begin(
        self, role: Any, name: str, shape: Sequence[int], dtype: Any = "float32", **more: Any
    ) -> int:
        self.values.append(Value(tuple(shape), dtype))
        self.given.append(Given(len(self.values) - 1, role, name, **more))
        return len(self.values) - 1

    def run(
        self,
        operator: str,
        arguments: tuple[Argument, ...],
        shape: Sequence[int],
        group: tuple[int, ...] = (),
        dtype: Any = "float32",
    ) -> int:
        self.values.append(Value(tuple(shape), dtype))
        self.events.append(Event(operator, arguments, (len(self.values) - 1,), group, "model.py:3"))
        return len(self.values) - 1

    def times(self, left: int, right: int | float) -> int:
        return self.run(
            "mul.Tensor",
            (Ref(left), Ref(right) if isinstance(right, int) else right),
            self.values[left].shape,
        )

    def total(self, value: int) -> int:
        return self.run("sum.default", (Ref(value), None), ())

    def end(self, kind: Any, name: str, value: int, **more: Any) -> None:
        self.results.append(Result(value, kind, name, **more))

    def trace(self) -> Trace:
        return Trace(
            self.rank,
            tuple(self.values),
            tuple(self.events),
            tuple(self.given),
            tuple(self.results),
        )


def spec_of(
    mesh: Mapping[str, int] = TWO, outputs: Mapping[str, Part] | None = None, **batch: Input
) -> Spec:
    """Return the specification of traces that are written down; nothing is run."""
    return Spec(lambda: None, lambda rank: None, mesh, batch, outputs or {})  # type: ignore[arg-type, return-value]


def verdict(reference: Trace, parallel: Sequence[Trace], spec: Spec) -> str:
    first = reference_plan(reference, spec)
    return check(first, parallel_plan(parallel, spec, first), Options(seed=1)).verdict


def scaled(rank: int, factor: float = 1.0, given: str = "x", output: str = "loss") -> Step:
    """The sum of the squares of a vector."""
    step = Step(rank)
    x = step.begin("input", given, (4,))
    step.end("output", output, step.total(step.times(step.times(x, x), factor)))
    return step


X = Input((4,))


# --- results


def test_a_result_has_one_form_on_all_ranks() -> None:
    spec, wrong = spec_of(x=X), Step(1)
    x = wrong.begin("input", "x", (4,))
    wrong.end("output", "loss", wrong.times(wrong.times(x, x), 3.0))
    first = reference_plan(scaled(0).trace(), spec)
    with pytest.raises(
        UnsupportedError,
        match=r"'loss' is a float32 tensor of shape \(4,\) on rank 1 and a float32 tensor of "
        r"shape \(\) on a rank before",
    ):
        parallel_plan([scaled(0).trace(), wrong.trace()], spec, first)


@pytest.mark.parametrize("name", ["loss~2", "a~b~3"])
@pytest.mark.parametrize(("factor", "expected"), [(1.0, "equivalent"), (2.0, "mismatch")])
def test_a_result_may_be_called_anything(name: str, factor: float, expected: str) -> None:
    ranks = [scaled(0, output=name).trace(), scaled(1, factor, output=name).trace()]
    assert verdict(scaled(0, output=name).trace(), ranks, spec_of(x=X)) == expected


@pytest.mark.parametrize(("factor", "expected"), [(1.0, "equivalent"), (2.0, "mismatch")])
def test_what_a_rank_keeps_for_itself_has_any_form(factor: float, expected: str) -> None:
    ranks = [scaled(0), scaled(1, factor)]
    for step in ranks:
        step.end(
            "output",
            "own",
            step.run("slice.Tensor", (Ref(0), 0, step.rank, 4, 1), (4 - step.rank,)),
        )
    assert verdict(scaled(0).trace(), [step.trace() for step in ranks], spec_of(x=X)) == expected


# --- names


@pytest.mark.parametrize(("factor", "expected"), [(1.0, "equivalent"), (2.0, "mismatch")])
@pytest.mark.parametrize(
    ("given", "output"), [("mul", "sum"), ("mul#2", "mul"), ("sum", "sum#2"), ("x", "mul")]
)
def test_names_of_operators_are_no_names_of_tensors(
    given: str, output: str, factor: float, expected: str
) -> None:
    ranks = [scaled(0, 1.0, given, output).trace(), scaled(1, factor, given, output).trace()]
    assert verdict(scaled(0, 1.0, given, output).trace(), ranks, spec_of(**{given: X})) == expected


def test_names_of_operators_are_no_names_of_tensors_of_other_ranks() -> None:
    """A pipeline: one rank computes a square, of the other this is what its input is called, and
    its output.
    """
    first = Step(0)
    x = first.begin("input", "x", (4,))
    first.events.append(Event("send", (Ref(first.times(x, x)), 1, 0), (), (0, 1), "model.py:1"))
    second = Step(1)
    factor = second.begin("input", "mul", (4,))
    second.end("output", "sum", second.times(second.run("receive", (0, 0), (4,), (0, 1)), factor))
    whole = Step()
    x, factor = whole.begin("input", "x", (4,)), whole.begin("input", "mul", (4,))
    whole.end("output", "sum", whole.times(whole.times(x, x), factor))
    spec = spec_of({"pp": 2}, x=X, mul=X)
    assert verdict(whole.trace(), [first.trace(), second.trace()], spec) == "equivalent"
    third = Step(1)
    factor = third.begin("input", "mul", (4,))
    third.end(
        "output",
        "sum",
        third.times(third.times(third.run("receive", (0, 0), (4,), (0, 1)), factor), 2.0),
    )
    assert verdict(whole.trace(), [first.trace(), third.trace()], spec) == "mismatch"


@pytest.mark.parametrize(("factor", "expected"), [(1.0, "equivalent"), (2.0, "mismatch")])
def test_tensors_in_between_have_other_shapes_on_other_ranks(factor: float, expected: str) -> None:
    """One rank computes one of four rows, the other three."""

    def product(rank: int, first: int, last: int) -> Step:
        step = Step(rank)
        x, w = step.begin("input", "x", (4, 3)), step.begin("input", "w", (3, 2))
        own = step.run("slice.Tensor", (Ref(x), 0, first, last, 1), (last - first, 3))
        out = step.run(
            "addmm.default",
            (Ref(step.begin("input", "b", (2,))), Ref(own), Ref(w), 1, factor if rank else 1),
            (last - first, 2),
        )
        step.end("output", "loss", step.total(out))
        return step

    whole, ranks = product(0, 0, 4), [product(0, 0, 1), product(1, 1, 4)]
    for step in ranks:
        loss = step.run("all_reduce", (Ref(step.results.pop().value), "sum"), (), (0, 1))
        step.end("output", "loss", loss)
    spec = spec_of(x=Input((4, 3)), w=Input((3, 2)), b=Input((2,)))
    assert verdict(whole.trace(), [step.trace() for step in ranks], spec) == expected


@pytest.mark.parametrize("role", ["buffer", "parameter", "optimizer_state"])
def test_two_tensors_of_one_name(role: str) -> None:
    step = Step()
    x, y = step.begin("input", "x", (4,)), step.begin(role, "x", (4,))
    step.end("output", "loss", step.total(step.times(x, y)))
    with pytest.raises(PlanError, match="rank 0 begins with two tensors called 'x'"):
        reference_plan(step.trace(), spec_of(x=X))


def test_an_input_and_a_buffer_of_one_name_on_different_ranks() -> None:
    wrong = Step(1)
    y = wrong.begin("buffer", "x", (4,))
    wrong.end("output", "loss", wrong.total(wrong.times(wrong.times(y, y), 1.0)))
    spec = spec_of(x=X)
    with pytest.raises(PlanError, match="rank 1 begins with two tensors called 'x'"):
        verdict(scaled(0).trace(), [scaled(0).trace(), wrong.trace()], spec)


def test_two_results_of_one_name() -> None:
    step = Step()
    w = step.begin("parameter", "w", (4,))
    step.end("gradient", "w", step.times(w, w))
    step.end("output", "grad:w", step.times(w, 2.0))
    with pytest.raises(PlanError, match="rank 0 ends with two tensors called 'grad:w'"):
        reference_plan(step.trace(), spec_of())


# --- constants


def filled(number: float | None, dtype: str = "float32") -> Trace:
    step = Step()
    x = step.begin("input", "x", (4,))
    constant = step.begin("constant", "", (4,), dtype, number=number)
    step.end("output", "y", step.run("add.Tensor", (Ref(x), Ref(constant), 1), (4,), dtype=dtype))
    return step.trace()


def test_a_constant_of_unknown_elements_is_refused() -> None:
    with pytest.raises(
        UnsupportedError,
        match=r"a constant float32 tensor of shape \(4,\) has elements that are neither all equal "
        r"nor few",
    ):
        reference_plan(filled(None), spec_of(x=X))


@pytest.mark.parametrize(("number", "refused"), [(1.0, True), (0.0, False)])
def test_a_complex_constant_is_zero_or_refused(number: float, refused: bool) -> None:
    step = Step()
    step.end(
        "output",
        "y",
        step.run(
            "neg.default",
            (Ref(step.begin("constant", "", (4,), "complex64", number=number)),),
            (4,),
            dtype="complex64",
        ),
    )
    if refused:
        with pytest.raises(
            UnsupportedError, match=r"is filled with 1.0; complex constants other than 0"
        ):
            reference_plan(step.trace(), spec_of())
    else:
        (constant,) = (
            tensor
            for tensor in reference_plan(step.trace(), spec_of()).tensors
            if tensor.role == "constant"
        )
        assert (constant.shape, constant.value) == ((4, 2), 0.0)


@pytest.mark.parametrize(
    ("number", "value"),
    [(float("-inf"), "-inf"), (float("inf"), "inf"), (float("nan"), "nan"), (0.5, 0.5)],
)
def test_special_numbers_keep_their_meaning(number: float, value: object) -> None:
    (constant,) = (
        tensor
        for tensor in reference_plan(filled(number), spec_of(x=X)).tensors
        if tensor.role == "constant"
    )
    assert constant.value == value
    assert verdict(filled(number), [filled(number)], spec_of({"dp": 1}, x=X)) == "equivalent"
    assert verdict(filled(1.5), [filled(number)], spec_of({"dp": 1}, x=X)) == "mismatch"


def test_known_elements_of_an_empty_tensor() -> None:
    step = Step()
    step.begin("constant", "", (0,), "int64", integers=())
    assert not reference_plan(step.trace(), spec_of()).tensors


# --- where results are


def gradient(rank: int, held: Any, claimed: Any, exchanged: bool) -> Trace:
    """The gradient of a parameter of which the rank holds a part; the program says which part of it
    the gradient is.
    """
    step = Step(rank)
    size = held[0][0][1] - held[0][0][0]
    w, x = (
        step.begin("parameter", "w", (size,), whole=(4,), box=held),
        step.begin("input", "x", (size,)),
    )
    out = step.times(w, x)
    if exchanged:
        out = step.run("all_gather", (Ref(out),), (4,), (0, 1))
    step.end("gradient", "w", out, whole=(4,), box=claimed)
    return step.trace()


PARTS = spec_of(x=Input((4,), split={0: "dp"}))


@pytest.mark.parametrize(
    ("claims", "exchanged", "expected"),
    [
        ((LEFT, RIGHT), False, "equivalent"),
        ((WHOLE, WHOLE), True, "equivalent"),
        (((), ()), False, "equivalent"),
    ],
)
def test_a_gradient_is_the_part_that_is_held_or_whole(
    claims: Any, exchanged: bool, expected: str
) -> None:
    whole = gradient(0, WHOLE, (), False)
    assert (
        verdict(
            whole,
            [
                gradient(rank, held, claims[rank], exchanged)
                for rank, held in enumerate((LEFT, RIGHT))
            ],
            PARTS,
        )
        == expected
    )


@pytest.mark.parametrize("claims", [(RIGHT, LEFT), (LEFT, LEFT), (WHOLE, RIGHT)])
def test_a_gradient_elsewhere_must_be_said_by_the_user(claims: Any) -> None:
    first = reference_plan(gradient(0, WHOLE, (), False), PARTS)
    with pytest.raises(
        UnsupportedError,
        match=r"rank \d ends with 'grad:w' in intervals .* say in Spec.outputs\['grad:w'\]",
    ):
        parallel_plan(
            [gradient(rank, held, claims[rank], False) for rank, held in enumerate((LEFT, RIGHT))],
            PARTS,
            first,
        )


def test_what_an_output_says_of_itself_does_not_count() -> None:
    """Though it is called as a parameter is, of which ranks hold parts."""
    whole = gradient(0, WHOLE, (), False)
    renamed = Trace(0, whole.values, whole.events, whole.given, (Result(2, "output", "w"),))
    first = reference_plan(renamed, PARTS)
    ranks = []
    for rank, held in enumerate((LEFT, RIGHT)):
        own = gradient(rank, held, (), True)
        ranks.append(
            Trace(rank, own.values, own.events, own.given, (Result(3, "output", "w", (4,), WHOLE),))
        )
    plan = parallel_plan(ranks, PARTS, first)
    assert [(output.tensor, output.lineage) for output in plan.outputs] == [("output:w", None)]
    assert check(first, plan, Options(seed=1)).verdict == "equivalent"


# --- what the user says


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (
            {"los": Part(mean="dp")},
            "Spec.outputs names 'los', which is not there; the known names are loss",
        ),
        (
            {"loss": Part(mean="pd")},
            r"Spec.outputs\['loss'\] names 'pd', which is not there; the known names are dp",
        ),
        ({"loss": Part(sum=("dp", "tp"))}, r"Spec.outputs\['loss'\] names 'tp'"),
        ({"loss": Part(split={0: "tp"})}, r"Spec.outputs\['loss'\] names 'tp'"),
    ],
)
def test_names_that_are_not_there(outputs: Mapping[str, Part], message: str) -> None:
    spec = spec_of(outputs=outputs, x=X)
    first = reference_plan(scaled(0).trace(), spec)
    with pytest.raises(PlanError, match=message):
        parallel_plan([scaled(0).trace(), scaled(1).trace()], spec, first)


# --- groups


@pytest.mark.parametrize("wrong", [None, 0, 3])
def test_a_rank_communicates_over_groups_of_its_own(wrong: int | None) -> None:
    """Two groups; of a rank that names the other one, its own must not be taken for what
    it named.
    """
    groups = ((0, 1), (2, 3))

    def halves(rank: int) -> Trace:
        step = Step(rank)
        half = step.times(step.begin("input", "x", (4,)), 0.5)
        own = groups[(rank // 2) ^ (rank == wrong)]
        step.end(
            "output", "loss", step.total(step.run("all_reduce", (Ref(half), "sum"), (4,), own))
        )
        return step.trace()

    whole = Step()
    whole.end("output", "loss", whole.total(whole.begin("input", "x", (4,))))
    spec = spec_of({"dp": 2, "tp": 2}, x=X)
    if wrong is None:
        assert verdict(whole.trace(), [halves(rank) for rank in range(4)], spec) == "equivalent"
    else:
        with pytest.raises(
            PlanError,
            match=rf"rank {wrong} runs all_reduce at model.py:3 over the group \[\d, \d\], of "
            rf"which it is no member",
        ):
            verdict(whole.trace(), [halves(rank) for rank in range(4)], spec)
