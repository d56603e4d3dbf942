"""Ranks of one kind compute one thing, and the names of what other kinds compute are others."""

from __future__ import annotations

import pytest
from frontends.torch.parallelism import test_pipeline as pipeline

from pitcheck.frontends.torch.names.module_paths import paths_in_reference
from pitcheck.frontends.torch.planning.rank_kinds import kind_labels
from pitcheck.frontends.torch.trace import Given, Trace
from pitcheck.torch import Spec, capture


def trace(rank: int, *read: str, idle: str = "") -> Trace:
    given = tuple(Given(0, "parameter", name, idle=name == idle) for name in (*read, idle) if name)
    return Trace(rank, (), (), given, ())


@pytest.mark.parametrize(
    ("ranks", "mesh", "labels"),
    [
        (["a b", "a b"], {"dp": 2}, ["", ""]),
        (["a b", "c d"], {"pp": 2}, ["", "@pp=1"]),
        (["a b", "a b", "c d", "c d"], {"pp": 2, "tp": 2}, ["", "", "@pp=1", "@pp=1"]),
        (["a b", "c d", "a b", "c d"], {"tp": 2, "pp": 2}, ["", "@pp=1"] * 2),
        # An embedding that is tied to the head is on the first and on the last stage.
        (["e a b", "c d", "e f g"], {"pp": 3}, ["", "@pp=1", "@pp=2"]),
        # Ranks that have other experts, and all else in common, are of one kind.
        (["a b c d x0", "a b c d x1"], {"ep": 2}, ["", ""]),
        (["a b", "c d", "c d"], {"pp": 3}, ["", "@rank=1", "@rank=1"]),
        (["a", "", ""], {"pp": 3}, ["", "@rank=1", "@rank=1"]),
    ],
)
def test_labels(ranks: list[str], mesh: dict[str, int], labels: list[str]) -> None:
    traces = [trace(number, *names.split()) for number, names in enumerate(ranks)]
    assert list(kind_labels(traces, mesh).values()) == labels


def test_parameters_that_are_not_read_do_not_count() -> None:
    traces = [trace(0, "a", idle="b"), trace(1, "b", idle="a")]
    assert kind_labels(traces, {"pp": 2}) == {0: "", 1: "@pp=1"}


def test_paths_follow_parameters() -> None:
    path_of = paths_in_reference(
        {
            "layers.0.up.weight": "layers.2.up.weight",
            "layers.1.up.weight": "layers.3.up.weight",
            "norm.weight": "norm.weight",
            "both.a.weight": "one.a.weight",
            "both.b.weight": "other.b.weight",
        }
    )
    assert [
        path_of(path)
        for path in ("layers.0.up.act", "layers.1", "layers", "norm", "both", "both.b", "", "new")
    ] == ["layers.2.up.act", "layers.3", "layers", "norm", "both", "other.b", "", "new"]


def test_values_of_stages_have_names_of_their_own() -> None:
    _, parallel = capture(Spec(pipeline.reference, pipeline.blocking, {"pp": 2}, pipeline.BATCH))
    labels = {tensor.name.partition("@")[2][:4] for tensor in parallel.tensors}
    assert labels == {"", "pp=1"}
