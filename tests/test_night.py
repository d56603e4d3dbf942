"""The list of tests that are left to the night: it is of today, and leaves something by day."""

import pytest
from support.night import LIST, faults, listed

DAY = ["tests/a.py::right[1]", "tests/a.py::right[2]", "tests/a.py::wrong", "tests/b.py::alone"]


def test_lines_are_names_or_comments() -> None:
    assert listed("# why\n\ntests/a.py::right[a b]\n") == ["tests/a.py::right[a b]"]


def test_the_list_is_in_order_and_names_nothing_twice() -> None:
    names = listed(LIST.read_text())
    assert names == sorted(set(names))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tests/a.py::right[1]", ""),
        ("tests/a.py::wrong", ""),
        ("tests/c.py::not_collected", ""),
        ("tests/a.py::right[3]", "is no test"),
        ("tests/a.py::gone", "is no test"),
        ("tests/b.py::alone", "no test of its file is left by day"),
    ],
)
def test_a_list_that_hides_tests_is_refused(name: str, said: str) -> None:
    left = [each for each in DAY if each != name]
    assert ([said in each for each in faults([name], left, DAY)] or [True]) == [True]
    assert bool(faults([name], left, DAY)) == bool(said)


def test_a_function_keeps_a_case_by_day() -> None:
    (found,) = faults(["tests/a.py::right[1]"], ["tests/a.py::wrong"], DAY)
    assert "no case of its function is left by day" in found
