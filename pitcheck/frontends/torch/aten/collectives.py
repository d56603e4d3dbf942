"""The collectives of a trace, which ``COLLECTIVES`` in ``trace.py`` lists."""

from __future__ import annotations

from pitcheck.frontends.torch.aten.emitter import Emitter, Tensor
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.frontends.torch.rewrites.uneven_all_to_all import part_sizes
from pitcheck.ops.meanings.collectives import REDUCTIONS
from pitcheck.plan.model import Attribute, Group


def _collective(
    e: Emitter, kind: str, x: Tensor, attributes: dict[str, Attribute], rows: int | None = None
) -> Tensor:
    """Return the result of a collective over the group of the event.

    ``rows`` is the size of the result's dimension 0, if it differs from that of ``x``.
    """
    shape = x.shape if rows is None else (rows, *x.shape[1:])
    return e.op(
        kind,
        x,
        shape=shape,
        dtype=x.dtype,
        attributes={**attributes, **_waiting(e)},
        group=Group(ranks=(e.event.group,), name=e.event.communicator),
    )


def _rows(e: Emitter, x: Tensor) -> int:
    if x.ndim == 0:
        raise e.unsupported("x", x, "it has no dimension 0")
    return x.shape[0]


def _waiting(e: Emitter) -> dict[str, Attribute]:
    return {"async": True} if e.asynchronous else {}


def _batched(e: Emitter) -> dict[str, Attribute]:
    """Return the attribute of sends and receives that do not wait for one another."""
    return {} if e.event.batch is None else {"batch": e.event.batch}


def _known(e: Emitter, reduction: str) -> str:
    if reduction not in REDUCTIONS:
        raise e.unsupported("reduction", reduction, f"the known ones are {', '.join(REDUCTIONS)}")
    return reduction


def _all_reduce(e: Emitter, x: Tensor, reduction: str) -> Tensor:
    return _collective(e, "all_reduce", x, {"reduction": _known(e, reduction)})


def _all_gather(e: Emitter, x: Tensor) -> Tensor:
    return _collective(e, "all_gather", x, {"axis": 0}, _rows(e, x) * len(e.event.group))


def _reduce_scatter(e: Emitter, x: Tensor, reduction: str) -> Tensor:
    if _rows(e, x) % len(e.event.group):
        raise e.unsupported("x", x, f"dimension 0 is not cut into {len(e.event.group)} equal parts")
    return _collective(
        e,
        "reduce_scatter",
        x,
        {"axis": 0, "reduction": _known(e, reduction)},
        x.shape[0] // len(e.event.group),
    )


def _all_to_all(
    e: Emitter, x: Tensor, sent: tuple[int, ...] | None, received: tuple[int, ...] | None
) -> Tensor:
    _check_parts(e, "sizes sent", sent, _rows(e, x))
    if e.shape != x.shape:
        raise e.unsupported(
            "x",
            x,
            f"the parts sent and received have one size, but what is received has shape {e.shape}",
        )
    _check_parts(e, "sizes received", received, e.shape[0])
    return _collective(e, "all_to_all", x, {"split_axis": 0, "concat_axis": 0})


def _check_parts(e: Emitter, name: str, sizes: tuple[int, ...] | None, rows: int) -> None:
    """Raise UnsupportedError if the parts of an all-to-all have different sizes.

    ``sizes`` are the rows of every member's part; None for equal parts.
    """
    if len(set(part_sizes(e.event, name, sizes, rows))) > 1:
        raise e.unsupported(name, sizes, "the parts have one size")


def _broadcast(e: Emitter, x: Tensor, root: int) -> Tensor:
    return _collective(e, "broadcast", x, {"root": root})


def _barrier(e: Emitter) -> tuple[()]:
    e.raw("barrier", (), (), {}, Group(ranks=(e.event.group,), name=e.event.communicator))
    return ()


def _send(e: Emitter, x: Tensor, peer: int, tag: int) -> tuple[()]:
    e.raw("send", (x,), (), {"peer": peer, "tag": _tag(e, tag), **_batched(e), **_waiting(e)})
    return ()


def _tag(e: Emitter, tag: int | str) -> int | str:
    """Return the tag of a message, with the name of its group.

    The messages of each group are a channel of their own.
    """
    return f"{tag} of group {e.event.communicator}" if e.event.communicator else tag


def _receive(e: Emitter, peer: int, tag: int) -> Tensor:
    return e.op(
        "receive",
        shape=e.shape,
        attributes={"peer": peer, "tag": _tag(e, tag), **_batched(e), **_waiting(e)},
    )


def _wait(e: Emitter, x: Tensor) -> Tensor | tuple[()]:
    if not e.event.outputs:
        e.raw("wait", (x,), ())
        return ()
    return e.like("wait", x)


TABLE: dict[str, Row] = {
    "all_reduce": row(_all_reduce, "x reduction"),
    "all_gather": row(_all_gather, "x"),
    "reduce_scatter": row(_reduce_scatter, "x reduction"),
    "all_to_all": row(_all_to_all, "x sent received"),
    "broadcast": row(_broadcast, "x root"),
    "barrier": row(_barrier, ""),
    "send": row(_send, "x peer tag"),
    "receive": row(_receive, "peer tag"),
    "wait": row(_wait, "x"),
}
