"""Packed documents in a ring: keys and values of the rank before come in, and exponentials of both
blocks are added up.
"""

from __future__ import annotations

from functools import partial

from bugs.documents import LENGTH, PARTS, WIDTH, before, numbers, packed, together
from bugs.record import Bug, written
from bugs.sketch import Sketch

from pitcheck.plan.model import Number, Plan

RANKS = 2
OWN = LENGTH // RANKS
LATER = {"cp": (1,)}


def parallel(documents: int, wrong: bool) -> Plan:
    plan = Sketch("packed-ring", {"cp": RANKS})
    cut = {0: "cp"}
    q, k, v = (plan.input(name, (OWN, WIDTH), cut) for name in PARTS)
    starts = plan.input("starts", (OWN,), cut, dtype="int64", bounds=(0, documents))
    for x in (k, v, starts):
        plan.send(x, 1, {"cp": (0,)})
        plan.receive(x, f"{x}:before", 0, LATER)
    of = numbers(plan, starts)
    mask = before(plan, q, k)
    if not wrong:
        mask = plan.op("logical_and", together(plan, of, of), mask)
    own = _block(plan, q, k, v, mask, {}, "own")
    plan.op("div", *own, out="y:own", where={"cp": (0,)})
    across = None if wrong else _across(plan, of)
    other = _block(plan, q, "k:before", "v:before", across, LATER, "before")
    sums = (plan.op("add", *pair, where=LATER) for pair in zip(own, other, strict=True))
    plan.op("div", *sums, out="y:own", where=LATER)
    plan.output(plan.op("all_gather", "y:own", out="y", group="cp", axis=0))
    return plan.plan()


def _across(plan: Sketch, of: str) -> str:
    """True if a token of the rank before is of the document of one of this rank."""
    earlier = plan.op("cumsum", "starts:before", axis=0, where=LATER)
    count = plan.op("sum", "starts:before", axes=(0,), where=LATER)
    later = plan.op("add", of, count, where=LATER)
    row = plan.op("unsqueeze", later, axis=1, where=LATER)
    column = plan.op("unsqueeze", earlier, axis=0, where=LATER)
    return str(plan.op("eq", row, column, where=LATER))


def _block(
    plan: Sketch, q: str, k: str, v: str, mask: str | None, where: dict[str, tuple[int]], name: str
) -> list[str]:
    """The sum of exponentials times values, and that of exponentials."""
    scores = plan.op("einsum", q, k, equation="id,jd->ij", where=where)
    scaled = plan.op("mul", scores, Number(f"sqrt(1/{WIDTH})"), where=where)
    terms = plan.op("exp", scaled, where=where)
    if mask is not None:
        hidden = plan.op("full_like", terms, value=0, where=where)
        terms = plan.op("where", mask, terms, hidden, where=where)
    values = plan.op("matmul", terms, v, out=f"values:{name}", where=where)
    return [values, plan.op("sum", terms, axes=(1,), keepdim=True, where=where)]


BUG = Bug(
    where="axolotl #3608",
    thread="https://github.com/axolotl-ai-cloud/axolotl/issues/3608",
    should="in a ring a token sees those before it of its document, in every rank's block",
    was="the ring is given no boundaries: it sees all that come before",
    codes=("PIT103", "PIT102", "PIT108"),
    says=("12:einsum", "no rank reads 'starts'"),
    shows=written(packed, parallel, two_documents=(2,)),
    silent=written(partial(packed, 1), parallel, one_document=(1,)),
)
