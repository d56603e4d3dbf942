"""Folding: from one list of operators per rank to records over coordinates, blocks and programs.

Instances that differ only in where they run become one record; where they also differ in integer attributes (a peer, an offset), that
attribute becomes a table.
Ranks with the same sequence of records share one program, and a block that recurs is stored once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import PlanError
from pitcheck.plan.boxes import boxes_of
from pitcheck.plan.collector import collector_off
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import MICROBATCH_AXIS, Attribute, Axis, Box, Group, Number, Operand, Operator, Program, Step, Table


class Instance(msgspec.Struct, frozen=True, gc=False):
    """One operator of one rank, as :class:`~pitcheck.plan.model.Operator`, but for where it runs. ``inputs`` and ``outputs`` name tensor families.

    ``microbatch`` is the micro-batch it runs for, None for operators that run once.
    """

    kind: str
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: dict[str, Attribute] = {}
    group: Group | None = None
    source: str = ""
    module: str = ""
    microbatch: int | None = None


class _Form(NamedTuple):
    """What distinct instances are made of: the number of their record's skeleton and their integer attributes. ``literal``: a literal is among the inputs."""

    skeleton: int
    integers: tuple[int, ...]
    literal: bool


@dataclass
class _Record:
    """One record in the making: an instance that shows what it is, and where it runs with which integers."""

    shown: Instance
    names: tuple[str, ...]
    places: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)


def fold(
    mesh: tuple[Axis, ...], microbatches: int, programs: Mapping[int, Sequence[Instance]]
) -> tuple[tuple[Operator, ...], dict[str, tuple[str, ...]], tuple[Program, ...]]:
    """Fold the operators of every rank (``programs``: rank -> its operators in program order) into operators, blocks and programs of a Plan.

    Operators stand in the order in which they are first met; ids are unique and made of kind and output. The k-th instance of the same form on a rank and
    micro-batch always belongs to the k-th record of that form. Passing one and the same sequence object for several ranks folds it once.
    Raises PlanError for a rank or micro-batch out of range, or an integer beyond 64 bits.
    """
    with collector_off():
        return _Folding(mesh, microbatches).run(programs)


