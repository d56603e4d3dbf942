"""Check in a test that XLA, or a ``shard_map``, computes what the program of one device computes.

It needs the extra ``jax``, and no accelerator. Shapes and dtypes are enough: nothing is executed.

    from pitcheck.jax import assert_equivalent, assert_partitioned

    def test_partitioner():
        assert_partitioned(step, (state, batch), in_shardings=(sharded, P("data")), mesh=mesh)

    def test_ring_attention():
        sharded = jax.shard_map(ring, mesh=mesh, in_specs=specs, out_specs=specs[0])
        assert_equivalent(sharded, attention, (queries, keys, values))

The mesh is of the devices that the process has; on a processor
``jax.config.update("jax_num_cpu_devices", 8)`` before anything else makes eight.

The command ``pitcheck check FILE.py:NAME --jax --devices 8`` compiles a program in a process of its
own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pitcheck.base.options import Options
from pitcheck.errors import UsageError
from pitcheck.frontends.protocol import Attempt
from pitcheck.frontends.xla.lowering.pair import attempts_on, read_partitioned
from pitcheck.frontends.xla.running.dumping import dumped_around_partitioner
from pitcheck.frontends.xla.text.parser import read_hlo
from pitcheck.report.report import Report

__all__ = ["Options", "assert_equivalent", "assert_partitioned"]

_ONE_DEVICE = (
    "JAX has one device here, and XLA partitions nothing for one; before anything else of JAX, "
    'call jax.config.update("jax_num_cpu_devices", 8) or set '
    "XLA_FLAGS=--xla_force_host_platform_device_count=8"
)


def assert_partitioned(
    f: Callable[..., Any],
    args: Sequence[Any],
    *,
    kwargs: Mapping[str, Any] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    mesh: Any = None,
    **options: Any,
) -> Report:
    """Return the report on a program before and after XLA partitions it, which is proven.

    ``f`` is a function, jitted or not, and ``args`` and ``kwargs`` are arrays or
    ``jax.ShapeDtypeStruct``. The shardings are those of ``jax.jit``; with ``mesh``, a
    ``PartitionSpec`` in them is one of that mesh. ``options`` are the fields of :class:`Options`.
    The seed is 0 and there is one process unless they are given: a test says the same every time,
    and a process that runs JAX is not forked.

    Raises:
        AssertionError: with the whole report as its message, for any verdict but "equivalent".
        UsageError: JAX is missing, or has one device.
        Exception: what ``f`` or JAX raises while it is lowered.
    """
    lowered = _lowered(f, args, kwargs, mesh, in_shardings, out_shardings)

    def attempts() -> Iterator[Attempt]:
        with tempfile.TemporaryDirectory(prefix="pitcheck-") as folder:
            texts = dumped_around_partitioner(lowered, Path(folder))
            yield from read_partitioned(texts.before, texts.after)

    return _asserted(attempts, options)


def assert_equivalent(
    sharded: Callable[..., Any],
    plain: Callable[..., Any],
    args: Sequence[Any],
    *,
    kwargs: Mapping[str, Any] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    mesh: Any = None,
    **options: Any,
) -> Report:
    """Return the report on a sharded program that is proven to compute what a plain one does.

    ``sharded`` is a ``shard_map``, or any function that runs on several devices; ``plain`` is the
    function of whole arrays, for one device. Both are called with ``args`` and ``kwargs``. The
    other arguments are those of :func:`assert_partitioned`, and go with ``sharded``. It makes no
    difference if ``shard_map`` checks replication (``check_vma``) or not: each device is compared.
    Results of both are trees of one structure, with equal shapes and dtypes.

    Raises:
        AssertionError: with the whole report as its message, for any verdict but "equivalent".
        UsageError: JAX is missing, or has one device.
        Exception: what a function or JAX raises while it is lowered.
    """
    lowered = _lowered(sharded, args, kwargs, mesh, in_shardings, out_shardings)
    whole = _lowered_plain(plain, args, kwargs, _partitions(lowered))
    if whole.out_tree != lowered.out_tree:
        raise AssertionError(
            f"the sharded function returns {lowered.out_tree} and the plain one {whole.out_tree}; "
            f"results correspond by their places"
        )

    def attempts() -> Iterator[Attempt]:
        with (
            tempfile.TemporaryDirectory(prefix="pitcheck-") as first,
            tempfile.TemporaryDirectory(prefix="pitcheck-") as second,
        ):
            texts = dumped_around_partitioner(lowered, Path(first))
            reference = read_hlo(dumped_around_partitioner(whole, Path(second)).before)
            yield from attempts_on(reference, read_hlo(texts.after), read_hlo(texts.before))

    return _asserted(attempts, options)


def _lowered(
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    mesh: Any,
    in_shardings: Any = None,
    out_shardings: Any = None,
) -> Any:
    """Return a function as JAX lowers it. No argument is dropped, so that they stay in order."""
    jax = _jax()
    if jax.device_count() < 2:
        raise UsageError(_ONE_DEVICE)
    stated = {
        name: _of_mesh(jax, shardings, mesh)
        for name, shardings in (("in_shardings", in_shardings), ("out_shardings", out_shardings))
        if shardings is not None
    }
    with nullcontext() if mesh is None else jax.set_mesh(mesh):
        return jax.jit(f, keep_unused=True, **stated).lower(*args, **(kwargs or {}))


def _of_mesh(jax: Any, shardings: Any, mesh: Any) -> Any:
    """Return shardings in which a ``PartitionSpec`` is one of the mesh."""
    if mesh is None:
        return shardings
    return jax.tree.map(
        lambda each: (
            jax.NamedSharding(mesh, each) if isinstance(each, jax.sharding.PartitionSpec) else each
        ),
        shardings,
        is_leaf=lambda each: isinstance(each, jax.sharding.PartitionSpec),
    )


def _lowered_plain(
    plain: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    devices: int,
) -> Any:
    """Return a function of whole arrays as JAX lowers it.

    Its results are replicated over some devices, so that XLA prepares it for the partitioner, as it
    prepares the sharded one.
    """
    jax = _jax()
    everywhere = jax.NamedSharding(
        jax.sharding.Mesh(jax.devices()[:devices], ("device",)), jax.sharding.PartitionSpec()
    )
    given, named = jax.tree.map(_unsharded, (tuple(args), dict(kwargs or {})))
    return jax.jit(plain, keep_unused=True, out_shardings=everywhere).lower(*given, **named)


def _partitions(lowered: Any) -> int:
    """Return the number of devices that a program is lowered for."""
    module = lowered.compiler_ir("stablehlo").operation
    return int(module.attributes["mhlo.num_partitions"])


def _unsharded(leaf: Any) -> Any:
    """Return the shape and dtype of an array, without its sharding; a number as it is."""
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return leaf
    weak = bool(getattr(leaf, "weak_type", False))
    return _jax().ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=weak)


def _jax() -> Any:
    try:
        import jax  # noqa: PLC0415  an extra
    except ModuleNotFoundError as error:
        if error.name not in {"jax", "jaxlib"}:
            raise
        raise UsageError("this needs JAX; install pitcheck[jax]") from None
    return jax


def _asserted(attempts: Callable[[], Iterator[Attempt]], options: Mapping[str, Any]) -> Report:
    """Return the report on the plans that are yielded; raise AssertionError unless proven."""
    from pitcheck.commands.checking.attempts import checked_in_turn  # noqa: PLC0415  heavy
    from pitcheck.report.text import render  # noqa: PLC0415

    # One process: JAX has threads, and to fork a process that has some may not end.
    report = checked_in_turn(attempts, Options(**{"seed": 0, "jobs": 1, **options}))
    if report.verdict != "equivalent":
        raise AssertionError("\n".join(["", *(line.text for line in render(report))]))
    return report
