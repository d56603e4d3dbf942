"""Options that several commands have. Nothing heavy is imported here."""

from __future__ import annotations

import click

REMEMBER = click.option(
    "--cache/--no-cache",
    default=True,
    show_default=True,
    help="Remember proofs, and take those of earlier runs.",
)
CACHE_DIRECTORY = click.option(
    "--cache-directory",
    default=".pitcheck",
    show_default=True,
    metavar="DIRECTORY",
    help="Where proofs are remembered.",
)
