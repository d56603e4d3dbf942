"""The file of a sweep: which configurations are checked, and within which limits.

seconds = 300                       # of each configuration
memory = "4GiB"

[options]                           # of every check
estimates = "accept"

[[matrix]]                          # every combination of models and settings
models = ["llama3-tiny.toml"]       # configuration files, from the folder of this file
sample = 20                         # at most so many, always the same ones
probes = 10                         # in one of ten a fault is planted

[matrix.set]
tp = [1, 2]
schedule = ["1f1b", "gpipe"]

[matrix.options]                    # options of pitcheck check
precision = ["warn", "error"]

[[matrix.exclude]]                  # combinations that are left out
tp = 1
schedule = "gpipe"

[[pair]]                            # two plans, and what is expected of them
reference = "demo/a.plan.json"
parallel = "demo/b.plan.json"
expect = "mismatch"

[[program]]
source = "program.py:spec"
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import Literal as OneOf

import msgspec

from pitcheck.commands.number_options import parse_size
from pitcheck.commands.reading import file_of
from pitcheck.commands.wrong_pairs import refuse_files
from pitcheck.errors import ImpossibleError, PitcheckError, RangeError, UsageError
from pitcheck.programs.configuration import read_configuration
from pitcheck.report.report import Verdict
from pitcheck.sweep.check_options import check_option
from pitcheck.sweep.planned import Planned

MOST_BYTES = 1 << 20
"""The bytes of the file of a sweep at most."""
MOST = 100_000
"""The combinations of a sweep at most, before samples are taken."""
PROBE = "probe"
"""The word in the name of a configuration in which a fault is planted."""
Setting = bool | int | float | str
Expected = OneOf["equivalent", "mismatch", "invalid"]
"""The verdicts that can be expected; the others say that nothing is known."""


class Matrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All combinations of models, settings and options but the excluded ones.

    ``sample`` is the greatest number of them that are checked, of those that can run; the others
    are not listed then. In one of ``probes`` a fault is planted; 0: in none.
    """

    models: list[str]
    set: dict[str, list[Setting]] = {}
    options: dict[str, list[str]] = {}
    exclude: list[dict[str, Setting]] = []
    sample: int | None = None
    probes: int = 0


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two plans, and the verdict that is expected."""

    reference: str
    parallel: str
    expect: Expected = "equivalent"


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source that stands for both plans, and the verdict that is expected."""

    source: str
    expect: Expected = "equivalent"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seconds: float = 300.0
    memory: str = "4GiB"
    options: dict[str, str] = {}
    matrix: list[Matrix] = []
    pair: list[Pair] = []
    program: list[Program] = []


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """The configurations of a sweep in the order of its file, and the limits of each.

    ``seconds`` of wall time and ``memory`` in bytes. ``options`` are those of every check that has
    no other value of its own. ``digest`` is equal for equal sweeps.
    """

    seconds: float
    memory: int
    options: dict[str, str]
    planned: tuple[Planned, ...]

    @property
    def digest(self) -> str:
        """Return a number, in hexadecimal, that two different sweeps do not share."""
        return blake2b(msgspec.json.encode(self), digest_size=16).hexdigest()


def read_sweep(path: Path) -> Sweep:
    """Return the sweep in a TOML file. Sources are named from the working directory.

    Raises UsageError, naming file and key, for a file that cannot be read, an unknown key, a wrong
    value, a matrix of which nothing can run, and two configurations of one name.
    """
    file = _decoded(path)
    for key, value in file.options.items():
        check_option(key, [value], f"{path}: options.{key}")
    if not 0 < file.seconds < float("inf"):
        raise UsageError(f"{path}: seconds is {file.seconds}; a limit is above 0")
    planned = [
        each
        for number, matrix in enumerate(file.matrix)
        for each in _of_matrix(matrix, path, f"{path}: matrix {number + 1}")
    ]
    planned += [_of_pair(pair, path) for pair in file.pair]
    planned += [_of_program(program, path) for program in file.program]
    planned = [
        msgspec.structs.replace(each, options={**file.options, **each.options}) for each in planned
    ]
    if not planned:
        raise UsageError(f"{path}: nothing to check; add a [[matrix]], [[pair]] or [[program]]")
    _check_different(planned, path)
    return Sweep(
        seconds=file.seconds,
        memory=_memory(file.memory, path),
        options=file.options,
        planned=tuple(planned),
    )


