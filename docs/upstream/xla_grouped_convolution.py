"""The partitioner corrupts memory on a grouped convolution whose groups are split twice."""

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
mesh = Mesh(np.array(jax.devices()).reshape(2, 2, 2), ("a", "b", "c"))
image_split = NamedSharding(mesh, P(None, "a"))
kernel_split = NamedSharding(mesh, P(("b", "c")))


def grouped(image, kernel):
    """Return a convolution of two groups."""
    return lax.conv_general_dilated(image, kernel, (1,), [(0, 0)], feature_group_count=2)


image = np.array([[[1], [0]]], np.float32)
kernel = np.array([[[4]], [[-3]], [[-3]], [[-3]]], np.float32)
print("one device:", jax.jit(grouped)(image, kernel).reshape(-1).tolist(), flush=True)
several = jax.jit(grouped, in_shardings=(image_split, kernel_split), out_shardings=image_split)
print("eight:     ", several(image, kernel).reshape(-1).tolist())
