"""Attention: heads sharded, fused QKV, rotary embeddings, ring attention, Ulysses, norms over
spread sequences.
"""

from __future__ import annotations

from pitcheck.plan.model import Number, Plan
from zoo.builder import Builder, intervals, lineage, table

Pair = tuple[Plan, Plan]
INFINITE = Number("-inf")


def _attend(
    b: Builder, q: str, k: str, v: str, heads: int, out: str, causal: bool = False
) -> dict[str, str]:
    """Attention of (tokens, heads * width) tensors, in primitives; the names of all values."""
    n: dict[str, str] = {}
    width = b.tensors[q].shape[1] // heads
    for name, x in (("q", q), ("k", k), ("v", v)):
        n[f"{name}_view"] = b.op("view", x, sizes=(b.tensors[x].shape[0], heads, width))
        n[name] = b.op("permute", n[f"{name}_view"], permutation=(1, 0, 2))
    n["kt"] = b.op("transpose", n["k"], dim0=1, dim1=2)
    n["raw"] = b.op("matmul", n["q"], n["kt"])
    n["scores"] = b.op("mul", n["raw"], Number(f"sqrt(1/{width})"))
    n["masked"] = n["scores"]
    if causal:
        n["hidden"] = b.op("logical_not", b.op("causal_mask", n["scores"]))
        n["masked"] = b.op("masked_fill", n["scores"], n["hidden"], INFINITE)
    n["p"] = b.op("softmax", n["masked"], axis=-1)
    n["context"] = b.op("matmul", n["p"], n["v"])
    n["back"] = b.op("permute", n["context"], permutation=(1, 0, 2))
    n["o"] = b.op("view", n["back"], out=out, sizes=(b.tensors[q].shape[0], heads * width))
    return n


def _attend_back(
    b: Builder,
    n: dict[str, str],
    q: str,
    k: str,
    v: str,
    do: str,
    grads: list[str],
    causal: bool = False,
) -> None:
    width = b.tensors[n["q"]].shape[2]
    heads, tokens = b.tensors[n["q"]].shape[:2]
    scale = Number(f"sqrt(1/{width})")
    g = {name: f"grad_{name}_{do}" for name in n}
    b.back("view", [n["back"]], n["o"], do, [g["back"]], sizes=(tokens, heads * width))
    b.back("permute", [n["context"]], n["back"], g["back"], [g["context"]], permutation=(1, 0, 2))
    b.back("matmul", [n["p"], n["v"]], n["context"], g["context"], [g["p"], g["v"]])
    b.back("softmax", [n["masked"]], n["p"], g["p"], [g["masked"]], axis=-1)
    if causal:
        b.back(
            "masked_fill",
            [n["scores"], n["hidden"], INFINITE],
            n["masked"],
            g["masked"],
            [g["scores"], "", ""],
        )
    b.op("mul", g["scores"] if causal else g["masked"], scale, out=g["raw"])
    b.back("matmul", [n["q"], n["kt"]], n["raw"], g["raw"], [g["q"], g["kt"]])
    b.back("transpose", [n["k"]], n["kt"], g["kt"], [g["k"]], dim0=1, dim1=2)
    for name, x, gradient in zip("qkv", (q, k, v), grads, strict=True):
        b.back(
            "permute",
            [n[f"{name}_view"]],
            n[name],
            g[name],
            [g[f"{name}_view"]],
            permutation=(1, 0, 2),
        )
        b.back(
            "view",
            [x],
            n[f"{name}_view"],
            g[f"{name}_view"],
            [gradient],
            sizes=b.tensors[n[f"{name}_view"]].shape,
        )


def _block(
    b: Builder, heads: int, x: str, wq: str, wk: str, wv: str, wo: str, causal: bool
) -> tuple[list[str], dict[str, str], str]:
    qkv = [b.op("linear", x, w) for w in (wq, wk, wv)]
    n = _attend(b, *qkv, heads, "o", causal)
    return qkv, n, b.op("linear", "o", wo)


