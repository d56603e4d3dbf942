"""Every kernel compiles for GPUs of several generations, without a GPU and without a warning.

The compiler is NVRTC, of the package nvidia-cuda-nvrtc.
"""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from pathlib import Path

import pytest
from kernels.host_kernels import parameters

from pitcheck.algebra.device.kernels import source

ARCHITECTURES = (
    pytest.param("sm_75", marks=pytest.mark.slow),
    "sm_90",
    pytest.param("sm_120", marks=pytest.mark.slow),
)
OPTIONS = ("--ptxas-options=-warn-spills", "--ptxas-options=-warn-lmem-usage")


@cache
def nvrtc() -> ctypes.CDLL:
    """Return the library of the installed package; skip if there is none."""
    spec = importlib.util.find_spec("nvidia")
    folders = [] if spec is None else spec.submodule_search_locations or []
    found = sorted(
        path for folder in folders for path in Path(folder).glob("*/lib/libnvrtc.so.[0-9]*")
    )
    if not found:
        pytest.skip("nvidia-cuda-nvrtc is not installed, which compiles the kernels")
    return ctypes.CDLL(str(found[-1]))


def compiled(text: str, architecture: str) -> tuple[bytes, str]:
    """Return the binary of a source and what the compiler said. Raises ValueError if it refuses."""
    library, handle = nvrtc(), ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(handle), text.encode(), b"kernels.cu", 0, None, None)
    options = [option.encode() for option in (f"--gpu-architecture={architecture}", *OPTIONS)]
    failed = library.nvrtcCompileProgram(
        handle, len(options), (ctypes.c_char_p * len(options))(*options)
    )
    log = _read(library, handle, "ProgramLog").rstrip(b"\0").decode().strip()
    if failed:
        raise ValueError(log)
    binary = _read(library, handle, "CUBIN")
    library.nvrtcDestroyProgram(ctypes.byref(handle))
    return binary, log


def _read(library: ctypes.CDLL, handle: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(handle, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(handle, buffer)
    return buffer.raw


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_kernels_compile(architecture: str) -> None:
    binary, log = compiled(source(), architecture)
    assert log == ""
    for name in parameters(source()):
        assert name.encode() in binary, name


def test_a_wrong_kernel_does_not_compile() -> None:
    with pytest.raises(ValueError, match="undefined_name"):
        compiled(source() + "\n__device__ int f() { return undefined_name; }", "sm_75")


def test_spilled_registers_are_said() -> None:
    spilling = """
extern "C" __global__ void spill(double *x, int n) {
    double kept[64];
    for (int i = 0; i < n; ++i) kept[(i * 7) % 64] = x[i];
    for (int i = 0; i < n; ++i) x[i] = kept[(i * 5) % 64];
}
"""
    assert "local memory" in compiled(spilling, "sm_90")[1].lower()
