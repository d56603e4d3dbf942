"""Random formulas, rewritings that are right, and mistakes, for ``bench/soundness.py``."""