def _check_different(planned: Sequence[Planned], path: Path) -> None:
    """Raise UsageError for two configurations of one name, and for one that has two names."""
    name, count = Counter(each.name for each in planned).most_common(1)[0]
    if count > 1:
        raise UsageError(f"{path}: {count} configurations are {name!r}; keep one of them")
    seen: dict[object, str] = {}
    for each in planned:
        files = tuple(map(os.path.realpath, each.sources))
        what = files, each.assignments, tuple(sorted(each.options.items())), each.probe
        if (other := seen.setdefault(what, each.name)) != each.name:
            raise UsageError(
                f"{path}: {other!r} and {each.name!r} are one configuration, which would count "
                f"twice; keep one of them"
            )


def _decoded(path: Path) -> _File:
    try:
        with path.open("rb") as file:  # also a pipe or a device, which may have no end
            read = file.read(MOST_BYTES + 1)
        if len(read) > MOST_BYTES:
            raise UsageError(f"{path} has more than {MOST_BYTES} bytes, which no sweep needs")
        content = tomllib.loads(read.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    try:
        return msgspec.convert(content, _File)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}; docs/night.md has all keys") from None


def _memory(text: str, path: Path) -> int:
    try:
        return parse_size(text)
    except UsageError as error:
        raise UsageError(f"{path}: memory: {error}") from None


def _of_matrix(matrix: Matrix, path: Path, place: str) -> list[Planned]:
    _check_matrix(matrix, place)
    combined = [
        _of_combination(model, values, matrix, path)
        for model in matrix.models
        for values in _combinations(matrix)
        if not _excluded({"model": model, **values}, matrix)
    ]
    for model in matrix.models:
        own = [each for each in combined if each.sources == (_from(path, model),)]
        _check_one_runs(own, f"{place}: {model}")
    _check_values(combined)
    planned = list(map(_judged, combined)) if matrix.sample is None else _sample(combined, matrix)
    return _with_probes(planned, matrix.probes)


def _check_one_runs(combined: Sequence[Planned], place: str) -> None:
    """Raise UsageError if no combination can run: the others would stand for what is not there."""
    if all(_judged(each).impossible for each in combined):
        said = f"; the first: {_judged(combined[0]).impossible}" if combined else ""
        raise UsageError(f"{place}: none of its {len(combined)} combinations can run{said}")


def _check_values(combined: Iterable[Planned]) -> None:
    """Raise UsageError for a value that is wrong, also one that no sample would ever meet."""
    seen: set[str] = set()
    for each in combined:
        if not seen.issuperset(each.assignments):
            seen.update(each.assignments)
            _judged(each)


def _sample(combined: Sequence[Planned], matrix: Matrix) -> list[Planned]:
    """Return as many combinations as a sample has, of those that can run, in their order.

    They are always the same ones.
    """
    left = iter(sorted(combined, key=lambda each: _number(each.name)))
    possible = (each for each in map(_judged, left) if not each.impossible)
    kept = {each.name for each in islice(possible, matrix.sample)}
    return [each for each in combined if each.name in kept]


def _axes(matrix: Matrix) -> dict[str, Sequence[Setting]]:
    """Return the values of each setting and option."""
    return {**matrix.set, **matrix.options}


def _combinations(matrix: Matrix) -> Iterator[dict[str, Setting]]:
    axes = _axes(matrix)
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _check_matrix(matrix: Matrix, place: str) -> None:
    """Raise UsageError for a matrix that is empty, too large, or has unknown options or keys."""
    axes: dict[str, Sequence[Setting]] = {"models": matrix.models, **_axes(matrix)}
    for key, values in axes.items():
        if not values:
            raise UsageError(f"{place}: {key} is an empty list, so there is no combination")
        if len({str(value) for value in values}) < len(values):
            raise UsageError(f"{place}: {key} has a value twice")
    count = prod(map(len, axes.values()))
    if count > MOST:
        raise UsageError(f"{place}: {count} combinations; at most {MOST} are taken")
    for key, options in matrix.options.items():
        check_option(key, options, f"{place}: options.{key}")
    both = sorted(matrix.set.keys() & matrix.options.keys())
    if both:
        raise UsageError(f"{place}: {both[0]} is in set and in options; keep one of them")
    if matrix.sample is not None and matrix.sample < 1:
        raise UsageError(f"{place}: sample is {matrix.sample}; it must be at least 1")
    if matrix.probes < 0:
        raise UsageError(f"{place}: probes is {matrix.probes}; it must be 0 or more")
    for excluded in matrix.exclude:
        unknown = sorted(excluded.keys() - {"model", *matrix.set, *matrix.options})
        if unknown or not excluded:
            raise UsageError(
                f"{place}: exclude names {unknown[0] if unknown else 'nothing'}; it can name "
                f"{', '.join(('model', *matrix.set, *matrix.options))}"
            )


