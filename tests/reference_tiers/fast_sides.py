"""Formulas on the algebras of ``pitcheck``, and as plans of one device."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from reference_tiers.formulas import COMPARISONS, PLACES, Formula, walk

from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.drawn_primes import DrawnPrimes, Family
from pitcheck.algebra.residues.free_functions import FreeAlgebra
from pitcheck.algebra.value import Value
from pitcheck.claims.problem import Problem
from pitcheck.plan.model import Number, Operator, Output, Plan, Tensor
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.stage.canonical import canonical_form

UNLINKED = Family(3, False, 1)

_DIRECT = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "neg": "negate",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "max": "maximum",
    "min": "minimum",
    "where": "where",
    "and": "logical_and",
    "or": "logical_or",
    "not": "logical_not",
}
_OF_PLANS = {
    "max": "maximum",
    "min": "minimum",
    "and": "logical_and",
    "or": "logical_or",
    "not": "logical_not",
    "top": "amax",
    "number": "cast",
}


def primes_of(seed: int) -> Chain:
    """Three unrelated primes."""
    return DrawnPrimes(seed).chain(UNLINKED, 0)


def evaluated(algebra: Any, root: Formula) -> Value:
    """The value of a formula in an algebra. A literal is a 0-d constant, read where it stands."""
    known: dict[Formula, Any] = {}
    for term in walk(root):
        known[term] = applied(algebra, term, [known[each] for each in term.operands])
    found: Value = known[root]
    return found


def applied(a: Any, term: Formula, operands: list[Any]) -> Any:
    """One operator of a formula in an algebra."""
    if term.kind == "input":
        return a.fresh(term.name, (PLACES,))
    if term.number is not None:
        return a.constant(Fraction(term.number))
    if term.kind in COMPARISONS:
        return a.compare(term.kind, *operands)
    if term.kind in ("erf", "cos"):
        return a.function(term.kind, *operands)
    if term.kind == "square":
        return a.multiply(operands[0], operands[0])
    if term.kind == "sum":
        return a.reshape(a.sum(operands[0], (0,)), (1,))
    if term.kind == "top":
        return a.reshape(a.reduce_max(operands[0], 0), (1,))
    if term.kind == "ranked":
        return a.take_along(operands[1], 0, a.order(operands[0], 0, True))
    if term.kind == "picked":
        first = np.arange(PLACES)[None, None] < 1
        return a.where(a.integers(first), *operands)
    if term.kind == "number":
        return a.cast(operands[0], "field")
    return getattr(a, _DIRECT[term.kind])(*operands)


def same_by_tables(
    first: Formula, second: Formula, seed: int, chain: Chain, formal_roots: bool = True
) -> bool:
    """True if all draws of tables say that both formulas are equal. Raises UnsupportedError."""
    algebra = FreeAlgebra(np, chain, seed, range(draws(first)), formal_roots=formal_roots)
    values = [evaluated(algebra, each) for each in (first, second)]
    return not bool(algebra.differs(*values).any())


def draws(root: Formula) -> int:
    """The draws that tell formulas: many if each shows few of the orders of numbers."""
    return 64 if any(term.kind == "ranked" for term in walk(root)) else 2


def plan_of(root: Formula) -> Plan:
    """The plan of one device that computes a formula; its output is called ``result``."""
    names: dict[Formula, Any] = {}
    tensors = [Tensor(name, (PLACES,), "float32", "input") for name in ("x", "y", "z")]
    operators: list[Operator] = []
    for place, term in enumerate(walk(root)):
        if term.kind == "input":
            names[term] = term.name
        elif term.number is not None:
            names[term] = Number(str(term.number))
        elif term.kind == "ranked":
            names[term] = _in_order(term, names, f"t{place}", tensors, operators)
        else:
            name = names[term] = f"t{place}"
            dtype = "bool" if term.is_mask else "float32"
            shape = () if _scalar(term) else (term.size,)
            tensors.append(Tensor(name, shape, dtype))
            if term.kind == "picked":
                inputs = (
                    _first_place(name, tensors, operators),
                    *(names[e] for e in term.operands),
                )
                operators.append(Operator(name, "where", inputs, (name,)))
                continue
            operators.append(_operator(term, name, tuple(names[e] for e in term.operands)))
    tensors.append(Tensor("result", (PLACES,), "float32"))
    operators.append(Operator("out", "identity", (names[root],), ("result",)))
    return Plan((), tuple(tensors), tuple(operators), (Output("result", "result"),))


def _in_order(
    term: Formula,
    names: dict[Formula, Any],
    name: str,
    tensors: list[Tensor],
    operators: list[Operator],
) -> str:
    """Append a sorting of one operand, and return the name of the other in its order."""
    given, other = (names[each] for each in term.operands)
    numbers, places = f"{name}_numbers", f"{name}_places"
    tensors += [
        Tensor(numbers, (PLACES,)),
        Tensor(places, (PLACES,), "int64"),
        Tensor(name, (PLACES,)),
    ]
    operators += [
        Operator(numbers, "topk", (given,), (numbers, places), {"axis": 0, "k": PLACES}),
        Operator(name, "gather", (other, places), (name,), {"axis": 0}),
    ]
    return name


def _first_place(name: str, tensors: list[Tensor], operators: list[Operator]) -> str:
    """Append the condition that holds at the first place of a vector, and return its name."""
    places, first = f"{name}_places", f"{name}_first"
    tensors += [Tensor(places, (PLACES,), "int64"), Tensor(first, (PLACES,), "bool")]
    operators += [
        Operator(places, "positions", ("x",), (places,), {"axis": 0}),
        Operator(first, "lt", (places, Number("1")), (first,)),
    ]
    return first


def _scalar(term: Formula) -> bool:
    """True for what is made of literals alone."""
    return not any(each.kind == "input" for each in walk(term))


def _operator(term: Formula, name: str, inputs: tuple[Any, ...]) -> Operator:
    attributes: dict[str, Any] = {}
    if term.kind in ("sum", "top"):
        attributes = {"axes": (0,), "keepdim": True}
    if term.kind == "number":
        attributes = {"dtype": "float32"}
    return Operator(name, _OF_PLANS.get(term.kind, term.kind), inputs, (name,), attributes)


def proof_of(
    first: Formula, second: Formula, seed: int, *, tables: bool = True, full_shapes: bool = False
) -> Proof:
    """The proof of the one stage of a pair, as a check makes it."""
    stage = Problem.of(plan_of(first), plan_of(second)).whole_stage()
    _, keys = canonical_form(stage)
    settings = Settings(np, seed, -64.0, 1, full_shapes, 1 << 30, free_functions=tables)
    return prove_stage(stage, keys, settings)
