"""Draws of lists of devices, as XLA prints them and as arrays of NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@st.composite
def counts(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Draw sizes and a transposition of them."""
    sizes = draw(SIZES)
    return sizes, draw(st.permutations(range(len(sizes))))


def printed_count(sizes: list[int], order: list[int]) -> str:
    """Print a count as XLA does."""
    reshape = ",".join(map(str, sizes))
    return f"[{reshape}]" + (f"T({','.join(map(str, order))})" if len(sizes) > 1 else "")


@st.composite
def meshes(draw: st.DrawFn) -> tuple[str, np.ndarray]:
    """Draw a mesh with its text and its array of devices, in each notation of device_ids."""
    sizes, order = draw(counts())
    total = int(np.prod(sizes))
    names = [f"axis_{number}" for number in range(len(sizes))]
    axes = ",".join(f"'{name}'={size}" for name, size in zip(names, sizes, strict=True))
    kind = draw(st.sampled_from(["plain", "count", "list"]))
    if kind == "plain":
        return f"mesh[{axes}]", np.arange(total).reshape(sizes)
    if kind == "list":
        devices = draw(st.permutations(range(total)))
        text = f"mesh[{axes}], device_ids=({','.join(map(str, devices))})"
        return text, np.array(devices).reshape(sizes)
    array = np.arange(total).reshape(sizes).transpose(order)
    text = f"mesh[{axes}], device_ids=({printed_count(sizes, order)})"
    return text, array.reshape(sizes)
