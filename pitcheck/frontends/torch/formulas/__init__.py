"""Operators and optimizers of PyTorch, written as the plain operators that they consist of."""
