"""Megatron's programs on a machine without CUDA."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec

from pitcheck.errors import UsageError
from pitcheck.frontends.torch.patches.patching import replaced
from pitcheck.frontends.torch.program import Program

P = ParamSpec("P")
ASSUMED = (
    "Megatron runs on the CPU in the order of its lines: nobody checks that its CUDA streams wait "
    "for each other"
)
USED = (
    "megatron.core.models.gpt.gpt_layer_specs",
    "megatron.core.distributed.finalize_model_grads",
    "megatron.core.optimizer",
    "megatron.core.pipeline_parallel.schedules",
)
"""The modules that are imported before ranks are recorded, once for all of them."""


def on_cpu(build: Callable[P, Program]) -> Callable[P, Program]:
    """Return a function that builds a program of Megatron-core where there is no CUDA.

    The program is built, and its step runs, with the replacements of
    :mod:`pitcheck.frontends.torch.megatron.shims`. Without a process group it gets one of a single
    rank. If the program has no ``names``, parameters are called after the number that Megatron
    gives to their layer and their expert. Optimizers may be Megatron's.

    Raises:
        UsageError: if Megatron-core is not installed.
    """
    _import()
    from pitcheck.frontends.torch.megatron.names import reference_names, unwrapped  # noqa: PLC0415
    from pitcheck.frontends.torch.megatron.optimizers import inner, scattered  # noqa: PLC0415
    from pitcheck.frontends.torch.megatron.shims import shims, start_group  # noqa: PLC0415

    @wraps(build)
    def built(*args: P.args, **kwargs: P.kwargs) -> Program:
        start_group()
        with shims():
            program = build(*args, **kwargs)
        models = unwrapped(program.model)

        def step(batch: Any) -> Any:
            with shims():
                return program.step(batch)

        return replace(
            program,
            model=models if len(models) > 1 else models[0],
            step=wraps(program.step)(step),
            optimizer=inner(program.optimizer) or None,
            scattered=program.scattered or scattered(program.model, models),
            names=program.names or reference_names(models),
            assumptions=(*program.assumptions, ASSUMED),
        )

    return built


def _import() -> None:
    """Import Megatron, unless it is imported already.

    Functions that it would compile are left as they are: compiled code is not seen operator by
    operator, and the compiler takes seconds to import.
    """
    try:
        torch = import_module("torch")
        with replaced(torch, "compile", _uncompiled), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in USED:
                import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("megatron", "torch"):
            raise
        raise UsageError(
            "this program needs Megatron-core; install pitcheck[torch,megatron]"
        ) from None


def _uncompiled(function: Any = None, **_: Any) -> Any:
    return function if function is not None else (lambda compiled: compiled)
