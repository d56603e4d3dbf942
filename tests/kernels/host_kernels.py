"""CUDA kernels built for the host, so that their arithmetic is tested without a GPU.

A prelude makes CUDA's words harmless, and the threads of a launch run one after the other. So
kernels can be built here that need no cooperation of threads: no shared memory, no barrier, no
warp. A kernel's parameters are read from its source, and arguments that do not fit them raise.

>>> product = module(source()).get_function("modular_matmul")  # doctest: +SKIP
>>> product((1,), (256,), (a, b, out, ...))  # doctest: +SKIP
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pitcheck.algebra.device.kernels import source

COMPILER = shutil.which("g++") or shutil.which("clang++")
"""The C++ compiler, or None: tests that need it say so and are skipped."""

MISSING = "there is no g++ or clang++, which builds the kernels for the host"

FLAGS = ("-std=c++17", "-O1", "-fPIC", "-shared")
WARNINGS = ("-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Werror")
SANITIZERS = ("-g", "-fsanitize=undefined,address", "-fno-sanitize-recover=all")
"""The flags added where ``PITCHECK_SANITIZE`` is set; libasan must then be preloaded."""

PRELUDE = """
#define __global__
#define __grid_constant__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
struct Place { unsigned int x, y, z; };
static thread_local Place gridDim, blockDim, blockIdx, threadIdx;
struct alignas(16) longlong2 { long long x, y; };
struct alignas(16) ulonglong2 { unsigned long long x, y; };
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
template <class T> static inline T __ldg(const T *p) { return *p; }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned int __umulhi(unsigned int a, unsigned int b) {
    return (unsigned int)((unsigned long long)a * b >> 32);
}
template <class T> static inline T atomicAdd(T *p, T v) { T old = *p; *p += v; return old; }
template <class T> static inline T atomicOr(T *p, T v) { T old = *p; *p |= v; return old; }
static inline double __longlong_as_double(long long v) {
    double d; __builtin_memcpy(&d, &v, 8); return d;
}
template <class T> struct Pointee { static constexpr long long size = 0; };
template <class T> struct Pointee<T *> { static constexpr long long size = sizeof(T); };
template <> struct Pointee<void *> { static constexpr long long size = -1; };
template <> struct Pointee<const void *> { static constexpr long long size = -1; };
"""

ENTRY = """
extern "C" const long long sizes_{name}[] = {{ {sizes} }};
extern "C" const long long pointees_{name}[] = {{ {pointees} }};
extern "C" void host_{name}(const unsigned int *grid, const unsigned int *block, void **args) {{
    gridDim = {{grid[0], grid[1], grid[2]}};
    blockDim = {{block[0], block[1], block[2]}};
    for (blockIdx.z = 0; blockIdx.z < grid[2]; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x)
    for (threadIdx.z = 0; threadIdx.z < block[2]; ++threadIdx.z)
    for (threadIdx.y = 0; threadIdx.y < block[1]; ++threadIdx.y)
    for (threadIdx.x = 0; threadIdx.x < block[0]; ++threadIdx.x)
        {name}({arguments});
}}
"""

_EXTERNAL = re.compile(r'extern\s+"C"\s+__global__')
_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)'
)
_COMMENT = re.compile(r"//[^\n]*")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: its C type, and its name."""

    type: str
    name: str


def parameters(source: str) -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of every kernel of a source, by the kernel's name."""
    text = _COMMENT.sub("", source)
    return {name: tuple(map(_parameter, given.split(","))) for name, given in _KERNEL.findall(text)}


def _parameter(text: str) -> Parameter:
    found = re.fullmatch(r"\s*(.*?)(\w+)\s*", text, re.DOTALL)
    if found is None:
        raise ValueError(f"{text!r} is not a parameter with a type and a name")
    return Parameter(" ".join(re.sub(r"__\w+__", "", found[1]).split()), found[2])


def _entry(name: str, given: Sequence[Parameter]) -> str:
    return ENTRY.format(
        name=name,
        sizes=", ".join(f"sizeof({p.type})" for p in given),
        pointees=", ".join(f"Pointee<{p.type}>::size" for p in given),
        arguments=", ".join(f"*({p.type} *)args[{i}]" for i, p in enumerate(given)),
    )


