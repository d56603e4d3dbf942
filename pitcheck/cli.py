"""The command line.

Nothing heavy is imported here: ``pitcheck --help`` must cost no more than click itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from pitcheck import __version__
from pitcheck.base.seeds import LAST_SEED
from pitcheck.base.streams import flush_or_drop, messages, reserve_closed, say
from pitcheck.cli_options import CACHE_DIRECTORY, REMEMBER
from pitcheck.cli_sweep import merge, page, sweep
from pitcheck.errors import BudgetError, PitcheckError, UnsupportedError

INVALID, INCONCLUSIVE, INTERRUPTED, NO_READER = 2, 3, 130, 141


class Commands(click.Group):
    """A click group whose exit code is 1 only for a mismatch that a witness shows."""

    def invoke(self, ctx: click.Context) -> int:
        """Run the command and return its exit code; every error becomes a message on stderr."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except BrokenPipeError:
            flush_or_drop(sys.stdout)
            return NO_READER
        except (Exception, KeyboardInterrupt) as error:
            return _answer(error)
        return code if isinstance(code, int) else 0

    def main(
        self,
        args: Sequence[str] | None = None,
        *others: Any,
        standalone_mode: bool = True,
        **settings: Any,
    ) -> Any:
        """Run click's ``main``, with exit code 2 for usage errors and 130 for an interrupt."""
        code = self._code(args, *others, **settings)
        if standalone_mode:
            sys.exit(code)
        return code

    def _code(self, args: Sequence[str] | None, *others: Any, **settings: Any) -> int:
        try:
            code: object = super().main(args, *others, standalone_mode=False, **settings)  # type: ignore[call-overload]
        except click.ClickException as error:
            with messages() as stream:
                error.show(stream)
            return INVALID
        except click.Abort as error:
            # Click makes it of an interrupt, which says how far a check came.
            return _complain(str(error.__cause__ or "") or "interrupted", INTERRUPTED)
        except SystemExit:  # click's own answer to a standard output that nobody reads
            return NO_READER
        except OSError as error:  # click could not print its own text, such as the help
            return _answer(error)
        return code if isinstance(code, int) else 0


def _answer(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return _complain(str(error) or "interrupted", INTERRUPTED)
    if isinstance(error, MemoryError):
        return _complain(
            "out of memory; check a smaller plan, or use a machine with more", INCONCLUSIVE
        )
    if isinstance(error, PitcheckError):
        return _complain(
            f"{error.code}: {error} (pitcheck explain {error.code})" if error.code else str(error),
            INCONCLUSIVE if isinstance(error, (UnsupportedError, BudgetError)) else INVALID,
        )
    if isinstance(error, OSError):
        flush_or_drop(sys.stdout)
        return _complain(f"{error.filename or 'input/output'}: {error.strerror or error}", INVALID)
    return _internal_error(error)


def _complain(message: str, code: int) -> int:
    from pitcheck.report.lines import printable  # noqa: PLC0415  rarely needed

    say("\n".join(map(printable, f"pitcheck: {message}".split("\n"))))
    return code


def _internal_error(error: BaseException) -> int:
    from traceback import format_exception  # noqa: PLC0415  rarely needed

    say("".join(format_exception(error)))
    return _complain(
        "PIT900: internal error, nothing is said about the plans; report the text above (pitcheck "
        "explain PIT900)",
        INVALID,
    )


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="pitcheck")
def cli() -> None:
    """Prove that a parallel training plan computes what the single-device model computes.

    Exit codes of check: 0 equivalent, or all findings are in --baseline, 1 mismatch (a witness
    shows it), 2 invalid plan or wrong command, 3 inconclusive, 4 equivalent, but --precision error
    was given and a precision rule is broken, 5 nothing was checked.
    """


