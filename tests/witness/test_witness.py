"""Witness files: whole or not at all, complete in themselves, small, repeatable; and whatever else
is put in their place is refused.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.explain_plans import row_parallel, run, said
from zoo.builder import Builder

from pitcheck.cli import main
from pitcheck.errors import PlanError
from pitcheck.report.text import render
from pitcheck.witness.replay import replay
from pitcheck.witness.witness import read_witness, write_witness


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A witness of a sum that is not taken."""
    report = run(row_parallel(right=False), tmp_path_factory.mktemp("witnesses"))
    assert report.findings[0].witness is not None, said(report)
    return Path(report.findings[0].witness)


def write(folder: Path, data: Any) -> Path:
    path = folder / "changed.witness.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def linear_by_hand(
    x: list[int], w: list[int], rows: int, inner: int, outer: int
) -> list[list[int]]:
    return [
        [sum(x[i * inner + k] * w[j * inner + k] for k in range(inner)) for j in range(outer)]
        for i in range(rows)
    ]


def test_values_are_those_computed_by_hand(saved: Path) -> None:
    """The reference is x w^T; rank 0 holds the first half of the inner dimension, rank 1 the
    second.
    """
    witness = json.loads(saved.read_text())
    (x, w) = (
        next(f for f in witness["inputs"].values() if f["name"] == name) for name in ("x", "w")
    )
    (rows, inner), outer = x["shape"], w["shape"][0]
    numbers = [[int(n) for n in f["numbers"]] for f in (x, w)]
    whole = linear_by_hand(numbers[0], numbers[1], rows, inner, outer)
    half = inner // 2
    kept = [
        [
            n
            for place, n in enumerate(flat)
            if (place % inner < half) == (witness["compared"]["rows"] == [0])
        ]
        for flat in numbers
    ]
    part = linear_by_hand(kept[0], kept[1], rows, half, outer)
    i, j = witness["compared"]["element"]
    assert float(witness["reference_value"]) == whole[i][j]
    assert float(witness["parallel_value"]) == part[i][j]
    assert whole[i][j] != part[i][j]


def test_most_inputs_are_zero(saved: Path) -> None:
    numbers = [
        int(n) for f in json.loads(saved.read_text())["inputs"].values() for n in f["numbers"]
    ]
    assert sum(n != 0 for n in numbers) <= 2
    assert max(abs(n) for n in numbers) <= 2


def test_replay_returns_1_from_another_folder(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is all that is needed."""
    lonely = tmp_path / "alone.json"
    lonely.write_bytes(saved.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert main(["replay", "alone.json"]) == 1
    text = capsys.readouterr().out
    assert text.count("differs") == 3
    assert "float64" in text and "60 digits" in text and "galois" in text


def test_replay_returns_0_where_both_sides_agree(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the parallel side's terms summed, both sides agree."""
    witness = json.loads(saved.read_text())
    witness["compared"]["rows"] = [0, 1]
    assert main(["replay", str(write(tmp_path, witness))]) == 0
    assert "NOT reproduced" in capsys.readouterr().out


def test_replay_returns_0_for_zero_inputs(saved: Path, tmp_path: Path) -> None:
    witness = json.loads(saved.read_text())
    for filled in witness["inputs"].values():
        filled["numbers"] = ["0"]
    assert main(["replay", str(write(tmp_path, witness))]) == 0


def test_nothing_is_left_where_writing_fails(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = read_witness(saved)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_witness(witness, tmp_path)
    assert not list(tmp_path.iterdir())


def _full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def _at_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "file").write_text("")
    return folder / "file" / "witnesses"


def _on_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Path, "replace", _full)
    return folder


