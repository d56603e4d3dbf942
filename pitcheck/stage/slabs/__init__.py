"""Sums over large inputs, evaluated slab by slab."""
