"""A convolution over a dilated image is wrong if its result is split."""

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
mesh = jax.make_mesh((4,), ("x",))
split, whole = NamedSharding(mesh, P(None, None, "x")), NamedSharding(mesh, P())


def dilated(x, kernel):
    """Return a convolution over an image with two zeros between its elements."""
    return lax.conv_general_dilated(x, kernel, (1,), [(3, 3)], (3,), (2,))


x = np.array([[[-2, -1, 0, -3]]], np.float32)
kernel = np.array([[[3, -4, -1, 2, 1]]], np.float32)
one = jax.jit(dilated)(x, kernel)
several = jax.jit(dilated, in_shardings=(whole, whole), out_shardings=split)(x, kernel)
print("one device:", one.reshape(-1).tolist())
print("four:      ", several.reshape(-1).tolist())
