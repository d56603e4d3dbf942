"""A pad that moves elements leaves them where they are if its input is replicated and its result split."""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

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
