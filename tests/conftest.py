"""Draws that are the same in every run: a profile of Hypothesis, and one seed for the checks that
state none; outputs that do not depend on where tests run; a collector that looks less often at the
plans that tests keep; and the tests that are left to the night, or need a GPU.
"""

import gc
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from attacks.folder import EXISTS as ATTACKS_EXIST
from hypothesis import settings
from support import gpu, night

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("ci")
gc.set_threshold(100_000, 50, 100)

# Variables that change what pytest, rich or click print: a service of CI sets some, a desk others.
SURROUNDINGS = (
    "BUILD_NUMBER",
    "CI",
    "COLUMNS",
    "FORCE_COLOR",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "LINES",
    "NO_COLOR",
    "PYTEST_ADDOPTS",
    "PY_COLORS",
)


def seed_of(text: str) -> int | None:
    """Return a whole number, or None for ``fresh``. Raises ValueError."""
    return None if text == "fresh" else int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--seed``."""
    parser.addoption(
        "--seed",
        type=seed_of,
        default=1,
        help="the seed of checks that state none: a whole number, or 'fresh' for another in each",
    )


@pytest.fixture(scope="session", autouse=True)
def one_seed(pytestconfig: pytest.Config) -> Iterator[None]:
    """Give one seed to all checks in this process that state none.

    With fresh seeds, a test that one draw in twenty breaks fails in one run of twenty.
    """
    seed = pytestconfig.getoption("--seed")
    with pytest.MonkeyPatch.context() as patch:
        if seed is not None:
            patch.setattr(secrets, "randbits", lambda bits: seed % 2**bits)
        yield


@pytest.fixture(scope="session", autouse=True)
def same_surroundings() -> Iterator[None]:
    """Let tests and the programs that they start print the same, at a desk and in CI."""
    with pytest.MonkeyPatch.context() as patch:
        for name in SURROUNDINGS:
            patch.delenv(name, raising=False)
        yield


def pytest_collection_finish() -> None:
    """Leave to the collector what tests make, and not what was imported."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of ``night.txt`` to the night, and refuse a list that is not of today."""
    names = frozenset(night.listed(night.LIST.read_text()))
    night.leave(items, names)
    gpu.leave(items)
    # A clone that stands alone lacks the cases of the folders beside a checkout.
    if any("::" in argument for argument in config.args) or not ATTACKS_EXIST:
        return
    by_day = {item.nodeid for item in items if item.get_closest_marker("nightly") is None}
    if wrong := night.faults(sorted(names), by_day, {item.nodeid for item in items}):
        raise pytest.UsageError("\n".join([f"{night.LIST}:", *wrong]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests need a GPU and were skipped."""
    if line := gpu.told(terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(line, yellow=True)
