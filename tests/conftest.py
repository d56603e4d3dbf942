"""Profiles of Hypothesis: repeatable by default, so that a run says the same twice."""

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("ci")
