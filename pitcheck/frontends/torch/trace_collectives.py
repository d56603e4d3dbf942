"""The collectives of a trace and their arguments; which rank is which is said by the event's
``group``.

=============== ===================================================================================
all_reduce      (x, reduction): "sum", "avg", "max", "min" or "product"
all_gather      (x,): the members' tensors joined along dimension 0
reduce_scatter  (x, reduction): the sum, of whose dimension 0 every member has an equal part
all_to_all      (x, sizes sent, sizes received): parts of dimension 0; None for equal parts
broadcast       (x, root): of the member at place ``root`` of the group
send            (x, peer, tag): to global rank ``peer``; has no output
receive         (peer, tag): from global rank ``peer``
barrier         (): nobody goes on before all members have come here; has no output
=============== ===================================================================================

An asynchronous collective stands where it is launched; ``wait`` (x,) stands where it is waited for,
and gives the value that may be read from there on. A send that was ``launched`` is waited for by a
``wait`` of what it sends, which has no output.
"""

COLLECTIVES = frozenset(
    {
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "broadcast",
        "barrier",
        "send",
        "receive",
        "wait",
    }
)
