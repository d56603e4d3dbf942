"""The report on whatever ``pitcheck_check`` is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.commands.checking.sources import checked_sources
from pitcheck.commands.reading import frontend_of, pairs, read
from pitcheck.commands.wrong_pairs import refuse_files
from pitcheck.errors import UsageError
from pitcheck.frontends.builtin import PROGRAMS
from pitcheck.plan.files import well_formed
from pitcheck.plan.model import Plan
from pitcheck.pytest_plugin.fresh import at_mesh, checked_in_new_process
from pitcheck.pytest_plugin.marks import Mesh
from pitcheck.report.report import Report
from pitcheck.torch import Spec
from pitcheck.torch import check as check_programs


@dataclass(frozen=True)
class Subject:
    """The sources of one check, with the assignments of the call and the mesh of the mark."""

    reference: str | Plan | Spec | None
    parallel: str | Plan | Spec | None
    assignments: tuple[str, ...]
    mesh: Mesh | None

    def arguments(self) -> list[str] | None:
        """Return the arguments of ``pitcheck check`` for the same check, None if it has none."""
        files = [each for each in (self.reference, self.parallel) if each is not None]
        named = [each for each in files if isinstance(each, str)]
        if len(named) < len(files) or (self.mesh is not None and _is_program(self)):
            return None
        return [*named, *(word for each in self.settings() for word in ("--set", each))]

    def settings(self) -> tuple[str, ...]:
        """Return all assignments, the mesh as such among them."""
        if self.mesh is None:
            return self.assignments
        if isinstance(self.mesh, Mapping):
            sizes = tuple(f"{axis}={size}" for axis, size in self.mesh.items())
            return (*sizes, *self.assignments)
        return (*self.mesh, *self.assignments)


def report_on(subject: Subject, options: Options) -> Report:
    """Return the report on a specification, a configuration or two plans.

    Whatever stops the check is a finding of the report. Raises UsageError for sources that are
    none, for one file in both places or plans in the wrong ones, and for a mesh or assignments that
    nothing takes.
    """
    reference, parallel = subject.reference, subject.parallel
    if isinstance(parallel, Spec) or (isinstance(reference, Spec) and parallel is not None):
        raise UsageError("a specification stands for both plans; call pitcheck_check(spec)")
    if isinstance(reference, Spec):
        return check_programs(at_mesh(reference, _sizes(subject)), options)
    if isinstance(reference, str) and parallel is None:
        return _on_source(reference, subject, options)
    if subject.settings():
        raise UsageError(
            f"{' '.join(subject.settings())} changes a program or a configuration, and two plans "
            f"are what they are; leave mesh and assignments out"
        )
    if isinstance(reference, str) and isinstance(parallel, str):
        refuse_files(reference, parallel)
        return checked_sources(reference, parallel, (), options)
    return checked([_reader(reference, "reference"), _reader(parallel, "parallel")], options)


def _on_source(source: str, subject: Subject, options: Options) -> Report:
    """Return the report on one source that stands for both plans."""
    if _is_program(subject):
        return checked_in_new_process(source, _sizes(subject), options)
    settings = subject.settings()
    frontend = frontend_of(source)
    if settings and frontend is not None and not frontend.takes_settings:
        raise UsageError(f"{source} takes no {' '.join(settings)}; leave mesh and assignments out")
    return checked_sources(source, None, settings, options)


def _is_program(subject: Subject) -> bool:
    return isinstance(subject.reference, str) and PROGRAMS.recognises(subject.reference)


def _sizes(subject: Subject) -> Mapping[str, int]:
    """Return the sizes of the mesh of programs; raise UsageError for assignments."""
    if subject.assignments or isinstance(subject.mesh, tuple):
        raise UsageError(
            f"{' '.join(subject.settings())} are assignments, which change a configuration; the "
            f'mesh of programs is written as sizes, such as mesh=[{{"dp": 2}}]'
        )
    return subject.mesh or {}


def _reader(plan: str | Plan | Spec | None, side: str) -> Callable[[], list[Plan]]:
    """Return what reads one of two plans."""
    if isinstance(plan, str):
        return lambda: [read(plan)]
    if isinstance(plan, Plan):
        return partial(_formed, plan, side)
    if plan is None:
        raise UsageError(
            f"the second plan is missing; only {pairs()} and a pitcheck.torch.Spec stand for both"
        )
    raise UsageError(
        f"the {side} is of type {type(plan).__name__}; give the name of a file, a Plan or a "
        f"pitcheck.torch.Spec"
    )


def _formed(plan: Plan, side: str) -> list[Plan]:
    return [well_formed(plan, f"the {side} plan in memory")]