def _block_back(
    b: Builder,
    qkv: list[str],
    n: dict[str, str],
    y: str,
    x: str,
    weights: list[str],
    g: str,
    causal: bool,
) -> list[str]:
    b.back("linear", ["o", weights[3]], y, g, ["do", "d_wo"])
    grads = ["dq", "dk", "dv"]
    _attend_back(b, n, *qkv, "do", grads, causal)
    parts = []
    for name, value, gradient, w in zip("qkv", qkv, grads, weights, strict=False):
        b.back("linear", [x, w], value, gradient, [f"dx_{name}", f"d_w{name}"])
        parts.append(f"dx_{name}")
    return parts


def _attention_reference(causal: bool, heads: int = 2) -> Plan:
    b = Builder("attention")
    x, g = b.input("x", (3, 5)), b.input("g", (3, 5))
    weights = [b.parameter(f"w{n}", (heads * 2, 5)) for n in "qkv"] + [
        b.parameter("wo", (5, heads * 2))
    ]
    qkv, n, y = _block(b, heads, x, *weights, causal)
    b.output(b.op("identity", y, out="y"))
    dq, dk, dv = _block_back(b, qkv, n, y, x, weights, g, causal)
    b.output(b.op("add", b.op("add", dq, dk), dv, out="dx"))
    for w in weights:
        b.gradient(f"d_{w}", w)
    return b.plan()


def _attention_heads(causal: bool, tp: int, heads: int = 2) -> Pair:
    b = Builder("attention-tp", {"tp": tp})
    x, g = b.input("x", (3, 5), {}), b.input("g", (3, 5), {})
    local = heads // tp
    weights = [b.parameter(f"w{n}", (local * 2, 5), {0: "tp"}) for n in "qkv"] + [
        b.parameter("wo", (5, local * 2), {1: "tp"})
    ]
    qkv, n, part = _block(b, local, x, *weights, causal)
    b.output(b.op("all_reduce", part, out="y", group="tp"))
    dq, dk, dv = _block_back(b, qkv, n, part, x, weights, g, causal)
    total = b.op("add", dq, b.op("add", dk, dv))
    b.output(b.op("all_reduce", total, out="dx", group="tp"))
    for w in weights:
        b.gradient(f"d_{w}", w)
    return _attention_reference(causal, heads), b.plan()


def attention_heads() -> Pair:
    """One head per rank."""
    return _attention_heads(causal=False, tp=2)


def attention_heads_causal() -> Pair:
    """Three heads, one per rank, causal."""
    return _attention_heads(causal=True, tp=3, heads=3)


def attention_fused_qkv() -> Pair:
    """The weight of Q, K and V is one tensor; a rank holds three intervals of its rows, one of
    each.
    """
    r = Builder("fused")
    x = r.input("x", (3, 5))
    w = r.parameter("w", (12, 5))
    qkv = r.op("linear", x, w)
    q, k, v = (r.op("slice", qkv, axis=1, start=4 * i, stop=4 * (i + 1)) for i in range(3))
    _attend(r, q, k, v, 2, "o")
    r.output("o")
    back = r.input("g", (3, 12))
    r.back("linear", [x, w], qkv, back, ["", "dw"])
    r.gradient("dw", w)

    b = Builder("fused-tp", {"tp": 2})
    rows = intervals("tp", [(0, 2), (4, 6), (8, 10)], [(2, 4), (6, 8), (10, 12)])
    x = b.input("x", (3, 5), {})
    w = b.parameter("w", (6, 5), {0: rows})
    qkv = b.op("linear", x, w)
    q, k, v = b.op("split", qkv, out=["q", "k", "v"], axis=1, sizes=(2, 2, 2))
    _attend(b, q, k, v, 1, "o_local")
    b.output(b.op("all_gather", "o_local", out="o", group="tp", axis=1))
    back = b.input("g", (3, 6), {1: rows})
    b.back("linear", [x, w], qkv, back, ["", "dw"])
    b.gradient("dw", w)
    return r.plan(), b.plan()