def _excluded(given: Mapping[str, Setting], matrix: Matrix) -> bool:
    return any(
        all(_same(given[key], value) for key, value in excluded.items())
        for excluded in matrix.exclude
    )


def _same(one: Setting, other: Setting) -> bool:
    """Return True for equal settings; True is not 1."""
    return type(one) is type(other) and one == other


def _of_combination(
    model: str, values: Mapping[str, Setting], matrix: Matrix, path: Path
) -> Planned:
    source = _from(path, model)
    assignments = tuple(f"{key}={_text(values[key])}" for key in matrix.set)
    options = {key: str(values[key]) for key in matrix.options}
    said = (*assignments, *(f"{key}={value}" for key, value in options.items()))
    row = Path(model).name.removesuffix(".toml")
    return Planned(
        name=" ".join((row, *said)),
        sources=(source,),
        assignments=assignments,
        options=options,
        row=row,
        column=" ".join(said) or "as it is",
    )


def _judged(planned: Planned) -> Planned:
    """Return a configuration with the rule by which it cannot run, if there is one."""
    rule = _rule(planned.sources[0], planned.assignments)
    return msgspec.structs.replace(planned, impossible=rule) if rule else planned


def _rule(source: str, assignments: Sequence[str]) -> str:
    """Return the rule by which a configuration cannot run, or "".

    Raises UsageError for a file or a setting that is wrong whatever the others are.
    """
    try:
        read_configuration(Path(source), assignments)
    except PitcheckError as error:
        if isinstance(error, ImpossibleError) and not isinstance(error, RangeError):
            return error.rule
        raise UsageError(f"{' '.join((source, *assignments))}: {error}") from None
    return ""


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(name: str) -> bytes:
    """Return a number that looks drawn and belongs to a name."""
    return blake2b(name.encode(), digest_size=8).digest()


def _with_probes(planned: Sequence[Planned], one_in: int) -> list[Planned]:
    """Return the configurations and, for one in so many, the same with a planted fault."""
    possible = sorted((p for p in planned if not p.impossible), key=lambda p: _number(p.name))
    count = -(-len(possible) // one_in) if one_in else 0
    return [*planned, *(_probe(each) for each in possible[:count])]


def _probe(each: Planned) -> Planned:
    return msgspec.structs.replace(each, name=f"{each.name} {PROBE}", probe=True, expect="mismatch")


def _check_there(sources: Sequence[str], expect: Verdict, path: Path) -> None:
    """Raise UsageError for a missing file of which a bad verdict is expected: it would be one."""
    for source in sources if expect != "equivalent" else ():
        file = file_of(source)
        if not Path(file).is_file():
            raise UsageError(f"{path}: {file}: no such file, of which {expect} is expected")


def _from(path: Path, file: str) -> str:
    """Return a file that is named from the folder of another one. Raises UsageError for no name."""
    if "\0" in file:
        raise UsageError(f"{path}: {file!r} is no name of a file: it has a zero byte")
    return str(path.parent / file)


def _of_pair(pair: Pair, path: Path) -> Planned:
    sources = _from(path, pair.reference), _from(path, pair.parallel)
    _check_there(sources, pair.expect, path)
    try:
        refuse_files(*sources)
    except UsageError as error:
        raise UsageError(f"{path}: pair: {error}") from None
    return Planned(
        name=f"{pair.reference} {pair.parallel}",
        sources=sources,
        expect=pair.expect,
        row=Path(pair.reference).name,
        column=Path(pair.parallel).name,
    )


def _of_program(program: Program, path: Path) -> Planned:
    _check_there([_from(path, program.source)], program.expect, path)
    return Planned(
        name=program.source,
        sources=(_from(path, program.source),),
        expect=program.expect,
        row=program.source,
        column="as it is",
    )