_SET = click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a field of a configuration: tp=4, model.layers=8. Repeatable.",
)
_SEED = click.option(
    "--seed", type=click.IntRange(0, LAST_SEED), help="Makes the run repeatable. [default: drawn]"
)
_OUT = click.option(
    "--out",
    default=".",
    show_default=True,
    metavar="DIRECTORY",
    help="Where the plans are written.",
)


@cli.command()
@click.argument("reference")
@click.argument("parallel", required=False)
@_SET
@click.option(
    "--error-bound",
    default="2^-64",
    show_default=True,
    metavar="P",
    help="Accepted probability of a wrong 'equivalent': 2^-64 or 1e-20.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    help="At least this many redraws per stage. [default: as many as the bound needs]",
)
@_SEED
@click.option(
    "--backend",
    type=click.Choice(["auto", "numpy", "cupy"]),
    default="auto",
    show_default=True,
    help="Array library.",
)
@click.option(
    "--shapes",
    type=click.Choice(["reduced", "full"]),
    default="reduced",
    show_default=True,
    help="Sizes at which stages are evaluated.",
)
@click.option(
    "--coordinates",
    type=click.Choice(["reduced", "full"]),
    default="reduced",
    show_default=True,
    help="Equal copies of the program.",
)
@click.option(
    "--layers",
    type=click.Choice(["all", "one-of-each"]),
    default="all",
    show_default=True,
    help="Layers of a configuration that are compared: one-of-each leaves out those of a kind that "
    "another has.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Processes; with --backend cupy each has a GPU for itself. [default: one per processor, "
    "at most 4; with cupy one per GPU at full shapes, else one]",
)
@click.option(
    "--max-memory",
    default="auto",
    show_default=True,
    metavar="SIZE",
    help="Budget of memory of each process, such as 500MB or 4GiB; auto is 4GiB, or half of "
    "the free memory of a GPU.",
)
@click.option(
    "--output",
    multiple=True,
    metavar="FORMAT[:FILE]",
    help="Write the report as text, html, json, jsonl, junit, sarif or github, or the certificate "
    "of the proof; without FILE to stdout. Repeatable.",
)
@click.option(
    "--precision",
    type=click.Choice(["warn", "error", "off"]),
    default="warn",
    show_default=True,
    help="Where the parallel plan rounds more: PIT3xx.",
)
@click.option(
    "--estimates",
    type=click.Choice(["accept", "refuse"]),
    default="accept",
    show_default=True,
    help="What follows if part of the bound is an estimate: refuse is PIT208.",
)
@REMEMBER
@CACHE_DIRECTORY
@click.option(
    "--witness-directory",
    default=".pitcheck/witnesses",
    show_default=True,
    metavar="DIRECTORY",
    help="Where the witness of a mismatch is saved.",
)
@click.option(
    "--explain/--no-explain",
    default=True,
    show_default=True,
    help="Look for the cause and the repair of a mismatch.",
)
@click.option(
    "--select",
    multiple=True,
    metavar="CODE,...",
    help="Warnings that are shown, by code or prefix (PIT3). Repeatable. [default: all]",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODE,...",
    help="Warnings that are counted and not shown. Repeatable.",
)
@click.option(
    "--baseline", metavar="FILE", help="Known findings: exit code 0 if there are no others."
)
@click.option("--write-baseline", metavar="FILE", help="Write what fails as known findings.")
@click.option("--quiet/--no-quiet", "-q", default=False, help="Print only the verdict.")
@click.option(
    "--verbose/--no-verbose",
    "-v",
    default=False,
    help="Print all assumptions, cases, reductions and times.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="End after so many seconds: inconclusive, with what was at work. [default: no limit]",
)
@click.option("--watch", is_flag=True, help="Check again whenever a file that was read changes.")
@click.option(
    "--jax", is_flag=True, help="FILE.py:NAME is a program of JAX, partitioned for --devices."
)
@click.option(
    "--devices", type=click.IntRange(min=2), help="The devices of a program of JAX; needs --jax."
)
@click.pass_context
def check(context: click.Context, /, **values: Any) -> int:
    """Check the PARALLEL plan against the REFERENCE plan.

    Each is a plan file (.plan.json, .plan.zst) or an nnScaler execution plan (.pkl), or they are
    the texts of XLA before and after its partitioner (.hlo.txt). A configuration (.toml), a
    specification of PyTorch programs (FILE.py:NAME of a pitcheck.torch.Spec) and a program of JAX
    (FILE.py:NAME@DEVICES, or FILE.py:NAME with --jax --devices N) stand for both.

    Options may also stand in the nearest pitcheck.toml, or in [tool.pitcheck] of a pyproject.toml;
    the command line wins.
    """
    from pitcheck.commands.defaults import with_configuration  # noqa: PLC0415
    from pitcheck.commands.watching.command import run  # noqa: PLC0415

    return run(with_configuration(context, values), *(context.obj or ((), ())))


