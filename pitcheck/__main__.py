"""``python -m pitcheck``."""

import sys

from pitcheck.cli import main

sys.exit(main())
