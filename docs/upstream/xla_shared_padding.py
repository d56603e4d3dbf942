"""Two windows over one array share its padding, though one is padded with 0 and one with 1."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
mesh = jax.make_mesh((2,), ("x",))
split = NamedSharding(mesh, P("x"))


def running(x):
    """Return running sums, and running products."""
    return jnp.cumsum(x), jnp.cumprod(x)


x = np.array([1, 2, 3, 4], np.float32)
one = jax.jit(running)(x)
several = jax.jit(running, in_shardings=split, out_shardings=(split, split))(x)
print("one device:", [y.tolist() for y in one])
print("two:       ", [y.tolist() for y in several])
