"""Checks that what a text states twice agrees, and that what it names is there."""
