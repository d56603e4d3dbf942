"""Shapes without numbers: operators on dimensions, their ties, and the least sizes possible."""
