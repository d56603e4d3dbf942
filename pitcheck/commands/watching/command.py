"""``pitcheck check``, once or with ``--watch``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pitcheck.commands.check import run as check
from pitcheck.commands.checking.sources import named_files
from pitcheck.commands.reading import with_devices


def run(values: Mapping[str, Any], arguments: Sequence[str], outputs: Sequence[str]) -> int:
    """Return the exit code of a check with these values of its options.

    ``arguments`` are the words of the whole command, ``outputs`` those that are written beside the
    ones asked for. Raises UsageError for a wrong option.
    """
    given = with_devices(values)
    if not given.pop("watch"):
        return check(**{**given, "output": [*given["output"], *outputs]})
    from pitcheck.commands.watching.watch import run as watch  # noqa: PLC0415  one check need not wait for it

    words = [word for word in arguments if word != "--watch"]
    files = named_files(given["reference"], given["parallel"])
    return watch(files, words, given["output"], given["write_baseline"])
