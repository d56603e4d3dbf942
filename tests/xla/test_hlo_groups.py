"""Replica groups in each notation, compared with arrays of NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xla.hlo_meshes import counts, meshes, printed_count
from xla.hlo_texts import NAMES, dump, dumped

from pitcheck.errors import BudgetError, PitcheckError, PlanError, UnsupportedError
from pitcheck.frontends.xla.text.groups import (
    Groups,
    Ids,
    device_groups,
    meaning_of_ids,
    read_groups,
    read_pairs,
)
from pitcheck.frontends.xla.text.lexer import Kind, Lexer
from pitcheck.frontends.xla.text.mesh import DeviceLists


def groups(text: str) -> Groups:
    """Return the groups that a whole text stands for."""
    lexer = Lexer(text, "groups")
    read = read_groups(lexer, DeviceLists())
    assert lexer.kind is Kind.END
    return read


def rows(array: np.ndarray, size: int) -> Groups:
    """Return the elements of an array, row by row, in groups of ``size``."""
    return tuple(tuple(map(int, row)) for row in array.reshape(-1, size))


@given(counts(), st.data())
def test_a_transposed_count(drawn: tuple[list[int], list[int]], data: st.DataObject) -> None:
    sizes, order = drawn
    array = np.arange(np.prod(sizes)).reshape(sizes).transpose(order).ravel()
    size = data.draw(st.sampled_from([n for n in range(1, array.size + 1) if array.size % n == 0]))
    text = f"[{array.size // size},{size}]<={printed_count(sizes, order)}"
    assert groups(text) == rows(array, size)


@given(meshes(), st.data())
def test_axes_of_a_mesh(drawn: tuple[str, np.ndarray], data: st.DataObject) -> None:
    text, array = drawn
    chosen = data.draw(st.lists(st.sampled_from(range(array.ndim)), unique=True))
    others = [axis for axis in range(array.ndim) if axis not in chosen]
    axes = ",".join(f"'axis_{axis}'" for axis in chosen)
    size = int(np.prod([array.shape[axis] for axis in chosen]))
    assert groups(f"{text} {{{axes}}}") == rows(array.transpose([*others, *chosen]), size)


@given(st.lists(st.integers(2, 3), min_size=2, max_size=4), st.integers(1, 3), st.data())
def test_parts_of_an_axis(parts: list[int], other: int, data: st.DataObject) -> None:
    """Split one axis into parts, and compare with an array that has an axis for each."""
    full = int(np.prod(parts))
    chosen = data.draw(
        st.lists(st.sampled_from(range(len(parts))), unique=True, max_size=len(parts) - 1)
    )
    array = np.arange(other * full).reshape(other, *parts)
    axes = ",".join(f"'b':({np.prod(parts[:part], dtype=int)}){parts[part]}" for part in chosen)
    kept = [0, *(part + 1 for part in range(len(parts)) if part not in chosen)]
    size = int(np.prod([parts[part] for part in chosen]))
    expected = rows(array.transpose([*kept, *(part + 1 for part in chosen)]), size)
    assert groups(f"mesh['a'={other},'b'={full}] {{{axes}}}") == expected


def test_groups_by_hand() -> None:
    assert groups("{}") == ()
    assert groups("{{0,2},{1,3}}") == ((0, 2), (1, 3))
    assert groups("[4,2]<=[4,2]T(1,0)") == ((0, 2), (4, 6), (1, 3), (5, 7))
    assert groups("mesh['axis_0'=2,'axis_1'=4] {'axis_0'}") == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert groups("mesh[axis_0=2,axis_1=2] {axis_1,axis_0}") == ((0, 2, 1, 3),)
    assert groups("mesh['a'=2,'b'=2] {}") == ((0,), (1,), (2,), (3,))
    # device_ids puts 0 4 1 5 2 6 3 7 into the mesh; dropping it would give ((0, 4), ...).
    text = "mesh['axis_0'=2,'axis_1'=2,'axis_2'=2], device_ids=([2,4]T(1,0)) {'axis_0'}"
    assert groups(text) == ((0, 2), (4, 6), (1, 3), (5, 7))
    assert groups("mesh['a'=8] {'a':(2)2}") == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert groups("mesh['a'=8] {'a':(4)2,'a':(1)2}") == ((0, 4, 1, 5), (2, 6, 3, 7))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{{0,1},{1,2}}", PlanError, "stands twice"),
        ("{{0,1},{}}", PlanError, "is empty"),
        ("{0,1}", PlanError, "'{'"),
        ("[4,2]<=[4]", PlanError, "4 groups of 2 are cut from 4"),
        ("[8]<=[8]", PlanError, "1 sizes"),
        ("[2,2]<=[2,2]", PlanError, "T("),
        ("[2,2]<=[2,2]T(0,0)", PlanError, "each of 2 dimensions once"),
        ("[2,2]<=[2,2]T(1)", PlanError, "each of 2 dimensions once"),
        ("[0,2]<=[0]", PlanError, "from 1"),
        ("mesh['a'=2,'a'=2] {'a'}", PlanError, "two axes 'a'"),
        ("mesh['a'=2] {'b'}", PlanError, "no axis 'b'"),
        ("mesh['a'=2,'b'=1] {'b','b'}", PlanError, "twice"),
        ("mesh['a'=8] {'a','a':(2)2}", PlanError, "overlap"),
        ("mesh['a'=8] {'a':(1)4,'a':(2)2}", PlanError, "overlap"),
        ("mesh['a'=12] {'a':(1)2,'a':(3)2}", PlanError, "overlap"),
        ("mesh['a'=8] {'a':(1)3}", PlanError, "does not divide"),
        ("mesh['a'=8] {'a':(1)8}", PlanError, "from 2 to 7"),
        ("mesh['a'=2,'b'=2], device_ids=(0,1,2) {'a'}", PlanError, "3 devices"),
        ("mesh['a'=2,'b'=2], device_ids=(0,1,2,2) {'a'}", PlanError, "from 0 to 3 once"),
        ("mesh['a'=2,'b'=2], device_ids=([2,3]T(1,0)) {'a'}", PlanError, "6 devices"),
        ("mesh['a'=2], {'a'}", PlanError, "'{'"),
        ("mesh['a'=2] {?}", UnsupportedError, "open"),
        ("mesh[] {}", PlanError, "without axes"),
        ("[65536,65536]<=[65536,65536]T(1,0)", BudgetError, "65536 devices"),
    ],
)
def test_wrong_groups_are_refused(text: str, error: type[PitcheckError], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        groups(text)


def test_all_short_notations_together_are_bounded() -> None:
    lists = DeviceLists()
    with pytest.raises(BudgetError, match="in all"):
        for number in range(1, 64):
            read_groups(
                Lexer(f"[{2**15 // 2 ** (number % 16)},{2 ** (number % 16)}]<=[32768]", "g"), lists
            )
            read_groups(Lexer(f"mesh['a{number}'=32768] {{}}", "g"), lists)


def test_pairs() -> None:
    assert read_pairs(Lexer("{{0,1},{1,0},{2,2}}", "pairs")) == ((0, 1), (1, 0), (2, 2))
    assert read_pairs(Lexer("{}", "pairs")) == ()


@pytest.mark.parametrize("name", NAMES)
def test_the_groups_of_a_dump_have_each_device_once(name: str) -> None:
    text, module = dump(name), dumped(name)
    read = [
        (instruction.line, instruction.attributes["replica_groups"])
        for computation in module.computations.values()
        for instruction in computation.instructions.values()
        if "replica_groups" in instruction.attributes
    ]
    assert len(read) == text.count("replica_groups=")
    for line, stated in read:
        assert isinstance(stated, tuple)
        flat = [number for group in stated for number in group]  # type: ignore[union-attr]
        assert sorted(flat) == list(range(8)), line


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_the_devices_that_meet(replicas: int, partitions: int, data: st.DataObject) -> None:
    """Ask for each pair of devices if they meet, by the rule that XLA documents."""
    ids = data.draw(st.sampled_from(Ids))
    count = {Ids.PARTITIONS: partitions, Ids.DEVICES: replicas * partitions}.get(ids, replicas)
    order = data.draw(st.permutations(range(count)))
    cut = data.draw(st.integers(0, count))
    stated = tuple(tuple(part) for part in (order[:cut], order[cut:]) if part)
    group_of = {number: place for place, part in enumerate(stated) for number in part}

    def meet(one: int, other: int) -> bool:
        (r, p), (s, q) = divmod(one, partitions), divmod(other, partitions)
        if ids is Ids.DEVICES:
            return group_of[one] == group_of[other]
        if ids is Ids.PARTITIONS:
            return r == s and group_of[p] == group_of[q]
        return group_of[r] == group_of[s] and (p == q or ids is not Ids.REPLICAS)

    found = device_groups(stated, ids, replicas, partitions)
    place = {device: number for number, group in enumerate(found) for device in group}
    devices = range(replicas * partitions)
    assert sorted(device for group in found for device in group) == list(devices)
    assert all(meet(a, b) == (place[a] == place[b]) for a in devices for b in devices)


def test_too_many_devices_are_refused() -> None:
    with pytest.raises(BudgetError, match="devices"):
        device_groups((), Ids.PARTITIONS, 2**10, 2**10)


def test_no_groups_stand_for_one_of_all() -> None:
    assert device_groups((), Ids.PARTITIONS, 2, 3) == ((0, 1, 2), (3, 4, 5))
    assert device_groups((), Ids.REPLICAS, 2, 3) == ((0, 3), (1, 4), (2, 5))
    assert device_groups((), Ids.REPLICAS_OF_ALL_PARTITIONS, 2, 2) == ((0, 1, 2, 3),)
    with pytest.raises(PlanError, match="needs replica groups"):
        device_groups((), Ids.DEVICES, 2, 3)


@pytest.mark.parametrize("stated", [((0,), (1,)), ((0, 1), (1, 2)), ((0, 1, 3),), ((0, 1, 2, 3),)])
def test_groups_that_leave_a_device_out_are_refused(stated: Groups) -> None:
    with pytest.raises(PlanError, match="each id from 0 to 2 once"):
        device_groups(stated, Ids.PARTITIONS, 1, 3)


def test_the_meaning_of_ids() -> None:
    assert meaning_of_ids(False, False) is Ids.REPLICAS
    assert meaning_of_ids(False, None) is Ids.REPLICAS
    assert meaning_of_ids(True, None) is Ids.PARTITIONS
    assert meaning_of_ids(True, False) is Ids.REPLICAS_OF_ALL_PARTITIONS
    assert meaning_of_ids(True, True) is Ids.DEVICES
    with pytest.raises(PlanError, match="channel_id"):
        meaning_of_ids(False, True)
