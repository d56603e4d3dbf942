"""The translation of ATen overloads to operators of a plan."""
