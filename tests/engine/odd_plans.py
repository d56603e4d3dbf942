"""Small plans with sizes of 0 and 1 and with literals that are hardly ever written, whose shapes
pitcheck's own rules give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
from pitcheck.errors import PitcheckError
from pitcheck.ops.registry import evaluate
from pitcheck.plan.model import Axis, Group, Lineage, Number, Operator, Output, Plan, Shard, Tensor

LITERALS = (
    *(
        0,
        1,
        -1,
        3,
        10**30,
        2**1023,
        "1e-400",
        "1e308",
        "1e-999",
        "1/3",
        f"1/{'9' * 300}",
        f"{'7' * 300}/{'3' * 99}",
        "0/1",
        "3.0e-999",
        f"{'7' * 250}/{'3' * 149}",
    ),
    *(
        "inf",
        "-inf",
        "nan",
        "sqrt(0)",
        "sqrt(2)",
        "sqrt(1/3/pi)",
        f"sqrt({'9' * 300})",
        "sqrt(sqrt(2))",
        1e-320,
        5e-324,
        1e300,
        1.7976931348623157e308,
        0.1,
        -0.0,
    ),
)
REFUSED = (
    *(
        10**309,
        -(10**309),
        10**400,
        10**5000,
        "1e309",
        "1e400",
        "-1e999",
        "1/0",
        f"sqrt({'9' * 350})",
    ),
    *("", "e", "1e", "--1", " 1", "1 ", "0x10", "१"),
)
"""Literals that are no numbers, or beyond all types."""
UNARY = (
    "square",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "sigmoid",
    "tanh",
    "relu",
    "abs",
    "neg",
    "reciprocal",
    "erf",
    "cumsum",
)
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "lt", "pow")
REDUCING = ("sum", "mean", "amax", "softmax", "logsumexp", "argmax", "sort", "norm")
LITERAL = {
    "clamp": ("min", "max"),
    "layer_norm": ("eps",),
    "var": ("correction",),
    "roll": ("shift",),
    "tril": ("diagonal",),
    "repeat_interleave": ("count",),
    "topk": ("k",),
    "dropout": ("probability",),
    "one_hot": ("classes",),
    "full_like": ("value",),
}
"""Operators with one operand here, and attributes of theirs that are literals."""
KINDS = (*UNARY, *BINARY, *REDUCING, "pow", "reshape", "slice", "cat", "transpose", *LITERAL)
SIZES = (1, 1, 2, 2, 3, 3, 7, 7, 0)


class Odd:
    """A plan that grows by operators whose shapes fit; what does not fit is left out."""

    def __init__(self, mesh: int, microbatches: int = 1) -> None:
        self.mesh, self.microbatches = mesh, microbatches
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.shapes: dict[str, tuple[tuple[int, ...], str]] = {}

    def give(
        self, name: str, shape: Sequence[int], shards: tuple[Shard, ...] = (), **more: Any
    ) -> str:
        self.tensors.append(
            Tensor(
                name,
                tuple(shape),
                role="input",
                lineage=Lineage(name, shards) if shards else None,
                **more,
            )
        )
        self.shapes[name] = tuple(shape), "field"
        return name

    def append(
        self, kind: str, inputs: Sequence[Any], group: bool = False, **attributes: Any
    ) -> str | None:
        """The name of the result; None where the operator does not take it."""
        algebra = AxisAlgebra(AxisSystem())
        lead = (self.mesh,) if group else ()
        try:
            given = [
                algebra.tensor((*lead, *self.shapes[i][0]), self.shapes[i][1])
                if isinstance(i, str)
                else algebra.constant(1)
                for i in inputs
            ]
            (result,) = evaluate(
                algebra,
                kind,
                given,
                {**attributes, **({"position": 0} if kind == "reduce_scatter" else {})},
            )
        except (PitcheckError, TypeError, ValueError):
            return None
        name = f"t{len(self.operators)}"
        dtype = {"field": "float32", "int": "int64", "bool": "bool"}[result.kind]
        self.shapes[name] = tuple(int(n) for n in algebra.shape(result)), result.kind
        microbatched = self.microbatches > 1
        self.tensors.append(Tensor(name, self.shapes[name][0], dtype, microbatched=microbatched))  # type: ignore[arg-type]
        self.operators.append(
            Operator(
                f"{len(self.operators)}:{kind}",
                kind,
                tuple(inputs),
                (name,),
                attributes,
                Group(axes=("dp",)) if group else None,
            )
        )
        return name

    def plan(self, outputs: Sequence[Output], **more: Any) -> Plan:
        mesh = (Axis("dp", self.mesh),)
        return Plan(
            mesh,
            tuple(self.tensors),
            tuple(self.operators),
            tuple(outputs),
            microbatches=self.microbatches,
            **more,
        )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Plan, Plan]:
    """A chain of operators on one device and on two that share the rows, or the same again with one
    literal or operator more.
    """
    ranks = draw(st.sampled_from((1, 2)))
    rank = draw(st.integers(1, 3))
    shape = [draw(st.sampled_from(SIZES)) for _ in range(rank)]
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(
                    (
                        *UNARY,
                        *BINARY,
                        *REDUCING,
                        "pow",
                        "reshape",
                        "slice",
                        "cat",
                        "transpose",
                        *LITERAL,
                    )
                ),
                st.integers(0, 200),
            ),
            max_size=5,
        )
    )
    sides = []
    for side in range(2):
        odd = Odd(ranks if side else 1)
        own = list(shape)
        if not side:
            own[0] *= ranks
        last = odd.give("x", own, (Shard(0, by=("dp",)),) if side and ranks > 1 else ())
        for kind, number in steps:
            last = _step(odd, last, kind, number) or last
        if side and ranks > 1 and odd.shapes[last][0] and draw(st.booleans()):
            last = odd.append("all_gather", [last], group=True, axis=0) or last
        more = draw(st.booleans()) and side
        if more:
            last = (
                _step(odd, last, draw(st.sampled_from(("mul", "add"))), draw(st.integers(0, 200)))
                or last
            )
        sides.append((odd, last))
    (first, a), (second, b) = sides
    outputs = draw(st.sampled_from(("one", "one", "one", "one", "none", "twice")))
    one, two = ((Output(a),), (Output(b, a),)) if outputs != "none" else ((), ())
    return first.plan(one), second.plan(two * (2 if outputs == "twice" else 1))


def _step(odd: Odd, last: str, kind: str, number: int) -> str | None:
    shape = odd.shapes[last][0]
    axis = number % max(len(shape), 1)
    literal = REFUSED[number] if number < len(REFUSED) else LITERALS[number % len(LITERALS)]
    if kind == "pow":
        return (
            odd.append(kind, [last], exponent=2)
            if number % 3 == 0
            else _forced(odd, last, kind, exponent=literal)
        )
    if kind in LITERAL:
        return _forced(odd, last, kind, **{LITERAL[kind][number % len(LITERAL[kind])]: literal})
    if kind in BINARY:
        return odd.append(kind, [last, Number(literal)] if number % 2 else [Number(literal), last])
    if kind == "reshape":
        return (
            odd.append(kind, [last], sizes=(*shape, 1))
            if number % 2
            else odd.append(kind, [last], sizes=(-1,))
        )
    if kind == "slice":
        return odd.append(
            kind, [last], axis=axis, start=0, stop=number % (shape[axis] + 1) if shape else 0
        )
    if kind == "cat":
        return odd.append("cat", [last, last], axis=axis)
    if kind == "transpose":
        return odd.append(kind, [last], dim0=0, dim1=axis)
    if kind in REDUCING:
        return odd.append(kind, [last], axis=axis) or odd.append(kind, [last], axes=(axis,))
    return odd.append(kind, [last])


def _forced(odd: Odd, last: str, kind: str, **attributes: Any) -> str:
    """An elementwise operator with attributes that need not fit."""
    name = f"t{len(odd.operators)}"
    odd.shapes[name] = odd.shapes[last]
    dtype = {"field": "float32", "int": "int64", "bool": "bool"}[odd.shapes[last][1]]
    odd.tensors.append(Tensor(name, odd.shapes[last][0], dtype))  # type: ignore[arg-type]
    odd.operators.append(
        Operator(f"{len(odd.operators)}:{kind}", kind, (last,), (name,), attributes)
    )
    return name
