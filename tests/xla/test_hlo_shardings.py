"""Shardings in each notation, compared with arrays of NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xla.hlo_meshes import counts, meshes, printed_count
from xla.hlo_texts import NAMES, dumped

from pitcheck.errors import BudgetError, PitcheckError, PlanError, UnsupportedError
from pitcheck.frontends.xla.text.lexer import Kind, Lexer
from pitcheck.frontends.xla.text.mesh import DeviceLists
from pitcheck.frontends.xla.text.sharding import AnySharding, Form, Sharding, Use
from pitcheck.frontends.xla.text.sharding_reader import read_sharding


def any_sharding(text: str) -> AnySharding:
    """Return what a whole text stands for."""
    lexer = Lexer(text, "sharding")
    read = read_sharding(lexer, DeviceLists())
    assert lexer.kind is Kind.END
    return read


def sharding(text: str) -> Sharding:
    """Return the sharding of one array."""
    read = any_sharding(text)
    assert isinstance(read, Sharding)
    return read


def compare(read: Sharding, array: np.ndarray, rank: int, uses: list[Use]) -> None:
    """Compare with an array of devices: ``rank`` dimensions of tiles, and one for each use."""
    assert read.tiles(rank) == array.shape[:rank]
    for place, device in np.ndenumerate(array):
        placed = read.placement(int(device), rank)
        assert placed is not None
        assert placed.tile == place[:rank]
        for use in Use:
            mine = [number for number, kind in enumerate(uses) if kind is use]
            sizes = [array.shape[rank + number] for number in mine]
            assert read.count(use) == np.prod(sizes, dtype=int)
            expected = (
                np.ravel_multi_index([place[rank + number] for number in mine], sizes)
                if mine
                else 0
            )
            assert placed.numbers.get(use, 0) == expected
    with pytest.raises(PlanError, match="no device"):
        read.placement(array.size, rank)
    with pytest.raises(PlanError, match="dimensions"):
        read.tiles(rank + 1)


@given(counts(), st.data())
def test_tiles_of_a_count(drawn: tuple[list[int], list[int]], data: st.DataObject) -> None:
    sizes, order = drawn
    devices = np.arange(np.prod(sizes)).reshape(sizes).transpose(order).ravel()
    tiles = data.draw(st.permutations([*sizes, 1]))
    uses = data.draw(st.lists(st.sampled_from(Use), max_size=len(tiles)))
    rank = len(tiles) - len(uses)
    listed = data.draw(st.booleans())
    how = ",".join(map(str, devices)) if listed else f"<={printed_count(sizes, order)}"
    if uses == [Use.REPLICATED] and data.draw(st.booleans()):
        last = " last_tile_dim_replicate"
    else:
        last = f" last_tile_dims={{{', '.join(use.value for use in uses)}}}" if uses else ""
    text = f"{{devices=[{','.join(map(str, tiles))}]{how}{last}}}"
    compare(sharding(text), devices.reshape(tiles), rank, uses)


@given(meshes(), st.data())
def test_axes_of_a_mesh_cut_dimensions(drawn: tuple[str, np.ndarray], data: st.DataObject) -> None:
    """Give each axis to a dimension or a use, in any order; axes that are left out replicate."""
    text, array = drawn
    rank = data.draw(st.integers(1, 3))
    places = st.sampled_from([*range(rank), *Use, None])
    where = [(axis, data.draw(places)) for axis in data.draw(st.permutations(range(array.ndim)))]
    on = {place: [axis for axis, at in where if at == place] for _, place in where}

    def names(axes: list[int]) -> str:
        return ", ".join(f"'axis_{axis}'" for axis in axes)

    dimensions = ", ".join(f"{{{names(on.get(number, []))}}}" for number in range(rank))
    named = "".join(f", {use.value}={{{names(on[use])}}}" for use in Use if use in on)
    left = [axis for axis in range(array.ndim) if axis in on.get(None, [])]
    cutting = [axis for number in range(rank) for axis in on.get(number, [])]
    using = [(axis, use) for use in Use for axis in on.get(use, [])]
    order = [*cutting, *(axis for axis, _ in using), *left]
    tiles = [int(np.prod([array.shape[axis] for axis in on.get(n, [])])) for n in range(rank)]
    uses = [*(use for _, use in using), *(Use.REPLICATED for _ in left)]
    sizes = [array.shape[axis] for axis in order[len(cutting) :]]
    expected = array.transpose(order).reshape(*tiles, *sizes)
    compare(sharding(f"{{{text}, [{dimensions}]{named}}}"), expected, rank, uses)


def test_a_part_of_an_axis_cuts_a_dimension() -> None:
    read = sharding("{mesh['a'=2,'d'=8], [{'d':(4)2}, {'a','d':(1)2}], unreduced={'d':(2)2}}")
    assert read.tiles(2) == (2, 4)
    for device in range(16):
        a, high, middle, low = np.unravel_index(device, (2, 2, 2, 2))
        placed = read.placement(device, 2)
        assert placed is not None
        assert placed.tile == (low, 2 * a + high)
        assert placed.numbers == {Use.UNREDUCED: middle}


def test_a_sharding_by_hand() -> None:
    read = sharding("{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}")
    assert read.tiles(2) == (2, 1)
    tiles = [placed.tile for d in range(4) if (placed := read.placement(d, 2))]
    assert tiles == [(0, 0), (1, 0), (0, 0), (1, 0)]
    assert read.count(Use.REPLICATED) == 2
    assert read.count(Use.MANUAL) == 1


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("{replicated}", Form.REPLICATED),
        ("{manual}", Form.MANUAL),
        ("{unreduced}", Form.UNREDUCED),
        ("{mesh['a'=2,'b'=4], replicated}", Form.REPLICATED),
        ("{mesh['a'=2,'b'=4], unreduced}", Form.UNREDUCED),
        ("{mesh['a'=2,'b'=4], manual, metadata={{op_name=\"n\"}}}", Form.MANUAL),
        ("{mesh[], replicated}", Form.REPLICATED),
        ("{mesh[], [{}, {}]}", Form.REPLICATED),
        ('{replicated metadata={op_name="n"}}', Form.REPLICATED),
    ],
)
def test_a_sharding_of_the_whole(text: str, form: Form) -> None:
    read = sharding(text)
    assert read.form is form
    assert read.tiles(3) == (1, 1, 1)
    placed = read.placement(5, 3)
    assert placed is not None
    assert placed.tile == (0, 0, 0)
    assert placed.numbers == {Use(form.value): 5}
    assert read.count(Use(form.value)) is None


@pytest.mark.parametrize("text", ["{maximal device=3}", "{maximal_mesh[device_id=3]}"])
def test_one_device_holds_all(text: str) -> None:
    read = sharding(text)
    placed = read.placement(3, 1)
    assert placed is not None
    assert placed.tile == (0,)
    assert read.placement(2, 1) is None


def test_a_mesh_that_cuts_nothing_fits_any_rank() -> None:
    read = sharding("{mesh['a'=2,'b'=2], [], unreduced={'b'}}")
    assert read.tiles(0) == ()
    assert read.tiles(2) == (1, 1)
    assert [read.placement(d, 2).numbers[Use.UNREDUCED] for d in range(4)] == [0, 1, 0, 1]  # type: ignore[union-attr]


def test_tuples() -> None:
    assert any_sharding("{}") == ()
    read = any_sharding("{{replicated}, {devices=[2]<=[2]}, /*index=2*/{maximal device=0}}")
    assert isinstance(read, tuple)
    assert [one.form for one in read] == [Form.REPLICATED, Form.TILED, Form.MAXIMAL]


def test_an_unknown_sharding_has_no_tiles() -> None:
    with pytest.raises(UnsupportedError, match="unknown"):
        sharding("{unknown}").tiles(2)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{devices=[2,1]<=[4]}", PlanError, "2 tiles has 4"),
        ("{devices=[2,2]0,1,2}", PlanError, "3 devices"),
        ("{devices=[2,2]0,1,2,2}", PlanError, "from 0 to 3 once"),
        ("{devices=[2,2]0,1,2,4}", PlanError, "from 0 to 3 once"),
        ("{devices=[0]<=[1]}", PlanError, "from 1"),
        ("{devices=[]<=[1]}", PlanError, "no device"),
        ("{devices=[2]<=[2] last_tile_dims={manual,manual}}", PlanError, "2 uses for 1"),
        ("{devices=[2]<=[2] last_tile_dims={odd}}", UnsupportedError, "'odd'"),
        ("{devices=[2]<=[2] shard_as 1}", UnsupportedError, "shard_as"),
        ("{replicated shard_like 1}", UnsupportedError, "shard_like"),
        ("{replicated manual}", PlanError, "'}'"),
        ("{maximal}", PlanError, "'device'"),
        ("{odd}", PlanError, "'devices'"),
        ("{{{replicated}}}", PlanError, "'devices'"),
        ("{mesh['a'=2]}", PlanError, "','"),
        ("{mesh['a'=2], [{'a'}], replicated={'a'}}", PlanError, "twice"),
        ("{mesh['a'=2], [{'a'},{'a'}]}", PlanError, "twice"),
        ("{mesh['a'=2], [{'a', ?}]}", UnsupportedError, "open"),
        ("{mesh['a'=2], [{}], odd={'a'}}", PlanError, "'odd'"),
        ("{mesh['a'=2,'b'=2], [{}], manual={'a'}, manual={'b'}}", PlanError, "'manual'"),
        ("{devices=[65537]<=[65537]}", BudgetError, "65536"),
    ],
)
def test_a_wrong_sharding_is_refused(text: str, error: type[PitcheckError], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        any_sharding(text)


@pytest.mark.parametrize("name", NAMES)
def test_the_shardings_of_a_dump_place_every_device(name: str) -> None:
    """Cover every tile of each parameter with as many devices."""
    module = dumped(name)
    program = module.computations[module.entry]
    for parameter in program.parameters:
        instruction = program.instructions[parameter]
        read = instruction.sharding
        assert isinstance(read, Sharding)
        rank = len(instruction.shape.dimensions)  # type: ignore[union-attr]
        tiles = [read.placement(device, rank) for device in range(8)]
        counted = {t.tile: tiles.count(t) for t in tiles if t}
        assert len({t.tile for t in tiles if t}) == np.prod(read.tiles(rank), dtype=int)
        assert len(set(counted.values())) == 1
