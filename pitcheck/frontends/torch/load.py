"""Specifications in Python files, ``FILE.py:NAME``.

The file is the user's own program, and runs.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

from pitcheck.base.nearest import nearest, nearest_file
from pitcheck.errors import PlanError, UsageError
from pitcheck.frontends.torch.patches.nondeterminism import seeded_import
from pitcheck.frontends.torch.patches.patching import patched
from pitcheck.frontends.torch.patches.program_output import guest
from pitcheck.frontends.torch.patches.set_order import UserLoader, sets_by_rank
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.storage.imported_draws import ImportedDraws


def load_spec(file: str, name: str) -> Spec:
    """Run a Python file and return its specification ``name``.

    Modules beside the file can be imported, as when the file is run by itself.

    Raises:
        PlanError: for a file that does not exist or raises.
        UsageError: for a name that is no specification, and if PyTorch is missing.
    """
    path = Path(file)
    if not path.is_file():
        raise PlanError(f"no such file{nearest_file(path)}", file)
    loader = importlib.util.spec_from_file_location(
        path.stem, path, loader=UserLoader(path.stem, str(path))
    )
    if loader is None or loader.loader is None:
        raise PlanError("this is no Python file", file)
    module = importlib.util.module_from_spec(loader)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        draws = ImportedDraws()
        patches = patched(draws.patches())
        with guest(), sets_by_rank(path.resolve().parent), patches, seeded_import(), draws:
            loader.loader.exec_module(module)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise UsageError(f"{file} needs PyTorch; install pitcheck[torch]") from None
        raise PlanError(f"it imports {error.name}, which is not installed", file) from error
    except (Exception, SystemExit) as error:
        raise PlanError(f"it raises {type(error).__name__}: {error}", file) from error
    spec = getattr(module, name, None)
    if not isinstance(spec, Spec):
        said = "is not there" if spec is None else f"is a {type(spec).__name__}"
        names = [each for each, value in vars(module).items() if isinstance(value, Spec)]
        raise UsageError(
            f"{name!r} of {file} {said}; it must be a pitcheck.torch.Spec, of which the file has "
            f"{', '.join(names) or 'none'}{nearest(name, names)}"
        )
    return replace(spec, drawn=draws.drawn)
