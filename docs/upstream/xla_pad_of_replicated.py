"""A pad that moves elements has no effect if its input is replicated and its result split."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
mesh = jax.make_mesh((2,), ("x",))
split, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())


def moved(x):
    """Return all elements but the first, and a zero behind them."""
    return lax.pad(x, jnp.float32(0), ((-1, 1, 0),))


x = np.array([1, 2, 3, 4], np.float32)
one = jax.jit(moved)(x)
several = jax.jit(moved, in_shardings=whole, out_shardings=split)(x)
print("one device:", one.tolist())
print("two:       ", several.tolist())
