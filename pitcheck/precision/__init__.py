"""Precision rules: where the parallel plan rounds more than the reference does. They never touch
the verdict of equivalence.
"""
