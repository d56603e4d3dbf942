"""Packings: documents one after another in a sequence, and what follows from them."""
