"""Witness, shrinking, replay, localisation, cause."""
