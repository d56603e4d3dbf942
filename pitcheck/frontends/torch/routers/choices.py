"""The choices of routers, which a routing says.

The k-th call of a router is known by the module that runs it. Its indices are those of the routing
for the tokens that the rank has; the scores from which it chooses become a result, which is
compared with the reference's scores of these tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.tape import Tape
from pitcheck.frontends.torch.routers.structures import Structures
from pitcheck.frontends.torch.routers.token_numbers import TokenNumbers, runs
from pitcheck.frontends.torch.routing import Router as Said
from pitcheck.frontends.torch.routing import Routing
from pitcheck.frontends.torch.trace import AGAIN, Ref, Result, Router


@dataclass
class _Layer:
    """The calls of one router in a step.

    ``tokens`` are the numbers of the tokens of every call that it has in all. ``passes`` are the
    scores by call: those of the first pass, and those of each computation of the same again.
    """

    router: Router
    number: int
    rows: int
    tokens: list[tuple[int, ...]]
    passes: list[dict[int, int]] = field(default_factory=lambda: [{}])


@dataclass(frozen=True)
class Choice:
    """A call of a router: the scores, of which the ``k`` greatest or least are chosen in a row."""

    scores: int
    k: int
    largest: bool


class Routers:
    """The routers of a rank under a routing.

    ``reference`` are the routers of the reference, None while it is recorded itself.
    """

    def __init__(
        self,
        tape: Tape,
        routing: Routing,
        said: Said,
        numbers: TokenNumbers,
        reference: Sequence[Router] | None,
    ) -> None:
        self._tape = tape
        self._routing = routing
        self._said = said
        self._numbers = numbers
        self._reference = None if reference is None else {one.name: one for one in reference}
        self._experts = said.experts
        self._structures = Structures(tape)
        self._layers: dict[str, _Layer] = {}
        self._calls: dict[int, list[tuple[_Layer, int]]] = {}
        self._begun = 0

    def begin(self) -> None:
        """Begin a call of the step."""
        self._layers, self._calls = {}, {}
        self._begun += 1

    def choose(self, choice: Choice, name: str) -> torch.Tensor | None:
        """Return the indices that a call of the operator ``name`` gives, row by row.

        Returns None for a call that is no router's. Raises UnsupportedError for one whose tokens
        nothing tells, or that has no counterpart in the reference.
        """
        kind = self._tape.kinds[choice.scores]
        if len(kind.shape) < 2 or not kind.dtype.is_floating_point or not kind.elements:
            return None
        # DTensor works out shapes on memory that nobody has written to; that is no choice.
        if self._structures.is_unwritten(choice.scores):
            return None
        if not self._chooses_experts(kind.shape[-1], name):
            return None
        layer, call = self._call(choice, kind.elements // kind.shape[-1])
        experts = [
            [self._shifted(expert, layer.router.experts) for expert in chosen[: choice.k]]
            for chosen in (self._chosen(layer, token) for token in layer.tokens[call])
        ]
        with _disable_current_modes():
            return torch.tensor(experts, dtype=torch.int64)

    def _chosen(self, layer: _Layer, token: int) -> tuple[int, ...]:
        router = layer.router
        return self._routing.experts_of(layer.number, token, router.experts, router.k)

    def _shifted(self, expert: int, experts: int) -> int:
        """Return the expert that stands for another one in this call of the step.

        The first call, which is not recorded, chooses others: what is left of it must not pass.
        """
        return expert if self._begun > 1 else (expert + 1) % experts

    def _chooses_experts(self, size: int, name: str) -> bool:
        """Return True if a choice among ``size`` is one of experts."""
        if self._said.experts is None and name != "topk":
            return False
        if self._reference is not None:
            # Every router of the reference chooses from equally many.
            return any(router.experts == size for router in self._reference.values())
        if self._experts is None:
            self._experts = size
        if size != self._experts and self._said.experts is None:
            raise UnsupportedError(
                f"{self._tape.where()}: a top-k chooses from {size}, and another one from "
                f"{self._experts}; say in Spec.router.experts how many experts there are"
            )
        return size == self._experts

    def _call(self, choice: Choice, rows: int) -> tuple[_Layer, int]:
        """Enter a call; return its router, and its number among the calls of this one."""
        structure = self._structures.of(choice.scores)
        before = self._calls.setdefault(structure, [])
        if before:
            # The same computation from the same values, as by activation checkpointing.
            layer, call = before[0]
            if choice.scores not in [scores.get(call) for scores in layer.passes]:
                place = sum(call in scores for scores in layer.passes)
                if place == len(layer.passes):
                    layer.passes.append({})
                layer.passes[place][call] = choice.scores
        else:
            layer = self._layer(choice, rows)
            call = len(layer.passes[0])
            layer.passes[0][call] = choice.scores
            before.append((layer, call))
        self._check(layer, choice, rows)
        return layer, call

    def _check(self, layer: _Layer, choice: Choice, rows: int) -> None:
        router, where = layer.router, self._tape.where()
        if choice.k > router.k or choice.largest != router.largest:
            theirs = "greatest" if router.largest else "least"
            raise UnsupportedError(
                f"{where}: the router {router.name!r} chooses {choice.k} experts, and the "
                f"reference's the {router.k} {theirs}; a routing says no more than these"
            )
        if rows != layer.rows:
            raise UnsupportedError(
                f"{where}: the router {router.name!r} chooses for {rows} tokens in one call and "
                f"for {layer.rows} in another; give it equally many"
            )

    def _layer(self, choice: Choice, rows: int) -> _Layer:
        """Return the router of a call that has not been seen before."""
        path = self._tape.module() or "router"
        same = [layer for name, layer in self._layers.items() if _module(name) == path]
        if same and len(same[-1].passes[0]) < len(same[-1].tokens):
            return same[-1]
        name = path if not same else f"{path}#{len(same) + 1}"
        tokens = self._numbers.calls(rows, self._tape.where())
        if same and len(tokens) > 1:
            raise UnsupportedError(
                f"{self._tape.where()}: the router {path!r} is called more often than its "
                f"{len(tokens)} parts of the tokens; give each layer's router a module"
            )
        layer = (
            self._new(name, choice, rows, tokens)
            if self._reference is None
            else self._counterpart(name, self._reference, rows, tokens)
        )
        self._layers[name] = layer
        return layer

    def _new(self, name: str, choice: Choice, rows: int, tokens: list[tuple[int, ...]]) -> _Layer:
        experts = self._tape.kinds[choice.scores].shape[-1]
        numbers = tuple(number for call in tokens for number in call)
        router = Router(name, experts, choice.k, choice.largest, numbers)
        return _Layer(router, _number(name, [*self._layers, name]), rows, tokens)

    def _counterpart(
        self,
        name: str,
        reference: Mapping[str, Router],
        rows: int,
        tokens: list[tuple[int, ...]],
    ) -> _Layer:
        router = reference.get(name)
        if router is None and len(reference) == 1 and "#" not in name:
            (router,) = reference.values()
        if router is None:
            raise UnsupportedError(
                f"{self._tape.where()}: the router {name!r} is none of the reference's, which are "
                f"{', '.join(reference) or 'none'}; map the names of its parameters in "
                f"Program.names"
            )
        return _Layer(router, _number(router.name, reference), rows, tokens)

    # --- when the step has ended

    def found(self) -> tuple[Router, ...]:
        """Return the routers of the reference, in the order of their first calls."""
        return tuple(layer.router for layer in self._layers.values())

    def results(self) -> Iterator[Result]:
        """Yield the scores of every router, to be compared with the reference's.

        Those of a further pass of a rank are compared as well; it may compute something else.

        Raises UnsupportedError for a router that has chosen for some of the rank's tokens only.
        """
        for layer in self._layers.values():
            if len(layer.passes[0]) != len(layer.tokens):
                seen = layer.rows * len(layer.passes[0])
                raise UnsupportedError(
                    f"the router {layer.router.name!r} has chosen for {seen} tokens of "
                    f"{layer.rows * len(layer.tokens)} that the rank has; if another dimension "
                    f"of the mesh divides them, say so in Spec.router (tokens and split)"
                )
            passes = layer.passes[:1] if self._reference is None else layer.passes
            for number, scores in enumerate(passes):
                yield self._result(layer, number, {**layer.passes[0], **scores})

    def _result(self, layer: _Layer, number: int, scores: Mapping[int, int]) -> Result:
        router = layer.router
        name = router.name + (f"{AGAIN} {number}" if number > 1 else AGAIN if number else "")
        places = {token: place for place, token in enumerate(router.tokens)}
        held = [places[token] for call in layer.tokens for token in call]
        return Result(
            self._joined(layer, [scores[call] for call in range(len(layer.tokens))]),
            "scores",
            name,
            (len(router.tokens), router.experts),
            (runs(held), ((0, router.experts),)),
        )

    def _joined(self, layer: _Layer, scores: Sequence[int]) -> int:
        shape = (layer.rows, layer.router.experts)
        dtype = self._tape.kinds[scores[0]].dtype
        rows = [
            value
            if self._tape.kinds[value].shape == shape
            else self._tape.one("view.default", (Ref(value), shape), shape, dtype)
            for value in scores
        ]
        if len(rows) == 1:
            return rows[0]
        return self._tape.one(
            "cat.default", (tuple(map(Ref, rows)), 0), (shape[0] * len(rows), shape[1]), dtype
        )


def _module(name: str) -> str:
    return name.partition("#")[0]


def _number(name: str, names: Iterable[str]) -> int:
    """Return the number of a router's layer: its module is that place among the modules.

    Several choices within one module are the same choice.
    """
    return list(dict.fromkeys(map(_module, names))).index(_module(name))
