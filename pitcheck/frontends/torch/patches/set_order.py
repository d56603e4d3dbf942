"""The user's files, with the order of sets by rank, and with numbers that nobody has.

Python chooses the order of sets of strings anew in every process.

All ranks are forked from one process and would have one order; ranks that are started one by one
have different ones. So in the user's own files ranks of odd numbers go through the elements of a
set in the opposite order of the others. Code that needs no order does not notice.

Python lets ``float(...)`` give nothing but a plain float. So in these files it is a function that
may give an unknown number.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ORDERED = "__pitcheck_ordered__"
CONVERTER = "__pitcheck_converter__"
CONSUMERS = frozenset(
    {
        "list",
        "tuple",
        "iter",
        "enumerate",
        "zip",
        "map",
        "filter",
        "join",
        "extend",
        "fromkeys",
        "deque",
        "OrderedDict",
        "chain",
        "cat",
        "stack",
    }
)
"""The functions and methods that go through an argument in its order."""


def ordered(given: Any) -> Any:
    """Return the elements of a set in an order that depends on the rank.

    A set whose order is not chosen by chance, and anything that is no set, is returned as it is.
    """
    if not isinstance(given, set | frozenset) or not any(map(_by_chance, given)):
        return given
    return sorted(given, key=repr, reverse=_rank() % 2 == 1)


def _by_chance(element: Any) -> bool:
    """Return True if the hash of an element is another one in every process."""
    return isinstance(element, str | bytes) or (
        isinstance(element, tuple | frozenset) and any(map(_by_chance, element))
    )


def _rank() -> int:
    distributed = sys.modules.get("torch.distributed")
    return (
        int(distributed.get_rank())
        if distributed is not None and distributed.is_initialized()
        else 0
    )


def converter(called: Any) -> Any:
    """Return what is called, or for ``float`` a function that knows unknown numbers."""
    return _to_float if called is float else called


def _to_float(*given: Any) -> Any:
    if "torch" not in sys.modules:
        return float(*given)
    from pitcheck.frontends.torch.reads.unknown_numbers import to_float  # noqa: PLC0415

    return to_float(*given)


class _Rewriting(ast.NodeTransformer):
    """A rewriting of code that passes whatever it goes through to :func:`ordered`.

    What is called ``float`` it passes to :func:`converter`.
    """

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.iter = _wrapped(node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.iter = _wrapped(node.iter)
        return node

    def visit_Starred(self, node: ast.Starred) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = _wrapped(node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = (
            node.func.id
            if isinstance(node.func, ast.Name)
            else node.func.attr
            if isinstance(node.func, ast.Attribute)
            else ""
        )
        if called in CONSUMERS:
            node.args = [
                argument if isinstance(argument, ast.Starred) else _wrapped(argument)
                for argument in node.args
            ]
        if called == "float" and isinstance(node.func, ast.Name):
            node.func = ast.copy_location(
                ast.Call(ast.Name(CONVERTER, ast.Load()), [node.func], []), node.func
            )
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            node.value = _wrapped(node.value)
        return node


def _wrapped(node: ast.expr) -> ast.expr:
    # These are never sets.
    if isinstance(
        node, ast.Tuple | ast.List | ast.Constant | ast.ListComp | ast.GeneratorExp | ast.Dict
    ):
        return node
    return ast.copy_location(
        ast.Call(ast.copy_location(ast.Name(ORDERED, ast.Load()), node), [node], []), node
    )


class UserLoader(importlib.machinery.SourceFileLoader):
    """A loader of the user's files that rewrites them.

    Nothing that it compiles is cached.
    """

    def exec_module(self, module: ModuleType) -> None:
        """Run a module, which finds here the functions that its code was rewritten to call."""
        vars(module)[ORDERED] = ordered
        vars(module)[CONVERTER] = converter
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType:
        """Return the rewritten code of a module."""
        path = self.get_filename(fullname)
        tree = _Rewriting().visit(ast.parse(self.get_data(path), path))
        code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
        return code


class _Beside(importlib.abc.MetaPathFinder):
    """A finder of the modules below a folder, which :class:`UserLoader` is to load."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if (
            found is None
            or not isinstance(found.loader, importlib.machinery.SourceFileLoader)
            or found.origin is None
        ):
            return None
        file = Path(found.origin)
        if self._folder not in file.parents or "site-packages" in file.parts:
            return None
        found.loader = UserLoader(fullname, found.origin)
        return found


@contextmanager
def sets_by_rank(folder: Path) -> Iterator[None]:
    """Load the modules below a folder so that their sets have the rank's order.

    Modules that were loaded in this context keep it.
    """
    finder = _Beside(folder)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