def _read_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pitcheck.witness.witness.tempfile.mkstemp", refused)
    return folder


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (_at_a_file, "Not a directory"),
        (_on_a_full_disk, "No space left"),
        (_read_only, "Permission denied"),
    ],
)
def test_a_witness_that_cannot_be_written_is_a_note(
    where: Callable[..., Path], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = run(row_parallel(right=False), where(tmp_path, monkeypatch))
    assert (report.verdict, report.exit_code) == ("mismatch", 1), said(report)
    assert report.findings[0].witness is None
    assert why in (report.findings[0].unsaved or "")
    assert f"{why}" in " ".join(" ".join(line.text.strip() for line in render(report)).split())
    alone = run(row_parallel(right=False), None)
    assert (alone.findings[0].witness, alone.findings[0].unsaved) == (None, None)
    assert alone.findings[0].reference_value == report.findings[0].reference_value


def test_same_contents_have_the_same_name(saved: Path, tmp_path: Path) -> None:
    path = write_witness(read_witness(saved), tmp_path)
    assert path.name == saved.name
    assert path.read_bytes() == saved.read_bytes()


def test_right_plan_leaves_no_witness(tmp_path: Path) -> None:
    assert run(row_parallel(right=True), tmp_path).verdict == "equivalent"
    assert not list(tmp_path.iterdir())


# --- hostile files

Change = Callable[[dict[str, Any]], None]


def at(*path: Any, to: Any) -> Change:
    def change(witness: dict[str, Any]) -> None:
        place: Any = witness
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


STEP = ("parallel", "steps", 0)
X = ("inputs", "0")
NUMBERS = [
    "nan",
    "inf",
    "-inf",
    "1.5",
    "1/2",
    "",
    "x",
    "1e9",
    "9" * 30,
    "９",
    "0x10",
    "1_000",
    " 1",
    "sqrt(2)",
    "+1",
]
SHAPES = [[-1, 3], [1 << 40], [1 << 20, 1 << 20], [2] * 40, [0, -5], [3, 7], [1 << 63], []]
ROWS = [
    [2],
    [-1],
    [0.5, 1.5],
    [True, False],
    ["0", "1"],
    [[0, 1], [0]],
    [[[0]], [[1]]],
    [],
    [0],
    [0, 1, 1],
    [None, 0],
    [1 << 70, 0],
    {},
    [[], []],
]
ATTRIBUTES: list[tuple[str, dict[str, Any]]] = [
    ("linear", {"nothing": 1}),
    ("sum", {"axes": "x"}),
    ("sum", {"axes": [9]}),
    ("sum", {"axes": {"a": 1}}),
    ("sum", {"axes": [0.5]}),
    ("sum", {"axes": None, "keepdim": [[]]}),
    ("softmax", {"axis": "last"}),
    ("softmax", {"axis": 1 << 80}),
    ("view", {"sizes": [1 << 40, -1]}),
    ("view", {"shape": "wide"}),
    ("expand", {"shape": [1 << 30, 3, 3]}),
    ("expand", {"sizes": [1 << 20, 1 << 20, 3, 3]}),
    ("pad", {"pads": [1 << 40, 1 << 40]}),
    ("transpose", {"axes": [0, 0]}),
    ("permute", {"permutation": [5, 6]}),
    ("slice", {"axis": 0, "start": -4, "stop": 1 << 50}),
    ("slice", {"axis": 0, "start": "a", "stop": None}),
    ("split", {"axis": 0, "sizes": [1 << 40]}),
    ("dropout_mask", {"stream": "s", "probability": "1e999999999"}),
    ("uniform", {"stream": "s", "whole": 7}),
    ("roll", {"axis": [1], "shift": 1e308}),
    ("einsum", {"equation": "..." * 50}),
    ("no_such_operator", {}),
    ("linear.backward.backward", {}),
    ("linear.backward", {"forward_inputs": -3}),
    ("linear.backward", {"gradients": "0"}),
    ("", {}),
]
HOSTILE: dict[str, Change] = {
    **{f"number-{n[:8]}": at(*X, "numbers", to=[n]) for n in NUMBERS},
    **{f"shape-{str(s)[:12]}": at(*X, "shape", to=s) for s in SHAPES},
    **{f"rows-{str(r)[:14]}": at(*STEP, "inputs", 0, "rows", to=r) for r in ROWS},
    "format": at("format", to="pitcheck.witness/2"),
    "format-number": at("format", to=1),
    "few-numbers": at(*X, "numbers", to=["1", "2"]),
    "no-numbers": at(*X, "numbers", to=[]),
    "kind": at(*X, "kind", to="complex"),
    "missing-value": at(*STEP, "inputs", 0, "value", to=77),
    "reads-itself": at(*STEP, "inputs", 0, "value", to=2),
    "count-huge": at(*STEP, "count", to=1 << 40),
    "count-zero": at(*STEP, "count", to=0),
    "count-other": at(*STEP, "count", to=3),
    "outputs-too-many": at(*STEP, "outputs", to=[2, 3]),
    "outputs-none": at(*STEP, "outputs", to=[]),
    "inputs-none": at(*STEP, "inputs", to=[]),
    "inputs-many": at(*STEP, "inputs", to=[{"number": "1"}] * 50),
    "literal": at(*STEP, "inputs", 0, to={"number": "1e99999999"}),
    "nested-members": at(
        *STEP, "inputs", 0, to={"members": [{"members": [{"value": 0, "rows": [0]}]}]}
    ),
    "empty-operand": at(*STEP, "inputs", 0, to={}),
    "source": at("held", "0", "source", to=9),
    "held-row": at("held", "0", "rows", to=[[5, 0, 1], [0, 0, 1]]),
    "held-no-rows": at("held", "0", "rows", to=[]),
    "held-term": at("held", "0", "rows", to=[[0, 3, 2], [0, 0, 1]]),
    "held-terms": at("held", "0", "rows", to=[[0, 0, 1 << 40], [0, 0, 1]]),
    "held-box": at("held", "0", "boxes", 0, 0, to=[[0, 99]]),
    "held-box-negative": at("held", "0", "boxes", 0, 0, to=[[-3, 1]]),
    "held-box-backwards": at("held", "0", "boxes", 0, 0, to=[[2, 1]]),
    "held-box-free": at("held", "0", "boxes", 0, 0, to=[[-1, 1 << 50]]),
    "held-box-short": at("held", "0", "boxes", 0, to=[]),
    "held-box-unlike": at("held", "0", "boxes", 0, 0, to=[[0, 1]]),
    "held-scale": at("held", "0", "scale", to="1e999999999"),
    "held-scale-zero": at("held", "0", "scale", to="1/0"),
    "held-scale-word": at("held", "0", "scale", to="half"),
    "compared-rows": at("compared", "rows", to=[2]),
    "compared-no-rows": at("compared", "rows", to=[]),
    "compared-many-rows": at("compared", "rows", to=[0] * 100_000),
    "compared-element": at("compared", "element", to=[3, 9]),
    "compared-element-negative": at("compared", "element", to=[-1, 0]),
    "compared-element-short": at("compared", "element", to=[0]),
    "compared-box": at("compared", "box", to=[[[0, 2]], [[0, 4]]]),
    "compared-box-outside": at("compared", "box", 0, to=[[0, 1 << 40]]),
    "compared-scale": at("compared", "scale", to="nan"),
    "compared-parallel": at("compared", "parallel", to=5),
    "compared-reference": at("compared", "reference", to=-5),
    "constants": at(
        "parallel",
        "constants",
        to={"9": {"name": "c", "shape": [1 << 30, 1 << 30], "kind": "field", "numbers": ["0"]}},
    ),
    "no-steps": at("reference", "steps", to=[]),
    "steps-object": at("reference", "steps", to={}),
}


def with_operator(kind: str, attributes: dict[str, Any]) -> Change:
    def change(witness: dict[str, Any]) -> None:
        step = witness["parallel"]["steps"][0]
        step.update(kind=kind, attributes=attributes)
        if kind != "linear" and not kind.startswith("linear."):
            step["inputs"] = step["inputs"][:1]

    return change


HOSTILE |= {
    f"operator-{n}-{kind}": with_operator(kind, attributes)
    for n, (kind, attributes) in enumerate(ATTRIBUTES)
}


@pytest.fixture(scope="module", autouse=True)
def little_memory() -> Iterator[None]:
    """An allocation of gigabytes fails instead of passing unseen."""
    import galois  # noqa: F401, PLC0415  its own code is to be in memory before the limit is set

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_witness_is_refused(
    name: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    witness = json.loads(saved.read_text())
    HOSTILE[name](witness)
    path = write(tmp_path, witness)
    with pytest.raises(PlanError) as raised:
        replay(path)
    assert str(raised.value)
    assert main(["replay", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


TEXTS = {
    "empty": "",
    "null": "null",
    "list": "[]",
    "bare-nan": "NaN",
    "not-utf8": "\x00\ud7ff",
    "deep-list": "[" * 100_000,
    "deep-object": '{"a":' * 100_000,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_is_no_witness_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError):
        replay(write(tmp_path, text))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_truncated_witness_is_refused(share: float, saved: Path, tmp_path: Path) -> None:
    text = saved.read_text()
    with pytest.raises(PlanError):
        replay(write(tmp_path, text[: int(len(text) * share)]))


@pytest.mark.parametrize("depth", [20, 500, 900, 5000])
def test_deep_attributes_and_members_are_refused(depth: int, saved: Path, tmp_path: Path) -> None:
    text = saved.read_text()
    attributes = '"attributes": {"axis": ' + "[" * depth + "]" * depth + "}"
    members = (
        '"inputs": ['
        + '{"members": [' * depth
        + '{"value": 0, "rows": [0]}'
        + "]}" * depth
        + ', {"number": "1"}], "unused": ['
    )
    for before, after in (('"attributes": {}', attributes), ('"inputs": [', members)):
        assert before in text
        with pytest.raises(PlanError):
            replay(write(tmp_path, text.replace(before, after, 1)))


def paths(node: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if here:
        yield here
    children = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for key, child in children:
        yield from paths(child, (*here, key))


JUNK: tuple[Any, ...] = (
    None,
    -1,
    0,
    1,
    7,
    1 << 40,
    -(1 << 70),
    0.5,
    "",
    "x",
    "nan",
    "1/0",
    True,
    [],
    {},
    [[[[]]]],
    [-1],
    ["1"],
    {"a": []},
)


@given(data=st.data())
def test_any_place_may_hold_anything(
    data: st.DataObject, saved: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A changed witness is refused or replayed; nothing else happens."""
    witness = json.loads(saved.read_text())
    for _ in range(data.draw(st.integers(1, 2))):
        at(*data.draw(st.sampled_from(list(paths(witness)))), to=data.draw(st.sampled_from(JUNK)))(
            witness
        )
    try:
        _, code = replay(write(tmp_path_factory.getbasetemp(), witness))
    except PlanError:
        return
    assert code in (0, 1)


def test_witness_of_an_operator_with_attributes_is_replayed(tmp_path: Path) -> None:
    """Attributes, literals, roots and constants survive the file."""
    pair = []
    for axis in (1, 0):
        b = Builder("attributes")
        x = b.input("x", (3, 4))
        scaled = b.op("mul", x, b.constant("half", 0.5))
        b.output(b.op("softmax", b.op("roll", scaled, axis=axis, shift=1), axis=1, out="y"))
        pair.append(b.plan())
    report = run((pair[0], pair[1]), tmp_path)
    assert report.verdict == "mismatch", said(report)
    assert report.findings[0].witness is not None
    assert main(["replay", report.findings[0].witness]) == 1
