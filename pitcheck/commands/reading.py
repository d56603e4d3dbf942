"""Reading a plan from a file of any format that pitcheck knows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pitcheck.errors import PlanError, UsageError
from pitcheck.plan.model import Plan

PLAN_SUFFIXES = (".plan.json", ".plan.zst")
CONFIGURATION_SUFFIX = ".toml"


def is_configuration(file: str) -> bool:
    """Whether a file, by its suffix, is a configuration that both plans are built from."""
    return file.endswith(CONFIGURATION_SUFFIX)


PROGRAM = re.compile(r".+\.py:[A-Za-z_]\w*", re.ASCII)


def is_program(source: str) -> bool:
    """Whether a source names a specification in a Python file, FILE.py:NAME."""
    return PROGRAM.fullmatch(source) is not None


def read_program(source: str, jobs: int | None) -> list[Plan]:
    """Both plans of the programs that FILE.py:NAME names; the file is the user's own program, and runs.

    Raises PlanError for a file that is not there or raises, UsageError for a name that is no specification, UnsupportedError as ``capture``.
    """
    from pitcheck.frontends.torch.capture import capture  # noqa: PLC0415
    from pitcheck.frontends.torch.load import load_spec  # noqa: PLC0415

    file, _, name = source.rpartition(":")
    return list(capture(load_spec(file, name), jobs=jobs))


def read_pair(file: str, assignments: Sequence[str]) -> list[Plan]:
    """The reference and the parallel plan of a configuration. Raises PlanError for one that cannot run, UsageError for a wrong assignment."""
    from pitcheck.programs.configuration import read_configuration  # noqa: PLC0415  most plans come from files

    configuration = read_configuration(Path(file), assignments)
    return [configuration.reference(), configuration.parallel()]


def read(file: str) -> Plan:
    """The plan in ``file``; its suffix says its format. Nothing in the file is executed.

    Raises PlanError for a file that is not there, is of no known format or cannot be read, and UnsupportedError for an operator without a meaning.
    """
    path = Path(file)
    if not path.exists():
        raise PlanError("no such file", file)
    if path.is_dir():
        raise PlanError("this is a directory; name a plan file", file)
    try:
        if file.endswith(PLAN_SUFFIXES):
            from pitcheck.plan.files import read_plan  # noqa: PLC0415

            return read_plan(path)
        if file.endswith(".pkl"):
            from pitcheck.frontends.nnscaler import read_nnscaler  # noqa: PLC0415

            return read_nnscaler(path)
    except UsageError as error:
        raise PlanError(str(error)) from None
    except OSError as error:
        raise PlanError(f"cannot read it: {error.strerror or error}", file) from None
    if is_configuration(file):
        raise PlanError("this configuration stands for two plans; `pitcheck plan make` writes them to files", file)
    raise PlanError(f"unknown format; plan files end in {', '.join(PLAN_SUFFIXES)}, nnScaler execution plans in .pkl", file)
