"""Compare today's checks with the golden file.

``PYTHONPATH=.:tests python -m golden [--nightly] [--write] [NAME ...]``

``NAME``: rows whose names begin so or contain it; none: all of CI. ``--nightly``: the rows of the
night, too, which takes ten times as long. ``--write``: the results go into the file; without names
and with ``--nightly``, rows that no longer exist leave it. The exit code is 1 if a row differs from
the file.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from golden.file import differences, read, write
from golden.rows import rows

OPTIONS = ("--nightly", "--write")


def main(arguments: Sequence[str]) -> int:
    """Print every difference as it is found, and return the exit code."""
    names = [argument for argument in arguments if not argument.startswith("--")]
    unknown = set(arguments) - set(names) - set(OPTIONS)
    if unknown:
        sys.exit(f"no such option: {', '.join(sorted(unknown))}; there are {', '.join(OPTIONS)}")
    table, old = rows(), read()
    chosen = [row for row in table.values() if "--nightly" in arguments or not row.nightly]
    if names:
        chosen = [row for row in table.values() if any(name in row.name for name in names)]
    found = dict(old)
    different = 0
    for row in chosen:
        found[row.name] = row.account()
        lines = list(differences(row.name, old.get(row.name), found[row.name]))
        different += bool(lines)
        for line in lines:
            print(line, flush=True)
    gone = [name for name in old if name not in table]
    print(
        f"{len(chosen)} rows, {different} not as in the file; {len(gone)} in the file are no "
        f"more; {len(table.keys() - old.keys())} are not in it yet"
    )
    if "--write" in arguments:
        write({name: found[name] for name in table if name in found})
    return int(bool(different or gone))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
