"""The operators of a plan that each ATen overload becomes."""
