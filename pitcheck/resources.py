"""Files shipped beside the code.

They are inside the package in an installation, and in the repository's root in a checkout.
"""

from __future__ import annotations

from pathlib import Path

from pitcheck.errors import UsageError

_PACKAGE = Path(__file__).parent


def shipped(folder: str, checkout: str) -> Path:
    """Return the folder ``pitcheck/<folder>`` of an installation, ``<checkout>`` of a checkout.

    Raises:
        UsageError: if neither exists: the installation is not complete.
    """
    for path in (_PACKAGE / folder, _PACKAGE.parent / checkout):
        if path.is_dir():
            return path
    raise UsageError(
        f"this installation of pitcheck lacks its {folder} folder ({_PACKAGE / folder}); install "
        f"it anew"
    )
