"""Stages on real numbers: the inputs at which they are tried, and the differences that show."""
