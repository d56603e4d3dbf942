"""The question of a pair, read off both plans alone: what is given, and what must come out."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from pitcheck.certificate.relation import Part, uncovered
from pitcheck.certificate.trace import Instance, Trace
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.ops.meanings.cast import kind_named
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Lineage, Output, Plan, Tensor


@dataclass
class Specification:
    """``given``: the lineage of each parallel tensor that nothing writes.

    ``outputs``: (parallel tensor, lineage) for every reference output, in its order.
    ``assumptions`` and ``exceptions`` are sentences for the reader.
    """

    given: dict[str, Lineage] = field(default_factory=dict)
    outputs: list[tuple[str, Lineage]] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)

    def owner_of(self, tensor: Tensor, wanted: Tensor) -> str | None:
        """Return the tensor whose gradient or new value an output is, None if there is none.

        A new value that names no tensor is that of the only one that holds the parameter or state.
        """
        holding = [
            name
            for name, lineage in self.given.items()
            if wanted.updated is not None and lineage.reference == wanted.updated
        ]
        return _owner(tensor) or (holding[0] if len(holding) == 1 else None)


def specify(reference: Plan, parallel: Plan) -> Specification:
    """Return the specification of a pair.

    Raises:
        PlanError: a tensor that is given corresponds to nothing.
        UnsupportedError: an output is not there to compare, or what is not verified here.
    """
    theirs, found = {t.name: t for t in reference.tensors}, Specification()
    tensors = {t.name: t for t in parallel.tensors}
    mesh = Coordinates.of(reference)
    if mesh.ranks * mesh.microbatches > 1:
        raise UnsupportedError("a reference of several ranks or micro-batches is not verified")
    found.assumptions += dict.fromkeys((*reference.assumptions, *parallel.assumptions))
    written = {name for operator in parallel.operators for name in operator.outputs}
    computed = {name for operator in reference.operators for name in operator.outputs}
    for tensor in parallel.tensors:
        if tensor.name in written or tensor.value is not None:
            continue
        lineage = tensor.lineage or Lineage(tensor.name)
        source = theirs.get(lineage.reference)
        if source is None or source.name in computed:
            raise PlanError(
                f"{tensor.name!r} is given, but {lineage.reference!r} is none of the tensors that "
                f"are given to the reference",
                f"tensors[{tensor.name}].lineage",
            )
        if kind_named(source.dtype) != kind_named(tensor.dtype) or source.value is not None:
            raise PlanError(
                f"{tensor.name!r} is {tensor.dtype}, but {source.name!r} is {source.dtype}, or "
                f"a constant",
                f"tensors[{tensor.name}].lineage",
            )
        if tensor.lineage is None:
            found.assumptions.append(f"{tensor.name} has no lineage: it is whole on every rank")
        found.given[tensor.name] = lineage
    _add_outputs(found, reference, parallel, tensors, theirs)
    return found


def _add_outputs(
    found: Specification,
    reference: Plan,
    parallel: Plan,
    tensors: dict[str, Tensor],
    theirs: dict[str, Tensor],
) -> None:
    """Enter every output of the reference. Raises UnsupportedError for one that is not there."""
    offered: dict[str, list[Output]] = {}
    for output in parallel.outputs:
        offered.setdefault(output.reference or output.tensor, []).append(output)
    wanted = [output.tensor for output in reference.outputs]
    if not wanted:
        raise UnsupportedError("the reference plan has no outputs, so that nothing is compared")
    for name in wanted:
        if name not in offered:
            raise UnsupportedError(f"output {name!r}: the parallel plan names no tensor for it")
        for output in offered[name]:
            if kind_named(tensors[output.tensor].dtype) != kind_named(theirs[name].dtype):
                raise UnsupportedError(f"output {name!r} is of another kind than its reference")
            lineage = _spread(found, output, tensors[output.tensor], theirs[name])
            found.outputs.append((output.tensor, lineage))
            if output.lineage is not None:
                found.exceptions.append(f"{name}: {_told(lineage)}")
        _every_copy(found, name, offered[name], tensors, theirs)
    kept = {output.tensor for name in wanted for output in offered[name]}
    for tensor in (*reference.tensors, *parallel.tensors):
        if tensor.updated is not None and tensor.name not in {*kept, *wanted}:
            raise UnsupportedError(f"{tensor.updated!r} is changed ({tensor.name!r}), not compared")


def _owner(tensor: Tensor) -> str | None:
    return tensor.gradient_of or tensor.updated


def _told(lineage: Lineage) -> str:
    """Return a lineage in words."""
    said = [f"along dimension {shard.dim} it is spread over ranks" for shard in lineage.shards]
    if lineage.partial or lineage.partial_ranks:
        said.append("the sum of the terms that coordinates hold is compared")
    if lineage.scale != "1":
        said.append(f"it is compared with {lineage.scale} times the reference")
    return "; ".join(said) or "it is whole on every rank"


def _spread(found: Specification, output: Output, tensor: Tensor, wanted: Tensor) -> Lineage:
    """Return how an output is spread: as it says, as the tensor it belongs to, or whole."""
    owner = found.owner_of(tensor, wanted)
    held = found.given.get(owner) if owner is not None else None
    if output.lineage is not None:
        if output.lineage.reference not in ("", wanted.name):
            raise PlanError(f"a lineage of another tensor than {wanted.name!r}", "outputs")
        lineage = msgspec.structs.replace(output.lineage, reference=wanted.name)
        same = held is not None and _unnamed(held) == _unnamed(lineage)
        if wanted.updated is not None and not same:
            raise UnsupportedError(f"{tensor.name!r} is spread otherwise than what it replaces")
        return lineage
    if held is None or held.reference != _owner(wanted):
        return Lineage(wanted.name)
    if held.partial or held.partial_ranks or (held.scale != "1" and tensor.updated is None):
        raise UnsupportedError(f"{owner!r} is held as terms, or scaled: its gradient is not clear")
    return msgspec.structs.replace(held, reference=wanted.name)


def _unnamed(lineage: Lineage) -> Lineage:
    return msgspec.structs.replace(lineage, reference="")


def _every_copy(
    found: Specification,
    name: str,
    offered: list[Output],
    tensors: dict[str, Tensor],
    theirs: dict[str, Tensor],
) -> None:
    """Refuse a parameter or state that is held twice, and of which one copy is not compared."""
    owner = _owner(theirs[name])
    holding = [own for own, lineage in found.given.items() if lineage.reference == owner]
    served = {_owner(tensors[output.tensor]) for output in offered}
    alone = len(holding) == 1 and any(output.lineage is not None for output in offered)
    if owner is not None and not alone and not set(holding) <= served:
        raise UnsupportedError(f"output {name!r}: not every tensor that holds {owner!r} has one")


def check_coverage(
    name: str,
    parts: dict[Instance, Part],
    shape: tuple[int, ...],
    owner: str | None,
    trace: Trace,
) -> None:
    """Refuse an output that leaves a part uncompared, or is not there where its owner is read."""
    if not parts or uncovered(list(parts.values()), shape):
        raise UnsupportedError(f"output {name!r}: the ranks do not hold all of it together")
    ranks = {rank for _, rank, _ in parts}
    if any(read == owner and rank not in ranks for read, rank, _ in trace.read):
        raise UnsupportedError(f"output {name!r}: a rank reads {owner!r} and computes no {name!r}")
