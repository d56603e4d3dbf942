"""Residues along a chain of primes: arithmetic, exponentials, roots, order, keyed functions."""
