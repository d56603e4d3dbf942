"""Changes of one thing in a planner's file: what runs otherwise, and what looks otherwise and runs
alike. An executor says which is which.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from frontends.nnscaler.nnscaler_executed import Change, kind, plain, tensors

FP16 = "torch.float16"


def cells(root: Any) -> Iterator[tuple[int, Any]]:
    """(device, cell), each cell object once."""
    seen = set()
    for device, sequence in root.execplan._seq.items():
        for item in sequence:
            cell = getattr(item, "_cell", item) if kind(item) == "ExeReuseCell" else item
            if id(cell) not in seen:
                seen.add(id(cell))
                yield device, cell


def calls(root: Any, device: int, of: str, backward: bool | None = None) -> list[Any]:
    """The calls of a device of one kind of cell."""
    found = []
    for item in root.execplan._seq[device]:
        cell = item._cell if kind(item) == "ExeReuseCell" else item
        if kind(cell) == of and (backward is None or is_backward(cell) == backward):
            found.append(item)
    return found


def is_backward(cell: Any) -> bool:
    return (
        not cell._forward
        if kind(cell) == "IRAdapter"
        else any(kind(node) == "IRBpOperation" for node in cell._nodes)
    )


def nodes(root: Any, of: str = "IRDimops", devices: tuple[int, ...] | None = None) -> list[Any]:
    """Operators, or adapters, in segments."""
    return [
        node
        for device, cell in cells(root)
        if kind(cell) == "IRSegment" and (devices is None or device in devices)
        for node in cell._nodes
        if kind(node) == of
    ]


def primitives(
    root: Any, function: str, devices: tuple[int, ...] | None = None, inside: bool | None = None
) -> list[Any]:
    """The primitives that run a function, each object once: in adapters inside segments, between
    them, or both.
    """
    adapters = [(d, cell, False) for d, cell in cells(root) if kind(cell) == "IRAdapter"]
    adapters += [
        (d, node, True)
        for d, cell in cells(root)
        if kind(cell) == "IRSegment"
        for node in cell._nodes
        if kind(node) == "IRAdapter"
    ]
    found = {
        id(primitive): primitive
        for device, adapter, within in adapters
        if (devices is None or device in devices) and inside in (None, within)
        for primitive in adapter._prims
        if primitive.signature == f"nnscaler.runtime.adapter.{function}"
    }
    return list(found.values())


def keyword(
    function: str,
    name: str,
    change: Callable[[Any], Any],
    devices: tuple[int, ...] | None = None,
    first: bool = False,
) -> Change:
    """One keyword of the primitives of a function."""

    def apply(root: Any) -> None:
        chosen = primitives(root, function, devices)
        for primitive in chosen[:1] if first else chosen:
            primitive.kwargs[name] = change(plain(primitive.kwargs[name]))

    return apply


def signature(
    function: str, other: str, devices: tuple[int, ...] | None = None, rename: str = ""
) -> Change:
    """Another signature; ``rename`` is the class that goes with it."""

    def apply(root: Any) -> None:
        for primitive in primitives(root, function, devices):
            primitive.signature = f"nnscaler.runtime.adapter.{other}"
            if rename:
                object.__setattr__(primitive, "__class__", renamed(type(primitive), rename))

    return apply


def renamed(cls: Any, name: str) -> Any:
    """A class of stubs with another name in the file."""
    return type(cls)("Stub", cls.__bases__, {"origin": (cls.origin[0], name), "made": cls.made})


def swap_calls(
    device: int, of: str, backward: bool | None, first: int = 0, second: int = 1
) -> Change:
    """Two calls of one kind in each other's place."""

    def apply(root: Any) -> None:
        sequence = root.execplan._seq[device]
        chosen = calls(root, device, of, backward)
        a, b = sequence.index(chosen[first]), sequence.index(chosen[second])
        sequence[a], sequence[b] = sequence[b], sequence[a]

    return apply


def drop_calls(device: int, of: str, backward: bool | None, *which: int) -> Change:
    def apply(root: Any) -> None:
        chosen = calls(root, device, of, backward)
        for number in which:
            root.execplan._seq[device].remove(chosen[number])

    return apply


