"""Linear attention over packed documents: the state that a rank passes to the next one has only the
document that goes on there.
"""

from __future__ import annotations

from functools import partial

from bugs.documents import LENGTH, PARTS, WIDTH, before, numbers, together
from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Plan

OWN = LENGTH // 2
FIRST, LATER = {"cp": (0,)}, {"cp": (1,)}


def reference(documents: int = 2) -> Plan:
    plan = Sketch("linear-attention")
    q, k, v = (plan.input(name, (LENGTH, WIDTH)) for name in PARTS)
    of = numbers(plan, plan.input("starts", (LENGTH,), dtype="int64", bounds=(0, documents)))
    plan.output(_mixed(plan, q, k, v, of, "y"))
    return plan.plan()


def _mixed(plan: Sketch, q: str, k: str, v: str, of: str, out: str) -> str:
    """The values of a rank's tokens, by the products of queries and keys."""
    mask = plan.op("logical_and", together(plan, of, of), before(plan, q, k))
    products = plan.op("einsum", q, k, equation="id,jd->ij")
    hidden = plan.op("full_like", products, value=0)
    return str(plan.op("matmul", plan.op("where", mask, products, hidden), v, out=out))


def parallel(documents: int, wrong: bool) -> Plan:
    plan = Sketch("linear-attention-cp", {"cp": 2})
    cut = {0: "cp"}
    q, k, v = (plan.input(name, (OWN, WIDTH), cut) for name in PARTS)
    starts = plan.input("starts", (OWN,), cut, dtype="int64", bounds=(0, documents))
    of = numbers(plan, starts)
    own = _mixed(plan, q, k, v, of, "y:block")
    _state(plan, k, v, of, wrong)
    plan.op("identity", own, out="y:own", where=FIRST)
    plan.receive("state", "state:before", 0, LATER)
    read = plan.op("matmul", q, "state:before", where=LATER)
    if not wrong:
        goes_on = plan.op("eq", of, plan.op("full_like", of, value=0), where=LATER)
        rows = plan.op("unsqueeze", goes_on, axis=1, where=LATER)
        nothing = plan.op("full_like", read, value=0, where=LATER)
        read = plan.op("where", rows, read, nothing, where=LATER)
    plan.op("add", own, read, out="y:own", where=LATER)
    plan.output(plan.op("all_gather", "y:own", out="y", group="cp", axis=0))
    return plan.plan()


def _state(plan: Sketch, k: str, v: str, of: str, wrong: bool) -> None:
    """The sum of keys times values of the tokens of the last document, or of all."""
    if not wrong:
        last = plan.op("slice", of, axis=0, start=OWN - 1, stop=OWN, where=FIRST)
        ends = plan.op("unsqueeze", plan.op("eq", of, last, where=FIRST), axis=1, where=FIRST)
        nothing = plan.op("full_like", k, value=0, where=FIRST)
        k = plan.op("where", ends, k, nothing, where=FIRST)
    plan.op("einsum", k, v, equation="jd,je->de", out="state", where=FIRST)
    plan.send("state", 1, FIRST)


BUG = Bug(
    where="LlamaFactory PR 10787",
    thread="https://github.com/hiyouga/LlamaFactory/pull/10787",
    should="the state of linear attention that goes to the next rank ends with its document",
    was="the layer is not told where documents begin: the state goes on into the next one",
    codes=("PIT102", "PIT103", "PIT108"),
    says=("14:einsum", "'state'", "without a mask"),
    shows=written(reference, parallel, two_documents=(2,)),
    silent=written(partial(reference, 1), parallel, one_document=(1,)),
)
