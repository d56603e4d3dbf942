"""Programs by ``shard_map`` before and after XLA's partitioner: prints their texts as JSON.

Needs JAX. Its output is ``texts/shard_maps.jsonl``.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import jax
import numpy as np
from withjax.cases import RIGHT, start_jax

from pitcheck.frontends.xla.running.dumping import dumped_around_partitioner

_TABLES = re.compile(r"\n(FileNames|FunctionNames|FileLocations|StackFrames)\n(\d+ .*\n)*")
_METADATA = re.compile(r", metadata=\{[^}]*\}")
NAMES = (
    "gradients of a product",
    "product scattered and gathered",
    "ring attention in a loop",
    "gradients of experts",
    "pipeline",
)


def bare(text: Path) -> str:
    """Return a text without where its lines come from."""
    return _METADATA.sub("", _TABLES.sub("", text.read_text()))


def texts_of(name: str) -> dict[str, Any]:
    """Return the texts of a program with its inputs, and the outputs that JAX computes."""
    sharded, _, args = RIGHT[name]()
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(x.shape).astype(np.float32) for x in args]
    jitted = jax.jit(sharded)
    with tempfile.TemporaryDirectory() as folder:
        texts = dumped_around_partitioner(jitted.lower(*args), Path(folder))
        before, after = bare(texts.before), bare(texts.after)
    return {
        "name": name,
        "before": before,
        "after": after,
        "inputs": [x.tolist() for x in given],
        "outputs": [np.asarray(x).tolist() for x in jax.tree.leaves(jitted(*given))],
    }


def main() -> None:
    """Print all programs."""
    start_jax()
    for name in NAMES:
        print(json.dumps(texts_of(name)))


if __name__ == "__main__":
    main()