class HostKernel:
    """One kernel, launched as CuPy launches it.

    NumPy arrays stand for arrays of the device and are passed as pointers to their first element.
    NumPy arrays of a structured dtype are structs passed by value, as CuPy passes them. NumPy
    scalars are passed by value.
    """

    def __init__(self, library: ctypes.CDLL, name: str, given: Sequence[Parameter]) -> None:
        self.name = name
        self.parameters = given
        self._run = getattr(library, f"host_{name}")
        count = ctypes.c_longlong * len(given)
        self._sizes = tuple(count.in_dll(library, f"sizes_{name}"))
        self._pointees = tuple(count.in_dll(library, f"pointees_{name}"))

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: Sequence[Any]) -> None:
        """Run every thread of the launch.

        Raises:
            TypeError: if an argument does not fit its parameter.
            ValueError: if the grid or the block is empty, or larger than a GPU's.
        """
        sizes = self._launched(grid), self._launched(block)
        if np.prod(sizes[1]) > 1024:
            raise ValueError(f"{self.name}: a block has at most 1024 threads, not {block}")
        if len(args) != len(self.parameters):
            raise TypeError(f"{self.name} takes {len(self.parameters)} arguments, not {len(args)}")
        held = [self._held(i, argument) for i, argument in enumerate(args)]
        pointers = (ctypes.c_void_p * len(held))(*(h.ctypes.data for h in held))
        self._run(*((ctypes.c_uint * 3)(*size) for size in sizes), pointers)

    def _launched(self, given: tuple[int, ...]) -> tuple[int, int, int]:
        x, y, z = (*map(int, given), 1, 1)[:3]
        if min(x, y, z) < 1 or x >= 1 << 31 or max(y, z) >= 1 << 16:
            raise ValueError(f"{self.name}: {given} is no size of a grid or block")
        return x, y, z

    def _held(self, place: int, argument: Any) -> np.ndarray[Any, Any]:
        """Return an array whose memory has the argument's value: a struct, a pointer, a number."""
        parameter = self.parameters[place]
        what = f"{self.name}: the argument for {parameter.type} {parameter.name}"
        pointee = self._pointees[place]
        if isinstance(argument, np.ndarray) and argument.dtype.kind != "V":
            if pointee not in (argument.itemsize, -1):
                raise TypeError(f"{what} is an array of {argument.dtype}")
            return np.array(argument.ctypes.data, dtype=np.uint64)
        if not isinstance(argument, np.ndarray | np.generic):
            raise TypeError(f"{what} is a {type(argument).__name__}, not a NumPy scalar or array")
        if pointee or argument.nbytes != self._sizes[place]:
            raise TypeError(
                f"{what} has {argument.nbytes} bytes of {argument.dtype}, not {self._sizes[place]}"
            )
        return np.ascontiguousarray(argument)


class HostModule:
    """The kernels of one source text, with the interface of CuPy's RawModule that is used."""

    def __init__(self, source: str, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._parameters = parameters(source)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all kernels."""
        return tuple(self._parameters)

    def get_function(self, name: str) -> HostKernel:
        """Return a kernel. Raises KeyError if there is none of that name."""
        return HostKernel(self._library, name, self._parameters[name])


@cache
def module(source: str) -> HostModule:
    """Return the kernels of a source text, built once per text and kept beside this file.

    Raises:
        RuntimeError: if there is no compiler, or it refuses the source.
    """
    return HostModule(source, _library(source))


def kernel(name: str) -> HostKernel:
    """Return a kernel of pitcheck by its name."""
    return module(source()).get_function(name)


def _library(source: str) -> Path:
    if COMPILER is None:
        raise RuntimeError(MISSING)
    flags = (*FLAGS, *WARNINGS, *(SANITIZERS if os.environ.get("PITCHECK_SANITIZE") else ()))
    entries = (_entry(name, given) for name, given in parameters(source).items())
    # A kernel's name may be that of a function of the C library, which would be called instead.
    text = "\n".join((PRELUDE, _EXTERNAL.sub("static", source), *entries))
    key = hashlib.sha256("\0".join((COMPILER, *flags, text)).encode()).hexdigest()[:32]
    folder = _writable(Path(__file__).parent / "__pycache__")
    path = folder / f"kernels-{key}.so"
    if not path.exists():
        _build(text, path, flags)
    return path


def _writable(folder: Path) -> Path:
    """Return the folder, or a temporary one where it cannot be written."""
    try:
        folder.mkdir(exist_ok=True)
        usable = os.access(folder, os.W_OK)
    except OSError:
        usable = False
    return folder if usable else Path(tempfile.mkdtemp())


def _build(text: str, path: Path, flags: Sequence[str]) -> None:
    """Compile a text to a shared library; other processes may do the same at the same time."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        source, built = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        source.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [str(COMPILER), *flags, "-o", str(built), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the kernels do not compile for the host:\n{done.stderr}")
        built.replace(path)
