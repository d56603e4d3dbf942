"""Precision rules: where the parallel plan rounds more than the reference does.

They never change the verdict of equivalence.
"""
