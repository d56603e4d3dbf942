"""The gradient of a max pooling whose windows overlap is wrong if the pooled dimension is split."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
mesh = jax.make_mesh((2,), ("space",))
split = NamedSharding(mesh, P("space"))


def loss(x):
    """Return a weighted sum of the largest elements of all windows."""
    largest = lax.reduce_window(x, -jnp.inf, lax.max, (3,), (1,), "VALID")
    return (largest * jnp.arange(1, largest.size + 1)).sum()


x = np.array([2, 0, 1, 3], np.float32)  # windows: 2 0 1 and 0 1 3
gradient = jax.grad(loss)
one = jax.jit(gradient)(x)
several = jax.jit(gradient, in_shardings=split, out_shardings=split)(x)
print("one device:", one.tolist())
print("two:       ", several.tolist())
