"""Steps of training of recurrent cells in flax: prints their texts.

``python recurrent_programs.py FILE`` needs JAX and flax. The file is ``texts/recurrent.jsonl.gz``.
"""

from __future__ import annotations

import sys
from typing import Any

from jax_programs import pair, sharded, write  # first: it sets XLA's flags

import flax.linen as nn  # isort: skip
import jax  # isort: skip
import jax.numpy as jnp  # isort: skip
import numpy as np  # isort: skip

CELLS = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell}
FEATURES, LENGTH, BATCH, WORDS = 4, 6, 4, 8


class Reader(nn.Module):
    """Words, a recurrent cell over them, and scores of the next words."""

    cell: Any

    @nn.compact
    def __call__(self, words: Any) -> Any:
        x = nn.Embed(WORDS, FEATURES)(words)
        return nn.Dense(WORDS)(nn.RNN(self.cell(FEATURES))(x))


def program(name: str) -> Any:
    """Return the texts of the loss of a model and its gradients."""
    words = np.random.default_rng(0).integers(0, WORDS, (BATCH, LENGTH)).astype(np.int32)
    model = Reader(CELLS[name])
    weights = model.init(jax.random.key(0), words)["params"]

    def step(weights: Any, words: Any) -> Any:
        def loss(weights: Any) -> Any:
            scores = model.apply({"params": weights}, words)
            chosen = jax.nn.one_hot(jnp.roll(words, -1, 1), WORDS)
            total = jax.nn.logsumexp(scores, -1)
            return jnp.mean(total - (scores * chosen).sum(-1)) + 1e-3 * jnp.mean(total**2)

        return jax.value_and_grad(loss)(weights)

    step.__name__ = name
    places = jax.tree.map(lambda x: sharded(*(None,) * (x.ndim - 1), "t"), weights)
    return pair(step, (weights, words), (places, sharded("d")), (sharded(), places))


def main() -> None:
    """Write all programs into a file."""
    write(sys.argv[1], [program(name) for name in CELLS])


if __name__ == "__main__":
    main()
