"""Defaults of ``check`` from the nearest file with settings (``docs/configuration.md``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from pitcheck.base.nearest import nearest
from pitcheck.commands.settings_file import Settings, nearest_settings
from pitcheck.errors import UsageError

PER_FILE = "per-file-ignores"
"""The key that is no option: a table of globs with lists of codes."""
NO_SETTINGS = {
    "write-baseline": "it accepts what a run finds",
    "watch": "a check in CI would never end",
}
"""The options that are no keys, with the reason: they must be asked for each time."""


def with_configuration(context: click.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the command line, with those of the settings as defaults.

    Beside the options stands ``per_file_ignores``. Raises UsageError, naming file and key, for an
    unknown key or a value that the option does not take.
    """
    merged = {**values, "per_file_ignores": {}}
    settings = nearest_settings(Path.cwd())
    if settings is None:
        return merged
    options = dict(_options(context.command))
    for key, value in settings.keys.items():
        name = key.replace("_", "-")
        place = settings.place(key)
        if name == PER_FILE:
            merged["per_file_ignores"] = _per_file(value, place)
        else:
            option = options.get(name) or _unknown(settings, key, [*options, PER_FILE])
            converted = _converted(option, value, context, place)
            if context.get_parameter_source(str(option.name)) is click.core.ParameterSource.DEFAULT:
                merged[str(option.name)] = converted
    return merged


def _options(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    """Yield every option that may be a key, by its long name."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            name = parameter.opts[0].removeprefix("--")
            if name not in NO_SETTINGS:
                yield name, parameter


def _unknown(settings: Settings, key: str, known: list[str]) -> click.Option:
    """Raise UsageError for a key that is none."""
    if (name := key.replace("_", "-")) in NO_SETTINGS:
        raise UsageError(
            f"{settings.place(key)}: --{name} is given on the command line alone, because "
            f"{NO_SETTINGS[name]}"
        )
    hint = nearest(key.replace("_", "-"), known)
    if key == "tool" and not settings.prefix:
        hint = "; in this file keys stand at the top, without [tool.pitcheck]"
    raise UsageError(
        f"{settings.place(key)}: unknown key {key!r}{hint}; the keys are {', '.join(sorted(known))}"
    )


def _per_file(value: Any, place: str) -> dict[str, list[str]]:
    """Return the codes of every glob."""
    if not isinstance(value, dict):
        raise UsageError(
            f"{place} is {value!r}; it must be a table of globs with lists of codes, such as "
            f'"train/*.py" = ["PIT301"]'
        )
    for glob, codes in value.items():
        if not isinstance(codes, list) or not all(isinstance(code, str) for code in codes):
            raise UsageError(
                f'{place}.{glob!r} is {codes!r}; it must be a list of codes, such as ["PIT301"]'
            )
    return value


def _converted(option: click.Option, value: Any, context: click.Context, place: str) -> Any:
    """Return ``value`` as the option would take it from the command line.

    A flag must be a boolean, and the value of a repeatable option a list of texts.
    """
    allowed = _allowed(option)
    wrong = UsageError(f"{place} is {value!r}; it must be {allowed}")
    if option.is_flag:
        if not isinstance(value, bool):
            raise wrong
        return value
    if option.multiple != isinstance(value, list):
        raise wrong
    for each in value if option.multiple else [value]:
        if isinstance(each, bool) or not isinstance(each, str if option.multiple else _PLAIN):
            raise wrong
    if isinstance(option.type, click.IntRange) and isinstance(value, float):
        raise wrong
    try:
        return option.type_cast_value(context, value)
    except click.BadParameter as error:
        raise UsageError(f"{place} is {value!r}: {error.message} It must be {allowed}.") from None


_PLAIN = (str, int, float)


def _allowed(option: click.Option) -> str:
    """Return as text which values an option takes."""
    if option.is_flag:
        return "true or false"
    if option.multiple:
        return "a list of texts"
    if isinstance(option.type, click.Choice):
        return f"one of {', '.join(map(repr, option.type.choices))}"
    if isinstance(option.type, click.IntRange):
        least, most = option.type.min, option.type.max
        return f"a whole number of at least {least}" + (
            "" if most is None else f" and at most {most}"
        )
    if isinstance(option.type, click.FloatRange):
        return f"a number above {option.type.min:g}"
    return f"one text or number ({option.metavar})" if option.metavar else "one text or number"
