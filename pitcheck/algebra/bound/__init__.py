"""Degrees of operators' results, and the probability that two values agree at a random point."""
