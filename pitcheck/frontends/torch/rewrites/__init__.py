"""Rewrites of a trace before it becomes a plan."""
