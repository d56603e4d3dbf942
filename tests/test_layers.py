"""Imports go one way: a room uses what stands below it, and nothing above, not for types and not
inside a function either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import pitcheck

PACKAGE = Path(pitcheck.__file__).parent

LAYERS: tuple[tuple[str, ...], ...] = (
    ("__init__",),
    ("errors",),
    ("resources", "forks"),
    ("base",),
    ("cache",),
    ("algebra",),
    ("ops",),
    ("plan",),
    ("execution", "models", "frontends", "certificate"),
    ("programs",),
    ("report",),
    ("mutation",),
    ("graph",),
    ("stage",),
    ("claims",),
    ("prove",),
    ("refute",),
    ("witness",),
    ("explain",),
    ("precision",),
    ("engine",),
    ("commands",),
    ("sweep",),
    ("cli_options", "torch", "jax"),
    ("cli_sweep",),
    ("cli",),
    ("pytest_plugin", "watched_check", "__main__"),
)
"""Packages and modules of pitcheck from the lowest to the highest. Those of one layer do not import
each other.
"""

USERS: dict[str, tuple[str, ...]] = {
    "execution": ("mutation", "sweep"),
    "models": ("programs",),
    "programs": ("commands", "sweep"),
    "mutation": ("commands", "sweep"),
    "frontends": ("programs", "commands", "torch", "jax", "pytest_plugin"),
    "precision": ("engine",),
    "explain": ("engine", "commands"),
    "engine": ("commands",),
}
"""Who may import a room where not everyone above may: the check is the same for plans of every
origin, and the executor that judges it stands alone.
"""

BARE: dict[str, tuple[str, ...]] = {
    "execution": ("plan",),
    "certificate": ("__init__", "errors", "base", "ops", "plan"),
    "report": ("__init__", "errors", "resources", "base"),
}
"""All that a room may import, where that is less than what stands below it: the executor and
the verifier of certificates share no computing code with the check.
"""

EXCEPTIONS: frozenset[tuple[str, str]] = frozenset()
"""(module, imported module) of imports against the rules that are not mended yet. Take some away,
add none.
"""


def places() -> dict[str, int]:
    """Return the layer of every room."""
    return {room: number for number, rooms in enumerate(LAYERS) for room in rooms}


def room_of(module: str) -> str:
    """Return the room of a module of pitcheck ("pitcheck.engine.check" -> "engine", "pitcheck" ->
    "__init__").
    """
    return (module.split(".")[1:] or ["__init__"])[0]


def module_of(file: Path, root: Path) -> str:
    """Return the dotted name of a file below the folder ``root``."""
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def statements(source: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return the import statements of a source. The whole package is read once for all tests."""
    return tuple(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def imports(source: str, module: str, modules: frozenset[str]) -> Iterator[str]:
    """Yield every module of pitcheck that a source imports, wherever the statement stands. A name
    that is a module itself is that module.
    """
    for node in statements(source):
        if isinstance(node, ast.Import):
            yield from (
                alias.name for alias in node.names if alias.name.split(".")[0] == "pitcheck"
            )
        else:
            base = module.rsplit(".", node.level)[0] if node.level else ""
            origin = ".".join(part for part in (base, node.module or "") if part)
            if origin.split(".")[0] == "pitcheck":
                yield from (
                    name if (name := f"{origin}.{alias.name}") in modules else origin
                    for alias in node.names
                )


def faults(sources: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield (module, imported module, rule) of every import against the rules, of sources by
    module.
    """
    place = places()
    for module, source in sources.items():
        here = room_of(module)
        for imported in dict.fromkeys(imports(source, module, frozenset(sources))):
            there = room_of(imported)
            if here == there:
                continue
            if place[there] >= place[here]:
                yield module, imported, f"{there} stands above {here}, or beside it"
            elif here not in USERS.get(there, (here,)):
                yield module, imported, f"{there} is used by {', '.join(USERS[there])} alone"
            elif there not in BARE.get(here, (there,)):
                yield module, imported, f"{here} imports {', '.join(BARE[here])} alone"


def modules() -> dict[str, str]:
    """Return the source of every module of pitcheck."""
    return {
        module_of(file, PACKAGE.parent): file.read_text(encoding="utf-8")
        for file in sorted(PACKAGE.rglob("*.py"))
    }


def test_imports_go_down() -> None:
    found = {(module, imported): rule for module, imported, rule in faults(modules())}
    new = [
        f"{module} imports {imported}: {rule}"
        for (module, imported), rule in found.items()
        if (module, imported) not in EXCEPTIONS
    ]
    assert not new, "\n".join(new)
    assert found.keys() >= EXCEPTIONS, (
        f"mended, so take it from EXCEPTIONS: {sorted(EXCEPTIONS - found.keys())}"
    )


def test_every_module_has_a_layer() -> None:
    rooms = {room_of(module) for module in modules()}
    assert rooms == places().keys(), "a room that LAYERS lacks, or one that is no more"
    assert sum(map(len, LAYERS)) == len(places()), "a room stands in two layers"


WRONG = {
    "upwards": ("pitcheck.algebra.residues.prime", "from pitcheck.ops.registry import evaluate"),
    "of a package": ("pitcheck.plan.model", "from pitcheck import stage"),
    "inside a function": (
        "pitcheck.graph.lowering",
        "def f():\n    from pitcheck.stage.drawn_inputs import derive",
    ),
    "for types alone": (
        "pitcheck.report.report",
        "if TYPE_CHECKING:\n    from pitcheck.engine.check import check",
    ),
    "with import": ("pitcheck.prove.stage_proof", "import pitcheck.explain.evidence as evidence"),
    "relative": ("pitcheck.ops.registry", "from ..plan import model"),
    "of the whole check": ("pitcheck.prove.stage_proof", "from pitcheck.engine import check"),
    "beside": ("pitcheck.models.tape", "from pitcheck.frontends.nnscaler import read_nnscaler"),
    "of a frontend by the check": (
        "pitcheck.engine.check",
        "from pitcheck.frontends.nnscaler import read_nnscaler",
    ),
    "of the algebra by the verifier": (
        "pitcheck.certificate.verify",
        "from pitcheck.algebra.residues.prime import PrimeAlgebra",
    ),
    "of operators by the executor": (
        "pitcheck.execution.judge",
        "from pitcheck.ops.registry import evaluate",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_import_is_found(name: str) -> None:
    module, line = WRONG[name]
    assert [fault[0] for fault in faults({**modules(), module: line})] == [module], line


RIGHT = {
    "down": ("pitcheck.stage.stage", "from pitcheck.plan.model import Plan"),
    "in the room": ("pitcheck.plan.model", "from .files import read_plan"),
    "of others": ("pitcheck.errors", "import numpy\nfrom collections.abc import Mapping"),
    "by the whole check": (
        "pitcheck.engine.check",
        "from pitcheck.prove.stage_proof import Proof\nfrom pitcheck.explain.difference import "
        "explain_difference",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_import_is_none(name: str) -> None:
    module, line = RIGHT[name]
    assert not list(faults({**modules(), module: line}))


MOST_FILES = 20
"""Modules in one folder, ``__init__.py`` included: a room with more is two."""


def test_no_room_is_full() -> None:
    folders = [PACKAGE, *(path for path in PACKAGE.rglob("*") if path.is_dir())]
    full = {
        str(folder.relative_to(PACKAGE)): count
        for folder in folders
        if (count := len(list(folder.glob("*.py")))) > MOST_FILES
    }
    assert not full, full


def test_every_room_is_a_package() -> None:
    """An installation takes folders with ``__init__.py`` alone, and its docstring says what the
    room is for.
    """
    starts = {file.parent / "__init__.py" for file in PACKAGE.rglob("*.py")}
    assert not [
        str(start)
        for start in starts
        if not start.is_file()
        or not ast.get_docstring(ast.parse(start.read_text(encoding="utf-8")))
    ]
