"""Differences of outputs on real numbers, and the arithmetic that confirms them."""
