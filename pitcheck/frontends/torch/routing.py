"""The choice of experts by tokens, as a specification says it.

A router's top-k depends on numbers that nobody has while a program is recorded. A routing says
which experts it chooses, so that the sizes that follow from it are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pitcheck.errors import PlanError
from pitcheck.frontends.torch.trace import Router as Reference

Axes = str | tuple[str, ...]
"""One mesh axis or several, in the order in which they divide."""
Choose = Callable[[int, int, int, int], Sequence[int]]
"""A function from (layer, token, experts, k) to the experts of a token, in the order of top-k."""


@dataclass(frozen=True)
class Routing:
    """The experts that every token of the whole batch chooses in every layer.

    Use one of :meth:`even`, :meth:`empty`, :meth:`flooded`, :meth:`random` and :meth:`given`.
    Tokens are numbered row-major over the whole batch, layers in the order of the reference.

    - ``name``: the name in reports.
    - ``choose``: returns the experts of a token, the best one first.
    """

    name: str
    choose: Choose = field(repr=False)

    @staticmethod
    def even() -> Routing:
        """Return the routing in which all experts get equally many tokens, as far as possible."""
        return Routing(
            "even", lambda layer, token, experts, k: _in_turn(range(experts), layer, token, k)
        )

    @staticmethod
    def empty(expert: int) -> Routing:
        """Return the routing in which one expert gets no token and the others equally many."""
        return Routing(
            f"expert {expert} empty",
            lambda layer, token, experts, k: _in_turn(_without(expert, experts), layer, token, k),
        )

    @staticmethod
    def flooded(expert: int) -> Routing:
        """Return the routing in which one expert is the first choice of every token.

        With k above 1 the other choices are spread evenly over the other experts.
        """
        return Routing(
            f"expert {expert} flooded",
            lambda layer, token, experts, k: (
                expert,
                *_in_turn(_without(expert, experts), layer, token, k - 1),
            ),
        )

    @staticmethod
    def random(seed: int) -> Routing:
        """Return a routing in which every token chooses at random; a seed stands for one choice."""

        def choose(layer: int, token: int, experts: int, k: int) -> Sequence[int]:
            return Random(f"{seed}:{layer}:{token}").sample(range(experts), k)

        return Routing(f"random, seed {seed}", choose)

    @staticmethod
    def given(experts: Any, name: str = "given") -> Routing:
        """Return the routing that an array says.

        ``experts`` has the experts of each token in the order of top-k, of shape (tokens, k), or
        (layers, tokens, k) if layers differ. It is a nested list, an array or a tensor.
        """
        listed = experts.tolist() if hasattr(experts, "tolist") else experts
        layers = listed if _depth(listed) == 3 else None
        if layers is None and _depth(listed) != 2:
            raise PlanError(
                "Routing.given needs expert numbers of shape (tokens, k) or (layers, tokens, k)"
            )

        def choose(layer: int, token: int, experts: int, k: int) -> Sequence[int]:  # noqa: ARG001
            rows = listed if layers is None else _at(layers, layer, "layer", name)
            found: Sequence[int] = _at(rows, token, "token", name)
            return found

        return Routing(name, choose)

    def experts_of(self, layer: int, token: int, experts: int, k: int) -> tuple[int, ...]:
        """Return the ``k`` experts that a token chooses in a layer, the best one first.

        Raises PlanError if they are not ``k`` different numbers below ``experts``.
        """
        chosen = tuple(self.choose(layer, token, experts, k))
        if len(set(chosen)) != k or not all(
            isinstance(expert, int) and 0 <= expert < experts for expert in chosen
        ):
            raise PlanError(
                f"the routing {self.name!r} has the experts {list(chosen)} for token {token} of "
                f"layer {layer}; its top-k needs {k} different numbers from 0 to {experts - 1}"
            )
        return chosen


@dataclass(frozen=True)
class Routed:
    """A routing under which a program is recorded, and the routers of the reference if known."""

    routing: Routing
    routers: Sequence[Reference] = ()


@dataclass(frozen=True)
class Router:
    """The routers of both programs, as far as ``Spec.routings`` cannot tell it from the batch.

    - ``experts``: the number of experts. A top-k over another number is no router's.
    - ``tokens``: the shape in which the tokens of the whole batch lie, in the order of the rows of
      a router's scores: (batch, sequence), or (sequence, batch) as Megatron has them.
    - ``split``: the mesh axes that divide each dimension of ``tokens`` among the ranks, as in
      ``Input.split``. A dimension of ``tokens`` that sequence parallelism divides belongs here.
    - ``microbatched``: the dimension of ``tokens`` that is divided if a step calls a router several
      times.

    By default the inputs of the batch that begin with as many elements as there are tokens tell
    ``tokens`` and ``split``.
    """

    experts: int | None = None
    tokens: tuple[int, ...] | None = None
    split: Mapping[int, Axes] = field(default_factory=dict)
    microbatched: int = 0


def assumed(routing: Routing) -> str:
    """Return the sentence that says what is assumed of routers."""
    return (
        f"tokens choose experts as the routing {routing.name!r} says: the scores of every router "
        f"are compared, and from equal scores both programs choose the same experts"
    )


def _in_turn(experts: Sequence[int], layer: int, token: int, k: int) -> list[int]:
    """Return ``k`` experts; all take their turn, in another order in every round and layer."""
    count = max(len(experts), 1)
    places = range(token * k, token * k + k)
    return [experts[(place + place // count + layer) % count] for place in places if experts]


def _without(expert: int, experts: int) -> list[int]:
    return [other for other in range(experts) if other != expert]


def _depth(listed: Any) -> int:
    return 1 + _depth(listed[0]) if isinstance(listed, list | tuple) and listed else 0


def _at(rows: Sequence[Any], place: int, what: str, name: str) -> Any:
    if place >= len(rows):
        raise PlanError(
            f"the routing {name!r} has {len(rows)} {what}s, and the reference has more of them"
        )
    return rows[place]
