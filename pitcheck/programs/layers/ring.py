"""Ring attention (Liu et al. 2023).

Keys and values go round the context-parallel ranks, the softmax is merged online, and gradients
travel along.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pitcheck.models.records import Hint, Spread
from pitcheck.plan.model import Number, Table
from pitcheck.programs.layers.visible import seen
from pitcheck.programs.rank import Rank
from pitcheck.programs.token_order import places


def ring_mask(rank: Rank, tokens: str, name: str, local: bool) -> str:
    """Record one mask per hop: True if a row's token may attend to a column's.

    The columns of a hop are those of the rank so many places before. With ``local`` the layers have
    a window or a chunk. Return the stem of the names.
    """
    tape = rank.tape
    rows = tape.op("unsqueeze", places(rank, tokens), axis=1)
    for hop in range(rank.layout.cp):
        columns = partial(places, rank, tokens, "", hop)
        seen(rank, rows, columns, f"{name}.{hop}", local)
    return name


class Ring:
    """The attention of one layer on a rank: forward pass and hand-written backward pass."""

    def __init__(
        self,
        rank: Rank,
        operands: tuple[str, str, str],
        name: str,
        visible: str,
        sinks: str = "",
    ) -> None:
        self.rank = rank
        self.tape = rank.tape
        self.q, self.k, self.v = operands
        self.name = name
        self.visible = visible
        self.sinks = sinks
        self.hops = rank.layout.cp
        self.shared = self.tape.tensors[self.q].shape[1] // self.tape.tensors[self.k].shape[1]
        self.spread = rank.heads(rank.axes.tensor)

    def run(self) -> str:
        """Record softmax(q k^T / sqrt(size)) v over visible tokens of all ranks.

        The result is (sequences, heads, length, size).
        """
        with self.tape.untracked():
            self._forward()
        output = f"{self.name}.heads"
        given = [self.q, self.k, self.v, *([self.sinks] if self.sinks else [])]
        self.tape.region(given, [output], self._backward)
        return output

    # --- what both passes do

    def _columns(self, hop: int) -> Spread:
        """Return the spread of a tensor with a column per key of a hop."""
        rank, length = self.rank, self.rank.length
        own = rank.sequence()
        if not isinstance(own, Table):
            own = Table(
                own, tuple(((place * length, (place + 1) * length),) for place in range(self.hops))
            )
        return {
            **self.spread,
            3: Table(
                own.over, tuple(own.values[(place - hop) % self.hops] for place in range(self.hops))
            ),
        }

    def _round(self, tensor: str, stem: str, hop: int) -> str:
        """Send to the next rank, receive from the one before."""
        return self._shifted(tensor, f"{stem}.{hop}")

    def _shifted(self, tensor: str, name: str, hint: Hint = None) -> str:
        tape = self.tape
        tape.send(tensor, self.rank.after, tag=name, **{"async": True})
        received = tape.receive(tensor, self.rank.behind, name, hint, tag=name)
        tape.wait_sent(tensor)
        return received

    def _repeated(self, tensor: str) -> str:
        return (
            tensor
            if self.shared == 1
            else self.tape.op("repeat_interleave", tensor, axis=1, count=self.shared)
        )

    def _masked(self, scaled: str, turned: str, hop: int, ending: str) -> str:
        """Record scores of scaled queries and a hop's transposed keys, -inf if not visible."""
        tape, name = self.tape, f"{self.name}.scores.{hop}{ending}"
        hint = self.rank.hint(f"{self.name}.scores", self._columns(hop))
        scores = tape.op("matmul", scaled, turned, name=name, hint=hint)
        return tape.op(
            "where",
            f"{self.visible}.{hop}",
            scores,
            Number("-inf"),
            name=f"{self.name}.masked.{hop}{ending}",
        )

    # --- forward

    def _forward(self) -> None:
        tape, name = self.tape, self.name
        scaled = tape.op(
            "scale_by_size",
            self.q,
            name=f"{name}.q.scaled",
            hint=self.spread,
            axis=-1,
            exponent="-1/2",
        )
        k, v = self.k, self.v
        top = total = mixed = ""
        for hop in range(self.hops):
            if hop:
                k, v = (
                    self._round(k, f"{name}.k.round", hop),
                    self._round(v, f"{name}.v.round", hop),
                )
            masked = self._masked(
                scaled, tape.op("transpose", self._repeated(k), dim0=2, dim1=3), hop, ""
            )
            own = tape.op("amax", masked, axes=(3,), keepdim=True)
            best = tape.op("maximum", top, own) if hop else own
            powers = tape.op("exp", tape.op("sub", masked, best), name=f"{name}.powers.{hop}")
            more = tape.op("sum", powers, axes=(3,), keepdim=True)
            seen = tape.op("matmul", powers, self._repeated(v), name=f"{name}.seen.{hop}")
            if hop:
                # The sums so far are relative to an earlier maximum.
                rescale = tape.op("exp", tape.op("sub", top, best), name=f"{name}.rescale.{hop}")
                more = tape.op(
                    "add", tape.op("mul", total, rescale), more, name=f"{name}.total.{hop}"
                )
                seen = tape.op(
                    "add", tape.op("mul", mixed, rescale), seen, name=f"{name}.sum.{hop}"
                )
            top, total, mixed = best, more, seen
        if self.sinks:
            above = tape.op("exp", tape.op("sub", self._sink_column(), top))
            total = tape.op("add", total, above, name=f"{name}.total:sinks")
        kept = tape.op("div", mixed, total, name=f"{name}.heads:kept")
        # The backward pass reads the kept tensor; a hint on it would hide that it is a sum over
        # the weights.
        tape.op("contiguous", kept, name=f"{name}.heads", hint=self.spread)
        tape.op("add", tape.op("log", total), top, name=f"{name}.lse")

    # --- backward

    def _backward(self, gradients: Sequence[str | None]) -> Sequence[str | None]:
        gradient = gradients[0]
        if gradient is None:
            return [None] * (4 if self.sinks else 3)
        tape, name = self.tape, self.name
        inner = tape.op(
            "sum",
            tape.op("mul", gradient, tape.saved(f"{name}.heads:kept")),
            name=f"{name}.inner",
            axes=(3,),
            keepdim=True,
        )
        k, v, dk, dv, dq = tape.saved(self.k), tape.saved(self.v), "", "", ""
        for hop in range(self.hops):
            if hop:
                k, v = self._round(k, f"{name}.k.back", hop), self._round(v, f"{name}.v.back", hop)
                dk, dv = (
                    self._round(dk, f"{name}.dk.round", hop),
                    self._round(dv, f"{name}.dv.round", hop),
                )
            parts = self._hop_backward(gradient, inner, k, v, hop)
            dk, dv = (
                tape.op("add", known, part) if known else part
                for known, part in zip((dk, dv), parts[1:], strict=True)
            )
            last = hop == self.hops - 1
            hint = self.rank.hint(f"grad:{name}.q.scaled", self.spread) if last else None
            dq = (
                tape.op(
                    "add", dq, parts[0], name=f"grad:{name}.q.scaled" if last else "", hint=hint
                )
                if dq
                else parts[0]
            )
        found = [self._query_gradient(dq), self._home(dk, self.k), self._home(dv, self.v)]
        return [*found, self._sink_gradient(inner)] if self.sinks else found

    def _sink_column(self) -> str:
        """Record the sinks as one score per head, (1, heads, 1, 1)."""
        heads = self.tape.tensors[self.sinks].shape[0]
        with self.tape.every_microbatch():
            return self.tape.op("reshape", self.sinks, sizes=(1, heads, 1, 1))

    def _sink_gradient(self, inner: str) -> str:
        """Record minus the sum over tokens of the sink's share times ``inner``."""
        tape = self.tape
        share = tape.op("exp", tape.op("sub", self._sink_column(), tape.saved(f"{self.name}.lse")))
        each = tape.op("neg", tape.op("mul", share, inner))
        return tape.op("sum", each, name=tape.gradient_name(self.sinks), axes=(0, 2, 3))

    def _hop_backward(
        self, gradient: str, inner: str, k: str, v: str, hop: int
    ) -> tuple[str, str, str]:
        """Record one hop's terms of the gradients of scaled queries, its keys and its values."""
        tape, name = self.tape, self.name
        hint = self.rank.hint(f"grad:{name}.scores", self._columns(hop))
        keys, values, scaled = self._repeated(k), self._repeated(v), tape.saved(f"{name}.q.scaled")
        turned = tape.op("transpose", keys, dim0=2, dim1=3)
        weights = tape.op(
            "exp",
            tape.op("sub", self._masked(scaled, turned, hop, ":back"), tape.saved(f"{name}.lse")),
            name=f"{name}.weights.{hop}",
        )
        through, by_value = self._mixed_backward(weights, values, gradient, hop)
        scores = tape.op(
            "mul",
            weights,
            tape.op("sub", through, inner),
            name=f"grad:{name}.scores.{hop}",
            hint=hint,
        )
        query, by_key = self._product_backward(scaled, turned, scores)
        own = (tape.op("transpose.backward", keys, turned, by_key, dim0=2, dim1=3), by_value)
        found = [
            self._gathered_heads(part, x, whole)
            for part, x, whole in zip(own, (k, v), (keys, values), strict=True)
        ]
        return query, found[0], found[1]

    def _mixed_backward(
        self, weights: str, values: str, gradient: str, hop: int
    ) -> tuple[str, ...]:
        """Record the gradients of a hop's weights and values.

        If ranks share heads, that of values is a term of a sum and nothing is known of it alone. It
        is then computed from a view of the weights that has a hint. A hint on the weights
        themselves would hide how the gradients of scores follow from the scores.
        """
        tape = self.tape
        if not self.rank.axes.copies:
            return self._product_backward(weights, values, gradient)
        hint = self.rank.hint(f"{self.name}.weights", self._columns(hop))
        shown = tape.op(
            "reshape",
            weights,
            name=f"{weights}:shown",
            hint=hint,
            sizes=tape.tensors[weights].shape,
        )
        through = tape.op("matmul", gradient, tape.op("transpose", values, dim0=2, dim1=3))
        return through, tape.op("matmul", tape.op("transpose", shown, dim0=2, dim1=3), gradient)

    def _product_backward(self, left: str, right: str, gradient: str) -> tuple[str, ...]:
        """Record the gradients of both factors of a product that is not kept."""
        return self.tape.several(
            "matmul.backward",
            left,
            right,
            gradient,
            names=("", ""),
            forward_outputs=0,
            gradients=(0,),
        )

    def _gathered_heads(self, gradient: str, x: str, repeated: str) -> str:
        """Record the sum over the query heads that share a key-value head."""
        return (
            gradient
            if self.shared == 1
            else self.tape.op(
                "repeat_interleave.backward", x, repeated, gradient, axis=1, count=self.shared
            )
        )

    def _query_gradient(self, scaled: str) -> str:
        tape = self.tape
        operands, hint = (
            (tape.saved(self.q), tape.saved(f"{self.name}.q.scaled"), scaled),
            tape.gradient_hint(self.q),
        )
        return tape.op(
            "scale_by_size.backward",
            *operands,
            name=tape.gradient_name(self.q),
            hint=hint,
            axis=-1,
            exponent="-1/2",
        )

    def _home(self, gradient: str, of: str) -> str:
        """Record the last hop's sum on the rank whose keys it belongs to, one place further on."""
        return self._shifted(gradient, self.tape.gradient_name(of), self.tape.gradient_hint(of))
