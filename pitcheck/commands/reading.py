"""Reading a plan from a file of any format that pitcheck knows."""

from __future__ import annotations

from pathlib import Path

from pitcheck.errors import PlanError, UsageError
from pitcheck.plan.model import Plan

PLAN_SUFFIXES = (".plan.json", ".plan.zst")


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
    raise PlanError(f"unknown format; plan files end in {', '.join(PLAN_SUFFIXES)}, nnScaler execution plans in .pkl", file)
