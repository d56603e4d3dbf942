"""Repairs: each is one hypothesis about what an operator should do otherwise."""
