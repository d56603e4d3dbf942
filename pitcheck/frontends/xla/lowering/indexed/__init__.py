"""Reads and writes at indices: slices that begin at one, gathers and scatters."""
