"""Checks that are made in a process of their own: JAX has threads, and the tests fork.

Each is named, and says the report of a check that is not proven.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
from jax import lax
from withjax.sharded import (
    P,
    array,
    attention,
    batch_loss,
    batch_step,
    causal_attention,
    causal_ring,
    experts,
    gathered_layers,
    layers,
    loss_of,
    mesh_of,
    numbered,
    pipeline,
    product,
    ring_attention,
    sent_to_experts,
    words,
    words_in_parts,
)

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.frontends.xla.lowering.pair import plans_of
from pitcheck.frontends.xla.running.dumping import dumped_around_partitioner
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.jax import assert_equivalent, assert_partitioned

PROVEN = "proven"
Case = tuple[Callable[..., Any], Callable[..., Any], Sequence[Any]]
MATRICES = (array(8, 4), array(4, 6))
SEQUENCES = (array(8, 4),) * 3
QUEUES = (array(4, 4, 3, 2), array(4, 2, 2))
STAGES = (array(3, 2, 4), array(4, 4, 4))
TABLE = (array(8, 4), jax.ShapeDtypeStruct((6,), jnp.int32))
BATCH = (array(4, 2), array(8, 4), array(8, 2))
NETWORK = (array(8, 4), array(4, 8), array(8, 4))
SPECS = (P("data", None), P(None, "model"), P("model", None))


def start_jax() -> None:
    """Give eight devices of the processor to JAX, before anything starts it."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)


def said(name: str) -> str:
    """Return ``PROVEN``, or what the assertion says that fails."""
    try:
        CHECKS[name]()
    except AssertionError as error:
        return str(error)
    return PROVEN


def multiply(x: Any, w: Any) -> Any:
    return x @ w


def summed(x: Any) -> Any:
    return lax.psum(x, "model")


def network(x: Any, first: Any, second: Any) -> Any:
    return jax.nn.relu(x @ first) @ second


RIGHT: dict[str, Callable[[], Case]] = {
    "product": lambda: (product(summed), multiply, MATRICES),
    "product unchecked": lambda: (product(summed, check_vma=False), multiply, MATRICES),
    "product scattered and gathered": lambda: (
        product(
            lambda x: lax.all_gather(
                lax.psum_scatter(x, "model", scatter_dimension=1, tiled=True),
                "model",
                axis=1,
                tiled=True,
            ),
            check_vma=False,
        ),
        multiply,
        MATRICES,
    ),
    "gradients of a product": lambda: (loss_of(product(summed)), loss_of(multiply), MATRICES),
    "ring attention": lambda: (ring_attention(), attention, SEQUENCES),
    "ring attention the other way": lambda: (ring_attention(shift=-1), attention, SEQUENCES),
    "ring attention unchecked": lambda: (ring_attention(check_vma=False), attention, SEQUENCES),
    "ring attention in a loop": lambda: (
        ring_attention(check_vma=False, looped=True),
        attention,
        SEQUENCES,
    ),
    "gradients of ring attention": lambda: (
        loss_of(ring_attention()),
        loss_of(attention),
        SEQUENCES,
    ),
    "experts": lambda: (sent_to_experts(), experts, QUEUES),
    "gradients of experts": lambda: (loss_of(sent_to_experts()), loss_of(experts), QUEUES),
    "pipeline": lambda: (pipeline(), layers, STAGES),
    "gradients of a pipeline": lambda: (loss_of(pipeline()), loss_of(layers), STAGES),
    "causal ring attention": lambda: (causal_ring(), causal_attention, SEQUENCES),
    "words": lambda: (words_in_parts(), words, TABLE),
    "a step of a batch": lambda: (
        batch_step(lambda loss, gradient: lax.pmean((loss, gradient), "data")),
        jax.value_and_grad(batch_loss),
        BATCH,
    ),
    "a step of a batch whose gradients JAX sums": lambda: (
        batch_step(lambda loss, gradient: (lax.pmean(loss, "data"), gradient / 4), check_vma=True),
        jax.value_and_grad(batch_loss),
        BATCH,
    ),
    "devices in another order": lambda: (numbered(), lambda x: x * jnp.arange(4.0), (array(4),)),
}
WRONG: dict[str, Callable[[], Case]] = {
    "no sum": lambda: (product(lambda x: x, check_vma=False), multiply, MATRICES),
    "a mean": lambda: (product(lambda x: lax.pmean(x, "model")), multiply, MATRICES),
    "another axis": lambda: (
        product(lambda x: lax.psum(x, "data"), check_vma=False),
        multiply,
        MATRICES,
    ),
    "a sum over both axes": lambda: (
        product(lambda x: lax.psum(x, ("data", "model")), check_vma=False),
        multiply,
        MATRICES,
    ),
    "gradients that are summed again": lambda: (
        loss_of(product(summed, check_vma=False)),
        lambda x, w: jax.tree.map(lambda g: 2 * g, loss_of(multiply)(x, w)),
        MATRICES,
    ),
    "a ring of two": lambda: (ring_attention(shift=2), attention, SEQUENCES),
    "a step too few": lambda: (ring_attention(steps=3), attention, SEQUENCES),
    "a step too many": lambda: (ring_attention(steps=5), attention, SEQUENCES),
    "no rescaling": lambda: (ring_attention(rescale=False), attention, SEQUENCES),
    "experts that answer nobody": lambda: (sent_to_experts(back=False), experts, QUEUES),
    "experts that nobody is sent to": lambda: (sent_to_experts(there=False), experts, QUEUES),
    "experts of other tokens": lambda: (sent_to_experts(there=False, back=False), experts, QUEUES),
    "a pipeline that is read early": lambda: (pipeline(delay=2), layers, STAGES),
    "a pipeline that leaves a stage out": lambda: (pipeline(shift=2), layers, STAGES),
    "a causal ring in the wrong direction": lambda: (causal_ring(-1), causal_attention, SEQUENCES),
    "words without a mask": lambda: (words_in_parts(masked=False), words, TABLE),
    "a loss that is averaged twice": lambda: (
        batch_step(
            lambda loss, gradient: (lax.pmean(loss, "data") / 4, lax.pmean(gradient, "data"))
        ),
        jax.value_and_grad(batch_loss),
        BATCH,
    ),
    "gradients that are not averaged": lambda: (
        batch_step(lambda loss, gradient: (lax.pmean(loss, "data"), gradient)),
        jax.value_and_grad(batch_loss),
        BATCH,
    ),
    "gradients that are summed": lambda: (
        batch_step(lambda loss, gradient: (lax.pmean(loss, "data"), lax.psum(gradient, "data"))),
        jax.value_and_grad(batch_loss),
        BATCH,
    ),
    "gradients that JAX has summed and that are averaged then": lambda: (
        batch_step(
            lambda loss, gradient: (lax.pmean(loss, "data"), lax.pmean(gradient, "data")),
            check_vma=True,
        ),
        jax.value_and_grad(batch_loss),
        BATCH,
    ),
    "devices in the order of their numbers": lambda: (
        numbered(),
        lambda x: x * jnp.array([1.0, 3.0, 0.0, 2.0]),
        (array(4),),
    ),
}


