"""Folding: from one list of operators per rank to records over coordinates, blocks and programs.

Instances that differ only in the coordinate at which they run become one record. If they also
differ in integer attributes (a peer, an offset), that attribute becomes a table. Ranks with the
same sequence of records share one program, and a block that recurs is stored once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import PlanError
from pitcheck.plan.boxes import boxes_of
from pitcheck.plan.collector import collector_off
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import (
    MICROBATCH_AXIS,
    Attribute,
    Axis,
    Box,
    Group,
    Number,
    Operand,
    Operator,
    Program,
    Step,
    Table,
)


class Instance(msgspec.Struct, frozen=True, gc=False):
    """One operator of one rank, as :class:`~pitcheck.plan.model.Operator` but for its coordinates.

    ``inputs`` and ``outputs`` name tensor families. ``microbatch`` is the micro-batch it runs for,
    None for operators that run once.
    """

    kind: str
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: dict[str, Attribute] = {}
    group: Group | None = None
    source: str = ""
    module: str = ""
    microbatch: int | None = None


class _Form(msgspec.Struct, frozen=True, gc=False):
    """The form of an instance: the number of its record's skeleton, and its integer attributes.

    ``literal`` says that a literal is among the inputs.
    """

    skeleton: int
    integers: tuple[int, ...]
    literal: bool


_Step = tuple[int, int]
"""The number of a record or of a skeleton, and the micro-batch or -1."""


class _Known(msgspec.Struct, frozen=True, gc=False):
    """An instance that was met before.

    It is kept so that its identity is not given to another object.
    """

    step: _Step
    integers: tuple[int, ...]
    instance: Instance


@dataclass
class _Record:
    """One record in the making.

    ``shown`` is one of its instances, ``runs`` has the classes and micro-batches that run it, and
    ``integers`` its integer attributes. If these are not the same everywhere, ``places`` has them
    as (rank, micro-batch, integers).
    """

    shown: Instance
    names: tuple[str, ...]
    integers: tuple[int, ...]
    runs: list[tuple[int, int]] = field(default_factory=list)
    places: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    varies: bool = False


@dataclass
class _Class:
    """Ranks that run the same steps of records.

    ``integers`` are the integer attributes on the first of them, step by step.
    """

    steps: tuple[_Step, ...]
    integers: list[tuple[int, ...]]
    ranks: list[int] = field(default_factory=list)


def fold(
    mesh: tuple[Axis, ...], microbatches: int, programs: Mapping[int, Sequence[Instance]]
) -> tuple[tuple[Operator, ...], dict[str, tuple[str, ...]], tuple[Program, ...]]:
    """Fold the operators of every rank into operators, blocks and programs of a plan.

    ``programs`` has every rank's operators in program order. Operators of the result stand in the
    order in which they are first met; ids are unique and made of kind and output. The k-th instance
    of one form on a rank and micro-batch always belongs to the k-th record of that form. One
    sequence object for several ranks is folded once.

    Raises:
        PlanError: if a rank or micro-batch is out of range, or an integer exceeds 64 bits.
    """
    with collector_off():
        return _Folding(mesh, microbatches).run(programs)


class _Folding:
    def __init__(self, mesh: tuple[Axis, ...], microbatches: int) -> None:
        self.coordinates = Coordinates(mesh, microbatches)
        self.microbatches = microbatches
        self._forms: dict[tuple[Any, ...], _Form] = {}
        self._seen: dict[int, _Known] = {}
        self._steps: dict[_Step, _Step] = {}
        self._skeletons: dict[tuple[Any, ...], int] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        self.records: list[_Record] = []
        self.classes: dict[tuple[_Step, ...], _Class] = {}
        self._members: list[NDArray[np.int64]] = []
        self._where: dict[tuple[tuple[int, int], ...], tuple[Box, ...]] = {}
        self._tables: dict[bytes, Attribute] = {}

    def run(
        self, programs: Mapping[int, Sequence[Instance]]
    ) -> tuple[tuple[Operator, ...], dict[str, tuple[str, ...]], tuple[Program, ...]]:
        self._classify(programs)
        operators = self._operators()
        blocks, folded = self._programs([operator.id for operator in operators])
        return operators, blocks, folded

    def _classify(self, programs: Mapping[int, Sequence[Instance]]) -> None:
        """Make the records, and the classes of ranks that run them in one order."""
        ranks: list[tuple[int, _Class, list[tuple[int, ...]]]] = []
        known: dict[int, tuple[_Class, list[tuple[int, ...]]]] = {}
        for rank, sequence in programs.items():
            if not 0 <= rank < self.coordinates.ranks:
                raise PlanError(
                    f"rank {rank} is not among the {self.coordinates.ranks} ranks of the mesh",
                    f"programs[{rank}]",
                )
            identity = id(sequence)
            if identity not in known:
                known[identity] = self._sequence(rank, sequence)
            group, integers = known[identity]
            group.ranks.append(rank)
            ranks.append((rank, group, integers))
        for group, integers in known.values():
            self._compare(group, integers)
        self._place(ranks)
        self._members = [np.array(group.ranks) for group in self.classes.values()]

    def _sequence(
        self, rank: int, sequence: Sequence[Instance]
    ) -> tuple[_Class, list[tuple[int, ...]]]:
        """Return the class of one rank, and its integer attributes step by step."""
        seen = self._seen
        known = []
        for position, instance in enumerate(sequence):
            # Ranks that differ little hold the same objects.
            met = seen.get(id(instance))
            if met is None:
                met = seen[id(instance)] = self._known(instance, rank, position)
            known.append(met)
        steps = tuple([met.step for met in known])
        integers = [met.integers for met in known]
        group = self.classes.get(steps)
        if group is None:
            group = self.classes[steps] = self._new_class(known, integers)
        return group, integers

    def _known(self, instance: Instance, rank: int, position: int) -> _Known:
        form = self._form_of(instance)
        microbatch = -1 if instance.microbatch is None else instance.microbatch
        if not -1 <= microbatch < self.microbatches or (
            microbatch == -1 and instance.microbatch is not None
        ):
            raise PlanError(
                f"micro-batch {instance.microbatch} of {self.microbatches}",
                f"programs[{rank}][{position}].microbatch",
            )
        step = (form.skeleton, microbatch)
        return _Known(self._steps.setdefault(step, step), form.integers, instance)

    def _new_class(self, known: Sequence[_Known], integers: list[tuple[int, ...]]) -> _Class:
        counts: dict[_Step, int] = {}
        number = len(self.classes)
        steps: list[_Step] = []
        for met in known:
            skeleton, microbatch = met.step
            count = counts.get(met.step, 0)
            counts[met.step] = count + 1
            which = self._numbers.get((skeleton, count))
            if which is None:
                which = self._numbers[skeleton, count] = len(self.records)
                self.records.append(
                    _Record(met.instance, _integer_names(met.instance.attributes), met.integers)
                )
            self.records[which].runs.append((number, microbatch))
            steps.append((which, microbatch))
        return _Class(tuple(steps), integers)

    def _compare(self, group: _Class, integers: list[tuple[int, ...]]) -> None:
        """Note the records whose integers on a rank of the class differ from those first met."""
        if integers is not group.integers and integers == group.integers:
            return
        for (number, _), values in zip(group.steps, integers, strict=True):
            record = self.records[number]
            if values != record.integers:
                record.varies = True

    def _place(self, ranks: Iterable[tuple[int, _Class, list[tuple[int, ...]]]]) -> None:
        """Give all their places to the records whose integers vary."""
        varying: dict[int, list[tuple[int, int, _Record]]] = {}
        for rank, group, integers in ranks:
            found = varying.get(id(group))
            if found is None:
                records = [self.records[number] for number, _ in group.steps]
                found = varying[id(group)] = [
                    (n, group.steps[n][1], record)
                    for n, record in enumerate(records)
                    if record.varies
                ]
            for position, microbatch, record in found:
                record.places.append((rank, microbatch, integers[position]))

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
            key = (
                *key,
                tuple(
                    type(operand.value)
                    for operand in instance.inputs
                    if isinstance(operand, Number)
                ),
            )
        form = self._forms.get(key)
        if form is None:
            names = _integer_names(instance.attributes)
            others = (
                tuple(
                    sorted(
                        (k, type(v).__name__, v)
                        for k, v in instance.attributes.items()
                        if k not in names
                    )
                )
                if len(names) < len(key[3])
                else ()
            )
            skeleton = (*key[:3], names, others, *key[4:])
            form = _Form(
                self._skeletons.setdefault(skeleton, len(self._skeletons)),
                tuple(_integer(instance.attributes[name]) for name in names),
                literal,
            )
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
        if record.varies:
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
        key = tuple(record.runs)
        if key not in self._where:
            mask = np.zeros((self.coordinates.ranks, self.microbatches), dtype=np.bool_)
            for number, microbatch in key:
                mask[self._members[number], slice(None) if microbatch < 0 else microbatch] = True
            self._where[key] = boxes_of(mask, self.coordinates)
        return self._where[key]

    def _integers(self, record: _Record, column: int) -> Attribute:
        """Return one integer if it is the same everywhere, else a table over the fewest axes."""
        rows = np.array(
            [(rank, microbatch, integers[column]) for rank, microbatch, integers in record.places],
            dtype=np.int64,
        )
        key = rows.tobytes()
        if key not in self._tables:
            self._tables[key] = self._table(
                rows,
                record.shown.microbatch is not None,
                f"{record.shown.kind}: attribute {record.names[column]!r}",
            )
        return self._tables[key]

    def _table(self, rows: NDArray[np.int64], per_microbatch: bool, named: str) -> Attribute:
        """Return the attribute of rows of (rank, micro-batch, value)."""
        ranks, microbatches, values = rows.T
        if (values == values[0]).all():
            return int(values[0])
        columns = {
            axis.name: self.coordinates.of_rank(axis.name)[ranks] for axis in self.coordinates.mesh
        }
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

    def _filled(
        self, over: list[str], columns: Mapping[str, NDArray[np.int64]], values: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """Return the table over these axes; None if they do not determine the value.

        It has the first value at coordinates at which the record does not run.
        """
        position = np.zeros(len(values), dtype=np.int64)
        for axis in over:
            size = self.microbatches if axis == MICROBATCH_AXIS else self.coordinates.sizes[axis]
            position = position * size + columns[axis]
        table = np.full(self.coordinates.count(tuple(over)), values[0], dtype=np.int64)
        table[position] = values
        return table if (table[position] == values).all() else None

    # --- programs

    def _programs(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, tuple[str, ...]], tuple[Program, ...]]:
        names: dict[tuple[int, ...], str] = {}
        blocks: dict[str, tuple[str, ...]] = {}
        programs: list[Program] = []
        for group in self.classes.values():
            steps = []
            for microbatch, run in _runs(group.steps):
                if run not in names:
                    names[run] = f"block{len(names)}"
                    blocks[names[run]] = tuple(ids[number] for number in run)
                steps.append(Step(names[run], None if microbatch < 0 else microbatch))
            mask = np.zeros(self.coordinates.ranks, dtype=np.bool_)
            mask[group.ranks] = True
            programs.append(Program(tuple(steps), boxes_of(mask, self.coordinates)))
        return blocks, tuple(programs)


def _runs(sequence: Iterable[tuple[int, int]]) -> Iterable[tuple[int, tuple[int, ...]]]:
    """Yield maximal runs of one micro-batch, as (micro-batch, records)."""
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
    return (
        tuple(
            sorted(
                k for k, v in attributes.items() if isinstance(v, int) and not isinstance(v, bool)
            )
        )
        if attributes
        else ()
    )


def _integer(value: Attribute) -> int:
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise PlanError(f"{value!r} is no integer of 64 bits")
    return value


def _unique(shown: Instance, used: dict[str, int]) -> str:
    """Return an id that names kind and output (or input), numbered if it would not be unique."""
    named = next((name for name in shown.outputs if name), "") or next(
        (operand for operand in shown.inputs if isinstance(operand, str)), ""
    )
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
