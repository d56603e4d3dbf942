"""The frontend of configurations: it builds both plans from a model and a layout."""

from __future__ import annotations

from pathlib import Path

from pitcheck.frontends.protocol import Frontend, Request
from pitcheck.plan.model import Plan

CONFIGURATION_SUFFIX = ".toml"


def _read_configuration(request: Request) -> tuple[Plan, Plan]:
    """Build both plans.

    Raises ConfigurationError for one that cannot run, UsageError for what is no assignment.
    """
    from pitcheck.programs.configuration import read_configuration  # noqa: PLC0415  most plans come from files

    configuration = read_configuration(Path(request.source), request.assignments)
    return configuration.reference(), configuration.parallel()


CONFIGURATIONS = Frontend(
    "configuration",
    "a configuration (.toml)",
    lambda source: source.endswith(CONFIGURATION_SUFFIX),
    _read_configuration,
    gives_pair=True,
    takes_settings=True,
    in_one_file=True,
)
