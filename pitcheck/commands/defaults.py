"""Defaults of ``check`` from ``[tool.pitcheck]`` in the nearest pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from pitcheck.errors import UsageError

_FLAGS = ("cache", "explain", "quiet", "verbose")


def with_configuration(context: click.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the command line, with those of the configuration as defaults.

    Raises UsageError, naming file and key, for an unknown key or a value that the option does not
    take.
    """
    merged = dict(values)
    path = nearest_pyproject(Path.cwd())
    if path is None:
        return merged
    options = {
        parameter.name: parameter
        for parameter in context.command.params
        if isinstance(parameter, click.Option)
    }
    for key, value in _table(path).items():
        option = options.get(key.replace("-", "_"))
        if option is None or option.name is None:
            known = ", ".join(sorted(name.replace("_", "-") for name in options if name))
            raise UsageError(
                f"{path}: [tool.pitcheck] has the unknown key {key!r}; the keys are {known}"
            )
        converted = _converted(option, value, context, f"{path}: tool.pitcheck.{key}")
        if context.get_parameter_source(option.name) is click.core.ParameterSource.DEFAULT:
            merged[option.name] = converted
    return merged


def nearest_pyproject(start: Path) -> Path | None:
    """Return the pyproject.toml of ``start`` or of the nearest folder above it, or None."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            return path
    return None


def _table(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    tool = content.get("tool", {})
    table = tool.get("pitcheck", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.pitcheck must be a table of options")
    return table


def _converted(option: click.Option, value: Any, context: click.Context, place: str) -> Any:
    """Return ``value`` as the option would take it from the command line.

    A flag must be a boolean, and the value of a repeatable option a list.
    """
    if option.name in _FLAGS:
        if not isinstance(value, bool):
            raise UsageError(f"{place} is {value!r}; it must be true or false")
        return value
    if option.multiple != isinstance(value, list):
        raise UsageError(
            f"{place} is {value!r}; it must be "
            f"{'a list of texts' if option.multiple else 'one value'}"
        )
    for each in value if option.multiple else [value]:
        if isinstance(each, (bool, dict, list)) or (option.multiple and not isinstance(each, str)):
            raise UsageError(f"{place} holds {each!r}; it must be a text or a number")
    if isinstance(option.type, click.IntRange) and isinstance(value, float):
        raise UsageError(f"{place} is {value!r}; it must be a whole number")
    try:
        return option.type_cast_value(context, value)
    except click.BadParameter as error:
        raise UsageError(f"{place}: {error.message}") from None
