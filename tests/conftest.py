"""Profiles of Hypothesis: repeatable by default, so that a run says the same twice; a collector
that looks less often at the plans that tests keep; and the tests that are left to the night.
"""

import gc

import pytest
from attacks.folder import EXISTS as ATTACKS_EXIST
from hypothesis import settings
from support import night

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("ci")
gc.set_threshold(100_000, 50, 100)


def pytest_collection_finish() -> None:
    """Leave to the collector what tests make, and not what was imported."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of ``night.txt`` to the night, and refuse a list that is not of today."""
    names = frozenset(night.listed(night.LIST.read_text()))
    night.leave(items, names)
    # A clone that stands alone lacks the cases of the folders beside a checkout.
    if any("::" in argument for argument in config.args) or not ATTACKS_EXIST:
        return
    by_day = {item.nodeid for item in items if item.get_closest_marker("nightly") is None}
    if wrong := night.faults(sorted(names), by_day, {item.nodeid for item in items}):
        raise pytest.UsageError("\n".join([f"{night.LIST}:", *wrong]))
