"""Readers of other systems' plans."""
