"""Reads of matched events: from which rank and micro-batch a receive, or a member, reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.graph.graph import Source
from pitcheck.graph.grids import Mask
from pitcheck.graph.group_reads import Reads
from pitcheck.graph.reads import FromCodes, FromPlaces, Read
from pitcheck.plan.coordinates import places_of
from pitcheck.plan.model import Number, Operator, Plan, Use
from pitcheck.plan.schedule.matching import Matching
from pitcheck.plan.schedule.representatives import everyone


def operand_name(operand: str | Use | Number) -> str:
    """Return the tensor that an operand names. Raises PlanError for a literal."""
    if isinstance(operand, Number):
        raise PlanError(f"the literal {operand.value} stands where a tensor is needed")
    return operand.tensor if isinstance(operand, Use) else operand


class EventReads:
    """The operands of events of a plan, as those that meet them read them.

    ``number`` maps tensor names to values.
    """

    def __init__(
        self, plan: Plan, matching: Matching, number: Mapping[str, int], reads: Reads
    ) -> None:
        self._plan = plan
        self._matching = matching
        self._few = matching.few or (matching, everyone(plan))
        self._number = number
        self._reads = reads
        self._microbatched = {t.name: t.microbatched for t in plan.tensors}
        self._shape = (*(axis.size for axis in plan.mesh), plan.microbatches)

    def received(
        self, operator: Operator, mask: Mask, per_microbatch: bool
    ) -> Iterator[tuple[Source, Mask]]:
        """Yield what a receive reads, and where: one source for each operator that sends to it.

        ``mask``: where the receive runs. ``per_microbatch``: True if it runs in every micro-batch.
        """
        matching, few = self._few
        found = matching.received[operator.id].reshape((*few.shape, self._plan.microbatches, 3))
        if not per_microbatch:
            found = found[..., :1, :]
        runs = found[..., 0] >= 0
        for sender in np.unique(found[runs][:, 0]).tolist():
            met = found[..., 0] == sender
            part = mask if met.sum() == runs.sum() else mask & few.spread(met)
            yield self._sent(sender, found, met, operator, per_microbatch), part

    def _sent(
        self,
        position: int,
        found: NDArray[np.int64],
        met: NDArray[np.bool_],
        operator: Operator,
        per_microbatch: bool,
    ) -> Source:
        """Return the operand of the send at ``position`` in the plan, as receivers read it.

        These are the kept ranks at ``met``; they read at the rank and micro-batch in ``found``.
        """
        operand = self._plan.operators[position].inputs[0]
        if isinstance(operand, str) and self._microbatched[operand] == per_microbatch:
            read = self._along_one_axis(found, met)
            if read is not None:
                return Source(self._number[operand], self._reads.shared(read))
        return self.source(position, self._matching.received[operator.id].reshape(-1, 3))

    def source(self, position: int, found: NDArray[np.int64]) -> Source:
        """Return the operand of the operator at ``position`` in the plan, as it is read there.

        ``found`` has the (rank, micro-batch) in columns 1 and 2, by coordinate code, shape
        (codes, 3).

        Raises:
            UnsupportedError: the operand is a literal.
        """
        operand = self._plan.operators[position].inputs[0]
        if isinstance(operand, Number):
            raise UnsupportedError(
                f"operators[{self._plan.operators[position].id}]: a literal cannot be communicated"
            )
        ranks, microbatches = np.maximum(found[..., 1], 0), np.maximum(found[..., 2], 0)
        name = operand_name(operand)
        if isinstance(operand, Use):
            microbatches = np.full_like(microbatches, operand.microbatch)
        elif not self._microbatched[name]:
            microbatches = np.zeros_like(microbatches)
        codes = np.where(found[..., 1] >= 0, ranks * self._plan.microbatches + microbatches, -1)
        return Source(self._number[name], self._reads.shared(FromCodes(self._shape, codes)))

    def _along_one_axis(self, found: NDArray[np.int64], met: NDArray[np.bool_]) -> Read | None:
        """Return a read of the ranks at another place along one mesh axis, of the same micro-batch.

        It must be the same for all other places; return None if it is anything else.
        """
        _, few = self._few
        *own, microbatches = np.nonzero(met)
        theirs = places_of(found[..., 1][met], few.shape)
        moved = [
            axis for axis, (a, b) in enumerate(zip(own, theirs, strict=True)) if (a != b).any()
        ]
        if len(moved) != 1 or (found[..., 2][met] != microbatches).any():
            return None
        axis = moved[0]
        places = np.full(few.shape[axis], -1, dtype=np.int64)
        places[own[axis]] = theirs[axis]
        if (places[own[axis]] != theirs[axis]).any():
            return None
        return FromPlaces(self._shape, axis, tuple(few.met_along(axis, places).tolist()))
