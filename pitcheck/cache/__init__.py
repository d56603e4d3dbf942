"""Proofs and reports of earlier runs."""
