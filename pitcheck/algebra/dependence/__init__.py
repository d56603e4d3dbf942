"""Operators run on the dependences of elements."""