def swap_inputs(of: str, backward: bool, devices: tuple[int, ...]) -> Change:
    """Two micro-batches of a cell get each other's inputs."""

    def apply(root: Any) -> None:
        for device in devices:
            a, b, *_ = calls(root, device, of, backward)
            a._inputs, b._inputs = b._inputs, a._inputs

    return apply


def swap_outputs(of: str, backward: bool | None, devices: tuple[int, ...]) -> Change:
    def apply(root: Any) -> None:
        for device in devices:
            a, b, *_ = calls(root, device, of, backward)
            a._outputs, b._outputs = b._outputs, a._outputs

    return apply


def reducer(change: Callable[[list[Any]], list[Any]], devices: tuple[int, ...]) -> Change:
    """Other weights in a reducer."""

    def apply(root: Any) -> None:
        for device in devices:
            for cell in calls(root, device, "IRWeightReducer"):
                cell._inputs = change(list(cell._inputs))

    return apply


def reducer_devices(
    change: Callable[[tuple[int, ...]], tuple[int, ...]], devices: tuple[int, ...]
) -> Change:
    def apply(root: Any) -> None:
        for device in devices:
            for cell in calls(root, device, "IRWeightReducer"):
                cell._device = change(tuple(cell._device))

    return apply


def reducer_early(device: int) -> Change:
    """The reducers run before the last backward pass."""

    def apply(root: Any) -> None:
        sequence = root.execplan._seq[device]
        moved = [item for item in sequence if kind(item) == "IRWeightReducer"]
        last = calls(root, device, "IRSegment", True)[-1]
        sequence[:] = [item for item in sequence if item not in moved]
        place = sequence.index(last)
        sequence[place:place] = moved

    return apply


def argument(
    function: str, change: Callable[[Any], None], which: int = 0, everywhere: bool = True
) -> Change:
    """An operator of the forward pass is changed, on all devices or on one."""

    def apply(root: Any) -> None:
        chosen = [node for node in nodes(root) if node.signature == function]
        identity = chosen[which]._id
        for node in chosen if everywhere else chosen[which : which + 1]:
            if node._id == identity or not everywhere:
                change(node)

    return apply


def swap_operands(node: Any) -> None:
    node._inputs[0], node._inputs[1] = node._inputs[1], node._inputs[0]


def set_keyword(name: str, value: Any) -> Callable[[Any], None]:
    def apply(node: Any) -> None:
        node._kwargs[name] = value

    return apply


def set_input(place: int, value: Any) -> Callable[[Any], None]:
    def apply(node: Any) -> None:
        node._inputs[place] = value

    return apply


def no_hints(root: Any) -> None:
    """The backward operators name nothing that they give."""
    for node in nodes(root, "IRBpOperation"):
        node._outputs = []


def reversed_hints(root: Any) -> None:
    for _, cell in cells(root):
        if kind(cell) == "IRSegment" and is_backward(cell):
            cell._nodes = list(reversed(cell._nodes))


def exchanged_mirrors(root: Any) -> None:
    """Backward operators say that they belong to other forward operators."""
    chosen = nodes(root, "IRBpOperation")
    mirrors = [node._mirror for node in chosen]
    for node, mirror in zip(chosen, [*mirrors[1:], mirrors[0]], strict=True):
        node._mirror = mirror


def exchanged_segments(root: Any) -> None:
    """On device 0 the second backward call belongs to the first forward call too."""
    first, second = calls(root, 0, "IRSegment", True)
    second._mirror = first._mirror


def other_boxes(root: Any) -> None:
    """The parts that activations are said to be: nothing that runs reads them."""
    for node in nodes(root):
        for tensor in tensors(node._outputs):
            tensor._indmap._indices = tuple(
                (start + 1, stop + 1) for start, stop in plain(tensor._indmap._indices)
            )


def terms_of_sums(root: Any) -> None:
    for node in nodes(root):
        for tensor in tensors(node._outputs):
            tensor._valmap._weight = (0, 1)


def loss_flag(root: Any) -> None:
    """The gradient that the last stage begins with is no gradient of the loss any more."""
    for _, cell in cells(root):
        if kind(cell) == "IRSegment":
            for tensor in tensors(cell._inputs):
                if tensor._is_grad:
                    tensor._full_tensor._is_loss = False


def seeds_everywhere(root: Any) -> None:
    """Gradients between stages are said to be gradients of the loss."""
    for device in root.execplan._seq:
        for call in calls(root, device, "IRSegment", True):
            for tensor in tensors(call._inputs):
                tensor._full_tensor._is_loss = True


