"""The options of a check that a sweep can set, and settings of the folder that it does not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pitcheck.commands.number_options import parse_probability_log2
from pitcheck.commands.settings_file import Settings
from pitcheck.errors import UsageError

_PRECISION = ("warn", "error", "off")
_ESTIMATES = ("accept", "refuse")
_SIZES = ("reduced", "full")
CHOICES: Mapping[str, Sequence[str] | None] = {
    "error_bound": None,
    "precision": _PRECISION,
    "estimates": _ESTIMATES,
    "shapes": _SIZES,
    "coordinates": _SIZES,
}
"""The options of a check that a sweep can set, with their values; None: a probability."""


ELSEWHERE: Mapping[str, str] = {"layers": "keep_layers"}
"""The options of a check that a sweep sets as keys of its configurations."""


def check_option(key: str, values: Sequence[str], place: str) -> None:
    """Raise UsageError, which begins with ``place``, for an unknown option or a wrong value."""
    if key not in CHOICES:
        raise UsageError(f"{place}: unknown; the options are {', '.join(CHOICES)}")
    choices = CHOICES[key]
    for value in values:
        if choices is None:
            try:
                parse_probability_log2(value)
            except UsageError as error:
                raise UsageError(f"{place}: {error}") from None
        elif value not in choices:
            raise UsageError(f"{place}: {value!r} is none of {', '.join(choices)}")


def check_settings(options: Mapping[str, str], settings: Settings | None) -> None:
    """Raise UsageError for settings that a check would obey, and this sweep would not.

    ``options`` are those of the file of the sweep, ``settings`` those of the working directory.
    """
    for key, value in {} if settings is None else settings.keys.items():
        name = key.replace("-", "_")
        if name in ELSEWHERE and str(value) != "all":
            raise UsageError(
                f"{settings.place(key) if settings else key} is {value!r}, which a sweep does not "
                f"read; write {ELSEWHERE[name]} = [{str(value)!r}] into [matrix.set] of its file"
            )
        if name in CHOICES and options.get(name) != str(value):
            raise UsageError(
                f"{settings.place(key) if settings else key} is {value!r}, which a sweep does not "
                f"read; write {name} = {str(value)!r} into [options] of its file"
            )
