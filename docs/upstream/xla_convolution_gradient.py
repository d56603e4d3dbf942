"""The gradient of a kernel is too large by the size of an axis of the mesh that is not used."""

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
mesh = jax.make_mesh((2, 2), ("space", "unused"))
rows, whole = NamedSharding(mesh, P(None, "space")), NamedSharding(mesh, P())


def loss(kernel, image):
    """Return the sum of a convolution over rows and columns."""
    return lax.conv_general_dilated(
        image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    ).sum()


kernel = np.ones((3, 3, 1, 1), np.float32)
image = np.arange(64, dtype=np.float32).reshape(1, 8, 8, 1)
gradient = jax.grad(loss)
one = jax.jit(gradient)(kernel, image)
several = jax.jit(gradient, in_shardings=(whole, rows), out_shardings=whole)(kernel, image)
print("one device:", np.asarray(one).reshape(3, 3).tolist())
print("four:      ", np.asarray(several).reshape(3, 3).tolist())
