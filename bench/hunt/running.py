"""Programs that JAX runs on devices of the processor, and on one device, which is the judge.

It needs JAX with as many devices of the processor as a mesh has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from hunt.programs import Program, Spec, function_source, result_specs

TOLERANCE = 1e-4
"""The difference that is rounding, as a share of the largest element of a result."""
FURTHER = 8
"""The further draws of the arguments before a mismatch counts as a false alarm."""
Array = np.ndarray[Any, Any]
Shard = Callable[[Any, PartitionSpec], Any]


@dataclass(frozen=True)
class Difference:
    """A result that is not the same on several devices as on one."""

    result: int
    index: tuple[int, ...]
    expected: float
    found: float
    count: int
    elements: int


def mesh_of(program: Program) -> Mesh:
    """Return the mesh of a program."""
    devices = np.array(jax.devices("cpu"))[list(program.order)]
    sizes = [size for _, size in program.mesh]
    names = tuple(name for name, _ in program.mesh)
    return Mesh(devices.reshape(sizes), names, axis_types=(AxisType.Auto,) * len(names))


def sharding_of(mesh: Mesh, spec: Spec) -> NamedSharding:
    """Return a sharding."""
    partitions: Any = PartitionSpec  # JAX leaves it without types, as other functions below
    return NamedSharding(mesh, partitions(*(axes or None for axes in spec)))


def function_of(program: Program, shard: Shard) -> Callable[..., Any]:
    """Return the function of a program, whose lines this package has written."""
    names: dict[str, Any] = {
        "jax": jax,
        "jnp": jnp,
        "lax": lax,
        "P": PartitionSpec,
        "shard": shard,
    }
    exec("\n".join(function_source(program)), names)
    found: Callable[..., Any] = names["g" if program.gradient else "f"]
    return found


def sharded(program: Program) -> Any:
    """Return the jitted function of a program on its mesh."""
    mesh = mesh_of(program)
    constrained: Any = lax.with_sharding_constraint

    def shard(value: Any, spec: PartitionSpec) -> Any:
        return constrained(value, NamedSharding(mesh, spec))

    return jax.jit(
        function_of(program, shard),
        in_shardings=tuple(sharding_of(mesh, a.spec) for a in program.arguments),
        out_shardings=tuple(sharding_of(mesh, spec) for spec in result_specs(program)),
    )


def _whole(value: Any, spec: PartitionSpec) -> Any:  # noqa: ARG001  there is no mesh
    return value


def plain_results(program: Program) -> list[Array]:
    """Return the results on one device."""
    found = jax.jit(function_of(program, _whole))(*program.data())
    return [np.asarray(each) for each in found]


def lowered(program: Program) -> Any:
    """Return the program as JAX lowers it."""
    config: Any = jax.config
    config.update("jax_use_shardy_partitioner", program.shardy)
    return sharded(program).lower(*program.data())


def results_of(compiled: Any, program: Program) -> list[list[Array]]:
    """Return the results on several devices: each whole, once for each copy that devices hold."""
    return [_copies(each) for each in compiled(*_placed(compiled, program))]


def _placed(compiled: Any, program: Program) -> list[Any]:
    shardings = compiled.input_shardings[0]
    return [jax.device_put(x, s) for x, s in zip(program.data(), shardings, strict=True)]


def _copies(array: Any) -> list[Array]:
    """Return an array as its devices hold it: one for each copy of its parts."""
    number: dict[int, list[Any]] = {}
    for shard in array.addressable_shards:
        number.setdefault(shard.replica_id, []).append(shard)
    found = []
    for _, shards in sorted(number.items()):
        whole = np.empty(array.shape, array.dtype)
        for shard in shards:
            whole[shard.index] = np.asarray(shard.data)
        found.append(whole)
    return found


def difference(expected: Sequence[Array], found: Sequence[Sequence[Array]]) -> Difference | None:
    """Return the first result that differs, on any device, by more than rounding."""
    for number, (one, copies) in enumerate(zip(expected, found, strict=True)):
        finite = np.abs(one[np.isfinite(one)])
        allowed = TOLERANCE * max(1.0, float(finite.max()) if finite.size else 1.0)
        for other in copies:
            same = np.isclose(other, one, rtol=TOLERANCE, atol=allowed, equal_nan=True)
            if not same.all():
                place = tuple(int(i) for i in np.argwhere(~same)[0])
                return Difference(
                    number,
                    place,
                    float(one[place]),
                    float(other[place]),
                    int((~same).sum()),
                    one.size,
                )
    return None


def difference_in_further_draws(compiled: Any, program: Program) -> Difference | None:
    """Return the first difference with other values of the arguments; None if there is none."""
    for draw in range(1, FURTHER + 1):
        other = replace(program, seed=program.seed + draw)
        found = difference(plain_results(other), results_of(compiled, other))
        if found is not None:
            return found
    return None


def forget() -> None:
    """Drop all that JAX has compiled."""
    clear: Any = jax.clear_caches
    clear()
