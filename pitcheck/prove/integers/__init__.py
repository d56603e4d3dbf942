"""Integers that are computed from drawn integers, and the outcomes of what they decide."""
