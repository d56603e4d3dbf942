"""Operators run on what elements may depend on."""
