"""Standalone scripts of programs, for people who have JAX alone."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from hunt.programs import Program, function_source, result_specs, spec_source

PLAIN = 12
"""The most elements that are written one by one."""


def script_of(program: Program, title: str = "") -> str:
    """Return a script that prints the results on one device and on a mesh."""
    return "\n".join(_lines(program, title)) + "\n"


def _lines(program: Program, title: str) -> Iterator[str]:
    names = ", ".join(repr(name) for name, _ in program.mesh)
    if title:
        yield f'"""{title}"""'
        yield ""
    yield "import jax"
    yield "import jax.numpy as jnp"
    yield "import numpy as np"
    yield "from jax import lax"
    yield "from jax.sharding import Mesh, NamedSharding"
    yield "from jax.sharding import PartitionSpec as P"
    yield ""
    yield 'jax.config.update("jax_platforms", "cpu")'
    yield f'jax.config.update("jax_num_cpu_devices", {program.devices})'
    yield f'jax.config.update("jax_use_shardy_partitioner", {program.shardy})'
    sizes = tuple(size for _, size in program.mesh)
    devices = "np.array(jax.devices())"
    if program.order != tuple(range(program.devices)):
        devices += f"[{list(program.order)}]"
    yield f"mesh = Mesh({devices}.reshape({sizes}), ({names},))"
    yield "on_mesh = False"
    yield ""
    yield ""
    yield "def shard(x, spec):"
    yield "    return lax.with_sharding_constraint(x, NamedSharding(mesh, spec)) if on_mesh else x"
    yield ""
    yield ""
    yield from function_source(program)
    yield ""
    yield ""
    function = "g" if program.gradient else "f"
    yield "args = ("
    for value in program.data():
        yield f"    {_array_source(value)},"
    yield ")"
    given, results = (
        "".join(f"NamedSharding(mesh, {spec_source(spec)}), " for spec in specs)
        for specs in ([a.spec for a in program.arguments], result_specs(program))
    )
    yield f"expected = jax.jit({function})(*args)"
    yield "on_mesh = True"
    yield f"{function}_again = lambda *args: {function}(*args)  # traced anew"
    yield f"inputs = ({given.rstrip()})"
    yield f"outputs = ({results.rstrip()})"
    yield f"found = jax.jit({function}_again, in_shardings=inputs, out_shardings=outputs)(*args)"
    yield "for one, other in zip(expected, found):"
    yield '    print("one device:", np.asarray(one).tolist())'
    yield '    print("the mesh:  ", np.asarray(other).tolist())'
    yield '    print("equal:     ", np.allclose(one, other, rtol=1e-4, atol=1e-4))'


def _array_source(value: np.ndarray[Any, Any]) -> str:
    """Return an array as Python has it."""
    kind = f"np.{value.dtype}"
    if value.ndim == 0:
        return f"{kind}({value.item()})"
    if prod(value.shape) > PLAIN and value.ndim > 1:
        flat = value.reshape(-1).tolist()
        return f"np.array({flat}, {kind}).reshape({value.shape})"
    return f"np.array({value.tolist()}, {kind})"
