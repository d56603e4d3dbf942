"""A mixture of experts of a few operators, whole and spread over ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zoo.builder import Builder, Spec, lineage

from pitcheck.plan.model import Number, Plan

Change = Callable[[Builder, str], str]


@dataclass(frozen=True)
class Mixture:
    """Tokens (sequences, length, hidden) that choose ``each`` of ``experts``; an expert multiplies
    what it gets by its own numbers.
    """

    ranks: int = 4
    experts: int = 8
    each: int = 2
    sequences: int = 4
    length: int = 8
    hidden: int = 3
    scored: Change = lambda b, scores: scores
    """A change of the scores by which experts are chosen."""
    taken: Change = lambda b, places: places
    """A change of the places of the chosen experts."""

    def _hits(self, b: Builder, x: str) -> str:
        """1 where a token chose an expert, else 0, (sequences, length, experts)."""
        scores = self.scored(
            b, b.op("matmul", x, b.parameter("router", (self.hidden, self.experts), {}))
        )
        places = self.taken(b, b.op("topk", scores, out=["", "choice"], k=self.each, axis=2)[1])
        return str(b.op("sum", b.op("one_hot", places, classes=self.experts), axes=(2,)))

    def reference(self) -> Plan:
        b = Builder("reference")
        b.output(self.computed(b, b.input("x", (self.sequences, self.length, self.hidden)), None))
        return b.plan()

    def computed(self, b: Builder, x: str, held: Spec) -> str:
        """Append the sum of all experts' results for some tokens, and return its name."""
        marks = b.op("cast", self._hits(b, x), dtype="float32")
        return str(
            b.op(
                "mul",
                x,
                b.op("matmul", marks, b.parameter("scale", (self.experts, self.hidden), held)),
                out="y",
            )
        )

    def parallel(
        self, goes: Change = lambda b, goes: goes, got: Change = lambda b, got: got
    ) -> Plan:
        """Every token goes to the ranks that have experts it chose. ``goes``: what is made of the
        marks of where it does; ``got``: of what a rank gets.
        """
        b = Builder("parallel", {"ep": self.ranks})
        rows, own = self.sequences // self.ranks, self.experts // self.ranks
        x = b.input("x", (rows, self.length, self.hidden), {0: "ep"})
        scale = b.parameter("scale", (own, self.hidden), {0: "ep"})
        hits = b.op(
            "permute",
            b.op("reshape", self._hits(b, x), sizes=(rows, self.length, self.ranks, own)),
            permutation=(2, 0, 1, 3),
        )
        where = b.op("cast", goes(b, b.op("any", hits, axes=(3,), keepdim=True)), dtype="float32")
        marks = b.op("cast", hits, dtype="float32")
        packed = b.op("mul", b.op("unsqueeze", x, axis=0), where, out="packed")
        there, theirs = (
            b.op("all_to_all", part, group="ep", split_axis=0, concat_axis=0)
            for part in (packed, marks)
        )
        done = b.op("mul", got(b, there), b.op("matmul", theirs, scale))
        b.op(
            "sum",
            b.op("all_to_all", done, group="ep", split_axis=0, concat_axis=0),
            out="y",
            axes=(0,),
        )
        b.output("y", spec=lineage("y", {0: "ep"}))
        return b.plan()


def first_two(b: Builder, places: str) -> str:
    """The first of four experts stands for the last two."""
    return str(b.op("masked_fill", places, b.op("ge", places, Number(2)), Number(0)))
