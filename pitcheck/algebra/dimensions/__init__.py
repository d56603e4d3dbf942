"""Shapes without numbers: operators run on dimensions, which dimensions are tied, and how small
their sizes may be.
"""
