"""Operators over windows that move over an array: reductions, selections, convolutions."""
