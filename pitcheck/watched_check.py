"""One check of ``pitcheck check --watch``, in a new process.

``python -m pitcheck.watched_check READS REPORT check ...`` runs the command, logs in READS what it
asks the file system, and writes its report to REPORT as well.
"""

import sys
from pathlib import Path

from pitcheck.cli import main
from pitcheck.commands.watching.files_read import Log

if __name__ == "__main__":
    reads, report, *arguments = sys.argv[1:]
    log = Log(Path(reads), [Path(reads).parent])
    log.searches(sys.path)
    try:
        code = main(arguments, outputs=[f"json:{report}"])
    finally:
        log.searches(sys.path)
    sys.exit(code)
