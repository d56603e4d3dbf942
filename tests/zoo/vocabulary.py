"""Embeddings, cross-entropy and experts: what is decided by integers."""

from __future__ import annotations

from pitcheck.plan.model import Number, Plan
from zoo.builder import Builder, intervals, lineage, table

Pair = tuple[Plan, Plan]


def _embedding_reference(rows: int = 6) -> Plan:
    b = Builder("embedding")
    ids = b.input("ids", (5,), dtype="int64", bounds=(0, rows))
    w = b.parameter("w", (rows, 3))
    y = b.op("embedding", ids, w, out="y")
    b.output(y)
    g = b.input("g", (5, 3))
    b.back("embedding", [ids, w], y, g, ["", "dw"])
    b.gradient("dw", w)
    return b.plan()


def embedding_vocabulary_parallel() -> Pair:
    """A rank looks up the ids of its own rows, zeroes the others, and all are summed."""
    b = Builder("embedding-tp", {"tp": 2})
    ids = b.input("ids", (5,), {}, dtype="int64", bounds=(0, 6))
    w = b.parameter("w", (3, 3), {0: "tp"})
    g = b.input("g", (5, 3), {})
    anchor = b.op("positions", w, axis=0, offset=table("tp", 0, 3))
    start = b.op("slice", anchor, axis=0, start=0, stop=1)
    local = b.op("sub", ids, start)
    kept = b.op("logical_and", b.op("ge", local, Number(0)), b.op("lt", local, Number(3)))
    away = b.op("logical_not", kept)
    safe = b.op("masked_fill", local, away, Number(0))
    rows = b.op("embedding", safe, w)
    hidden = b.op("unsqueeze", away, axis=1)
    mine = b.op("masked_fill", rows, hidden, Number(0))
    b.output(b.op("all_reduce", mine, out="y", group="tp"))
    b.back("masked_fill", [rows, hidden, Number(0)], mine, g, ["d_rows", "", ""])
    b.back("embedding", [safe, w], rows, "d_rows", ["", "dw"])
    b.gradient("dw", w)
    return _embedding_reference(), b.plan()


def embedding_one_hot() -> Pair:
    """The lookup as a product with one-hot rows, whose part outside a rank's rows is zero."""
    b = Builder("embedding-one-hot", {"tp": 3})
    ids = b.input("ids", (5,), {}, dtype="int64", bounds=(0, 6))
    w = b.parameter("w", (2, 3), {0: "tp"})
    g = b.input("g", (5, 3), {})
    hot = b.op("cast", b.op("one_hot", ids, classes=6), dtype="float32")
    own = b.op("chunk", hot, axis=1, count=3, position=table("tp", 0, 1, 2))
    part = b.op("matmul", own, w)
    b.output(b.op("all_reduce", part, out="y", group="tp"))
    b.back("matmul", [own, w], part, g, ["", "dw"])
    b.gradient("dw", w)
    return _embedding_reference(), b.plan()


def embedding_padded() -> Pair:
    """Seven rows on two ranks: rank 1's last row is padding, which no id names."""
    b = Builder("embedding-padded", {"tp": 2})
    ids = b.input("ids", (5,), {}, dtype="int64", bounds=(0, 7))
    w = b.parameter("w", (4, 3), {0: intervals("tp", [(0, 4)], [(4, 7), (-1, 1)])})
    g = b.input("g", (5, 3), {})
    whole = b.op("all_gather", w, group="tp", axis=0)
    y = b.op("embedding", ids, whole, out="y")
    b.output(y)
    b.back("embedding", [ids, whole], y, g, ["", "dw_whole"])
    b.op("chunk", "dw_whole", out="dw", axis=0, count=2, position=table("tp", 0, 1))
    b.gradient("dw", w)
    return _embedding_reference(rows=7), b.plan()


