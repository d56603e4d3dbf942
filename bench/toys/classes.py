"""The classes of ``transformers`` that train by themselves, by the head that they have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import transformers
from transformers.models.auto import modeling_auto

HEADS = {
    "causal language model": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "masked language model": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "sequence to sequence": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "image classification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "connectionist speech": "MODEL_FOR_CTC_MAPPING_NAMES",
    "audio classification": "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    "speech to text": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
}


@dataclass(frozen=True)
class Entry:
    """A class of ``transformers`` by its name, and the head under which the library lists it."""

    name: str
    head: str


def entries() -> Iterator[Entry]:
    """Yield every class once, in the order of the library's tables."""
    seen: set[str] = set()
    for head, table in HEADS.items():
        for listed in getattr(modeling_auto, table).values():
            for name in (listed,) if isinstance(listed, str) else listed:
                if name not in seen:
                    seen.add(name)
                    yield Entry(name, head)


def entry(name: str) -> Entry:
    """Return the entry of a class by its name."""
    return next(each for each in entries() if each.name == name)


def model_class(name: str) -> Any:
    """Import a class of the library by its name."""
    return getattr(transformers, name)