def _against_plain(case: Callable[[], Case]) -> Callable[[], None]:
    def run() -> None:
        report = assert_equivalent(*case())
        assert 0 < report.outputs.proven == report.outputs.total

    return run


def _other_results() -> None:
    assert_equivalent(product(summed), lambda x, w: (x, w), MATRICES)


def _other_shapes() -> None:
    assert_equivalent(product(summed), lambda x, w: (x @ w)[:4], MATRICES)


def _plain_is_sharded() -> None:
    assert_equivalent(product(summed), product(summed), MATRICES)


def _of_one_device() -> None:
    assert_equivalent(multiply, multiply, MATRICES)


def _with_an_unused(unused: Any, x: Any, w: Any) -> Any:
    del unused
    return product(summed)(x, w)


def _an_argument_is_not_used() -> None:
    args = (array(8, 4), *MATRICES)
    assert_equivalent(_with_an_unused, lambda _, x, w: x @ w, args)
    assert_equivalent(_with_an_unused, lambda unused, x, w: (unused * 0 + x) @ w, args)


def _another_argument_is_used() -> None:
    args = (array(8, 4), *MATRICES)
    assert_equivalent(_with_an_unused, lambda unused, _, w: unused @ w, args)


def _explicit_axes() -> None:
    mesh = jax.make_mesh((2, 2), ("data", "model"))
    specs = P("data", "model"), P("model", None)
    args = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=jax.NamedSharding(mesh, spec))
        for x, spec in zip(MATRICES, specs, strict=True)
    ]
    sharded = jax.shard_map(
        lambda x, w: summed(x @ w), mesh=mesh, in_specs=specs, out_specs=P("data", None)
    )
    assert_equivalent(sharded, multiply, args, mesh=mesh)


def _arrays() -> None:
    assert_equivalent(product(summed), multiply, (jnp.ones((8, 4)), jnp.ones((4, 6))))


def _gradients_of_a_network() -> None:
    report = assert_partitioned(loss_of(network), NETWORK, in_shardings=SPECS, mesh=mesh_of(2, 2))
    assert report.outputs.total == 4


def _jitted_with_named_arguments() -> None:
    mesh = mesh_of(2, 2)
    given = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=jax.NamedSharding(mesh, spec))
        for x, spec in zip(NETWORK, SPECS, strict=True)
    ]
    assert_partitioned(
        jax.jit(network), given[:2], kwargs={"second": given[2]}, out_shardings=P("data"), mesh=mesh
    )


