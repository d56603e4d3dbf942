"""Trials, error bound, verdict."""
