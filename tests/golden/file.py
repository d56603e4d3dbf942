"""The golden file itself: one line of JSON per check, so that a diff of the file shows the checks
that changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from golden.account import Account, changes

GOLDEN = Path(__file__).parent / "golden.json"


def read() -> dict[str, Account]:
    """Return the accounts in the file by the names of their rows."""
    return msgspec.json.decode(GOLDEN.read_bytes(), type=dict[str, Account])


def write(accounts: Mapping[str, Account]) -> None:
    """Replace the file, with the rows in the order given."""
    lines = (
        f"{msgspec.json.encode(name).decode()}: {msgspec.json.encode(account).decode()}"
        for name, account in accounts.items()
    )
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def differences(name: str, old: Account | None, new: Account) -> Iterator[str]:
    """Yield one line per field in which a check is not as the file says."""
    if old is None:
        yield f"{name}: not in the file; add it with --write"
    else:
        yield from (f"{name}: {change}" for change in changes(old, new))
