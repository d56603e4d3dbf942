"""Residues along a chain of primes: exact arithmetic, exponentials, logarithms, roots, order and
functions without algebra.
"""
