"""Profiles of Hypothesis: repeatable by default, so that a run says the same twice; and a collector
that looks less often at the plans that tests keep.
"""

import gc

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("ci")
gc.set_threshold(100_000, 50, 100)


def pytest_collection_finish() -> None:
    """Leave to the collector what tests make, and not what was imported."""
    gc.freeze()
