"""Residues on a GPU: kernels behind the operations of modular arithmetic."""
