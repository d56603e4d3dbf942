"""A small pair of plans with its certificate, wrong plans beside it, and forgeries."""

from functools import cache
from hashlib import sha256
from typing import Any

import msgspec

from pitcheck.base.options import Options
from pitcheck.certificate.digests import Digests
from pitcheck.certificate.statement import (
    Seed,
    Statement,
    Subject,
    decode,
    derived_seed,
    encode,
)
from pitcheck.certificate.verify import Verified, verify
from pitcheck.engine.certifying import Certifier
from pitcheck.engine.check import check
from pitcheck.plan.files import encode_json
from pitcheck.plan.model import (
    Axis,
    Group,
    Lineage,
    Number,
    Operator,
    Output,
    Plan,
    Shard,
    Table,
    Tensor,
    Use,
)


def operator(name: str, kind: str, *inputs: str | Number | Use, **more: Any) -> Operator:
    """Return an operator whose only output has its name."""
    group = Group(("tp",)) if kind == "all_reduce" else None
    return Operator(name, kind, inputs, (name,), more, group)


def reference() -> Plan:
    """Return a perceptron of two layers, with its loss."""
    tensors = [
        Tensor("x", (4, 6), role="input"),
        Tensor("w1", (6, 8), role="parameter"),
        Tensor("w2", (8, 4), role="parameter"),
        *(Tensor(name, shape) for name, shape in (("h", (4, 8)), ("a", (4, 8)), ("y", (4, 4)))),
        Tensor("q", (4, 4)),
        Tensor("loss", ()),
    ]
    operators = [
        operator("h", "matmul", "x", "w1"),
        operator("a", "silu", "h"),
        operator("y", "matmul", "a", "w2"),
        operator("q", "square", "y"),
        operator("loss", "sum", "q"),
    ]
    return Plan((), tuple(tensors), tuple(operators), (Output("y"), Output("loss")))


def over(name: str, dim: int) -> Lineage:
    """Return the lineage of a tensor that both ranks hold one half of."""
    return Lineage(name, (Shard(dim, ("tp",)),))


def parallel() -> Plan:
    """Return the same perceptron, its middle spread over two ranks."""
    tensors = [
        Tensor("x", (4, 6), role="input", lineage=Lineage("x")),
        Tensor("w1", (6, 4), role="parameter", lineage=over("w1", 1)),
        Tensor("w2", (4, 4), role="parameter", lineage=over("w2", 0)),
        Tensor("h", (4, 4), lineage=over("h", 1)),
        Tensor("a", (4, 4), lineage=over("a", 1)),
        Tensor("p", (4, 4)),
        Tensor("y", (4, 4), lineage=Lineage("y")),
        Tensor("q", (4, 4)),
        Tensor("loss", ()),
    ]
    operators = [
        operator("h", "matmul", "x", "w1"),
        operator("a", "silu", "h"),
        operator("p", "matmul", "a", "w2"),
        operator("y", "all_reduce", "p", reduction="sum"),
        operator("q", "square", "y"),
        operator("loss", "sum", "q"),
    ]
    outputs = Output("y", "y"), Output("loss", "loss")
    return Plan((Axis("tp", 2),), tuple(tensors), tuple(operators), outputs)


def replaced(plan: Plan, name: str, *others: Operator) -> Plan:
    """Return a plan with other operators in the place of one."""
    operators = [new for own in plan.operators for new in (others if own.id == name else (own,))]
    return msgspec.structs.replace(plan, operators=tuple(operators))


def with_tensor(plan: Plan, *tensors: Tensor) -> Plan:
    """Return a plan with more tensors, in the place of those of their names."""
    names = {tensor.name for tensor in tensors}
    kept = tuple(tensor for tensor in plan.tensors if tensor.name not in names)
    return msgspec.structs.replace(plan, tensors=(*kept, *tensors))


def wrong_plans() -> dict[str, Plan]:
    """Return plans that compute something else, each with one mistake."""
    right = parallel()
    by_itself = with_tensor(right, Tensor("z", (4, 4)), Tensor("o", (4, 4)))
    return {
        "missing all-reduce": replaced(right, "y", operator("y", "identity", "p")),
        "average": replaced(right, "y", operator("y", "all_reduce", "p", reduction="avg")),
        "mean": replaced(right, "loss", operator("loss", "mean", "q")),
        "another function": replaced(right, "a", operator("a", "relu", "h")),
        "double": replaced(right, "q", operator("q", "mul", "y", Number(2))),
        "no value at 0": replaced(
            by_itself,
            "q",
            operator("o", "div", "y", "y"),
            operator("z", "mul", "o", "y"),
            operator("q", "mul", "y", "z"),
        ),
        "another part": with_tensor(
            right, Tensor("w2", (4, 4), role="parameter", lineage=_swapped())
        ),
    }


def _swapped() -> Lineage:
    return Lineage("w2", (Shard(0, intervals=Table(("tp",), (((4, 8),), ((0, 4),)))),))


def digests_of(one: Plan, other: Plan) -> tuple[str, str]:
    """Return the digests of two plans."""
    first, second = (sha256(encode_json(plan)).hexdigest() for plan in (one, other))
    return first, second


@cache
def certificate() -> bytes:
    """Return the certificate of the right pair."""
    certifier = Certifier(Digests.of_plans("pair", reference(), parallel()), 0)
    report = check(reference(), parallel(), Options(seed=certifier.seed), decided=certifier.keep)
    return certifier.encode(report)


def statement() -> Statement:
    """Return the statement of the right pair."""
    return decode(certificate(), "certificate")


def altered(found: Statement, **fields: Any) -> Statement:
    """Return a statement with other fields of its predicate."""
    predicate = msgspec.structs.replace(found.predicate, **fields)
    return msgspec.structs.replace(found, predicate=predicate)


def forged(found: Statement, one: Plan, other: Plan) -> Statement:
    """Return a statement with the digests of two plans, and the seed that is made of them."""
    digests = digests_of(one, other)
    subject = tuple(
        Subject(own.name, {"sha256": digest})
        for own, digest in zip(found.subject, digests, strict=True)
    )
    seed = Seed(0, f"{derived_seed(digests, 0):032x}")
    return msgspec.structs.replace(altered(found, seed=seed), subject=subject)


def result(
    found: Statement, other: Plan, one: Plan | None = None, seed: int | None = 1
) -> Verified:
    """Return what the verifier says of a statement, as a file would be read."""
    first = one or reference()
    again = decode(encode(found), "certificate")
    return verify(again, first, other, digests_of(first, other), seed)


def accepted(found: Verified) -> bool:
    """Return True if every stage is verified."""
    return not found.refused and not found.open
