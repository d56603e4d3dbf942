"""Configuration files: a model, a batch and a layout in TOML, from which both plans are built.

    model = "llama3-405b"    # a preset, or a table: preset = "..." and the fields to change

    [batch]
    sequences = 1024
    length = 8192

    [layout]                 # see Layout
    dp = 64
    tp = 8

    [optimizer]              # see Optimizer; may be left out

A key ``keep_layers = "one-of-each"`` before the tables leaves layers out of which another one is of
the same kind. Assignments such as ``tp=4`` or ``layout.tp=4`` override fields.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pitcheck.base.nearest import cut, nearest, nearest_file, shown
from pitcheck.base.struct_faults import with_allowed
from pitcheck.errors import ConfigurationError, ImpossibleError, UsageError
from pitcheck.models.config import Batch, Model, Optimizer
from pitcheck.models.kept_layers import said_of, shallower
from pitcheck.models.presets import PRESETS, preset
from pitcheck.models.reference import reference_plan
from pitcheck.models.rules import check_model
from pitcheck.plan.model import Plan
from pitcheck.programs.layout import Layout, check_layout
from pitcheck.programs.parallel_plan import flat_parameters, parallel_plan

TABLES: Mapping[str, type[msgspec.Struct]] = {
    "batch": Batch,
    "layout": Layout,
    "optimizer": Optimizer,
}
_RATIONAL = re.compile(
    r"-?(\d{1,30}(/0*[1-9]\d{0,29})?|\d{0,30}\.\d{1,30}|\d{1,30}(\.\d{1,30})?[eE]-?\d{1,2})",
    re.ASCII,
)
_EXPECTED = re.compile(r"Expected `(.*?)`, got ")
_TYPES: Mapping[str, str] = {
    "int": "a whole number, such as 4",
    "bool": "true or false",
    "str": "a text in quotes",
    "object": "a table",
    "null": "left out",
}
_STRUCTS: Mapping[str, type[msgspec.Struct]] = {"model": Model, **TABLES}
KEEP_LAYERS, ALL, ONE_OF_EACH = "keep_layers", "all", "one-of-each"
"""The key that says which layers are compared, and its values."""
MOST_LAYERS = 10_000
MOST_BYTES = 1 << 20
Field = TypeVar("Field", bound=msgspec.Struct)


class Configuration(msgspec.Struct, frozen=True):
    """A model, its batch and optimizer, and the layout that spreads them over ranks."""

    name: str
    model: Model
    batch: Batch
    layout: Layout
    optimizer: Optimizer
    left_out: tuple[str, ...] = ()
    """A sentence on layers that were left out; nothing if there are none."""

    def reference(self) -> Plan:
        """Return the plan of one device."""
        return reference_plan(
            self.model,
            self.batch,
            self.optimizer,
            flat_parameters(self.model, self.batch, self.layout),
        )

    def parallel(self) -> Plan:
        """Return the plan of all ranks."""
        plan = parallel_plan(self.model, self.batch, self.layout, self.optimizer)
        return msgspec.structs.replace(plan, left_out=self.left_out or msgspec.UNSET)


def read_configuration(path: Path, assignments: Sequence[str] = ()) -> Configuration:
    """Return the configuration in a TOML file, after assignments (``tp=4``, ``model.layers=8``).

    Raises ConfigurationError, naming file and key, for a file that cannot be read and for fields
    that do not exist; ImpossibleError for sizes that cannot run; UsageError for what is no
    assignment.
    """
    content = _content(path)
    seen: dict[tuple[str, ...], str] = {}
    for assignment in assignments:
        field = _assign(content, assignment)
        if field in seen:
            raise UsageError(
                f"--set {cut(seen[field])} and --set {cut(assignment)} set one field, "
                f"{'.'.join(field)}; keep one of them"
            )
        seen[field] = assignment
    try:
        return _built(content, path)
    except ConfigurationError as error:
        if not assignments:
            raise
        given = " ".join(f"--set {cut(each)}" for each in assignments)
        said = f"{error.message} (with {given})"
        if isinstance(error, ImpossibleError):
            raise type(error)(said, error.place, error.rule) from None
        raise ConfigurationError(said, error.place) from None


def _built(content: Mapping[str, Any], path: Path) -> Configuration:
    unknown = sorted(content.keys() - {"model", KEEP_LAYERS, *TABLES})
    if unknown:
        raise ConfigurationError(f"unknown key {shown(unknown[0])}; {_home(unknown[0])}", str(path))
    model = _model(content.get("model"), str(path))
    layout = _converted(content.get("layout", {}), Layout, f"{path}: layout")
    batch = _batch(content.get("batch"), layout, str(path))
    optimizer = _converted(content.get("optimizer", {}), Optimizer, f"{path}: optimizer")
    _check_numbers(model, f"{path}: model")
    _check_numbers(optimizer, f"{path}: optimizer")
    if model.layers > MOST_LAYERS:
        raise ConfigurationError(
            f"{model.layers} layers; at most {MOST_LAYERS} are built", f"{path}: model.layers"
        )
    try:
        check_model(model, batch)
        check_layout(model, batch, layout)
    except ImpossibleError as error:
        raise type(error)(error.message, f"{path}: {error.place}") from None
    full = Configuration(path.name.removesuffix(".toml"), model, batch, layout, optimizer)
    return _with_layers(full, content.get(KEEP_LAYERS, ALL), str(path))


def _with_layers(full: Configuration, kept: object, place: str) -> Configuration:
    """Return the configuration with all its layers, or with one of each kind.

    Raises ConfigurationError for any other choice.
    """
    if kept not in (ALL, ONE_OF_EACH):
        raise ConfigurationError(
            f"it is {shown(kept)}, and must be {ALL!r} or {ONE_OF_EACH!r}",
            f"{place}: {KEEP_LAYERS}",
        )
    for model in shallower(full.model) if kept == ONE_OF_EACH else ():
        try:
            check_model(model, full.batch)
            check_layout(model, full.batch, full.layout)
        except ImpossibleError:
            continue
        return msgspec.structs.replace(full, model=model, left_out=(said_of(full.model, model),))
    none = f"all {full.model.layers} layers are compared, since the model and its layout need each"
    said = f"one layer of each kind: {none} of them"
    return full if kept == ALL else msgspec.structs.replace(full, left_out=(said,))


def _content(path: Path) -> dict[str, Any]:
    try:
        # A device has size 0 and no end, so that the size alone bounds nothing.
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ConfigurationError(
                f"the file has more than {MOST_BYTES} bytes, which no configuration needs",
                str(path),
            )
        return tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"cannot read it: {error.strerror or error}{_nearest_missing(error, path)}", str(path)
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"this is not TOML: {error}", str(path)) from None


def _model(given: object, place: str) -> Model:
    fields = {"preset": given} if isinstance(given, str) else given
    if not isinstance(fields, dict):
        said = f"model is {shown(given)}; it " if given is not None else ""
        raise ConfigurationError(
            f'{said}needs model = "NAME" or a table [model]; the names are {", ".join(PRESETS)}',
            place,
        )
    changes = dict(fields)
    name = changes.pop("preset", None)
    if name is None:
        return _converted(changes, Model, f"{place}: model")
    if not isinstance(name, str):
        raise ConfigurationError(
            f"the preset is {name!r}, which is no name", f"{place}: model.preset"
        )
    try:
        known = preset(name)
    except UsageError as error:
        raise ConfigurationError(str(error), f"{place}: model.preset") from None
    return _converted(_merged(msgspec.to_builtins(known), changes), Model, f"{place}: model")


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        own = merged.get(key)
        merged[key] = (
            _merged(own, value) if isinstance(own, dict) and isinstance(value, dict) else value
        )
    return merged


def _batch(given: object, layout: Layout, place: str) -> Batch:
    """Return the batch; its groups are by default one per data-parallel rank and micro-batch."""
    if not isinstance(given, dict):
        raise ConfigurationError("needs a table [batch] with sequences and length", place)
    batch = _converted(given, Batch, f"{place}: batch")
    groups = layout.dp * layout.microbatches
    return (
        batch
        if "groups" in given or groups < 1 or batch.sequences % groups
        else msgspec.structs.replace(batch, groups=groups)
    )


def _converted(value: object, kind: type[Field], place: str) -> Field:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        path = where.rstrip("`")
        said = _of_another_type(value, path, text) or with_allowed(text, path, kind, value)
        raise ConfigurationError(said, place + path) from None


def _of_another_type(value: object, path: str, text: str) -> str:
    """Return the value at ``path`` and the type that it must have; "" if that is no fault."""
    expected = _EXPECTED.match(text)
    if expected is None:
        return ""
    for key in path.strip(".").split("."):
        value = value.get(key, value) if isinstance(value, dict) else value
    wanted = " or ".join(_TYPES.get(each, each) for each in expected[1].split(" | "))
    return f"it is {shown(value)}, and must be {wanted}"


def _nearest_missing(error: OSError, path: Path) -> str:
    return nearest_file(path) if isinstance(error, FileNotFoundError) else ""


def _check_numbers(struct: msgspec.Struct, place: str) -> None:
    """Raise ConfigurationError for a text that is no rational, in a field whose default is one."""
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if isinstance(value, msgspec.Struct):
            _check_numbers(value, f"{place}.{field.name}")
        numeric = isinstance(field.default, str) and _RATIONAL.fullmatch(field.default)
        if numeric and not _RATIONAL.fullmatch(value):
            raise ConfigurationError(
                f"it is {shown(value)}, and must be a rational in quotes, such as '1/10' or '0.1'",
                f"{place}.{field.name}",
            )


def _home(key: str) -> str:
    """Return where a key that is none at the top belongs, or the keys that there are."""
    known = ["model", KEEP_LAYERS, *TABLES]
    found = _tables_with(key)
    if found:
        return f"it is a field of the table {' and '.join(f'[{name}]' for name in found)}"
    return f"the keys are {', '.join(known)}{nearest(key, known)}"


def _assign(content: dict[str, Any], assignment: str) -> tuple[str, ...]:
    """Make an assignment KEY=VALUE in the content of a file, and return the path of its field.

    KEY is a path, or the name of a field that only one table has.
    """
    key, equals, text = assignment.partition("=")
    path = [name.strip() for name in key.split(".")]
    if not equals or not all(path):
        raise UsageError(
            f"--set {assignment}: it must be KEY=VALUE, such as tp=4 or model.layers=8"
        )
    if len(path) == 1 and path[0] not in ("model", KEEP_LAYERS, *TABLES):
        path = [_table_of(path[0], assignment), path[0]]
    if path[0] not in ("model", KEEP_LAYERS, *TABLES):
        raise ConfigurationError(
            f"no table is called {path[0]!r}; {_home(path[0])}", f"--set {shown(assignment)}"
        )
    place = content
    for name in path[:-1]:
        inner = place.setdefault(name, {})
        if name == "model" and isinstance(inner, str):
            inner = place[name] = {"preset": inner}
        if not isinstance(inner, dict):
            raise ConfigurationError(
                f"{name} is {shown(inner)}, which has no fields", f"--set {shown(assignment)}"
            )
        place = inner
    if not text.strip():
        raise UsageError(
            f"--set {assignment}: no value; write it as {key.strip()}=VALUE, such as tp=4"
        )
    place[path[-1]] = _value(text.strip())
    return tuple(path)


def _table_of(field: str, assignment: str) -> str:
    found = _tables_with(field)
    if len(found) != 1:
        known = (
            f"it is a field of {' and '.join(found)}: name one, such as {found[0]}.{field}"
            if found
            else f"no table ({', '.join(_STRUCTS)}) has the field"
            f"{nearest(field, [name for kind in _STRUCTS.values() for name in _fields(kind)])}"
        )
        raise ConfigurationError(f"{shown(field)}: {known}", f"--set {shown(assignment)}")
    return found[0]


def _tables_with(field: str) -> list[str]:
    return [name for name, kind in _STRUCTS.items() if field in _fields(kind)]


def _fields(kind: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind)]


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
