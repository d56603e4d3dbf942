"""Lowering of a validated plan to a graph.

Groups and matched events become coordinate tables, tables of attributes become nodes, copies become
aliases.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.base.numbers import Literal, parse_number
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.graph.event_reads import EventReads, operand_name
from pitcheck.graph.graph import Graph, GraphValue, Node, Operand, Source, Stacked, kind_of
from pitcheck.graph.grids import Grid, Lattice, Mask
from pitcheck.graph.group_reads import GroupReads, Reads
from pitcheck.graph.reads import (
    OfMicrobatch,
    Once,
    OverMicrobatches,
    Through,
)
from pitcheck.graph.topological_order import order_nodes
from pitcheck.graph.unread_operands import Unread
from pitcheck.ops.meanings.indexing import UNINITIALISED
from pitcheck.ops.registry import check_attributes, declared, operator_kind
from pitcheck.ops.traits import Communication
from pitcheck.plan.collective_roots import gives_at_root, reads_at_root
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Box, Group, Number, Operator, Plan, Table, Use
from pitcheck.plan.schedule.matching import Matching
from pitcheck.plan.schedule.run_order import (
    COMMUNICATION,
    MATCHING_ONLY,
    runs_per_microbatch,
    where_key,
)

ACCUMULATE = "accumulate"
"""The operator that reads a tensor of several micro-batches."""


class Lowering:
    """The lowering of one plan.

    ``matching`` says which send every receive meets and who meets in every collective.
    """

    def __init__(self, plan: Plan, matching: Matching) -> None:
        self.plan = plan
        self.matching = matching
        self.coordinates = Coordinates.of(plan)
        self.graph = Graph(self.coordinates, rounded_literals=plan.rounded_literals is True)
        self.microbatches = plan.microbatches
        self._tensors = {t.name: t for t in plan.tensors}
        self._microbatched = {t.name: t.microbatched for t in plan.tensors}
        self._shape = self.coordinates.shape
        self._lattices = {
            microbatched: Lattice(self._shape, microbatched) for microbatched in (False, True)
        }
        self._once = Once(self._shape)
        self._masks: dict[Hashable, Mask] = {}
        self._shared_masks: dict[tuple[int, bool], Mask] = {}
        self._sources: dict[tuple[int, int], Source] = {}
        self._per_microbatch = {
            operator.id: runs_per_microbatch(operator, self._microbatched)
            for operator in plan.operators
        }
        self._reads = Reads()
        self._groups = GroupReads(self.coordinates, self._reads)
        self._events = EventReads(plan, matching, self.graph.number, self._reads)
        self._literals: dict[tuple[type, object], Literal] = {}
        self._copies = self._find_copies()
        self._unread = Unread(self.graph.values)

    def run(self) -> Graph:
        """Return the graph. Raises PlanError for what a validated plan cannot contain."""
        for tensor in self.plan.tensors:
            if tensor.name not in self._copies:
                self.graph.number[tensor.name] = len(self.graph.values)
                self.graph.values.append(
                    GraphValue(
                        tensor.name,
                        tensor.shape,
                        kind_of(tensor.dtype),
                        tensor,
                        self._lattices[tensor.microbatched],
                    )
                )
        for name in self._copies:
            self.graph.number[name] = self.graph.number[self._original(name)]
        for position, operator in enumerate(self.plan.operators):
            self._check_said(operator)
            if operator.outputs or not _only_orders(operator):
                self._lower(position, operator)
        return self.graph

    def _check_said(self, operator: Operator) -> None:
        """Check what no evaluation looks at: attributes of what is only copied or ordered.

        Raises:
            UnsupportedError: an attribute is unknown, or an operator has no output.
        """
        if _only_copies(operator) or _only_orders(operator):
            check_attributes(operator_kind(operator.kind), operator.attributes)
        elif not operator.outputs:
            raise UnsupportedError(
                f"the operator {operator.id!r} ({operator.kind}) has no output: nothing says what "
                f"it does; name what it computes"
            )

    # --- copies

    def _find_copies(self) -> dict[str, str]:
        """Return the families that are plain copies of another: name -> the family copied.

        They are so at the same coordinate, and wherever that one is written.
        """
        writers: dict[str, int] = {}
        written: dict[str, tuple[Box, ...]] = {}
        for operator in self.plan.operators:
            for name in operator.outputs:
                writers[name] = writers.get(name, 0) + 1
                written[name] = operator.where
        copies: dict[str, str] = {}
        for operator in self.plan.operators:
            source = operator.inputs[0] if operator.inputs else None
            if (
                not _only_copies(operator)
                or len(operator.inputs) != 1
                or not isinstance(source, str)
            ):
                continue
            for name in operator.outputs:
                everywhere = not operator.where or (
                    writers.get(source) == 1 and written[source] == operator.where
                )
                if (
                    name
                    and writers[name] == 1
                    and everywhere
                    and self._microbatched[name] == self._microbatched[source]
                ):
                    copies[name] = source
        return copies

    def _original(self, name: str) -> str:
        """Return the name of the family that a copy stands for; other names stay."""
        while name in self._copies:
            name = self._copies[name]
        return name

    # --- operators

    def _lower(self, position: int, operator: Operator) -> None:
        """Add the nodes of an operator."""
        if (
            operator.outputs
            and (_only_copies(operator) or not any(operator.outputs))
            and all(name in self._copies for name in operator.outputs if name)
        ):
            return
        mask = self._mask(operator)
        kind = "identity" if _receives(operator) else operator.kind
        for attributes, part in self._resolve_attributes(operator, mask):
            gives = part
            if gives_at_root(operator):
                place = self._place_in_group(operator)
                gives = part & (place == attributes["root"])
                self._leave_undefined(position, operator, part & (place >= 0) & ~gives)
            for inputs, more, where in self._operands(operator, attributes, gives):
                self._add(kind, {**attributes, **more}, inputs, where, position, operator)

    def _add(
        self,
        kind: str,
        attributes: dict[str, Any],
        inputs: tuple[Operand, ...],
        where: Mask,
        position: int,
        operator: Operator,
    ) -> None:
        """Add one node of an operator."""
        outputs = tuple(self.graph.number[name] if name else None for name in operator.outputs)
        lattice = self._lattices[self._runs_per_microbatch(operator)]
        unread = (
            frozenset()
            if operator.group is not None
            else self._unread.places(kind, inputs, outputs, attributes)
        )
        node = Node(
            kind,
            attributes,
            inputs,
            outputs,
            where,
            lattice,
            operator.id,
            position,
            unread,
            operator.source or operator.module,
        )
        for value in outputs:
            if value is not None:
                self.graph.values[value].writers.append(len(self.graph.nodes))
        self.graph.nodes.append(node)

    def _leave_undefined(self, position: int, operator: Operator, where: Mask) -> None:
        """Add memory that nobody has written to, for members of a collective besides the root."""
        result = self._tensors.get(operator.outputs[0])
        if result is not None and where.any():
            self._add(
                UNINITIALISED,
                {"sizes": result.shape, "dtype": result.dtype},
                (),
                where,
                position,
                operator,
            )

    def _place_in_group(self, operator: Operator) -> Grid:
        """Return every coordinate's place in the group of an operator, -1 if it is in none."""
        places = [place for _, place in self._groups.of(operator.group or Group())]
        return places[0] if len(places) == 1 else np.asarray(np.maximum.reduce(places))

    def _runs_per_microbatch(self, operator: Operator) -> bool:
        """Return True if an operator runs in every micro-batch."""
        return self._per_microbatch[operator.id]

    def _mask(self, operator: Operator) -> Mask:
        """Return where an operator runs, one object for all that run at the same coordinates."""
        per_microbatch = self._runs_per_microbatch(operator)
        # Records that were made together have the same boxes as one object, which the plan keeps.
        shared = (id(operator.where), per_microbatch)
        if shared not in self._shared_masks:
            self._shared_masks[shared] = self._mask_of(operator, per_microbatch)
        return self._shared_masks[shared]

    def _mask_of(self, operator: Operator, per_microbatch: bool) -> Mask:
        """Compute what ``_mask`` returns."""
        key = (where_key(operator.where), per_microbatch)
        if key not in self._masks:
            mask = self.coordinates.mask_grid(operator.where)
            self._masks[key] = (
                mask if per_microbatch else np.asarray(mask.any(axis=-1, keepdims=True))
            )
        return self._masks[key]

    def _resolve_attributes(
        self, operator: Operator, mask: Mask
    ) -> Iterator[tuple[dict[str, Any], Mask]]:
        """Yield plain attributes for every part of the coordinates where tables are constant."""
        if not operator.attributes:
            yield {}, mask
            return
        hidden = (
            MATCHING_ONLY
            if operator.kind in COMMUNICATION or operator.group
            else frozenset({"microbatches"})
        )
        plain = {
            k: v
            for k, v in operator.attributes.items()
            if not isinstance(v, Table) and k not in hidden
        }
        tables = {
            k: v for k, v in operator.attributes.items() if isinstance(v, Table) and k not in hidden
        }
        if not tables:
            yield plain, mask
            return
        combined = np.zeros(self.graph.anywhere, dtype=np.int64)
        choices: list[tuple[Any, ...]] = [()]
        for name, table in tables.items():
            values = self._table_values(table, f"operators[{operator.id}].attributes.{name}")
            different = list(dict.fromkeys(values))
            number = np.array([different.index(value) for value in values], dtype=np.int64)
            combined = (
                combined * len(different) + number[self.coordinates.row_major_grid(table.over)]
            )
            choices = [(*before, value) for before in choices for value in different]
        if not self._runs_per_microbatch(operator):
            combined = combined[..., :1]
        present = np.broadcast_arrays(combined, mask)
        for choice in np.unique(present[0][present[1]]):
            yield (
                {**plain, **dict(zip(tables, choices[int(choice)], strict=True))},
                mask & (combined == choice),
            )

    def _table_values(self, table: Table, place: str) -> tuple[Any, ...]:
        """Return the values of a table. Raises PlanError if their number does not fit."""
        expected = self.coordinates.count(table.over)
        if len(table.values) != expected:
            raise PlanError(
                f"{len(table.values)} values for {expected} positions over {', '.join(table.over)}",
                f"{place}.values",
            )
        return table.values

    # --- operands

    def _operands(
        self, operator: Operator, attributes: Mapping[str, Any], mask: Mask
    ) -> Iterator[tuple[tuple[Operand, ...], dict[str, Any], Mask]]:
        """Yield (operands, further attributes, coordinates) of the nodes of an operator."""
        if _receives(operator):
            per_microbatch = self._runs_per_microbatch(operator)
            for source, part in self._events.received(operator, mask, per_microbatch):
                yield (source,), {}, part
        elif operator.kind == ACCUMULATE:
            yield self._accumulated(operator), {}, mask
        elif operator.group is not None:
            root = int(attributes["root"]) if reads_at_root(operator) else None
            yield from self._collective(operator, root, mask)
        else:
            per_microbatch = self._runs_per_microbatch(operator)
            yield (
                tuple(self._operand(operator, o, per_microbatch) for o in operator.inputs),
                {},
                mask,
            )

    def _operand(
        self, operator: Operator, operand: str | Use | Number, per_microbatch: bool
    ) -> Operand:
        """Return an operand as a node reads it."""
        if isinstance(operand, Number):
            key = (type(operand.value), operand.value)
            if key not in self._literals:
                self._literals[key] = parse_number(
                    operand.value, f"operators[{operator.id}].inputs"
                )
            return self._literals[key]
        name = operand_name(operand)
        value = self.graph.number[name]
        if isinstance(operand, Use):
            return Source(value, self._reads.shared(OfMicrobatch(self._shape, operand.microbatch)))
        if not self._microbatched[name]:
            return self._source(
                value, self._once if per_microbatch and self.microbatches > 1 else None
            )
        if not per_microbatch and self.microbatches > 1:
            raise PlanError(
                f"{operator.kind} runs once but reads {name!r}, which exists once per "
                f"micro-batch; use 'accumulate' or name the micro-batch",
                f"operators[{operator.id}].inputs",
            )
        return self._source(value, None)

    def _source(self, value: int, read: Once | None) -> Source:
        """Return one object for all who read a value in one way."""
        key = (value, read is None)
        if key not in self._sources:
            self._sources[key] = Source(value, read)
        return self._sources[key]

    def _accumulated(self, operator: Operator) -> tuple[Operand, ...]:
        """Return the operand of an operator that reads several micro-batches."""
        name = operand_name(operator.inputs[0])
        chosen: Any = operator.attributes.get("microbatches")
        microbatches = tuple(range(self.microbatches) if chosen is None else map(int, chosen))
        if not self._microbatched[name]:
            raise PlanError(
                f"accumulate reads {name!r}, which does not exist per micro-batch",
                f"operators[{operator.id}].inputs[0]",
            )
        return (
            Source(
                self.graph.number[name],
                self._reads.shared(OverMicrobatches(self._shape, microbatches)),
            ),
        )

    def _collective(
        self, operator: Operator, root: int | None, mask: Mask
    ) -> Iterator[tuple[tuple[Operand, ...], dict[str, Any], Mask]]:
        """Yield the nodes of a collective."""
        members = self.matching.members[operator.id]
        if members is not None:
            yield from self._irregular(
                operator, root, mask, members.reshape(-1, *members.shape[2:])
            )
            return
        source = self._operand(operator, operator.inputs[0], self._runs_per_microbatch(operator))
        if not isinstance(source, Source):
            raise UnsupportedError(f"operators[{operator.id}]: a literal cannot be communicated")
        for read, place in self._groups.of(operator.group or Group(), root):
            stacked = Source(
                source.value,
                read
                if source.read is None
                else self._reads.shared(Through(self._shape, read, source.read)),
            )
            yield from self._by_position(operator, stacked, mask, place)

    def _by_position(
        self, operator: Operator, stacked: Operand, mask: Mask, place: Grid
    ) -> Iterator[tuple[tuple[Operand, ...], dict[str, Any], Mask]]:
        """Yield one node per place in the group, if the operator depends on it, else one node."""
        if "position" not in operator_kind(operator.kind).attributes:
            part = mask if (place >= 0).all() else mask & (place >= 0)
            if part.any():
                yield (stacked,), {}, part
            return
        present = np.broadcast_arrays(place, mask)
        for own in np.unique(present[0][present[1]]):
            if own >= 0:
                yield (stacked,), {"position": int(own)}, mask & (place == own)

    def _irregular(
        self, operator: Operator, root: int | None, mask: Mask, members: NDArray[np.int64]
    ) -> Iterator[tuple[tuple[Operand, ...], dict[str, Any], Mask]]:
        """Yield the nodes of a collective whose members run different operators or micro-batches.

        There is one node per pattern of operators.
        """
        lattice = self._lattices[self._runs_per_microbatch(operator)]
        flat = lattice.flat(mask, False)
        patterns = np.unique(members[flat][:, :, 0], axis=0)
        ranks = np.arange(self.graph.codes) // self.microbatches
        for pattern in patterns:
            real = [i for i, sender in enumerate(pattern) if sender >= 0]
            part = flat & (members[:, :, 0] == pattern[None, :]).all(axis=1)
            read = real if root is None else [real[root]] * len(real)
            stacked = Stacked(
                tuple(self._events.source(int(pattern[i]), members[:, i]) for i in read)
            )
            place = np.full(self.graph.codes, -1, dtype=np.int64)
            for own, i in enumerate(real):
                place[members[:, i, 1] == ranks] = own
            yield from self._by_position(operator, stacked, lattice.grid(part), lattice.grid(place))


def _receives(operator: Operator) -> bool:
    """Return True if an operator gives what a matching send reads."""
    kind = declared(operator.kind)
    return kind is not None and kind.communication is Communication.RECEIVE


def _only_copies(operator: Operator) -> bool:
    """Return True if an operator gives its operand."""
    kind = declared(operator.kind)
    return kind is not None and kind.copies


def _only_orders(operator: Operator) -> bool:
    """Return True if an operator, without an output, computes nothing."""
    kind = declared(operator.kind)
    return kind is not None and kind.order_only


def lower(plan: Plan, matching: Matching) -> Graph:
    """Return the graph of a validated plan; its nodes are ordered.

    Raises:
        PlanError: something that a validated plan cannot contain.
        UnsupportedError: an operator or attribute that has no meaning.
    """
    graph = Lowering(plan, matching).run()
    order_nodes(graph)
    return graph
