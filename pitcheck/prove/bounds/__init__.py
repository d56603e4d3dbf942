"""Bounds on the error of the draws of a stage."""