@cli.group()
def cache() -> None:
    """Show, verify or clear the proofs that are remembered between runs."""


@cache.command()
@CACHE_DIRECTORY
def info(cache_directory: str) -> int:
    """Print how many proofs are remembered, and where."""
    from pitcheck.commands.cache import info as run  # noqa: PLC0415

    return run(cache_directory)


@cache.command()
@CACHE_DIRECTORY
def verify(cache_directory: str) -> int:
    """Look at every entry, and remove damaged ones.

    Exits 1 if there were some.
    """
    from pitcheck.commands.cache import verify as run  # noqa: PLC0415

    return run(cache_directory)


@cache.command()
@CACHE_DIRECTORY
def clear(cache_directory: str) -> int:
    """Remove everything that is remembered."""
    from pitcheck.commands.cache import clear as run  # noqa: PLC0415

    return run(cache_directory)


@cli.command()
@click.argument("witness")
def replay(witness: str) -> int:
    """Compute a saved WITNESS again, on galois and on the reals.

    Exits 1 if the plans still differ on it, 0 if not.
    """
    from pitcheck.commands.replay import run  # noqa: PLC0415

    return run(witness)


@cli.command("verify")
@click.argument("certificate")
@click.argument("reference")
@click.argument("parallel", required=False)
@_SET
@_SEED
@click.option("--quiet/--no-quiet", "-q", default=False, help="Print only the verdict.")
def verify_certificate(**values: Any) -> int:
    """Establish the claim of a CERTIFICATE again, with fresh draws and a small verifier.

    REFERENCE and PARALLEL are the plans it is of, given as for check. Exits 0 if every stage is
    verified, 1 if one does not hold, 2 for a bad certificate or other plans, 3 if a stage is not
    decided.
    """
    from pitcheck.commands.certificates.verify import run  # noqa: PLC0415

    return run(**values)


@cli.group()
def plan() -> None:
    """Show, validate, convert or make plans."""


@plan.command()
@click.argument("file")
def show(file: str) -> int:
    """Print mesh, counts, operators by kind, and outputs of a plan."""
    from pitcheck.commands.plan import show as run  # noqa: PLC0415

    return run(file)


@plan.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--reference", metavar="FILE", help="The reference plan, to hold lineage against.")
def validate(files: tuple[str, ...], reference: str | None) -> int:
    """Print every violation of the plans in FILES.

    Each is named with its place. Exits 2 if one makes a plan invalid.
    """
    from pitcheck.commands.plan import validate as run  # noqa: PLC0415

    return run(files, reference)


@plan.command()
@click.argument("source")
@click.argument("target")
def convert(source: str, target: str) -> int:
    """Write plan SOURCE as TARGET (.plan.json or .plan.zst)."""
    from pitcheck.commands.plan import convert as run  # noqa: PLC0415

    return run(source, target)


