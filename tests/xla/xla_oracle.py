"""Run HLO texts by XLA on the CPU: an oracle for their meaning, which needs JAX.

Reads cases from standard input, one JSON object a line, and writes each with its outputs. A case
has a text, the number of devices, and for each device the inputs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true"
)
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax._src.lib import xla_client

DTYPES = {
    "pred": "bool",
    "s8": "int8",
    "s16": "int16",
    "s32": "int32",
    "s64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f32": "float32",
    "f64": "float64",
}


def as_replicas(text: str) -> str:
    """Return a text of partitions as one of replicas, which run without the partitioner."""
    text = text.replace("num_partitions=", "replica_count=").replace("partition-id", "replica-id")
    return re.sub(r", (channel_id=\d+|use_global_device_ids=true)", "", text)


def outputs(text: str, devices: int, inputs: list[list[Any]]) -> list[list[Any]]:
    """Return the outputs on each device. ``inputs``: [type, elements] of each, on each device."""
    module = xla_client.hlo.hlo_module_from_text(as_replicas(text))
    program = xla_client._xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    chosen = jax.devices()[:devices]
    options = xla_client.CompileOptions()
    options.num_replicas = devices
    options.device_assignment = xla_client.DeviceAssignment.create(
        np.arange(devices).reshape(devices, 1)
    )
    executable = chosen[0].client.compile_and_load(
        program, xla_client.DeviceList(tuple(chosen)), options
    )
    given = [_spread([part[number] for part in inputs], chosen) for number in range(len(inputs[0]))]
    found = executable.execute_sharded(given).disassemble_into_single_device_arrays()
    return [[np.asarray(part[d]).tolist() for part in found] for d in range(devices)]


def _spread(parts: list[Any], devices: list[Any]) -> Any:
    """Return an array that holds a part on each device."""
    arrays = [
        jax.device_put(np.array(elements, dtype=DTYPES[kind]), device)
        for (kind, elements), device in zip(parts, devices, strict=True)
    ]
    # The sharding is not looked at: it says that all hold the same.
    mesh = jax.sharding.Mesh(np.array(devices), ("d",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return jax.make_array_from_single_device_arrays(arrays[0].shape, everywhere, arrays)


def main() -> None:
    """Run the cases."""
    jax.config.update("jax_enable_x64", True)
    for line in sys.stdin:
        case = json.loads(line)
        print(
            json.dumps(case | {"outputs": outputs(case["text"], case["devices"], case["inputs"])})
        )


if __name__ == "__main__":
    main()
