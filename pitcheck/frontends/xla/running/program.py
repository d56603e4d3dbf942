"""The child process that runs a user's program: ``python -m ...program FILE NAME FOLDER``.

It writes the texts into FOLDER and, if the program cannot be used, one line with the reason into
``FOLDER/said``. A traceback of the program goes to stderr.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

from pitcheck.base.nearest import nearest
from pitcheck.errors import PitcheckError, UsageError
from pitcheck.frontends.xla.running.dumping import dumped_around_partitioner
from pitcheck.frontends.xla.running.lowering import lowered_of

SAID = "said"
"""The file with the reason why there are no texts."""
TEXTS = "texts"
"""The folder of the texts."""


def main(file: str, name: str, folder: str) -> int:
    """Return 0 if the texts are written, 1 if not."""
    said = Path(folder, SAID)
    texts = Path(folder, TEXTS)
    texts.mkdir()
    try:
        dumped_around_partitioner(lowered_of(_function(file, name)(), name), texts)
    except PitcheckError as error:
        said.write_text(str(error))
        return 1
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        said.write_text(_reason(error, file))
        return 1
    return 0


def _function(file: str, name: str) -> Any:
    """Run a file and return its function ``name``. Modules beside it can be imported."""
    path = Path(file)
    sys.path.insert(0, str(path.resolve().parent))
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise UsageError("this is no Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules.setdefault(path.stem, module)
    specification.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        names = [each for each, value in vars(module).items() if callable(value)]
        said = "is not there" if function is None else "is no function"
        raise UsageError(f"{name!r} {said}{nearest(name, names)}")
    return function


def _reason(error: BaseException, file: str) -> str:
    """Return one line on an exception, with the last line of the user's file in its traceback."""
    if isinstance(error, ModuleNotFoundError) and error.name == "jax":
        return "it needs JAX; install pitcheck[jax]"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [
        frame.lineno
        for frame in frames
        if frame.filename == file or frame.filename == str(Path(file).resolve())
    ]
    place = f" (line {lines[-1]})" if lines else ""
    text = str(error).split("\n", maxsplit=1)[0]
    return f"it raises {type(error).__name__}: {text}{place}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
