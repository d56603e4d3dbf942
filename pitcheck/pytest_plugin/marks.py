"""The mark ``pitcheck`` as data: the checks that it asks for, one for each mesh and seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pitcheck.base.seeds import SEEDS, is_seed
from pitcheck.errors import UsageError

MARK = "pitcheck"
FIXTURE = "pitcheck_check"
OPTIONS = ("error_bound", "estimates", "precision")
"""The keywords that are options of ``pitcheck check``."""
KEYWORDS = ("mesh", "seeds", *OPTIONS)
MOST_SEEDS = 100
"""The most seeds that a number may ask for: a larger number is a seed, and no count of seeds."""

Mesh = Mapping[str, int] | tuple[str, ...]
"""The sizes of mesh axes, or assignments ``KEY=VALUE`` of a configuration."""


@dataclass(frozen=True)
class Case:
    """One check that a mark asks for.

    ``mesh`` None leaves the sizes as they are, ``seed`` None leaves the seed to the settings.
    ``name`` is the case's part of the test's id, "" if the mark lists neither.
    """

    mesh: Mesh | None = None
    seed: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = ""


def cases_of(marks: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> list[Case]:
    """Return the checks that the marks of a test ask for, given as (arguments, keywords).

    The nearest mark comes first, and decides about the keywords that it has. Raises UsageError for
    anything that a mark does not take.
    """
    keywords: dict[str, Any] = {}
    for arguments, named in reversed(marks):
        _check_keywords(arguments, named)
        keywords.update(named)
    options = {name: str(keywords[name]) for name in OPTIONS if name in keywords}
    meshes = _meshes(keywords["mesh"]) if "mesh" in keywords else [None]
    seeds = _seeds(keywords["seeds"]) if "seeds" in keywords else [None]
    return [
        Case(mesh, seed, options, _name(mesh, seed if len(seeds) > 1 else None))
        for mesh in meshes
        for seed in seeds
    ]


def _check_keywords(arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
    allowed = f"the keywords are {', '.join(KEYWORDS)}"
    if arguments:
        raise UsageError(
            f"@pytest.mark.{MARK} has the argument {arguments[0]!r} without a keyword; {allowed}"
        )
    for name in named:
        if name not in KEYWORDS:
            near = get_close_matches(name, KEYWORDS, n=1)
            hint = f"; the nearest is {near[0]!r}" if near else ""
            raise UsageError(
                f"@pytest.mark.{MARK} has the unknown keyword {name!r}{hint}; {allowed}"
            )


def _meshes(given: Any) -> list[Mesh | None]:
    """Return the meshes of a list that is not empty: pytest would skip a test over none."""
    form = 'write a list such as mesh=[{"dp": 2, "tp": 2}, {"tp": 4}], or mesh=["tp=4"]'
    if not isinstance(given, list | tuple):
        raise UsageError(f"@pytest.mark.{MARK}: mesh is {given!r}; {form}")
    if not given:
        raise UsageError(
            f"@pytest.mark.{MARK}: mesh is an empty list, over which nothing is checked; {form}"
        )
    meshes = [_mesh(each, form) for each in given]
    return [*_distinct("mesh", meshes)]


def _mesh(given: Any, form: str) -> Mesh:
    if isinstance(given, Mapping):
        return _sizes(given, form)
    assignments = (given,) if isinstance(given, str) else given
    if not isinstance(assignments, list | tuple) or not assignments:
        raise UsageError(f"@pytest.mark.{MARK}: mesh has {given!r}; {form}")
    for each in assignments:
        if not isinstance(each, str) or not all(each.partition("=")):
            raise UsageError(
                f"@pytest.mark.{MARK}: mesh has the assignment {each!r}; write KEY=VALUE, such as "
                f'"tp=4"'
            )
    return tuple(assignments)


def _sizes(given: Mapping[Any, Any], form: str) -> Mapping[str, int]:
    if not given:
        raise UsageError(f"@pytest.mark.{MARK}: mesh has {{}}, which names no axis; {form}")
    for axis, size in given.items():
        whole = isinstance(size, int) and not isinstance(size, bool)
        if not isinstance(axis, str) or not axis or not whole or size < 1:
            raise UsageError(
                f"@pytest.mark.{MARK}: mesh has {axis!r}: {size!r}; an axis is a text, and its "
                f"size a whole number of at least 1"
            )
    return dict(given)


def _seeds(given: Any) -> list[int | None]:
    """Return the seeds of a list, or as many as a number says, from 0 on."""
    if _is_whole(given):
        if not 1 <= given <= MOST_SEEDS:
            raise UsageError(
                f"@pytest.mark.{MARK}: seeds={given} is a number of seeds, from 1 to {MOST_SEEDS}; "
                f"a seed itself stands in a list, as in seeds=[{given}]"
            )
        return [*range(given)]
    if not isinstance(given, list | tuple) or not given:
        raise UsageError(
            f"@pytest.mark.{MARK}: seeds is {given!r}; write how many (seeds=3) or which "
            f"(seeds=[1, 2])"
        )
    for seed in given:
        if not _is_whole(seed) or not is_seed(seed):
            raise UsageError(f"@pytest.mark.{MARK}: seeds has {seed!r}; a seed is {SEEDS}")
    return [*_distinct("seeds", given)]


def _is_whole(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _distinct(keyword: str, listed: Iterable[Any]) -> list[Any]:
    """Return what is listed; raise UsageError if something stands there twice."""
    seen: list[Any] = []
    for each in listed:
        if each in seen:
            raise UsageError(f"@pytest.mark.{MARK}: {keyword} has {each!r} twice; list it once")
        seen.append(each)
    return seen


def _name(mesh: Mesh | None, seed: int | None) -> str:
    """Return the id of a case, such as "dp2-tp2-seed1"."""
    sizes = [f"{axis}{size}" for axis, size in mesh.items()] if isinstance(mesh, Mapping) else mesh
    return "-".join([*(sizes or ()), *([] if seed is None else [f"seed{seed}"])])
