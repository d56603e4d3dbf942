"""The loss of a reference that computes each document of a packing alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pitcheck.errors import UsageError

Combined = Literal["sum", "token mean", "document mean"]


def over_documents(
    documents: Sequence[Mapping[str, Any]],
    losses: Callable[[Mapping[str, Any]], Any],
    combined: Combined,
) -> Any:
    """Return the loss of a batch of documents, each of which is computed alone.

    ``losses`` returns the losses of one document's tokens, a tensor of any shape. ``combined`` says
    how they become one: their "sum", the "token mean" over the tokens of all documents, or the
    "document mean", the mean over documents of the mean over their tokens. A document without
    losses, such as one token that has no next one, counts in none of them.

    Raises UsageError for another word.
    """
    each = [own for own in map(losses, documents) if own.numel()]
    if combined == "sum":
        return sum(own.sum() for own in each)
    if combined == "token mean":
        return sum(own.sum() for own in each) / sum(own.numel() for own in each)
    if combined == "document mean":
        return sum(own.sum() / own.numel() for own in each) / len(each)
    raise UsageError(
        f"losses are to be combined by {combined!r}; give 'sum', 'token mean' or 'document mean'"
    )