def _steps_of_a_loop() -> None:
    def scanned(x: Any, weights: Any) -> Any:
        return jnp.sum(lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0] ** 2)

    assert_partitioned(
        jax.value_and_grad(scanned, 1),
        (array(8, 4), array(3, 4, 4)),
        in_shardings=(P("data", None), P(None, None, "model")),
        out_shardings=(P(), P(None, None, "model")),
        mesh=mesh_of(2, 2),
    )


def _unpartitioned() -> None:
    assert_partitioned(network, NETWORK)


def _partitioned_shard_map() -> None:
    report = assert_partitioned(loss_of(sent_to_experts()), QUEUES)
    assert report.outputs.total == 3


def _gathered_layers() -> None:
    weights = {name: array(2, 4, 4) for name in ("first", "second", "third", "last")}
    assert_partitioned(gathered_layers(), (weights, array(4, 3, 4)))


def _copies_that_differ() -> None:
    assert_partitioned(product(lambda x: x, check_vma=False), MATRICES)


def _a_sum_is_left_out() -> None:
    shardings = tuple(jax.NamedSharding(mesh_of(2, 2), spec) for spec in SPECS)
    lowered = jax.jit(network, in_shardings=shardings, out_shardings=shardings[0]).lower(*NETWORK)
    with tempfile.TemporaryDirectory() as folder:
        texts = dumped_around_partitioner(lowered, Path(folder))
        before, right = texts.before.read_text(), texts.after.read_text()
    found = re.sub(r"all-reduce\((%[\w.]+)\).*", r"copy(\1)", right)
    assert found != right
    pairs = [plans_of(parse_hlo(before), parse_hlo(text)) for text in (right, found)]
    verdicts = [check(*pair, Options(seed=0)).verdict for pair in pairs]
    assert verdicts == ["equivalent", "mismatch"]


def _doubled() -> Callable[..., Any]:
    return jax.shard_map(
        lambda x: x * 2, mesh=mesh_of(4, names=("d",)), in_specs=P("d"), out_specs=P("d")
    )


def _a_row_less() -> None:
    """Parts of 7 and of 8 rows are of one size on four devices."""
    assert_equivalent(_doubled(), lambda x: (x * 2)[:7], (array(8),))


def _another_dtype() -> None:
    assert_equivalent(_doubled(), lambda x: (x * 2).astype(jnp.bfloat16), (array(8),))


def _another_structure() -> None:
    assert_equivalent(lambda x: {"y": _doubled()(x)}, lambda x: [x * 2], (array(8),))


def _donated() -> None:
    assert_equivalent(jax.jit(_doubled(), donate_argnums=0), lambda x: x + x, (array(8),))


def _numbers_by_name() -> None:
    """A Python number takes the dtype of the array beside it, on both sides."""
    halves = jax.ShapeDtypeStruct((8,), jnp.bfloat16)
    assert_equivalent(
        lambda x, *, factor: _doubled()(x) * factor,
        lambda x, *, factor: 2 * factor * x,
        (halves,),
        kwargs={"factor": 3.0},
    )


def _compiled_before() -> None:
    """A cache that has the program gives no texts of it."""
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        try:
            jax.jit(_doubled(), keep_unused=True)(jnp.ones(8))
            assert list(Path(folder).iterdir())
            for _ in range(2):
                assert_equivalent(_doubled(), lambda x: x * 2, (jnp.ones(8),))
        finally:
            jax.config.update("jax_compilation_cache_dir", None)


def _raises() -> None:
    def f(x: Any) -> Any:
        raise ZeroDivisionError("mine")

    assert_equivalent(_doubled(), f, (array(8),))


def _one_device() -> None:
    with patch.object(jax, "device_count", return_value=1):
        assert_partitioned(network, NETWORK)


OTHERS: dict[str, Callable[[], None]] = {
    "a row less": _a_row_less,
    "another dtype": _another_dtype,
    "another structure": _another_structure,
    "donated": _donated,
    "numbers by name": _numbers_by_name,
    "compiled before": _compiled_before,
    "raises": _raises,
    "one device": _one_device,
    "other results": _other_results,
    "other shapes": _other_shapes,
    "the plain function is sharded": _plain_is_sharded,
    "of one device": _of_one_device,
    "an argument is not used": _an_argument_is_not_used,
    "another argument is used": _another_argument_is_used,
    "explicit axes": _explicit_axes,
    "arrays": _arrays,
    "gradients of a network": _gradients_of_a_network,
    "jitted with named arguments": _jitted_with_named_arguments,
    "steps of a loop": _steps_of_a_loop,
    "unpartitioned": _unpartitioned,
    "a sum is left out": _a_sum_is_left_out,
    "copies that differ": _copies_that_differ,
    "partitioned shard_map": _partitioned_shard_map,
    "gathered layers": _gathered_layers,
}
CHECKS = OTHERS | {name: _against_plain(case) for name, case in (RIGHT | WRONG).items()}
