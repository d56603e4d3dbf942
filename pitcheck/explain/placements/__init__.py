"""Hypotheses about where the parts of given tensors lie."""
