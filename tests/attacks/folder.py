"""Folder of plans and programs that somebody attacked pitcheck with. It lies beside the checkout,
and a clone may stand alone: then it is empty.
"""

from __future__ import annotations

from pathlib import Path

ATTACKS = Path(__file__).parents[3] / "shared" / "attacks"
EXISTS = ATTACKS.is_dir()
NOT_EQUIVALENT = ("mismatch", "invalid", "inconclusive")
EXIT_CODES = {"equivalent": 0, "mismatch": 1, "invalid": 2, "inconclusive": 3, "nothing": 5}
"""Exit codes by the verdicts of the manifest; ``nothing`` stands for a plan of which nothing was
compared.
"""
