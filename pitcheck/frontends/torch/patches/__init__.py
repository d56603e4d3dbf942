"""Patches of Python, NumPy and PyTorch for the time in which a user's program runs here."""
