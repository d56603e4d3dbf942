"""The options ``--jax`` and ``--devices``: another way to write ``FILE.py:NAME@DEVICES``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pitcheck.errors import UsageError
from pitcheck.frontends.builtin import JAX_PROGRAMS, PROGRAMS


def with_devices(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a check's options without these two, and the source they stand for.

    Raises UsageError for one without the other, and beside anything but FILE.py:NAME.
    """
    given = dict(values)
    is_jax, devices = given.pop("jax"), given.pop("devices")
    source = given["reference"]
    if not is_jax:
        if devices is not None:
            raise UsageError(f"--devices {devices} is of a program of JAX; add --jax")
        return given
    if given["parallel"] is not None or not PROGRAMS.recognises(source):
        hint = "leave --jax out" if JAX_PROGRAMS.recognises(source) else "and no second plan"
        raise UsageError(f"--jax takes one program, FILE.py:NAME, and not {source}; {hint}")
    if devices is None:
        raise UsageError("--jax needs the number of devices; add --devices N")
    return {**given, "reference": f"{source}@{devices}"}