def _rotary(convention: str) -> Pair:
    r = Builder("rotary")
    q, k = r.input("q", (2, 3, 6)), r.input("k", (2, 3, 6))
    cos, sin = r.input("cos", (3, 3)), r.input("sin", (3, 3))
    rq, rk = (
        r.op("rotary", q, cos, sin, convention=convention),
        r.op("rotary", k, cos, sin, convention=convention),
    )
    r.output(r.op("einsum", rq, rk, out="s", equation="hqd,hkd->hqk"))
    g = r.input("g", (2, 3, 6))
    r.back("rotary", [q, cos, sin], rq, g, ["dq", "", ""], convention=convention)
    r.output("dq")

    b = Builder("rotary-cp", {"cp": 3, "tp": 2})
    q, k = b.input("q", (1, 1, 6), {0: "tp", 1: "cp"}), b.input("k", (1, 1, 6), {0: "tp", 1: "cp"})
    cos, sin = b.input("cos", (1, 3), {0: "cp"}), b.input("sin", (1, 3), {0: "cp"})
    if convention == "half":
        first, second = (b.op("slice", q, axis=2, start=3 * i, stop=3 * i + 3) for i in range(2))
        turned = b.op("cat", b.op("neg", second), first, axis=2)
        cosines, sines = b.op("cat", cos, cos, axis=1), b.op("cat", sin, sin, axis=1)
    else:
        pairs = b.op("view", q, sizes=(1, 1, 3, 2))
        first, second = (b.op("select", pairs, axis=3, index=i) for i in range(2))
        turned = b.op("view", b.op("stack", b.op("neg", second), first, axis=3), sizes=(1, 1, 6))
        cosines, sines = (b.op("repeat_interleave", a, count=2, axis=1) for a in (cos, sin))
    rq = b.op("add", b.op("mul", q, cosines), b.op("mul", turned, sines))
    rk = b.op("rotary", k, cos, sin, convention=convention)
    keys = b.op("all_gather", rk, group="cp", axis=1)
    s = b.op("einsum", rq, keys, out="s", equation="hqd,hkd->hqk")
    b.output(s, spec=lineage("s", {0: "tp", 1: "cp"}))
    g = b.input("g", (1, 1, 6), {0: "tp", 1: "cp"})
    b.back("rotary", [q, cos, sin], rq, g, ["dq", "", ""], convention=convention)
    b.output("dq", spec=lineage("dq", {0: "tp", 1: "cp"}))
    return r.plan(), b.plan()


def rotary_half() -> Pair:
    """Half-split pairs, written out in halves."""
    return _rotary("half")


def rotary_interleaved() -> Pair:
    """Interleaved pairs, written out by a view."""
    return _rotary("interleaved")


def _softmax_attention(b: Builder, q: str, k: str, v: str) -> str:
    p = b.op("softmax", b.op("einsum", q, k, equation="qd,kd->qk"), axis=1)
    found: str = b.op("matmul", p, v)
    return found


def _partial(b: Builder, q: str, k: str, v: str) -> tuple[str, str, str]:
    s = b.op("einsum", q, k, equation="qd,kd->qk")
    m = b.op("amax", s, axes=(1,), keepdim=True)
    e = b.op("exp", b.op("sub", s, m))
    return m, b.op("sum", e, axes=(1,), keepdim=True), b.op("matmul", e, v)