def embedding_data_parallel() -> Pair:
    """Ids are spread; the gradient of the table is summed."""
    b = Builder("embedding-dp", {"dp": 5})
    ids = b.input("ids", (1,), {0: "dp"}, dtype="int64", bounds=(0, 6))
    w = b.parameter("w", (6, 3), {})
    g = b.input("g", (1, 3), {0: "dp"})
    own = b.op("embedding", ids, w)
    b.output(b.op("all_gather", own, out="y", group="dp", axis=0))
    b.back("embedding", [ids, w], own, g, ["", "dw_own"])
    b.op("all_reduce", "dw_own", out="dw", group="dp")
    b.gradient("dw", w)
    return _embedding_reference(), b.plan()


def _cross_entropy_reference(reduction: str = "mean", rows: int = 3) -> Plan:
    b = Builder("cross-entropy")
    x = b.input("x", (rows, 4))
    w = b.parameter("w", (6, 4))
    t = b.input("t", (rows,), dtype="int64", bounds=(0, 6))
    z = b.op("linear", x, w)
    loss = b.op("cross_entropy", z, t, out="loss", reduction=reduction)
    b.output(loss)
    b.back("cross_entropy", [z, t], loss, b.constant("one", 1.0), ["dz", ""], reduction=reduction)
    b.back("linear", [x, w], z, "dz", ["dx", "dw"])
    b.output("dx")
    b.gradient("dw", w)
    return b.plan()


def cross_entropy_vocabulary_parallel() -> Pair:
    """Maximum, sum of exponentials and the target's score are each reduced over the vocabulary's
    shards; the gradient is softmax minus one-hot.
    """
    b = Builder("cross-entropy-tp", {"tp": 2})
    x = b.input("x", (3, 4), {})
    w = b.parameter("w", (3, 4), {0: "tp"})
    t = b.input("t", (3,), {}, dtype="int64", bounds=(0, 6))
    z = b.op("linear", x, w)
    top = b.op("all_reduce", b.op("amax", z, axes=(1,), keepdim=True), group="tp", reduction="max")
    e = b.op("exp", b.op("sub", z, top))
    total = b.op("all_reduce", b.op("sum", e, axes=(1,), keepdim=True), group="tp")
    hot = b.op("cast", b.op("one_hot", t, classes=6), dtype="float32")
    own = b.op("chunk", hot, axis=1, count=2, position=table("tp", 0, 1))
    picked = b.op("sum", b.op("mul", z, own), axes=(1,), keepdim=True)
    score = b.op("all_reduce", picked, group="tp")
    each = b.op("sub", b.op("add", b.op("log", total), top), score)
    b.output(b.op("mean", each, out="loss"))
    p = b.op("div", e, total)
    dz = b.op("div", b.op("sub", p, own), Number(3))
    b.back("linear", [x, w], z, dz, ["dx_part", "dw"])
    b.output(b.op("all_reduce", "dx_part", out="dx", group="tp"))
    b.gradient("dw", w)
    return _cross_entropy_reference(), b.plan()


def cross_entropy_ranges() -> Pair:
    """The same with targets found by comparing with the range of a rank's classes, as Megatron
    does.
    """
    b = Builder("cross-entropy-ranges", {"tp": 2})
    x = b.input("x", (3, 4), {})
    w = b.parameter("w", (3, 4), {0: "tp"})
    t = b.input("t", (3,), {}, dtype="int64", bounds=(0, 6))
    z = b.op("linear", x, w)
    top = b.op("all_reduce", b.op("amax", z, axes=(1,), keepdim=True), group="tp", reduction="max")
    shifted = b.op("sub", z, top)
    first = b.op(
        "slice", b.op("positions", w, axis=0, offset=table("tp", 0, 3)), axis=0, start=0, stop=1
    )
    local = b.op("sub", t, first)
    away = b.op("logical_or", b.op("lt", local, Number(0)), b.op("ge", local, Number(3)))
    safe = b.op("unsqueeze", b.op("masked_fill", local, away, Number(0)), axis=1)
    picked = b.op("squeeze", b.op("gather", shifted, safe, axis=1), axis=1)
    score = b.op("all_reduce", b.op("masked_fill", picked, away, Number(0)), group="tp")
    e = b.op("exp", shifted)
    total = b.op("all_reduce", b.op("sum", e, axes=(1,)), group="tp")
    b.output(b.op("sum", b.op("sub", b.op("log", total), score), out="loss"))
    p = b.op("div", e, b.op("unsqueeze", total, axis=1))
    here = b.op("unsqueeze", b.op("cast", b.op("logical_not", away), dtype="float32"), axis=1)
    hot = b.op("cast", b.op("one_hot", b.op("squeeze", safe, axis=1), classes=3), dtype="float32")
    dz = b.op("sub", p, b.op("mul", hot, here))
    b.back("linear", [x, w], z, dz, ["dx_part", "dw"])
    b.output(b.op("all_reduce", "dx_part", out="dx", group="tp"))
    b.gradient("dw", w)
    return _cross_entropy_reference("sum"), b.plan()


