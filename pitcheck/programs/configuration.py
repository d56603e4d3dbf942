"""Configuration files: a model, a batch and a layout in TOML, from which both plans are built.

    model = "llama3-405b"    # a preset, or a table: preset = "..." and the fields to change

    [batch]
    sequences = 1024
    length = 8192

    [layout]                 # see Layout
    dp = 64
    tp = 8

    [optimizer]              # see Optimizer; may be left out

Assignments such as ``tp=4`` or ``layout.tp=4`` override fields.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pitcheck.errors import ImpossibleError, PlanError, UsageError
from pitcheck.models.config import Batch, Model, Optimizer
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
MOST_BYTES = 1 << 20
Field = TypeVar("Field")


class Configuration(msgspec.Struct, frozen=True):
    """A model, its batch and optimizer, and the layout that spreads them over ranks."""

    name: str
    model: Model
    batch: Batch
    layout: Layout
    optimizer: Optimizer

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
        return parallel_plan(self.model, self.batch, self.layout, self.optimizer)


def read_configuration(path: Path, assignments: Sequence[str] = ()) -> Configuration:
    """Return the configuration in a TOML file, after assignments (``tp=4``, ``model.layers=8``).

    Raises PlanError, naming file and key, for a file that cannot be read; ImpossibleError for sizes
    that cannot run; UsageError for a wrong assignment.
    """
    content = _content(path)
    for assignment in assignments:
        _assign(content, assignment)
    unknown = sorted(content.keys() - {"model", *TABLES})
    if unknown:
        raise PlanError(
            f"unknown key {unknown[0]!r}; the keys are model, {', '.join(TABLES)}", str(path)
        )
    model = _model(content.get("model"), str(path))
    layout = _converted(content.get("layout", {}), Layout, f"{path}: layout")
    batch = _batch(content.get("batch"), layout, str(path))
    optimizer = _converted(content.get("optimizer", {}), Optimizer, f"{path}: optimizer")
    try:
        check_model(model, batch)
        check_layout(model, batch, layout)
    except ImpossibleError as error:
        raise ImpossibleError(error.message, f"{path}: {error.place}") from None
    return Configuration(path.name.removesuffix(".toml"), model, batch, layout, optimizer)


def _content(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise PlanError(
                f"the file has more than {MOST_BYTES} bytes, which no configuration needs",
                str(path),
            )
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"cannot read it: {error.strerror or error}", str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PlanError(f"this is not TOML: {error}", str(path)) from None


def _model(given: object, place: str) -> Model:
    fields = {"preset": given} if isinstance(given, str) else given
    if not isinstance(fields, dict):
        raise PlanError(
            f'needs model = "NAME" or a table [model]; the names are {", ".join(PRESETS)}', place
        )
    changes = dict(fields)
    name = changes.pop("preset", None)
    if name is None:
        return _converted(changes, Model, f"{place}: model")
    if not isinstance(name, str):
        raise PlanError(f"the preset is {name!r}, which is no name", f"{place}: model.preset")
    try:
        known = preset(name)
    except UsageError as error:
        raise PlanError(str(error), f"{place}: model.preset") from None
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
        raise PlanError("needs a table [batch] with sequences and length", place)
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
        raise PlanError(text, place + where.rstrip("`")) from None


def _assign(content: dict[str, Any], assignment: str) -> None:
    """Make an assignment KEY=VALUE in the content of a file.

    KEY is a path, or the name of a field that only one table has.
    """
    key, equals, text = assignment.partition("=")
    path = key.strip().split(".")
    if not equals or not all(path):
        raise UsageError(
            f"--set {assignment}: it must be KEY=VALUE, such as tp=4 or model.layers=8"
        )
    if len(path) == 1 and path[0] not in ("model", *TABLES):
        path = [_table_of(path[0], assignment), path[0]]
    place = content
    for name in path[:-1]:
        inner = place.setdefault(name, {})
        if name == "model" and isinstance(inner, str):
            inner = place[name] = {"preset": inner}
        if not isinstance(inner, dict):
            raise UsageError(f"--set {assignment}: {name} is {inner!r}, which has no fields")
        place = inner
    place[path[-1]] = _value(text.strip())


def _table_of(field: str, assignment: str) -> str:
    tables: dict[str, type[msgspec.Struct]] = {"model": Model, **TABLES}
    found = [
        name
        for name, kind in tables.items()
        if field in {f.name for f in msgspec.structs.fields(kind)}
    ]
    if len(found) != 1:
        known = (
            f"it is a field of {' and '.join(found)}: name one, such as {found[0]}.{field}"
            if found
            else f"no table ({', '.join(tables)}) has the field"
        )
        raise UsageError(f"--set {assignment}: {field}: {known}")
    return found[0]


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
