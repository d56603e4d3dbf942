"""Files shipped beside the code: inside the package in an installation, in the repository's root in
a checkout.
"""

from __future__ import annotations

from pathlib import Path

from pitcheck.errors import UsageError

_PACKAGE = Path(__file__).parent


def shipped(folder: str, checkout: str) -> Path:
    """The folder that is ``pitcheck/<folder>`` in an installation and ``<checkout>`` in a checkout.

    Raises UsageError where neither exists: an installation that is not whole.
    """
    for path in (_PACKAGE / folder, _PACKAGE.parent / checkout):
        if path.is_dir():
            return path
    raise UsageError(
        f"this installation of pitcheck lacks its {folder} folder ({_PACKAGE / folder}); install "
        f"it anew"
    )