@plan.command()
@click.argument("configuration")
@_OUT
@_SET
def make(configuration: str, out: str, assignments: tuple[str, ...]) -> int:
    """Write both plans of a CONFIGURATION (.toml) to files."""
    from pitcheck.commands.plan import make as run  # noqa: PLC0415

    return run(configuration, out, assignments)


@cli.command()
@click.argument("program")
@_OUT
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Ranks that are recorded at once. [default: one per processor, at most 4]",
)
def capture(program: str, out: str, jobs: int | None) -> int:
    """Record PyTorch programs and write both plans.

    PROGRAM is FILE.py:NAME of a pitcheck.torch.Spec. The plans can be checked where PyTorch is not
    installed.
    """
    from pitcheck.commands.capture import run  # noqa: PLC0415

    return run(program, out, jobs)


@cli.command()
@click.argument("reference")
@click.argument("parallel", required=False)
@_SET
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Mutants that are made, if the plan has so many.",
)
@click.option("--seed", type=click.IntRange(0, LAST_SEED), help="Which mutants. [default: drawn]")
@click.option(
    "--kinds",
    multiple=True,
    metavar="KIND,...",
    help="Kinds of mutation, such as operand,slice. Repeatable. [default: all]",
)
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option(
    "--output",
    multiple=True,
    metavar="FORMAT:FILE",
    help="Write the result: text:FILE or json:FILE; FILE - is stdout. Repeatable.",
)
@click.option(
    "--keep",
    metavar="DIRECTORY",
    help="Where the reference and all mutants are written as plan files.",
)
@click.option("--quiet/--no-quiet", "-q", default=False, help="Show no progress.")
def mutate(**values: Any) -> int:
    """Put mistakes into a right plan and show what the check says.

    Every mutant has one mistake. It is executed next to REFERENCE, by code that shares nothing with
    the check, which says whether it changes an output. Exits 1 if one that does is called
    equivalent. Both plans are given as for check; they must be small, because they are executed
    rank by rank at full shapes. Needs PyTorch.
    """
    from pitcheck.commands.mutate import run  # noqa: PLC0415

    return run(**values)


@cli.command()
@click.argument("directory", default=".")
@click.option(
    "--framework",
    type=click.Choice(["megatron", "torchtitan", "deepspeed", "nnscaler", "fsdp2", "torch", "jax"]),
    help="What is written for. [default: what the Python files import]",
)
@click.option("--force", is_flag=True, help="Replace files that are there already.")
def init(directory: str, framework: str | None, force: bool) -> int:
    """Write a first check for the repository in DIRECTORY.

    Its Python files are read, never run, to see which framework they import. A specification of
    PyTorch programs or a configuration is written, and settings. It runs as it stands, and has
    comments where to put your own model.
    """
    from pitcheck.commands.starting.init import run  # noqa: PLC0415

    return run(directory, framework, force=force)


@cli.command()
@click.argument("code", required=False)
def explain(code: str | None) -> int:
    """Print the page of a CODE such as PIT104, or the list of codes."""
    from pitcheck.commands.explain import run  # noqa: PLC0415

    return run(code)


@cli.command()
def doctor() -> int:
    """Print versions, GPU, and whether arithmetic is exact here.

    Exits 2 if it is not.
    """
    from pitcheck.commands.doctor import run  # noqa: PLC0415

    return run()


@cli.command()
def demo() -> int:
    """Prove a real pair of plans, and catch a bug in another one."""
    from pitcheck.commands.demo import run  # noqa: PLC0415

    return run()


for each in (sweep, page, merge):
    cli.add_command(each)


def main(args: Sequence[str] | None = None, outputs: Sequence[str] = ()) -> int:
    """Run the command line and return the exit code.

    ``outputs`` are outputs of ``check`` (``FORMAT:FILE``) beside those that are asked for.
    """
    reserve_closed()
    given = tuple(sys.argv[1:] if args is None else args)
    code: int = cli.main(
        given, prog_name="pitcheck", standalone_mode=False, obj=(given, tuple(outputs))
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
