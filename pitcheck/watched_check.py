"""One check of ``pitcheck check --watch``, in a new process.

``python -m pitcheck.watched_check READS REPORT check ...`` runs the command, logs the files that it
reads in READS, and writes its report to REPORT as well.
"""

import sys
from pathlib import Path

from pitcheck.cli import main
from pitcheck.commands.watching.files_read import log_files

if __name__ == "__main__":
    reads, report, *arguments = sys.argv[1:]
    log_files(Path(reads), [Path(reads).parent])
    sys.exit(main(arguments, outputs=[f"json:{report}"]))
