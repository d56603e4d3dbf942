"""Training steps spread over ranks, written by hand as frameworks write them.

They are not derived from the reference.
"""
