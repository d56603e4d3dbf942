"""Programs that users name, as JAX lowers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pitcheck.errors import UsageError

GIVEN = (
    "it must return a jitted function with its arguments, `return jax.jit(step), (state, batch)`, "
    "or what `jax.jit(step).lower(state, batch)` returns"
)


def lowered_of(made: Any, name: str) -> Any:
    """Return the ``jax.stages.Lowered`` of what a user's function returned.

    ``made`` is (jitted, args), (jitted, args, kwargs), a ``jax.stages.Traced`` or a
    ``jax.stages.Lowered``. Raises UsageError for anything else.
    """
    from jax.stages import Lowered, Traced  # noqa: PLC0415  an extra

    if isinstance(made, Lowered):
        return made
    if isinstance(made, Traced):
        return made.lower()
    if not isinstance(made, tuple) or len(made) not in {2, 3}:
        raise UsageError(f"{name} returns {_described(made)}; {GIVEN}")
    function, args, *more = made
    kwargs = more[0] if more else {}
    if not callable(getattr(function, "lower", None)):
        raise UsageError(f"{name} returns {_described(function)} first; {GIVEN}")
    if not isinstance(args, tuple | list) or not isinstance(kwargs, Mapping):
        raise UsageError(
            f"{name} returns {_described(args)} as the arguments; they must be a tuple, and named "
            f"ones a dictionary behind it"
        )
    return function.lower(*args, **kwargs)


def _described(made: Any) -> str:
    if made is None:
        return "nothing"
    if isinstance(made, tuple):
        return f"a tuple of {len(made)}"
    return f"a {type(made).__name__}"
