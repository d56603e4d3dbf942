"""Algebras: residues modulo primes, the galois oracle, the reals, and abstract values."""