def _ring(ranks: int) -> Pair:
    r = Builder("softmax-attention")
    q, k, v = (r.input(n, (2 * ranks, 3)) for n in "qkv")
    r.output(r.op("identity", _softmax_attention(r, q, k, v), out="o"))

    b = Builder("ring", {"cp": ranks})
    q, k, v = (b.input(n, (2, 3), {0: "cp"}) for n in "qkv")
    following = table("cp", *((i + 1) % ranks for i in range(ranks)))
    before = table("cp", *((i - 1) % ranks for i in range(ranks)))
    m, total, acc = _partial(b, q, k, v)
    for hop in range(1, ranks):
        moved = []
        for x in (k, v):
            b.send(x, following, (), batch=f"{x[0]}_{hop}")
            moved.append(b.receive(x, f"{x[0]}_{hop}", before, (), batch=f"{x[0]}_{hop}"))
        k, v = moved
        m_new, l_new, a_new = _partial(b, q, k, v)
        best = b.op("maximum", m, m_new)
        old, new = b.op("exp", b.op("sub", m, best)), b.op("exp", b.op("sub", m_new, best))
        total = b.op("add", b.op("mul", total, old), b.op("mul", l_new, new))
        acc = b.op("add", b.op("mul", acc, old), b.op("mul", a_new, new))
        m = best
    o = b.op("div", acc, total, out="o")
    b.output(o, spec=lineage("o", {0: "cp"}))
    return r.plan(), b.plan()


def ring_attention_2() -> Pair:
    """Keys and values go round two ranks; the softmax is merged online."""
    return _ring(2)


def ring_attention_3() -> Pair:
    """The same with three ranks."""
    return _ring(3)


def ring_attention_logsumexp() -> Pair:
    """Every rank's softmax with its logsumexp, merged by weights exp(lse - total)."""
    r = Builder("softmax-attention")
    q, k, v = r.input("q", (2, 3)), r.input("k", (4, 3)), r.input("v", (4, 3))
    r.output(r.op("identity", _softmax_attention(r, q, k, v), out="o"))

    b = Builder("flash-decoding", {"cp": 2})
    q = b.input("q", (2, 3), {})
    k, v = b.input("k", (2, 3), {0: "cp"}), b.input("v", (2, 3), {0: "cp"})
    s = b.op("einsum", q, k, equation="qd,kd->qk")
    lse = b.op("logsumexp", s, axis=1, keepdim=True)
    own = b.op("matmul", b.op("exp", b.op("sub", s, lse)), v)
    every = b.op("all_gather", lse, group="cp", axis=1)
    total = b.op("logsumexp", every, axis=1, keepdim=True)
    weighted = b.op("mul", own, b.op("exp", b.op("sub", lse, total)))
    b.output(b.op("all_reduce", weighted, out="o", group="cp"))
    return r.plan(), b.plan()


def ulysses() -> Pair:
    """All-to-all from sequence to heads, attention on whole sequences, and back."""
    r = Builder("heads")
    q, k, v = (r.input(n, (4, 6)) for n in "qkv")
    _attend(r, q, k, v, 2, "o", causal=True)
    r.output("o")

    b = Builder("ulysses", {"sp": 2})
    local = []
    for name in "qkv":
        x = b.input(name, (2, 6), {0: "sp"})
        local.append(b.op("all_to_all", x, group="sp", split_axis=1, concat_axis=0))
    _attend(b, *local, 1, "o_heads", causal=True)
    o = b.op("all_to_all", "o_heads", out="o", group="sp", split_axis=0, concat_axis=1)
    b.output(o, spec=lineage("o", {0: "sp"}))
    return r.plan(), b.plan()


def causal_context_parallel() -> Pair:
    """Every rank has some queries and all keys; the mask knows where its rows begin."""
    r = Builder("causal")
    q, k, v = (r.input(n, (6, 3)) for n in "qkv")

    def attend(b: Builder, s: str, hidden: str, v: str) -> str:
        p = b.op("softmax", b.op("masked_fill", s, hidden, INFINITE), axis=-1)
        found: str = b.op("matmul", p, v, out="o")
        return found

    s = r.op("einsum", q, k, equation="qd,kd->qk")
    r.output(attend(r, s, r.op("logical_not", r.op("causal_mask", s)), v))

    b = Builder("causal-cp", {"cp": 3})
    q, k, v = (b.input(n, (2, 3), {0: "cp"}) for n in "qkv")
    keys, values = (b.op("all_gather", x, group="cp", axis=0) for x in (k, v))
    s = b.op("einsum", q, keys, equation="qd,kd->qk")
    rows = b.op("unsqueeze", b.op("positions", s, axis=0, offset=table("cp", 0, 2, 4)), axis=1)
    columns = b.op("unsqueeze", b.op("positions", s, axis=1), axis=0)
    b.output(attend(b, s, b.op("gt", columns, rows), values), spec=lineage("o", {0: "cp"}))
    return r.plan(), b.plan()


