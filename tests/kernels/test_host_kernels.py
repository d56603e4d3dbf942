"""The host's build of kernels: what it computes, and what it refuses."""

from typing import Any

import numpy as np
import pytest
from kernels.host_kernels import HostModule, module, parameters

from kernels import host_kernels
from pitcheck.algebra.device.kernels import source
from pitcheck.cache.meaning import SUFFIXES
from pitcheck.resources import shipped

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)

SOURCE = """
struct Step { long long by; long long times; };
extern "C" __global__ void advance(const long long *__restrict__ a, // a comment, with a comma
                                   long long *out, const Step step, unsigned long long size) {
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
         i < size; i += (unsigned long long)gridDim.x * blockDim.x)
        out[i] = a[i] + step.by * step.times;
}
"""
STEP = np.dtype([("by", np.int64), ("times", np.int64)])


@pytest.fixture(scope="module")
def built() -> HostModule:
    return module(SOURCE)


def arguments(size: int = 5) -> list[Any]:
    step = np.array([(3, 2)], dtype=STEP)
    return [np.arange(size), np.zeros(size, np.int64), step, np.uint64(size)]


def test_parameters_are_read_from_the_source() -> None:
    found = parameters(SOURCE)["advance"]
    assert [p.type for p in found] == [
        "const long long *",
        "long long *",
        "const Step",
        "unsigned long long",
    ]
    assert [p.name for p in found] == ["a", "out", "step", "size"]


@pytest.mark.parametrize("grid, block", [((1,), (1,)), ((2,), (2,)), ((7, 1, 1), (64, 1, 1))])
def test_a_launch_runs_every_thread(
    built: HostModule, grid: tuple[int, ...], block: tuple[int, ...]
) -> None:
    given = arguments()
    built.get_function("advance")(grid, block, given)
    assert given[1].tolist() == [6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    "place, wrong",
    [
        (0, np.arange(5, dtype=np.int32)),
        (0, np.int64(0)),
        (1, None),
        (2, np.zeros(2, STEP)),
        (3, np.uint32(5)),
        (3, 5),
        (3, np.arange(5)),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(
    built: HostModule, place: int, wrong: object
) -> None:
    given = arguments()
    given[place] = wrong
    with pytest.raises(TypeError, match="advance: the argument for"):
        built.get_function("advance")((1,), (1,), given)


def test_an_empty_or_too_large_launch_is_refused(built: HostModule) -> None:
    for grid, block in (((0,), (1,)), ((1,), (0,)), ((1,), (2048,)), ((1, 1 << 16), (1,))):
        with pytest.raises(ValueError, match="advance"):
            built.get_function("advance")(grid, block, arguments())


def test_a_wrong_source_is_refused() -> None:
    with pytest.raises(RuntimeError, match="undeclared"):
        module(SOURCE.replace("step.by", "undeclared"))


def test_every_file_of_kernels_counts_for_remembered_proofs() -> None:
    """A proof of earlier arithmetic must not be taken for one of today's."""
    files = [path for path in shipped("kernels", "kernels").iterdir() if path.suffix != ".md"]
    assert len(files) > 8 and {path.suffix for path in files} <= set(SUFFIXES)
    joined = source()
    assert all(path.read_text(encoding="utf-8") in joined for path in files)
