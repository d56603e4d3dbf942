"""The meanings of calls, found once for all calls of one form.

The layers of a model repeat the same calls on other tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pitcheck.frontends.nnscaler.pickles import Stub
from pitcheck.frontends.nnscaler.signatures import Meaning, meaning_of
from pitcheck.frontends.nnscaler.tensors import is_tensor

_SIMPLE = frozenset({int, bool, str, type(None)})
"""The types whose equal values are the same value. Floats are not: 0.0 equals -0.0."""


class _Place(Stub):
    """A stand-in for the tensor at a place of a call.

    All that a meaning asks about a tensor is if it is one.
    """

    origin = ("", "IRSubTensor")

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place


class Meanings:
    """The meanings of the calls of one pickle.

    The attributes of calls of one form are one object, which nobody changes.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Meaning] = {}

    def of(
        self,
        signature: str,
        arguments: Sequence[Any],
        keywords: Mapping[Any, Any],
        results: Sequence[str],
    ) -> Meaning:
        """Return the meaning of a call.

        Arguments and errors are those of
        :func:`~pitcheck.frontends.nnscaler.signatures.meaning_of`.
        """
        form: list[Any] = [signature, len(arguments), *results]
        for value in arguments:
            kind = value.__class__
            if kind in _SIMPLE:
                form.append((kind, value))
            elif is_tensor(value):
                form.append(_Place)
            else:
                return meaning_of(signature, arguments, keywords, results)
        for name, value in keywords.items():
            # A tensor as a keyword is rare, and the meaning of an unknown call may name its class.
            if name.__class__ is not str or value.__class__ not in _SIMPLE:
                return meaning_of(signature, arguments, keywords, results)
            form.append((name, value.__class__, value))
        key = tuple(form)
        known = self._known.get(key)
        if known is None:
            places = [
                _Place(place) if is_tensor(value) else value
                for place, value in enumerate(arguments)
            ]
            known = self._known[key] = meaning_of(signature, places, keywords, results)
        operands = tuple(
            [
                arguments[operand.place] if isinstance(operand, _Place) else operand
                for operand in known.operands
            ]
        )
        return Meaning(known.kind, operands, known.attributes)
