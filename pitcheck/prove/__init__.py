"""Proofs of stages over residues, their trials on real numbers, and the accepted error."""
