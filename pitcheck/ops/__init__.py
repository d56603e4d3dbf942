"""The operators: one declaration for each, and the laws that proofs rest on."""
