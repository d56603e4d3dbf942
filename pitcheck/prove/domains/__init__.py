"""Domains of both sides: divisors, arguments of roots and logarithms, and cuts."""
