"""Configuration files: what is read, what is refused and where, and what overrides do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pitcheck.errors import PitcheckError, PlanError, UsageError
from pitcheck.models.presets import preset
from pitcheck.programs.configuration import read_configuration
from pitcheck.programs.layout import Layout

TEXT = """
model = "llama3-8b-tiny"
[batch]
sequences = 8
length = 8
[layout]
dp = 2
tp = 2
microbatches = 2
"""
DOCUMENTED = Path(__file__).parents[2] / "docs" / "configuration.md"
PLANS = Path(__file__).parents[2] / "plans"
SHIPPED = sorted(path for path in PLANS.glob("*.toml") if path.name != "nightly.toml")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TEXT)
    return path


def test_the_documented_example_is_read_and_names_every_field_of_a_layout(file: Path) -> None:
    example = DOCUMENTED.read_text().partition("```toml\n")[2].partition("```")[0]
    file.write_text(example)
    read_configuration(file)
    named = {line.split()[0] for line in example.splitlines() if " = " in line}
    assert set(Layout.__struct_fields__) <= named


def test_what_is_read(file: Path) -> None:
    found = read_configuration(file)
    assert found.name == "tiny"
    assert found.model == preset("llama3-8b-tiny")
    assert (found.batch.sequences, found.batch.length, found.batch.groups) == (8, 8, 4)
    assert (found.layout.dp, found.layout.tp, found.layout.pp, found.layout.microbatches) == (
        2,
        2,
        1,
        2,
    )
    assert found.optimizer.max_norm == "1"


def test_a_model_of_its_own_sizes(file: Path) -> None:
    file.write_text(
        TEXT.replace('model = "llama3-8b-tiny"', "")
        + '\n[model]\npreset = "llama3-8b-tiny"\nlayers = 6\n[model.attention]\nkv_heads = 1\n'
    )
    found = read_configuration(file)
    assert found.model.layers == 6
    assert found.model.attention.heads == preset("llama3-8b-tiny").attention.heads
    assert getattr(found.model.attention, "kv_heads", None) == 1


@pytest.mark.parametrize(
    ("assignment", "field", "value"),
    [
        ("tp=4", "layout.tp", 4),
        ("layout.tp = 4", "layout.tp", 4),
        ("schedule=gpipe", "layout.schedule", "gpipe"),
        ("sequence_parallel=true", "layout.sequence_parallel", True),
        ("layers=8", "model.layers", 8),
        ("model.attention.kv_heads=1", "model.attention.kv_heads", 1),
        ("batch.sequences=16", "batch.sequences", 16),
        ("max_norm=1/2", "optimizer.max_norm", "1/2"),
        ("model=llama3-70b-tiny", "model.name", "llama3-70b-tiny"),
    ],
)
def test_an_override(file: Path, assignment: str, field: str, value: object) -> None:
    found: object = read_configuration(file, [assignment])
    for name in field.split("."):
        found = getattr(found, name)
    assert found == value


@pytest.mark.parametrize(
    "assignment", ["tp", "=4", "tp=", "unknown=4", "model.=3", ".tp=4", "layout.tp.x=1"]
)
def test_a_wrong_override(file: Path, assignment: str) -> None:
    with pytest.raises((UsageError, PlanError)) as caught:
        read_configuration(file, [assignment])
    assert str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "needs model"),
        ('model = "llama3-8b-tiny"', "[batch]"),
        (TEXT + "[other]\n", "unknown key 'other'"),
        (TEXT.replace("llama3-8b-tiny", "llama9"), "no model is called 'llama9'"),
        (TEXT.replace("dp = 2", "dq = 2"), "unknown field `dq`"),
        (TEXT.replace("dp = 2", 'dp = "2"'), "layout.dp"),
        (TEXT.replace("dp = 2", "dp = 0"), "must be at least 1, not 0"),
        (TEXT.replace("dp = 2", "dp = 3"), "8 sequences cannot be cut evenly into 6"),
        (TEXT.replace("tp = 2", "tp = 3"), "attention heads cannot be cut evenly over tp 3"),
        (TEXT + 'schedule = "pipedream"\n', "layout.schedule"),
        (TEXT + "zero = 4\n", "not 4"),
        (TEXT + "ep = 2\n", "has no experts"),
        (TEXT.replace("sequences = 8", "sequences = 8.5"), "batch.sequences"),
        ("model = 3\n[batch]\nsequences = 8\nlength = 8\n", "needs model"),
        ("x = [", "not TOML"),
        ("a = " + "[" * 100_000, "not TOML"),
    ],
)
def test_what_is_refused_names_file_and_rule(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(PlanError) as caught:
        read_configuration(file)
    assert said in str(caught.value)
    assert "tiny.toml" in str(caught.value)


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot read"):
        read_configuration(tmp_path / "none.toml")
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (1 << 21))
    with pytest.raises(PlanError, match="bytes"):
        read_configuration(large)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_bytes_give_a_configuration_or_an_error_of_ours(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any.toml"
    path.write_bytes(content)
    with pytest.raises(PitcheckError):
        read_configuration(path)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_configuration_can_run(path: Path) -> None:
    found = read_configuration(path)
    assert found.layout.ranks > 1
