"""Checks of plans that sources stand for."""
