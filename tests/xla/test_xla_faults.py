"""Programs that XLA's partitioner makes wrong (``docs/upstream/xla_*``) are never equivalent."""

from __future__ import annotations

from pathlib import Path

import pytest
from xla.hlo_pairs import cases_in, is_right, plans_in

from pitcheck.base.options import Options
from pitcheck.engine.check import check

UPSTREAM = Path(__file__).parents[2] / "docs" / "upstream"
CASES = cases_in("xla_faults.jsonl")
CODES = {
    "convolution_gradient": "PIT106",
    "dilated_convolution": "PIT107",
    "embedding_gradient": "PIT100",
    "pad_of_replicated": "PIT103",
    "pooling_gradient": "PIT104",
    "shared_padding": "PIT102",
}


@pytest.mark.parametrize("name", CODES)
def test_a_fault_of_the_partitioner_is_found_at_the_line_of_the_program(name: str) -> None:
    pair = plans_in(CASES[name])
    assert not is_right(*pair)
    report = check(*pair, Options(seed=1, jobs=1))
    assert (report.verdict, report.findings[0].code) == ("mismatch", CODES[name])
    file, _, line = (report.findings[0].source or "").rpartition(":")
    assert (Path(file).parent.name, Path(file).name) == ("upstream", f"xla_{name}.py")
    text = (UPSTREAM / f"xla_{name}.py").read_text().splitlines()
    assert 0 < int(line) <= len(text)


def test_each_text_has_a_page() -> None:
    assert {path.stem.removeprefix("xla_") for path in UPSTREAM.glob("xla_*.md")} >= {*CASES}
    assert CASES.keys() == CODES.keys()
