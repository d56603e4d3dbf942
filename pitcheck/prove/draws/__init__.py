"""Draws of one stage at definite sizes, and their outcome."""
