"""Writing in place through views: what is recorded is what eager torch computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from frontends.torch.replay import call
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.recorder import Recorder
from pitcheck.frontends.torch.recording.tape import Kind, Place, Tape

Tensor = torch.Tensor


def replayed(
    program: Callable[[dict[str, Tensor]], list[Tensor]], start: dict[str, Tensor]
) -> tuple[list[Tensor], Tape]:
    """The results of a program as its recording has them, and the recording."""
    tape = Tape(Place)
    with FakeTensorMode() as fake, Recorder(tape, fake) as recorder:
        tensors, values = {}, {}
        for name, tensor in start.items():
            tensors[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
            number = tape.give(Kind(tuple(tensor.shape), tensor.dtype), "input", name)
            recorder.storages.write(tensors[name], number)
            values[number] = tensor
        results = [recorder.storages.read(tensor) for tensor in program(tensors)]
    for item in tape.given.values():
        if item.integers is not None:
            values[item.value] = torch.tensor(item.integers).reshape(tape.kinds[item.value].shape)
    for event in tape.events:
        for number, result in zip(event.outputs, call(event, values), strict=True):
            if number is not None:
                assert Kind(tuple(result.shape), result.dtype) == tape.kinds[number], event
                values[number] = result
    return [values[number] for number in results], tape


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, int, list[int], float]]:
    """Steps: the kind, the tensor it is about, numbers to choose sizes by, and a factor."""
    kinds = st.sampled_from([*VIEWS, *VIEWS, *WRITES, "new"])
    step = st.tuples(
        kinds,
        st.integers(0, 50),
        st.lists(st.integers(0, 11), min_size=4, max_size=4),
        st.sampled_from([0.5, 2.0, -1.0]),
    )
    return draw(st.lists(step, min_size=2, max_size=14))


def _dims(x: Tensor, numbers: list[int]) -> tuple[int, int]:
    return numbers[0] % x.dim(), numbers[1] % x.dim()


def _slice(x: Tensor, numbers: list[int]) -> Tensor:
    dim = numbers[0] % x.dim()
    begin = numbers[1] % x.shape[dim]
    end = begin + 1 + numbers[2] % (x.shape[dim] - begin)
    return x[(slice(None),) * dim + (slice(begin, end, 1 + numbers[3] % 3),)]


def _divided(x: Tensor, numbers: list[int]) -> Tensor:
    dim = numbers[0] % x.dim()
    factors = [n for n in range(1, x.shape[dim] + 1) if x.shape[dim] % n == 0]
    return x.unflatten(dim, (factors[numbers[1] % len(factors)], -1))


def _flattened(x: Tensor, numbers: list[int]) -> Tensor:
    dim = numbers[0] % x.dim()
    if dim + 1 >= x.dim() or x.stride(dim) != x.stride(dim + 1) * x.shape[dim + 1]:
        return x
    return x.view(*x.shape[:dim], -1, *x.shape[dim + 2 :])


def _strided(x: Tensor, numbers: list[int]) -> Tensor:
    room = x.untyped_storage().nbytes() // x.itemsize
    rows, columns, step = 1 + numbers[0] % 3, 1 + numbers[1] % 4, 1 + numbers[2] % 3
    outer = columns * step + numbers[3] % 3
    if 1 + (rows - 1) * outer + (columns - 1) * step > room:
        return x
    return x.as_strided((rows, columns), (outer, step), 0)


VIEWS: dict[str, Callable[[Tensor, list[int]], Tensor]] = {
    "transpose": lambda x, n: x.transpose(*_dims(x, n)),
    "select": lambda x, n: (
        x.select(n[0] % x.dim(), n[1] % x.shape[n[0] % x.dim()]) if x.dim() > 1 else x
    ),
    "slice": _slice,
    "divided": _divided,
    "flattened": _flattened,
    "unsqueeze": lambda x, n: x.unsqueeze(n[0] % (x.dim() + 1)),
    "diagonal": lambda x, n: x.diagonal(0, 0, 1) if x.dim() > 1 else x,
    "strided": _strided,
    "chunk": lambda x, n: x.chunk(2, n[0] % x.dim())[-1],
    "expand": lambda x, n: x.unsqueeze(0).expand(2, *x.shape) if x.dim() < 3 else x,
    "detach": lambda x, n: x.detach(),
}


def _other(tensors: list[Tensor], like: Tensor, index: int) -> Tensor:
    other = tensors[index % len(tensors)].reshape(-1)
    return other.repeat(-(-like.numel() // other.numel()))[: like.numel()].view(like.shape)


WRITES: dict[str, Callable[[Tensor, Tensor, float], object]] = {
    "add_": lambda x, y, f: x.add_(y, alpha=f),
    "mul_": lambda x, y, f: x.mul_(f),
    "copy_": lambda x, y, f: x.copy_(y),
    "fill_": lambda x, y, f: x.fill_(f),
    "zero_": lambda x, y, f: x.zero_(),
    "out": lambda x, y, f: torch.mul(x.clone(), y, out=x),
    "setitem": lambda x, y, f: x.__setitem__(slice(None), y * f),
    "foreach": lambda x, y, f: torch._foreach_add_([x], [y.clone()], alpha=f),
    "turned": lambda x, y, f: x.transpose_(0, -1).add_(f),
    "unsqueezed": lambda x, y, f: x.unsqueeze_(0) if x.dim() < 3 else x.squeeze_(),
    "restrided": lambda x, y, f: x.as_strided_((1,), (1,)).mul_(f),
    "grown": lambda x, y, f: x.copy_(
        torch.add(x.clone(), y, alpha=f, out=torch.empty(0, dtype=x.dtype))
    ),
    "mm": lambda x, y, f: torch.sub(y, x, out=x) if x.is_contiguous() else x.neg_(),
}


def run(program: list[tuple[str, int, list[int], float]], start: dict[str, Tensor]) -> list[Tensor]:
    tensors = list(start.values())
    for kind, index, numbers, factor in program:
        x = tensors[index % len(tensors)]
        if kind in VIEWS:
            tensors.append(VIEWS[kind](x, numbers) if x.dim() else x)
        elif kind == "new":
            tensors.append(x * factor)
        elif not any(size > 1 and not step for size, step in zip(x.shape, x.stride(), strict=True)):
            WRITES[kind](x, _other(tensors, x, numbers[0]), factor)
    return [tensor + 0 for tensor in tensors]


@settings(max_examples=200)
@given(programs())
@example(
    [
        ("fill_", 0, [0] * 4, 0.5),
        ("transpose", 0, [0, 1, 0, 0], 0.5),
        ("add_", 0, [2, 0, 0, 0], 0.5),
    ]
)
def test_random_programs(program) -> None:
    start = {
        "a": torch.arange(24.0, dtype=torch.float64).view(2, 3, 4),
        "b": torch.arange(12.0, dtype=torch.float64) ** 2,
    }
    found, _ = replayed(lambda tensors: run(program, tensors), start)
    wanted = run(program, {name: tensor.clone() for name, tensor in start.items()})
    for result, want in zip(found, wanted, strict=True):
        assert torch.equal(result, want)


def test_parts_of_a_flat_buffer_are_intervals() -> None:
    """A buffer of many parameters: writing and reading each costs an event or two, however large
    the buffer is.
    """
    shapes = [(3, 4)] * 50

    def program(tensors):
        flat = torch.zeros(600, dtype=torch.float64)
        views = [
            flat[12 * index : 12 * (index + 1)].view(shape) for index, shape in enumerate(shapes)
        ]
        for index, view in enumerate(views):
            view.add_(tensors["x"] * index)
        return [flat, flat[6:30], views[3]]

    x = torch.arange(12.0, dtype=torch.float64).view(3, 4)
    found, tape = replayed(program, {"x": x})
    whole = torch.cat([x.flatten() * index for index in range(50)])
    assert (
        torch.equal(found[0], whole)
        and torch.equal(found[1], whole[6:30])
        and torch.equal(found[2], x * 3)
    )
    large = [
        event
        for event in tape.events
        for number in event.outputs
        if number is not None and tape.kinds[number].elements == 600
    ]
    assert len(large) <= 4


def test_memory_read_as_another_dtype_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="int64 is read as float64"):
        replayed(
            lambda tensors: [tensors["x"].view(torch.int64)[1:].add_(1), tensors["x"]],
            {"x": torch.zeros(4, dtype=torch.float64)},
        )


@pytest.mark.parametrize("place", [slice(16, None), slice(0, 16), slice(8, 24), slice(None)])
def test_memory_written_with_elements_of_another_size_is_refused(place: slice) -> None:
    """Places in bytes are not places in elements: what lies behind these is other numbers than
    before, at either place.
    """
    with pytest.raises(UnsupportedError, match="memory that holds float64 is written as int8"):
        replayed(
            lambda tensors: [(tensors["x"] * 2).view(torch.int8)[place].zero_(), tensors["x"]],
            {"x": torch.zeros(4, dtype=torch.float64)},
        )
