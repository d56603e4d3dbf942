"""XLA aborts the process on the gradient of a grouped convolution whose kernel is split."""

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
mesh = jax.make_mesh((2,), ("features",))
split, whole = NamedSharding(mesh, P(None, "features")), NamedSharding(mesh, P())


def loss(image, kernel):
    """Return the sum of a convolution of two groups over an image with zeros between elements."""
    return lax.conv_general_dilated(
        image, kernel, (1,), [(3, 3)], lhs_dilation=(2,), feature_group_count=2
    ).sum()


image = np.ones((1, 8, 1), np.float32)
kernel = np.ones((2, 4, 1), np.float32)
gradient = jax.grad(loss, (0, 1))
print("one device:", [each.shape for each in jax.jit(gradient)(image, kernel)], flush=True)
several = jax.jit(gradient, in_shardings=(whole, split), out_shardings=(whole, split))
print("two:       ", [each.shape for each in several(image, kernel)])
