"""``pitcheck replay``: a saved witness, computed again."""

from __future__ import annotations

from pathlib import Path

from pitcheck.base.nearest import nearest_file
from pitcheck.errors import UsageError
from pitcheck.report.destinations import print_bytes


def run(witness: str) -> int:
    """Print what the replay of ``witness`` shows; return 1 if the plans still differ on it, else 0.

    Raises UsageError for a file that does not exist.
    """
    path = Path(witness)
    if path.is_dir():
        raise UsageError(f"{witness}: this is a directory; name a file NAME.witness.json in it")
    if not path.is_file():
        raise UsageError(
            f"{witness}: no such file{nearest_file(path)}; a check that finds a mismatch names the "
            f"witness it saved"
        )
    from pitcheck.witness.replay import replay  # noqa: PLC0415  heavy: a file that is not there need not wait for it

    text, code = replay(path)
    print_bytes(f"{text}\n".encode("utf-8", "backslashreplace"))
    return code
