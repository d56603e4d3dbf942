"""The commands of sweeps: ``sweep``, ``page`` and ``merge``. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Any

import click

from pitcheck.base.seeds import LAST_SEED
from pitcheck.cli_options import CACHE_DIRECTORY, REMEMBER

_OUTPUT = click.option(
    "--output",
    multiple=True,
    metavar="FORMAT[:FILE]",
    help="Write the results as text, jsonl, junit or sarif; without FILE to stdout. Repeatable.",
)


@click.command()
@click.argument("file")
@click.option(
    "--results",
    metavar="FILE",
    help="Where results are written. [default: a new file in .pitcheck/sweeps]",
)
@click.option(
    "--resume/--no-resume",
    default=False,
    help="Go on with the results, by default with the newest ones.",
)
@click.option(
    "--before",
    metavar="FILE",
    help="Results of an earlier sweep: what failed there is checked first. [default: the newest]",
)
@click.option(
    "--since",
    metavar="FILE",
    help="Leave out what was good in these results, and nothing has changed for since then.",
)
@click.option(
    "--shard",
    default="1/1",
    show_default=True,
    metavar="I/N",
    help="Check one of N parts of the sweep.",
)
@click.option(
    "--seed", type=click.IntRange(0, LAST_SEED), help="Makes the sweep repeatable. [default: drawn]"
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Configurations that are checked at once. [default: one per processor or GPU]",
)
@click.option(
    "--stage-jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that prove the stages of one configuration.",
)
@click.option(
    "--engine",
    type=click.Choice(["processes", "ray"]),
    default="processes",
    show_default=True,
    help="Where configurations are checked: on this machine, or on a Ray cluster.",
)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="The Ray cluster. [default: that of RAY_ADDRESS, or one on this machine]",
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "numpy", "cupy"]),
    default="auto",
    show_default=True,
    help="Array library; cupy has a GPU for each process; auto is numpy.",
)
@REMEMBER
@CACHE_DIRECTORY
@_OUTPUT
@click.option("--quiet/--no-quiet", "-q", default=False, help="Show no progress.")
def sweep(**values: Any) -> int:
    """Check all configurations of the sweep in FILE (.toml).

    Each is checked in a process of its own, and what becomes of it is one row of the results.

    Exits 0 if everything is as expected, 1 if something is wrong, 3 if something is not known.
    """
    from pitcheck.sweep.command import run  # noqa: PLC0415

    return run(**values)


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--out",
    default="night",
    show_default=True,
    metavar="DIRECTORY",
    help="Where the page is written: a new or an empty folder, or one with an older page.",
)
def page(files: tuple[str, ...], out: str) -> int:
    """Write the results of a sweep as a page, with the report of every check and a badge.

    Of several FILES the newest is shown; the others are earlier sweeps, with which it is compared.
    """
    from pitcheck.sweep.command import page as run  # noqa: PLC0415

    return run(files, out)


@click.command()
@click.argument("target")
@click.argument("files", nargs=-1, required=True)
@_OUTPUT
def merge(target: str, files: tuple[str, ...], output: tuple[str, ...]) -> int:
    """Write the results of all parts of a sweep in FILES to the new file TARGET.

    Parts that are missing, twice there, not finished, or of different sweeps are refused.
    """
    from pitcheck.sweep.command import merge as run  # noqa: PLC0415

    return run(target, files, output)
