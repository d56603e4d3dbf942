"""Steps of training of the decoders in flax, on a mesh of eight devices.

Needs JAX, flax and optax. Its output is ``texts/decoders.jsonl.gz``.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from jax_programs import pair, places_of, write  # first: it sets XLA's flags

import flax.linen as nn  # isort: skip
import jax  # isort: skip
import numpy as np  # isort: skip
from flax_models import RULES, Decoder, Sizes, state_of, train_step  # isort: skip
from jax.sharding import AxisType, NamedSharding  # isort: skip
from jax.sharding import PartitionSpec as P  # isort: skip

DECODERS = {
    "dense": Sizes(),
    "experts": Sizes(experts=4),
    "slots": Sizes(experts=4, capacity=3),
    "ragged": Sizes(experts=4, ragged=True),
}
BATCH, LENGTH = 8, 4


def batch_of(sizes: Sizes) -> dict[str, Any]:
    """Return words in segments, 0 for none, with their positions and the words behind them."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, sizes.vocabulary, (BATCH, LENGTH + 1)).astype(np.int32)
    segments = np.tile(np.array([1, 1, 2, 0], np.int32), (BATCH, 1))
    segments[::2] = 1
    positions = np.tile(np.arange(LENGTH, dtype=np.int32), (BATCH, 1))
    return {
        "inputs": words[:, :-1],
        "positions": np.where(segments == 2, 0, positions),
        "segments": segments,
        "targets": words[:, 1:],
    }


def _amid_training(state: Any) -> Any:
    """Return a state whose moments are no zeros, and whose steps are counted."""
    rng = np.random.default_rng(1)

    def some(x: Any) -> Any:
        if x.dtype == np.int32:
            return np.int32(3)
        return rng.uniform(0.01, 0.1, x.shape).astype(x.dtype)

    return state.replace(step=np.int32(3), opt_state=jax.tree.map(some, state.opt_state))


def program(name: str, sizes: Sizes) -> Any:
    """Return the texts of a step of training, with inputs and outputs."""
    mesh = jax.make_mesh((2, 2, 2), ("data", "fsdp", "tensor"), axis_types=(AxisType.Auto,) * 3)
    model = Decoder(sizes)
    step = partial(train_step, model)
    step.__name__ = name
    batch = batch_of(sizes)
    with mesh, nn.logical_axis_rules(RULES):
        boxed = _amid_training(state_of(model, 0))
        state = nn.unbox(boxed)
        places = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)
        rows = jax.tree.map(lambda _: NamedSharding(mesh, P(("data", "fsdp"))), batch)
        numbers = ("loss", "z_loss", "gradient_norm", "parameter_norm")
        whole = dict.fromkeys(numbers, NamedSharding(mesh, P()))
        given, inputs = (state, batch), (places, rows)
        return pair(step, given, inputs, (places, whole)) | {"places": places_of(given, inputs)}


def main() -> None:
    """Write all decoders, or those that are named."""
    file, *names = sys.argv[1:]
    write(file, [program(name, DECODERS[name]) for name in names or DECODERS])


if __name__ == "__main__":
    main()
