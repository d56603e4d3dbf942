"""Reading the head of a module: its attributes, and the tables of source lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from pitcheck.frontends.xla.text.attributes import read_flags, read_strings
from pitcheck.frontends.xla.text.lexer import Kind, Lexer
from pitcheck.frontends.xla.text.limits import MOST_DEVICES
from pitcheck.frontends.xla.text.module import Header
from pitcheck.frontends.xla.text.shape_reader import ShapeReader
from pitcheck.frontends.xla.text.shapes import Shape
from pitcheck.frontends.xla.text.sources import Frame, Place, Stacks

T = TypeVar("T")

_TEXTS = frozenset({"input_output_alias", "buffer_donor", "origin_recovery_table"})
_KNOWN = _TEXTS | {
    "replica_count",
    "num_partitions",
    "entry_computation_layout",
    "allow_spmd_sharding_propagation_to_parameters",
    "allow_spmd_sharding_propagation_to_output",
    "is_scheduled",
    "alias_passthrough_params",
    "frontend_attributes",
}
_NO_CALLER = 1


def read_header(lexer: Lexer, shapes: ShapeReader) -> tuple[str, Header]:
    """Return the name of a module and what its head says."""
    lexer.expect("HloModule", "at the start of HLO text")
    name = lexer.identifier("the name of the module")
    counts = {"replica_count": 1, "num_partitions": 1}
    flags: dict[str, tuple[bool, ...]] = {}
    layout: tuple[tuple[Shape, ...], Shape] | None = None
    texts: dict[str, str] = {}
    frontend: Mapping[str, str] = MappingProxyType({})
    seen: set[str] = set()
    while lexer.take(","):
        key = lexer.word("an attribute of the module")
        if key not in _KNOWN:
            raise lexer.unsupported(f"the module's attribute {key[:60]!r} has no meaning here")
        if key in seen:
            raise lexer.damaged(f"the module has the attribute {key} twice")
        seen.add(key)
        lexer.expect("=", f"behind {key}")
        if key in counts:
            counts[key] = lexer.integer(key, 1, MOST_DEVICES)
        elif key == "entry_computation_layout":
            layout = _layout(lexer, shapes)
        elif key in _TEXTS:
            texts[key] = lexer.balanced(key)
        elif key == "frontend_attributes":
            frontend = read_strings(lexer)
        else:
            flags[key] = read_flags(lexer)
    return name, Header(
        replicas=counts["replica_count"],
        partitions=counts["num_partitions"],
        layout=layout,
        free_parameters=flags.get("allow_spmd_sharding_propagation_to_parameters", ()),
        free_outputs=flags.get("allow_spmd_sharding_propagation_to_output", ()),
        is_scheduled=flags.get("is_scheduled") == (True,),
        attributes=MappingProxyType(texts),
        frontend_attributes=frontend,
    )


def _layout(lexer: Lexer, shapes: ShapeReader) -> tuple[tuple[Shape, ...], Shape]:
    """Return the shapes of the entry's parameters, and that of its result."""
    lexer.expect("{", "before the layout of the entry")
    lexer.expect("(", "before the shapes of the entry's parameters")
    parameters: list[Shape] = []
    while not lexer.take(")"):
        if parameters:
            lexer.expect(",", "between the shapes of the entry's parameters")
        parameters.append(shapes.read(lexer))
    lexer.expect("->", "before the shape of the entry's result")
    result = shapes.read(lexer)
    lexer.expect("}", "behind the layout of the entry")
    return tuple(parameters), result


def read_stacks(lexer: Lexer) -> Stacks:
    """Return the stack frames in the tables that are next; none if no table is."""
    if not lexer.take("FileNames"):
        return Stacks()
    files = _table(lexer, lambda: lexer.string("the name of a file"))
    lexer.expect("FunctionNames", "behind the names of files")
    functions = _table(lexer, lambda: lexer.string("the name of a function"))
    lexer.expect("FileLocations", "behind the names of functions")
    places = _table(lexer, lambda: _place(lexer, files, functions))
    lexer.expect("StackFrames", "behind places in files")
    frames: list[Frame] = []
    _table(lexer, lambda: frames.append(_frame(lexer, places, len(frames))))
    return Stacks(frames)


def _table(lexer: Lexer, entry: Callable[[], T]) -> list[T]:
    """Return the entries of a table, which are numbered from 1."""
    entries: list[T] = []
    while lexer.kind is Kind.NUMBER:
        lexer.blamed = lexer.line()
        number = lexer.integer("the number of an entry", 1)
        if number != len(entries) + 1:
            raise lexer.damaged(f"entry {number} stands where {len(entries) + 1} is expected")
        entries.append(entry())
        lexer.blamed = 0
    return entries


def _fields(lexer: Lexer, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, int]:
    """Return the numbers of an entry by their names."""
    lexer.expect("{", "before an entry")
    fields: dict[str, int] = {}
    while not lexer.take("}"):
        name = lexer.word("a field of an entry")
        if name not in (*required, *optional) or name in fields:
            raise lexer.damaged(f"{name[:60]!r} is no field of this entry, or stands twice")
        lexer.expect("=", "behind a field of an entry")
        fields[name] = lexer.integer(name, 0)
    for name in required:
        if name not in fields:
            raise lexer.damaged(f"an entry lacks {name}")
    return fields


def _entry(lexer: Lexer, entries: list[T], number: int, meaning: str) -> T:
    if not 1 <= number <= len(entries):
        raise lexer.damaged(f"{meaning} {number} is not among the {len(entries)} of its table")
    return entries[number - 1]


def _place(lexer: Lexer, files: list[str], functions: list[str]) -> Place:
    fields = _fields(
        lexer,
        ("file_name_id", "function_name_id", "line"),
        ("end_line", "column", "end_column"),
    )
    file = _entry(lexer, files, fields["file_name_id"], "file")
    function = _entry(lexer, functions, fields["function_name_id"], "function")
    return Place(file, fields["line"], function)


def _frame(lexer: Lexer, places: list[Place], before: int) -> Frame:
    """Return a frame. XLA prints the number of its caller plus one, and 1 if it has none."""
    fields = _fields(lexer, ("file_location_id", "parent_frame_id"), ())
    place = _entry(lexer, places, fields["file_location_id"], "place")
    caller = fields["parent_frame_id"] - _NO_CALLER
    if not 0 <= caller <= before:
        raise lexer.damaged(
            f"frame {before + 1} has parent_frame_id={caller + _NO_CALLER}; callers stand before "
            "the frames that they call"
        )
    return Frame(place, caller)