def cross_entropy_gathered() -> Pair:
    """Every rank gathers the scores and computes the whole loss itself."""
    b = Builder("cross-entropy-gathered", {"tp": 3})
    x = b.input("x", (3, 4), {})
    w = b.parameter("w", (2, 4), {0: "tp"})
    t = b.input("t", (3,), {}, dtype="int64", bounds=(0, 6))
    own = b.op("linear", x, w)
    z = b.op("all_gather", own, group="tp", axis=1)
    loss = b.op("cross_entropy", z, t, out="loss")
    b.output(loss)
    b.back("cross_entropy", [z, t], loss, b.constant("one", 1.0), ["dz", ""])
    mine = b.op("chunk", "dz", axis=1, count=3, position=table("tp", 0, 1, 2))
    b.back("linear", [x, w], own, mine, ["dx_part", "dw"])
    b.output(b.op("all_reduce", "dx_part", out="dx", group="tp"))
    b.gradient("dw", w)
    return _cross_entropy_reference(), b.plan()


def cross_entropy_log_softmax() -> Pair:
    """Data parallel, with log-softmax and the negative log-likelihood apart, and the loss scaled
    before the gradient is summed.
    """
    b = Builder("nll-dp", {"dp": 2})
    x = b.input("x", (2, 4), {0: "dp"})
    w = b.parameter("w", (6, 4), {})
    t = b.input("t", (2,), {0: "dp"}, dtype="int64", bounds=(0, 6))
    z = b.op("linear", x, w)
    logs = b.op("log_softmax", z, axis=1)
    loss = b.op("nll_loss", logs, t, reduction="sum")
    b.output(b.op("div", b.op("all_reduce", loss, group="dp"), Number(4), out="loss"))
    b.back(
        "nll_loss", [logs, t], loss, b.constant("quarter", 0.25), ["d_logs", ""], reduction="sum"
    )
    b.back("log_softmax", [z], logs, "d_logs", ["dz"], axis=1)
    b.back("linear", [x, w], z, "dz", ["dx", "dw_own"])
    b.output("dx", spec=lineage("dx", {0: "dp"}))
    b.op("all_reduce", "dw_own", out="dw", group="dp")
    b.gradient("dw", w)
    return _cross_entropy_reference(rows=4), b.plan()


def _experts(b: Builder, x: str, gate: str, weights: list[str]) -> list[str]:
    """Return the results of the experts, every one run on every token and masked."""
    scores = b.op("softmax", b.op("linear", x, gate), axis=1)
    top, chosen = b.op("max", scores, out=[f"top_{x}", f"chosen_{x}"], axis=1)
    parts = []
    for number, w in enumerate(weights):
        here = b.op("cast", b.op("eq", chosen, Number(number)), dtype="float32")
        weight = b.op("unsqueeze", b.op("mul", here, top), axis=1)
        parts.append(b.op("mul", b.op("linear", x, w), weight))
    return parts