def _norm(kind: str) -> Pair:
    count = 2 if kind == "layer_norm" else 1
    r = Builder(kind)
    x, g = r.input("x", (4, 5)), r.input("g", (4, 5))
    params = [r.parameter(n, (5,)) for n in ("w", "c")[:count]]
    y = r.op(kind, x, *params, out="y", eps="1/100000")
    r.output(y)
    r.back(kind, [x, *params], y, g, ["dx", *(f"d_{p}" for p in params)], eps="1/100000")
    r.output("dx")
    for p in params:
        r.gradient(f"d_{p}", p)

    b = Builder(f"{kind}-sp", {"tp": 2})
    x, g = b.input("x", (2, 5), {0: "tp"}), b.input("g", (2, 5), {0: "tp"})
    params = [b.parameter(n, (5,), {}) for n in ("w", "c")[:count]]
    own = b.op(kind, x, *params, eps="1/100000")
    b.output(b.op("all_gather", own, out="y", group="tp", axis=0))
    b.back(kind, [x, *params], own, g, ["dx_own", *(f"d_{p}_own" for p in params)], eps="1/100000")
    b.output(b.op("all_gather", "dx_own", out="dx", group="tp", axis=0))
    for p in params:
        b.op("all_reduce", f"d_{p}_own", out=f"d_{p}", group="tp")
        b.gradient(f"d_{p}", p)
    return r.plan(), b.plan()


def rms_norm_sequence() -> Pair:
    """The gradient of a norm's weight is summed over the ranks that share the sequence."""
    return _norm("rms_norm")


def layer_norm_sequence() -> Pair:
    """The same with mean and bias."""
    return _norm("layer_norm")


def rms_norm_hidden() -> Pair:
    """The hidden dimension is spread: the mean of squares is reduced over ranks."""
    r = Builder("rms")
    x, w = r.input("x", (3, 6)), r.parameter("w", (6,))
    r.output(r.op("rms_norm", x, w, out="y", eps="1/1000"))

    b = Builder("rms-tp", {"tp": 2})
    x, w = b.input("x", (3, 3), {1: "tp"}), b.parameter("w", (3,), {0: "tp"})
    squares = b.op("sum", b.op("square", x), axes=(1,), keepdim=True)
    mean = b.op("div", b.op("all_reduce", squares, group="tp"), Number(6))
    root = b.op("rsqrt", b.op("add", mean, Number("1/1000")))
    y = b.op("mul", b.op("mul", x, root), w, out="y")
    b.output(y, spec=lineage("y", {1: "tp"}))
    return r.plan(), b.plan()


PAIRS = {
    "attention_heads": attention_heads,
    "attention_heads_causal": attention_heads_causal,
    "attention_fused_qkv": attention_fused_qkv,
    "rotary_half": rotary_half,
    "rotary_interleaved": rotary_interleaved,
    "ring_attention_2": ring_attention_2,
    "ring_attention_3": ring_attention_3,
    "ring_attention_logsumexp": ring_attention_logsumexp,
    "ulysses": ulysses,
    "causal_context_parallel": causal_context_parallel,
    "rms_norm_sequence": rms_norm_sequence,
    "layer_norm_sequence": layer_norm_sequence,
    "rms_norm_hidden": rms_norm_hidden,
}
