"""The version of all that decides what a proof says: the code, and the libraries it computes with.

>>> len(meaning())
64
"""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pitcheck
from pitcheck.resources import shipped

LIBRARIES = (
    "numpy",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "galois",
    "networkx",
    "mpmath",
    "gmpy2",
    "msgspec",
    "zstandard",
    "torch",  # it records programs, and judges planted faults
)
"""The libraries whose versions count."""
SUFFIXES = (".py", ".cu", ".cuh")
"""The files that count: the arithmetic of kernels stands in a header, too."""


@cache
def meaning() -> str:
    """Return SHA-256 of all code of this package, of its kernels and of the libraries' versions.

    Every change of the code makes another version: what an operator means is spread over its rules,
    the algebras, the bounds and the reductions of stages. Raises OSError.
    """
    digest = hashlib.sha256(repr((sys.version_info[:3], sys.byteorder)).encode())
    for library in LIBRARIES:
        digest.update(f"{library} {_version(library)}\n".encode())
    for root in (Path(pitcheck.__file__).parent, shipped("kernels", "kernels")):
        for path in sorted(p for p in root.rglob("*") if p.suffix in SUFFIXES):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