class _Folding:
    def __init__(self, mesh: tuple[Axis, ...], microbatches: int) -> None:
        self.coordinates = Coordinates(mesh, microbatches)
        self.microbatches = microbatches
        self._forms: dict[tuple[Any, ...], _Form] = {}
        self._seen: dict[int, tuple[_Form, Instance]] = {}
        self._skeletons: dict[tuple[Any, ...], int] = {}
        self._records: dict[tuple[int, int], int] = {}
        self.records: list[_Record] = []
        self._where: dict[bytes, tuple[Box, ...]] = {}
        self._tables: dict[bytes, Attribute] = {}

    def run(self, programs: Mapping[int, Sequence[Instance]]) -> tuple[tuple[Operator, ...], dict[str, tuple[str, ...]], tuple[Program, ...]]:
        classes = self._classes(programs)
        operators = self._operators()
        blocks, folded = self._programs(classes, [operator.id for operator in operators])
        return operators, blocks, folded

    def _classes(self, programs: Mapping[int, Sequence[Instance]]) -> dict[tuple[tuple[int, int], ...], list[int]]:
        """Ranks by their sequence of (record, micro-batch or -1)."""
        classes: dict[tuple[tuple[int, int], ...], list[int]] = {}
        known: dict[int, tuple[tuple[tuple[int, int], ...], list[tuple[int, int, tuple[int, ...]]]]] = {}
        for rank, sequence in programs.items():
            if not 0 <= rank < self.coordinates.ranks:
                raise PlanError(f"rank {rank} is not among the {self.coordinates.ranks} ranks of the mesh", f"programs[{rank}]")
            identity = id(sequence)
            if identity not in known:
                known[identity] = self._sequence(rank, sequence)
            steps, places = known[identity]
            classes.setdefault(steps, []).append(rank)
            for number, microbatch, integers in places:
                self.records[number].places.append((rank, microbatch, integers))
        return classes

    def _sequence(self, rank: int, sequence: Sequence[Instance]) -> tuple[tuple[tuple[int, int], ...], list[tuple[int, int, tuple[int, ...]]]]:
        """The (record, micro-batch) steps of one rank, and the same with the integer attributes."""
        counts: dict[tuple[int, int], int] = {}
        places: list[tuple[int, int, tuple[int, ...]]] = []
        for position, instance in enumerate(sequence):
            # Ranks that differ little hold the same objects.
            seen = self._seen.get(id(instance))
            if seen is None:
                seen = self._seen[id(instance)] = (self._form_of(instance), instance)
            form = seen[0]
            microbatch = -1 if instance.microbatch is None else instance.microbatch
            if not -1 <= microbatch < self.microbatches or (microbatch == -1 and instance.microbatch is not None):
                raise PlanError(f"micro-batch {instance.microbatch} of {self.microbatches}", f"programs[{rank}][{position}].microbatch")
            which = (form.skeleton, microbatch)
            count = counts.get(which, 0)
            counts[which] = count + 1
            number = self._records.get((form.skeleton, count))
            if number is None:
                number = self._records[form.skeleton, count] = len(self.records)
                self.records.append(_Record(instance, _integer_names(instance.attributes)))
            places.append((number, microbatch, form.integers))
        return tuple([(number, microbatch) for number, microbatch, _ in places]), places

    def _form_of(self, instance: Instance) -> _Form:
        attributes = instance.attributes
        key = (
            instance.kind,
            instance.inputs,
            instance.outputs,
            # True, 1 and 1.0 are equal to a dictionary, but not the same attribute.
            tuple([(k, v, v.__class__) for k, v in attributes.items()]) if attributes else (),
            instance.group,
            instance.source,
            instance.module,
            instance.microbatch is None,
        )
        form = self._forms.get(key)
        return self._form(key, instance) if form is None or form.literal else form

    def _form(self, key: tuple[Any, ...], instance: Instance) -> _Form:
        literal = any(isinstance(operand, Number) for operand in instance.inputs)
        plain = key
        if literal:
            # Literals 1 and 1.0 are equal too, so that the key alone does not tell the form.
            key = (*key, tuple(type(operand.value) for operand in instance.inputs if isinstance(operand, Number)))
        form = self._forms.get(key)
        if form is None:
            names = _integer_names(instance.attributes)
            others = tuple(sorted((k, type(v).__name__, v) for k, v in instance.attributes.items() if k not in names)) if len(names) < len(key[3]) else ()
            skeleton = (*key[:3], names, others, *key[4:])
            form = _Form(self._skeletons.setdefault(skeleton, len(self._skeletons)), tuple(_integer(instance.attributes[name]) for name in names), literal)
            self._forms[key] = form
            self._forms.setdefault(plain, form)
        return form

    # --- operators

    def _operators(self) -> tuple[Operator, ...]:
        used: dict[str, int] = {}
        return tuple(self._operator(record, used) for record in self.records)

    def _operator(self, record: _Record, used: dict[str, int]) -> Operator:
        shown = record.shown
        attributes = dict(shown.attributes)
        if record.names and any(place[2] != record.places[0][2] for place in record.places):
            for column, name in enumerate(record.names):
                attributes[name] = self._integers(record, column)
        return Operator(
            id=_unique(shown, used),
            kind=shown.kind,
            inputs=shown.inputs,
            outputs=shown.outputs,
            attributes=attributes,
            group=shown.group,
            where=self._boxes(record),
            source=shown.source,
            module=shown.module,
        )

    def _boxes(self, record: _Record) -> tuple[Box, ...]:
        ranks = np.array([place[0] for place in record.places])
        if record.shown.microbatch is None:
            mask = np.zeros(self.coordinates.ranks, dtype=np.bool_)
            mask[ranks] = True
        else:
            mask = np.zeros((self.coordinates.ranks, self.microbatches), dtype=np.bool_)
            mask[ranks, np.array([place[1] for place in record.places])] = True
        key = mask.tobytes()
        if key not in self._where:
            self._where[key] = boxes_of(mask, self.coordinates)
        return self._where[key]

    def _integers(self, record: _Record, column: int) -> Attribute:
        """One integer if it is the same everywhere, else a table over as few axes as tell its values apart."""
        rows = np.array([(rank, microbatch, integers[column]) for rank, microbatch, integers in record.places], dtype=np.int64)
        key = rows.tobytes()
        if key not in self._tables:
            self._tables[key] = self._table(rows, record.shown.microbatch is not None, f"{record.shown.kind}: attribute {record.names[column]!r}")
        return self._tables[key]

    def _table(self, rows: NDArray[np.int64], per_microbatch: bool, named: str) -> Attribute:
        """From rows of (rank, micro-batch, value)."""
        ranks, microbatches, values = rows.T
        if (values == values[0]).all():
            return int(values[0])
        columns = {axis.name: self.coordinates.of_rank(axis.name)[ranks] for axis in self.coordinates.mesh}
        if per_microbatch:
            columns[MICROBATCH_AXIS] = microbatches
        over = list(columns)
        for axis in list(columns):
            fewer = [name for name in over if name != axis]
            if self._filled(fewer, columns, values) is not None:
                over = fewer
        filled = self._filled(over, columns, values)
        if filled is None:
            raise PlanError(f"{named} has two values at one coordinate")
        return Table(tuple(over), tuple(int(v) for v in filled))

    def _filled(self, over: list[str], columns: Mapping[str, NDArray[np.int64]], values: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The table over these axes (the first value where the record does not run), or None where they do not determine the value."""
        position = np.zeros(len(values), dtype=np.int64)
        for axis in over:
            size = self.microbatches if axis == MICROBATCH_AXIS else self.coordinates.sizes[axis]
            position = position * size + columns[axis]
        table = np.full(self.coordinates.count(tuple(over)), values[0], dtype=np.int64)
        table[position] = values
        return table if (table[position] == values).all() else None

    # --- programs

    def _programs(self, classes: Mapping[tuple[tuple[int, int], ...], list[int]], ids: Sequence[str]) -> tuple[dict[str, tuple[str, ...]], tuple[Program, ...]]:
        names: dict[tuple[int, ...], str] = {}
        blocks: dict[str, tuple[str, ...]] = {}
        programs: list[Program] = []
        for sequence, ranks in classes.items():
            steps = []
            for microbatch, run in _runs(sequence):
                if run not in names:
                    names[run] = f"block{len(names)}"
                    blocks[names[run]] = tuple(ids[number] for number in run)
                steps.append(Step(names[run], None if microbatch < 0 else microbatch))
            mask = np.zeros(self.coordinates.ranks, dtype=np.bool_)
            mask[ranks] = True
            programs.append(Program(tuple(steps), boxes_of(mask, self.coordinates)))
        return blocks, tuple(programs)


def _runs(sequence: Iterable[tuple[int, int]]) -> Iterable[tuple[int, tuple[int, ...]]]:
    """Maximal runs of one micro-batch: (micro-batch, records). A record that recurs within a run starts a new one."""
    current: list[int] = []
    now = -1
    for number, microbatch in sequence:
        if current and microbatch != now:
            yield now, tuple(current)
            current = []
        now = microbatch
        current.append(number)
    if current:
        yield now, tuple(current)


def _integer_names(attributes: Mapping[str, Attribute]) -> tuple[str, ...]:
    return tuple(sorted(k for k, v in attributes.items() if isinstance(v, int) and not isinstance(v, bool))) if attributes else ()


def _integer(value: Attribute) -> int:
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise PlanError(f"{value!r} is no integer of 64 bits")
    return value


def _unique(shown: Instance, used: dict[str, int]) -> str:
    """An id that names kind and output (or input), numbered where it would not be unique."""
    named = next((name for name in shown.outputs if name), "") or next((operand for operand in shown.inputs if isinstance(operand, str)), "")
    base = f"{shown.kind}:{named}" if named else shown.kind
    number = used.get(base, 0)
    used[base] = number + 1
    if not number:
        return base
    candidate = f"{base}#{number + 1}"
    while candidate in used:
        number += 1
        candidate = f"{base}#{number + 1}"
    used[candidate] = 1
    return candidate
