"""The file of a sweep: its configurations, and what is wrong with one that cannot be taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pitcheck.errors import UsageError
from pitcheck.sweep.matrix import Sweep, read_sweep

PLANS = Path(__file__).resolve().parents[2] / "plans"
LLAMA = str(PLANS / "llama3-tiny.toml")
MATRIX = f'[[matrix]]\nmodels = ["{LLAMA}"]\n'

Read = Callable[[str], Sweep]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def of(text: str) -> Sweep:
        path = tmp_path / "sweep.toml"
        path.write_text(text, encoding="utf-8")
        return read_sweep(path)

    return of


def names(sweep: Sweep) -> list[str]:
    return [each.name for each in sweep.planned]


def test_every_combination_that_is_not_excluded_is_there(read: Read) -> None:
    found = read(
        MATRIX + "[matrix.set]\ndp = [1, 2]\ntp = [2, 4]\n[[matrix.exclude]]\ndp = 2\ntp = 4\n"
    )
    assert names(found) == [
        "llama3-tiny dp=1 tp=2",
        "llama3-tiny dp=1 tp=4",
        "llama3-tiny dp=2 tp=2",
    ]
    assert found.planned[0].assignments == ("dp=1", "tp=2")


def test_what_cannot_run_is_listed_with_its_rule(read: Read) -> None:
    found = read(MATRIX + "[matrix.set]\ntp = [2, 3]\n")
    assert [each.impossible for each in found.planned] == [
        "",
        "4 attention heads cannot be cut evenly over tp 3",
    ]


def test_a_sample_is_of_what_can_run_and_always_the_same(read: Read) -> None:
    text = MATRIX + "sample = 3\n[matrix.set]\ntp = [2, 3, 4]\ndp = [1, 2, 4]\n"
    found = read(text)
    assert len(found.planned) == 3
    assert not any(each.impossible for each in found.planned)
    assert read(text) == found
    assert read(text).digest == found.digest


def test_in_one_of_so_many_a_fault_is_planted(read: Read) -> None:
    found = read(MATRIX + "probes = 3\n[matrix.set]\ntp = [2, 3, 4]\ndp = [1, 2]\n")
    planted = [each for each in found.planned if each.probe]
    assert len(planted) == 2, "of the four that can run"
    assert all(each.expect == "mismatch" and not each.impossible for each in planted)
    assert {each.name.removesuffix(" probe") for each in planted} < set(names(found))


def test_true_is_not_one(read: Read) -> None:
    found = read(
        MATRIX + "[matrix.set]\nrecompute = [false, true]\n[[matrix.exclude]]\nrecompute = true\n"
    )
    assert names(found) == ["llama3-tiny recompute=false"]
    with_one = MATRIX + "[matrix.set]\nrecompute = [true]\n[[matrix.exclude]]\nrecompute = 1\n"
    assert names(read(with_one)) == ["llama3-tiny recompute=true"]


def test_two_sweeps_differ_in_their_digests(read: Read) -> None:
    one, two = (read(f"{MATRIX}[matrix.set]\ntp = [{tp}]\n") for tp in (2, 4))
    assert one.digest != two.digest
    assert read(f"seconds = 7\n{MATRIX}[matrix.set]\ntp = [2]\n").digest != one.digest


def test_the_shipped_night_has_all_models_and_one_probe_in_twenty() -> None:
    found = read_sweep(PLANS / "nightly.toml")
    probes = [each for each in found.planned if each.probe]
    assert len(found.planned) - len(probes) >= 300
    assert 20 * len(probes) >= len(found.planned) - len(probes) - 20
    said = " ".join(name for each in found.planned for name in each.assignments)
    assert all(f"{axis}=2" in said for axis in ("dp", "tp", "pp", "cp", "ep", "etp", "zero"))


WRONG = {
    "": "nothing to check",
    "x": "is not TOML",
    "speed = 3": "unknown field `speed`",
    "seconds = 0\n" + MATRIX: "seconds is 0.0",
    "seconds = nan\n" + MATRIX: "seconds is nan",
    "seconds = inf\n" + MATRIX: "seconds is inf",
    'memory = "much"\n' + MATRIX: "memory:",
    "[[matrix]]\nmodels = []": "models is an empty list",
    MATRIX + "[matrix.set]\ntp = []": "tp is an empty list",
    MATRIX + "[matrix.set]\ntp = [2, 2]": "tp has a value twice",
    MATRIX + "[matrix.set]\ntpp = [2]": "no table",
    MATRIX + '[matrix.set]\ntp = ["two"]': "must be a whole number",
    MATRIX + "[matrix.set]\ntp = [3]": "none of its 1 combinations can run",
    MATRIX + "[matrix.set]\ntp = [2]\n[[matrix.exclude]]\ntp = 2": "none of its 0 combinations",
    MATRIX + "[matrix.set]\ntp = [2]\n[[matrix.exclude]]\npp = 2": "exclude names pp",
    MATRIX + "[matrix.set]\ntp = [2]\n[[matrix.exclude]]\n": "exclude names nothing",
    MATRIX + "[matrix.options]\nspeed = ['high']": "the options are",
    MATRIX + "[matrix.options]\nprecision = ['high']": "'high' is none of warn, error, off",
    MATRIX + "[matrix.options]\nerror_bound = ['2^64']": "no probability",
    MATRIX + "[matrix.set]\ntp = [2]\n'layout.tp' = [1]": "set one field, layout.tp",
    "[options]\nspeed = 'high'\n" + MATRIX: "the options are",
    "[[pair]]\nreference = 'a'\nparallel = 'b'\nexpect = 'invalid'": "of which invalid is expected",
    MATRIX + "sample = 0": "sample is 0",
    MATRIX + "probes = -1": "probes is -1",
    MATRIX + MATRIX: "2 configurations are 'llama3-tiny'",
    '[[matrix]]\nmodels = ["nowhere.toml"]': "cannot read it",
    "[[pair]]\nreference = 'a'": "missing required field `parallel`",
    "[[pair]]\nreference = 'a'\nparallel = 'b'\nexpect = 'right'": "Invalid enum value",
    "[[pair]]\nreference = 'a'\nparallel = 'b'\nexpect = 'inconclusive'": "value 'inconclusive'",
    "[[program]]\nsource = 'a'\nexpect = 'nothing-checked'": "value 'nothing-checked'",
    MATRIX
    + "[matrix.set]\n"
    + "".join(f"a{n} = {list(range(100))}\n" for n in range(5)): "combinations; at most",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: WRONG[text])
def test_a_wrong_file_is_refused_by_what_is_wrong(read: Read, text: str) -> None:
    with pytest.raises(UsageError) as error:
        read(text)
    assert ".toml" in str(error.value), "the file"
    assert WRONG[text] in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*none\.toml"):
        read_sweep(tmp_path / "none.toml")


def test_a_value_that_no_field_can_have_is_not_skipped(read: Read) -> None:
    """A value that no other setting can mend is a slip, and no combination that cannot run."""
    for setting in ("tp = [2, -2]", "tp = [2, 0]", "'model.layers' = [2, 0]"):
        with pytest.raises(UsageError, match="must be at least 1, not"):
            read(MATRIX + f"[matrix.set]\n{setting}\n")


def test_a_model_of_which_nothing_can_run_is_not_skipped(read: Read, tmp_path: Path) -> None:
    text = (PLANS / "gpt3-tiny.toml").read_text("utf-8").replace("sequences = 8", "sequences = 3")
    (tmp_path / "odd.toml").write_text(text, encoding="utf-8")
    both = f'[[matrix]]\nmodels = ["{LLAMA}", "odd.toml"]\n'
    for sample in ("", "sample = 1\n"):
        with pytest.raises(UsageError, match=r"odd\.toml: none of its 1 combinations can run; the"):
            read(both + sample + "[matrix.set]\ndp = [2]\n")
        with pytest.raises(UsageError, match=r"odd\.toml: none of its 0 combinations"):
            read(both + sample + "[[matrix.exclude]]\nmodel = 'odd.toml'\n")


def test_a_sample_does_not_hide_a_wrong_value(read: Read) -> None:
    for value in ("'1f1b', 'gpipe', 'tpyo'", "'tpyo', '1f1b', 'gpipe'"):
        with pytest.raises(UsageError, match="Invalid enum value 'tpyo'"):
            read(MATRIX + f"sample = 1\n[matrix.set]\nschedule = [{value}]\n")


def test_a_configuration_of_two_names_is_refused(read: Read, tmp_path: Path) -> None:
    (tmp_path / "link.toml").symlink_to(LLAMA)
    for again in (str(tmp_path / "link.toml"), f"{PLANS}/../plans/llama3-tiny.toml"):
        text = f'[[matrix]]\nmodels = ["{LLAMA}", "{again}"]\n'
        with pytest.raises(UsageError, match=r"configurations are|are one configuration"):
            read(text)


def test_a_name_with_a_zero_byte_is_refused(read: Read) -> None:
    zero = '"a\\u0000b"'
    for text in (
        f"[[matrix]]\nmodels = [{zero}]\n",
        f"[[pair]]\nreference = {zero}\nparallel = 'b'\n",
        f"[[program]]\nsource = {zero}\n",
    ):
        with pytest.raises(UsageError, match=r"sweep\.toml: .*zero byte"):
            read(text)


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(UsageError, match="has more than"):
        read_sweep(Path("/dev/zero"))
