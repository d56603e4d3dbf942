"""A place that lies outside a slice is clamped to it, unless XLA joins both slices to one."""

import jax
import numpy as np
from jax import lax

jax.config.update("jax_platforms", "cpu")


def element(x, start, place):
    """Return the element at a place of the 4 elements from a start on, as an array of one."""
    return lax.dynamic_slice(lax.dynamic_slice(x, (start,), (4,)), (place,), (1,))


def added(x, start, place, update):
    """Return the 4 elements from a start on, with an update added at a place."""
    return lax.dynamic_slice(x, (start,), (4,)).at[place].add(update)


x = np.arange(8, dtype=np.float32)
start, place, update = np.int32(0), np.int32(5), np.float32(100)
print("element, step by step:", element(x, start, place).tolist())
print("element, compiled:    ", jax.jit(element)(x, start, place).tolist())
print("added, step by step:  ", added(x, start, place, update).tolist())
print("added, compiled:      ", jax.jit(added)(x, start, place, update).tolist())
