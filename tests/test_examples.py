"""Every module of these rooms shows its use by an example in its docstring, and it runs."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import pitcheck

PACKAGE = Path(pitcheck.__file__).parent

ROOMS = ("algebra", "ops", "stage", "prove")

MODULES = [
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    for room in ROOMS
    for file in sorted((PACKAGE / room).rglob("*.py"))
    if file.name != "__init__.py"
]


@pytest.mark.parametrize("name", MODULES)
def test_the_example_of_a_module_runs(name: str) -> None:
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(module, name)
    assert example.examples, "the docstring of a module here has an example of its main function"
    assert not doctest.DocTestRunner().run(example).failed
