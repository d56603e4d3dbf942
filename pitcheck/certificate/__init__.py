"""Certificates of proofs, and a small verifier that shares no computing code with the prover."""
