"""The gradient of an embedding has padding in its first row if tokens do not divide evenly."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("unused", "tokens"))
split, whole = NamedSharding(mesh, P("tokens")), NamedSharding(mesh, P())


def loss(table, tokens, sharded):
    """Return the sum of the rows of all tokens, which are split or not."""
    rows = jnp.take(table, tokens, axis=0, mode="clip")
    if sharded:
        rows = lax.with_sharding_constraint(rows, split)
    return rows.sum()


table = np.ones((6, 1), np.float32)
tokens = np.array([1, 2, 3, 4, 5], np.int32)  # five, over two devices
gradient = jax.grad(loss)
one = jax.jit(gradient, static_argnums=2)(table, tokens, False)
several = jax.jit(gradient, static_argnums=2, in_shardings=(whole, whole), out_shardings=whole)(
    table, tokens, True
)
print("one device:", one.reshape(-1).tolist())
print("four:      ", several.reshape(-1).tolist())
