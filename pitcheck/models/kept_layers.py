"""A model with one layer of each kind, which stands for the same model with all its layers.

Layers of one kind have the same operators at the same sizes. The first and the last layer kept are
of the kinds of the first and the last one of the model.

>>> from pitcheck.models.presets import preset
>>> [kept.layers for kept in shallower(preset("llama3-8b"))][:2]
[2, 3]
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pitcheck.models.config import Model

Kind = tuple[bool, bool, bool, bool]
"""True for each of: a mixture of experts, attention to a part of the tokens, rotary embedding, and
queries that are scaled by their place.
"""


def shallower(model: Model) -> Iterator[Model]:
    """Yield the models with fewer layers that have one of each kind, those of fewest layers first.

    There is none for a model that has no fewer layers than kinds.
    """
    for layers in range(min(2, model.layers), model.layers):
        for dense in range(min(model.dense_layers, layers) + 1):
            found = msgspec.structs.replace(model, layers=layers, dense_layers=dense)
            if _ends(found) == _ends(model) and set(_kinds(found)) == set(_kinds(model)):
                yield found
                break


def said_of(model: Model, kept: Model) -> str:
    """Return a sentence that says which layers of a model stand for which."""
    kinds, all_kinds = _kinds(kept), _kinds(model)
    stands = "; ".join(
        f"layer {kinds.index(kind)} for {all_kinds.count(kind)} layers ({_named(kind)})"
        for kind in dict.fromkeys(kinds)
    )
    return (
        f"one layer of each kind: {kept.layers} of {model.layers} layers are compared, {stands}; "
        f"the others are not looked at, and sums over all layers are those over the compared ones"
    )


def _kinds(model: Model) -> list[Kind]:
    """Return the kind of every layer."""
    return [
        (
            model.is_mixture(layer),
            model.is_local(layer),
            model.is_rotary(layer),
            model.scales_queries(layer),
        )
        for layer in range(model.layers)
    ]


def _ends(model: Model) -> tuple[Kind, Kind]:
    """Return the kinds of the first and of the last layer."""
    kinds = _kinds(model)
    return kinds[0], kinds[-1]


def _named(kind: Kind) -> str:
    """Return what tells a kind of layer from others, in words."""
    mixture, local, rotary, scaled = kind
    words = [
        "a mixture of experts" if mixture else "dense",
        "attending to a part of the tokens" if local else "",
        "" if rotary else "without rotary embedding",
        "queries scaled by their place" if scaled else "",
    ]
    return ", ".join(filter(None, words))
