"""Manual regions by hand: collectives in each notation of groups, their borders, and refusals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from xla.hlo_texts import ADD, module_text

from pitcheck.errors import UnsupportedError
from pitcheck.execution.executor import execute
from pitcheck.frontends.xla.lowering.side import Side, parameters_of
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.plan.model import Output, Plan
from pitcheck.plan.validate import validate

FOUR = ", num_partitions=4"
MANUAL = "sharding={manual}"
ROWS = "sharding={devices=[4,1]<=[4]}"
IN = 'custom-call(%x), custom_call_target="SPMDFullToShardShape"'
OUT = 'custom_call_target="SPMDShardToFullShape"'
GROUPS = {
    "{{0,1},{2,3}}": ((0, 1), (2, 3)),
    "{{2,0},{1,3}}": ((2, 0), (1, 3)),
    "[2,2]<=[4]": ((0, 1), (2, 3)),
    "[2,2]<=[2,2]T(1,0)": ((0, 2), (1, 3)),
    "mesh['a'=2,'b'=2] {'a'}": ((0, 2), (1, 3)),
    "mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a'}": ((0, 1), (2, 3)),
    "{{3,1,0,2}}": ((3, 1, 0, 2),),
}


def _reference(*lines: str) -> Plan:
    """Return the plan of a program before partitioning that has these lines in a region."""
    text = module_text(*lines, before=ADD + MULTIPLY, head=FOUR, root=False)
    module = parse_hlo(text)
    side = Side(module, 1, list(parameters_of(module)), {})
    return side.plan([Output(name) for name in side.named_results()], ())


def _computed(x: np.ndarray, *lines: str) -> np.ndarray:
    plan = _reference(*lines)
    assert not [*validate(plan)]
    name = next(tensor.name for tensor in plan.tensors if tensor.role == "input")
    return np.asarray(execute(plan, {(name, 0, 0): x})[plan.outputs[0].tensor, 0, 0])


def _rows(operator: str, kept: str, whole: str) -> tuple[str, ...]:
    """Return a region of a row of 4 for each device: one operator, with results of a shape."""
    return (
        f"%x = f32[4,4] parameter(0), {ROWS}",
        f"%s = f32[1,4] {IN}, {MANUAL}",
        f"%r = f32[4] reshape(%s), {MANUAL}",
        f"%c = {kept} {operator}, {MANUAL}",
        f"%e = f32[1,{kept[4:]} reshape(%c), {MANUAL}",
        f"ROOT %y = {whole} custom-call(%e), {OUT}, {ROWS}",
    )


X = np.arange(16, dtype=float).reshape(4, 4) ** 2 - 20


def _by_group(groups: Sequence[Sequence[int]]) -> dict[int, tuple[list[np.ndarray], int]]:
    """Return what the group of each device holds, and the place of the device in it."""
    return {
        device: ([X[member] for member in group], place)
        for group in groups
        for place, device in enumerate(group)
    }


@pytest.mark.parametrize("stated", GROUPS)
def test_an_all_reduce_adds_what_the_group_of_each_device_holds(stated: str) -> None:
    operator = (
        f"all-reduce(%r), channel_id=1, replica_groups={stated}, use_global_device_ids=true, "
        f"to_apply=%add"
    )
    held = _by_group(GROUPS[stated])
    found = _computed(X, *_rows(operator, "f32[4]", "f32[4,4]"))
    np.testing.assert_array_equal(found, [sum(held[d][0]) for d in range(4)])


@pytest.mark.parametrize("stated", GROUPS)
def test_an_all_gather_joins_in_the_order_of_the_group(stated: str) -> None:
    groups = GROUPS[stated]
    size = 4 * len(groups[0])
    operator = (
        f"all-gather(%r), channel_id=1, replica_groups={stated}, use_global_device_ids=true, "
        f"dimensions={{0}}"
    )
    held = _by_group(groups)
    found = _computed(X, *_rows(operator, f"f32[{size}]", f"f32[4,{size}]"))
    np.testing.assert_array_equal(found, [np.concatenate(held[d][0]) for d in range(4)])


@pytest.mark.parametrize("stated", GROUPS)
def test_a_reduce_scatter_gives_the_part_at_the_place_in_the_group(stated: str) -> None:
    groups = GROUPS[stated]
    members = len(groups[0])
    size = 4 // members
    operator = (
        f"reduce-scatter(%r), channel_id=1, replica_groups={stated}, use_global_device_ids=true, "
        f"dimensions={{0}}, to_apply=%add"
    )
    held = _by_group(groups)
    expected = [np.split(sum(held[d][0]), members)[held[d][1]] for d in range(4)]
    found = _computed(X, *_rows(operator, f"f32[{size}]", f"f32[4,{size}]"))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("stated", GROUPS)
def test_an_all_to_all_gives_the_part_of_each_member(stated: str) -> None:
    groups = GROUPS[stated]
    members = len(groups[0])
    operator = f"all-to-all(%r), channel_id=1, replica_groups={stated}, dimensions={{0}}"
    held = _by_group(groups)
    expected = [
        np.concatenate([np.split(row, members)[held[d][1]] for row in held[d][0]]) for d in range(4)
    ]
    found = _computed(X, *_rows(operator, "f32[4]", "f32[4,4]"))
    np.testing.assert_array_equal(found, expected)


def test_an_all_to_all_of_several_arrays_sends_one_to_each_member() -> None:
    found = _computed(
        X,
        f"%x = f32[4,4] parameter(0), {ROWS}",
        f"%s = f32[1,4] {IN}, {MANUAL}",
        f"%t = f32[1,4] negate(%s), {MANUAL}",
        "%a = (f32[1,4], f32[1,4]) all-to-all(%s, %t), channel_id=1, "
        "replica_groups={{0,3},{2,1}}, sharding={{manual}, {manual}}",
        f"%b = f32[1,4] get-tuple-element(%a), index=0, {MANUAL}",
        f"%c = f32[1,4] get-tuple-element(%a), index=1, {MANUAL}",
        f"%d = f32[1,8] concatenate(%b, %c), dimensions={{1}}, {MANUAL}",
        f"ROOT %y = f32[4,8] custom-call(%d), {OUT}, {ROWS}",
    )
    # The first of each group, 0 and 2, get what is not negated.
    first, second = [0, 2, 2, 0], [3, 1, 1, 3]
    signs = np.array([1, -1, 1, -1])[:, None]
    np.testing.assert_array_equal(found, np.hstack([X[first], X[second]]) * signs)


def test_a_permute_gives_zeros_to_those_who_are_sent_nothing() -> None:
    operator = "collective-permute(%r), channel_id=1, source_target_pairs={{0,2},{3,3},{2,1}}"
    found = _computed(X, *_rows(operator, "f32[4]", "f32[4,4]"))
    np.testing.assert_array_equal(found, [np.zeros(4), X[2], X[0], X[3]])


def test_a_broadcast_gives_what_the_first_of_the_group_holds() -> None:
    operator = "collective-broadcast(%r), channel_id=1, replica_groups={{3,1},{0,2}}"
    found = _computed(X, *_rows(operator, "f32[4]", "f32[4,4]"))
    np.testing.assert_array_equal(found, X[[0, 3, 0, 3]])


def test_partition_id_is_the_number_of_the_device() -> None:
    found = _computed(
        X,
        f"%x = f32[4,4] parameter(0), {ROWS}",
        f"%s = f32[1,4] {IN}, {MANUAL}",
        f"%p = u32[] partition-id(), {MANUAL}",
        f"%f = f32[] convert(%p), {MANUAL}",
        f"%b = f32[1,4] broadcast(%f), dimensions={{}}, {MANUAL}",
        f"%m = f32[1,4] multiply(%s, %b), {MANUAL}",
        f"ROOT %y = f32[4,4] custom-call(%m), {OUT}, {ROWS}",
    )
    np.testing.assert_array_equal(found, X * np.arange(4)[:, None])


@pytest.mark.parametrize(
    ("stated", "sizes", "order"),
    [
        ("{devices=[2,2]<=[4]}", "2,2", (0, 1, 2, 3)),
        ("{devices=[2,2]<=[2,2]T(1,0)}", "2,2", (0, 2, 1, 3)),
        ("{devices=[2,2]3,0,2,1}", "2,2", (3, 0, 2, 1)),
        ("{devices=[1,4]<=[4]}", "4,1", (0, 1, 2, 3)),
    ],
)
def test_shards_are_the_tiles_of_the_sharding(
    stated: str, sizes: str, order: tuple[int, ...]
) -> None:
    """Multiply each shard by the number of its device. ``order``: the devices of the tiles."""
    found = _computed(
        X,
        f"%x = f32[4,4] parameter(0), sharding={stated}",
        f"%s = f32[{sizes}] {IN}, {MANUAL}",
        f"%p = u32[] partition-id(), {MANUAL}",
        f"%f = f32[] convert(%p), {MANUAL}",
        f"%b = f32[{sizes}] broadcast(%f), dimensions={{}}, {MANUAL}",
        f"%m = f32[{sizes}] multiply(%s, %b), {MANUAL}",
        f"ROOT %y = f32[4,4] custom-call(%m), {OUT}, sharding={stated}",
    )
    height, width = map(int, sizes.split(","))
    tiles = np.array(order).reshape(4 // height, 4 // width)
    factors = np.kron(tiles, np.ones((height, width)))
    np.testing.assert_array_equal(found, X * factors)


def test_a_tuple_of_nothing_may_state_a_sharding() -> None:
    plan = _reference(
        f"%x = f32[4,4] parameter(0), {ROWS}",
        "%n = () tuple(), sharding={{replicated}}",
        "ROOT %y = f32[4,4] negate(%x)",
    )
    assert len(plan.outputs) == 1


HALVES = "sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}"
PARTLY = "sharding={devices=[1,2,2]<=[2,2]T(1,0) last_tile_dims={manual}}"
TURNED = "sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dims={manual}}"
MULTIPLY = ADD.replace("add", "multiply").replace("%multiply", "%mul")
START = (f"%x = f32[4,4] parameter(0), {ROWS}", f"%s = f32[1,4] {IN}, {MANUAL}")
END = f"ROOT %y = f32[4,4] custom-call(%c), {OUT}, {ROWS}"
SUM = "use_global_device_ids=true, to_apply=%add"

REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "replicas that differ": (
        "devices 0 and 1 compute by different steps",
        (*START, f"ROOT %y = f32[2,4] custom-call(%s), {OUT}, {HALVES}"),
    ),
    "replicas of one that is half the sum": (
        "devices 0 and 2 compute by different steps",
        (
            *START,
            "%c = f32[1,4] all-reduce(%s), channel_id=1, replica_groups={{0,1},{2,3}}, "
            f"{SUM}, {MANUAL}",
            f"ROOT %y = f32[1,4] custom-call(%c), {OUT}, sharding={{replicated}}",
        ),
    ),
    "replicas of numbers that differ": (
        "devices 0 and 1 compute by different steps",
        (
            f"%p = u32[] partition-id(), {MANUAL}",
            f"ROOT %y = u32[] custom-call(%p), {OUT}, sharding={{replicated}}",
        ),
    ),
    "a full array in the region": (
        "without its border",
        (*START, f"%c = f32[4,4] negate(%x), {MANUAL}", "ROOT %y = f32[4,4] copy(%x)"),
    ),
    "a shard outside of the region": (
        "without its border",
        (*START, "ROOT %c = f32[1,4] negate(%s), sharding={replicated}"),
    ),
    "a shard and a full array": (
        "without its border",
        (
            *START,
            "%z = f32[1,4] slice(%x), slice={[0:1],[0:4]}",
            f"%c = f32[1,4] add(%s, %z), {MANUAL}",
            END,
        ),
    ),
    "a result in the region": (
        "a result that lies in a manual region",
        (START[0], f"ROOT {START[1]}"),
    ),
    "no sharding of the full array": (
        "without a sharding",
        (
            "%x = f32[4,4] parameter(0)",
            f"%s = f32[1,4] {IN}, {MANUAL}",
            f"ROOT %y = f32[4,4] custom-call(%s), {OUT}, {ROWS}",
        ),
    ),
    "no sharding of the result": (
        "without a sharding",
        (*START, f"ROOT %y = f32[4,4] custom-call(%s), {OUT}"),
    ),
    "shards that are addends": (
        "unreduced",
        (
            "%x = f32[4,4] parameter(0), sharding={unreduced}",
            f"%s = f32[4,4] {IN}, {MANUAL}",
            f"ROOT %y = f32[4,4] custom-call(%s), {OUT}, sharding={{replicated}}",
        ),
    ),
    "addends of the result": (
        "unreduced",
        (*START, f"ROOT %y = f32[1,4] custom-call(%s), {OUT}, sharding={{unreduced}}"),
    ),
    "tiles that are filled up": (
        "3, 4",
        (
            f"%x = f32[3,4] parameter(0), {ROWS}",
            f"%s = f32[1,4] {IN}, {MANUAL}",
            f"ROOT %y = f32[4,4] custom-call(%s), {OUT}, {ROWS}",
        ),
    ),
    "shards of other sizes": (
        "2, 4",
        (
            f"%x = f32[4,4] parameter(0), {ROWS}",
            f"%s = f32[2,4] {IN}, {MANUAL}",
            f"ROOT %y = f32[8,4] custom-call(%s), {OUT}, {ROWS}",
        ),
    ),
    "blocks in another order": (
        "laid out otherwise",
        (
            f"%x = f32[4,4] parameter(0), {HALVES}",
            f"%s = f32[4,4] {IN}, {TURNED}",
            f"ROOT %y = f32[4,4] custom-call(%s), {OUT}, {HALVES}",
        ),
    ),
    "a group that holds several blocks": (
        "hold several blocks",
        (
            f"%x = f32[4,4] parameter(0), {HALVES}",
            f"%s = f32[2,4] {IN}, sharding={{devices=[1,1,2,2]<=[2,2]T(1,0) "
            "last_tile_dims={manual, replicated}}",
            f"ROOT %y = f32[4,4] custom-call(%s), {OUT}, {HALVES}",
        ),
    ),
    "a sum along an axis that is not manual": (
        "along an axis that is not manual",
        (
            "%x = f32[4,4] parameter(0), sharding={devices=[2,2]<=[4]}",
            f"%s = f32[2,4] {IN}, {PARTLY}",
            "%c = f32[2,4] all-reduce(%s), channel_id=1, replica_groups={{0,1},{2,3}}, "
            f"{SUM}, {PARTLY}",
            f"ROOT %y = f32[4,4] custom-call(%c), {OUT}, sharding={{devices=[2,2]<=[4]}}",
        ),
    ),
    "partition-id of a group": (
        "several devices hold one array",
        (
            "%p = u32[] partition-id(), sharding={devices=[2,2]<=[4] last_tile_dims={manual, "
            "replicated}}",
            "ROOT %y = u32[] constant(1)",
        ),
    ),
    "a sum over replicas": (
        "over replicas",
        (
            *START,
            f"%c = f32[1,4] all-reduce(%s), replica_groups={{{{0}}}}, to_apply=%add, {MANUAL}",
            END,
        ),
    ),
    "a product over devices": (
        "another reduction",
        (
            *START,
            "%c = f32[1,4] all-reduce(%s), channel_id=1, replica_groups={{0,1},{2,3}}, "
            f"use_global_device_ids=true, to_apply=%mul, {MANUAL}",
            END,
        ),
    ),
    "a region that begins with more than is read": (
        "SPMDFullToShardShape with backend_config",
        (START[0], f'{START[1]}, backend_config="unspecified_dims=[0]"', END.replace("%c", "%s")),
    ),
    "a region that ends with more than is read": (
        "SPMDShardToFullShape with backend_config",
        (*START, f'{END.replace("%c", "%s")}, backend_config="unspecified_dims=[0]"'),
    ),
    "a full array that leaves a region": (
        "SPMDShardToFullShape",
        (START[0], f"ROOT %y = f32[16,4] custom-call(%x), {OUT}, {ROWS}"),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_regions_without_one_meaning_are_refused(what: str) -> None:
    message, lines = REFUSED[what]
    with pytest.raises(UnsupportedError, match=message):
        _reference(*lines)


def _products(summed: bool) -> tuple[str, ...]:
    """Return a region in which each device multiplies its row, or the sum of all, by itself."""
    groups = "replica_groups={{0,1,2,3}}, use_global_device_ids=true"
    row = f"all-reduce(%s), channel_id=1, {groups}, to_apply=%add" if summed else "negate(%s)"
    return (
        f"%x = f32[4,4] parameter(0), {ROWS}",
        f"%s = f32[1,4] {IN}, {MANUAL}",
        f"%r = f32[1,4] {row}, {MANUAL}",
        "%d = f32[1,1] dot(%r, %r), lhs_contracting_dims={1}, rhs_contracting_dims={1}, " + MANUAL,
        f"%t = f32[1,1] sqrt(%d), {MANUAL}",
        f"ROOT %y = f32[4,1] custom-call(%t), {OUT}, {ROWS}",
    )


@pytest.mark.parametrize("summed", [False, True], ids=["rows", "sum"])
def test_products_of_all_devices_are_parts_of_one_tensor(summed: bool) -> None:
    """A proof can cut there. What all devices hold is one tensor anyway."""
    lines = _products(summed)
    wanted = np.tile(X.sum(0), (4, 1)) if summed else X
    np.testing.assert_allclose(_computed(X, *lines)[:, 0], np.linalg.norm(wanted, axis=1))
    operators = _reference(*lines).operators
    written = {o.outputs[0]: o for o in operators}
    roots = {str(o.inputs[0]) for o in operators if o.kind == "sqrt"}
    parts = [written[name] for name in roots]
    if summed:
        assert len(parts) == 1
        return
    assert {part.attributes["start"] for part in parts} == {0, 1, 2, 3}
    assert {written[str(part.inputs[0])].kind for part in parts} == {"cat"}
