"""A step of training on a mesh of 4 times 2 devices, which XLA partitions."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

RATE = 0.1


def step(params, x, y):
    def loss(params):
        hidden = jax.nn.relu(x @ params["first"])
        return jnp.mean((hidden @ params["second"] - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - RATE * g, params, gradients)


def program():
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def at(*axes):
        return NamedSharding(mesh, PartitionSpec(*axes))

    def array(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    weights = {"first": at(None, "model"), "second": at("model", None)}
    batch = at("data", None)
    jitted = jax.jit(step, in_shardings=(weights, batch, batch), out_shardings=(at(), weights))
    params = {"first": array(16, 64), "second": array(64, 16)}
    return jitted, (params, array(32, 16), array(32, 16))
