"""Operators run on degrees, and the probability that two different values agree at a
random point.
"""
