"""What a class needs beside the rules for the names of fields, with the reason."""

from __future__ import annotations

from typing import Any

OVERRIDES: dict[str, dict[str, Any]] = {}
