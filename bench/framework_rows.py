"""The rows of ``docs/frameworks.md``: programs with frameworks, each with its planted mistakes.

No framework is imported, so that the page can be held against this table where none is installed.
"""

from __future__ import annotations

import library_rows
import torch_rows
from framework_row import Row

ROWS: tuple[Row, ...] = (*torch_rows.ROWS, *library_rows.ROWS)
