"""The path on which a new process finds modules: this pitcheck first, then as this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PACKAGES = Path(__file__).resolve().parents[2]


def import_path() -> str:
    """Return the PYTHONPATH of a new process that must not look into its working directory.

    The folder of this package comes first: something may have put another one before it since it
    was imported.
    """
    return os.pathsep.join([str(_PACKAGES), *(each for each in sys.path if each)])
