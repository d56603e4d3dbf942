"""The specifications of ``model_zoo.py``: ``CLASS__WRAPPER``, and a mistake or ``unused`` behind.

``pitcheck check bench/model_zoo_spec.py:BertForMaskedLM__ddp`` checks one of them by itself.
"""

from __future__ import annotations

from typing import Any

from toys.programs import MISTAKES, WRAPPERS, spec


def __getattr__(name: str) -> Any:
    """Return the specification that a name stands for."""
    words = name.split("__")
    if len(words) < 2 or words[1] not in WRAPPERS:
        raise AttributeError(name)
    mistake = next((each for each in words[2:] if each in MISTAKES), "")
    return spec(words[0], words[1], mistake, unused="unused" in words[2:])
