"""The meaning of a field of a configuration, written once: beside the field, for code and page."""

from __future__ import annotations

from msgspec import Meta


def means(text: str, rule: str = "") -> Meta:
    """Return the description of a field, for ``Annotated``, and the rule that its value obeys."""
    return Meta(description=text, extra={"rule": rule})