def experts_masked() -> Pair:
    """One expert per rank, run on every token, with the tokens of others at zero; the results are
    summed.
    """
    b = Builder("experts-masked", {"ep": 2})
    x = b.input("x", (4, 3), {})
    gate = b.parameter("gate", (2, 3), {})
    stacked = b.parameter("experts", (1, 3, 3), {0: "ep"})
    scores = b.op("softmax", b.op("linear", x, gate), axis=1)
    top, chosen = b.op("max", scores, out=["top", "chosen"], axis=1)
    mine = b.op(
        "slice",
        b.op(
            "positions",
            b.op("permute", stacked, permutation=(1, 0, 2)),
            axis=1,
            offset=table("ep", 0, 1),
        ),
        axis=0,
        start=0,
        stop=1,
    )
    here = b.op("cast", b.op("eq", chosen, mine), dtype="float32")
    weight = b.op("unsqueeze", b.op("mul", here, top), axis=1)
    w = b.op("squeeze", stacked, axis=0)
    part = b.op("mul", b.op("linear", x, w), weight)
    b.output(b.op("all_reduce", part, out="y", group="ep"))

    r = Builder("experts")
    x = r.input("x", (4, 3))
    gate = r.parameter("gate", (2, 3))
    stacked = r.parameter("experts", (2, 3, 3))
    weights = [r.op("select", stacked, axis=0, index=i) for i in range(2)]
    parts = _experts(r, x, gate, weights)
    r.output(r.op("add", *parts, out="y"))
    return r.plan(), b.plan()


def experts_all_to_all() -> Pair:
    """Expert choice: every expert takes its two best tokens of each rank's four; tokens travel to
    the experts and back by all-to-all of equal counts.
    """

    def route(b: Builder, x: str, gate: str) -> tuple[str, str]:
        """(weights, places) of the tokens that every expert takes, (experts, 2)."""
        scores = b.op("transpose", b.op("softmax", b.op("linear", x, gate), axis=1), dim0=0, dim1=1)
        weights, places = b.op("topk", scores, out=[f"weights_{x}", f"places_{x}"], k=2, axis=1)
        return weights, places

    r = Builder("expert-choice")
    x = r.input("x", (2, 4, 3))
    gate, experts = r.parameter("gate", (2, 3)), r.parameter("experts", (2, 3, 3))
    rows = []
    for half in range(2):
        tokens = r.op("select", x, out=f"x{half}", axis=0, index=half)
        weights, places = route(r, tokens, gate)
        total = r.op("mul", tokens, Number(0))
        for expert in range(2):
            where, weight = (
                r.op("select", places, axis=0, index=expert),
                r.op("select", weights, axis=0, index=expert),
            )
            taken = r.op("index_select", tokens, where, axis=0)
            done = r.op("linear", taken, r.op("select", experts, axis=0, index=expert))
            total = r.op(
                "index_add",
                total,
                where,
                r.op("mul", done, r.op("unsqueeze", weight, axis=1)),
                axis=0,
            )
        rows.append(total)
    r.output(r.op("stack", *rows, out="y", axis=0))

    b = Builder("expert-choice-ep", {"ep": 2})
    x = b.input("x", (1, 4, 3), {0: "ep"})
    gate, experts = b.parameter("gate", (2, 3), {}), b.parameter("experts", (1, 3, 3), {0: "ep"})
    tokens = b.op("squeeze", x, axis=0)
    weights, places = route(b, tokens, gate)
    flat = b.op("view", places, sizes=(4,))
    taken = b.op("index_select", tokens, flat, axis=0)
    sent = b.op("all_to_all", taken, group="ep", split_axis=0, concat_axis=0)
    done = b.op("linear", sent, b.op("squeeze", experts, axis=0))
    returned = b.op("all_to_all", done, group="ep", split_axis=0, concat_axis=0)
    scaled = b.op("mul", returned, b.op("view", weights, sizes=(4, 1)))
    y = b.op("index_add", b.op("mul", tokens, Number(0)), flat, scaled, axis=0)
    whole = b.op("unsqueeze", y, out="y", axis=0)
    b.output(whole, spec=lineage("y", {0: "ep"}))
    return r.plan(), b.plan()


PAIRS = {
    "embedding_vocabulary_parallel": embedding_vocabulary_parallel,
    "embedding_one_hot": embedding_one_hot,
    "embedding_padded": embedding_padded,
    "embedding_data_parallel": embedding_data_parallel,
    "cross_entropy_vocabulary_parallel": cross_entropy_vocabulary_parallel,
    "cross_entropy_ranges": cross_entropy_ranges,
    "cross_entropy_gathered": cross_entropy_gathered,
    "cross_entropy_log_softmax": cross_entropy_log_softmax,
    "experts_masked": experts_masked,
    "experts_all_to_all": experts_all_to_all,
}