def no_gradient(root: Any) -> None:
    """The outputs of the first stage need no gradient, so that nothing is saved."""
    for call in calls(root, 0, "IRSegment", False):
        for tensor in tensors(call._outputs):
            tensor._requires_grad = False


def frozen_weight(root: Any) -> None:
    for node in nodes(root, devices=(0, 1))[:1]:
        weight = node._inputs[1]
        weight._requires_grad = False


def shared_weight(root: Any) -> None:
    """The second operator of every device reads the weight of the first."""
    for _, cell in cells(root):
        if kind(cell) == "IRSegment" and not is_backward(cell):
            found = [
                node
                for node in cell._nodes
                if kind(node) == "IRDimops" and node.signature.endswith("linear")
            ]
            if len(found) > 1 and tuple(plain(found[0]._inputs[1]._shape)) == tuple(
                plain(found[1]._inputs[1]._shape)
            ):
                found[1]._inputs[1] = found[0]._inputs[1]


def another_input(root: Any) -> None:
    """The first operator after the first reads what the first read."""
    for _, cell in cells(root):
        if kind(cell) == "IRSegment" and not is_backward(cell):
            found = [
                node
                for node in cell._nodes
                if kind(node) == "IRDimops" and node.signature.endswith("linear")
            ]
            for a, b in itertools.pairwise(found):
                if tuple(plain(a._inputs[0]._shape)) == tuple(plain(b._inputs[0]._shape)):
                    b._inputs[0] = a._inputs[0]
                    return


def chunk_before_after(root: Any) -> None:
    """In adapters between segments the primitives stand in the reverse order."""
    for _, cell in cells(root):
        if kind(cell) == "IRAdapter":
            cell._prims = list(reversed(cell._prims))


def repeated_backward(root: Any) -> None:
    sequence = root.execplan._seq[0]
    last = calls(root, 0, "IRSegment", True)[-1]
    sequence.insert(sequence.index(last) + 1, last)


def extra_forward(root: Any) -> None:
    """A forward pass more, before all others, of which nothing is used: its saved inputs are the
    first.
    """
    sequence = root.execplan._seq[0]
    first = calls(root, 0, "IRSegment", False)[0]
    sequence.insert(sequence.index(first), first)


def fewer_names(root: Any) -> None:
    """The backward pass of a later stage gives its gradient no name."""
    last = max(root.execplan._seq)
    for call in calls(root, last, "IRSegment", True):
        call._outputs = []
        call._cell._outputs = []


def mixed_gradients(root: Any) -> None:
    """The second micro-batch's backward pass begins with the first one's gradient."""
    first, second = calls(root, 0, "IRSegment", True)
    second._inputs = first._inputs


def next_exchanged(root: Any) -> None:
    """Two unpacked sizes in each other's place."""
    for _, cell in cells(root):
        if kind(cell) == "IRSegment":
            steps = [
                node for node in cell._nodes if getattr(node, "signature", "") == "builtins.next"
            ]
            if steps:
                steps[0]._outputs, steps[1]._outputs = steps[1]._outputs, steps[0]._outputs


def sizes_said(root: Any) -> None:
    """Change the sizes that the tracer saw, which nothing that runs reads."""
    for _, cell in cells(root):
        for node in getattr(cell, "_nodes", []) if kind(cell) == "IRSegment" else []:
            if kind(node) == "IRPyFunc":
                for thing in node._outputs:
                    thing._value = 7


def unpacked(sizes: tuple[int, ...]) -> Change:
    """Other sizes are unpacked."""

    def apply(root: Any) -> None:
        for _, cell in cells(root):
            for node in getattr(cell, "_nodes", []) if kind(cell) == "IRSegment" else []:
                if getattr(node, "signature", "") == "builtins.iter":
                    node._inputs = [sizes]

    return apply


def as_list(ranks: Any) -> Any:
    return list(reversed(ranks))


def reordered(orders: dict[int, tuple[int, ...]]) -> Change:
    """The calls of devices in another order, by their places."""

    def apply(root: Any) -> None:
        for device, order in orders.items():
            sequence = root.execplan._seq[device]
            sequence[: len(order)] = [sequence[place] for place in order]

    return apply
