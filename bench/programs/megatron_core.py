"""The GPTModel of megatron-core, for ``bench/capture.py``: the programs of the tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from frontends.torch.frameworks.megatron_gpt import Setup
from frontends.torch.frameworks.megatron_gpt import spec as pair

spec = pair(Setup(tensor=2, sequence=True))
