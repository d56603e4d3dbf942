"""Programs that meddle with the process that checks them."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep.test_sweep import PAIR, REFERENCE, SAME, folder, swept

__all__ = ["folder"]

MEDDLING = {
    "writes": "import os\nfor n in range(3, 20):\n    try:\n        os.write(n, b'{}')\n"
    "    except OSError:\n        pass\n",
    "forks": "import os\nos.fork()\n",
    "closes": "import os\nos.closerange(0, 50)\n",
}
"""Programs that touch the answer of their process: two answers, or none, are no answer."""


@pytest.mark.parametrize("name", MEDDLING)
def test_a_program_that_meddles_with_the_answer_is_a_crash(folder: Path, name: str) -> None:
    Path("p.py").write_text(MEDDLING[name] + "raise ValueError('x')\n", encoding="utf-8")
    code, (found,) = swept('[[program]]\nsource = "p.py:spec"\nexpect = "invalid"\n')
    assert (code, found.status) == (3, "crashed")


def test_a_program_changes_neither_its_folder_nor_its_environment_for_others(folder: Path) -> None:
    text = "import os\nos.chdir('/')\nos.environ.clear()\nraise ValueError('x')\n"
    Path("p.py").write_text(text, encoding="utf-8")
    program = '[[program]]\nsource = "p.py:spec"\nexpect = "invalid"\n'
    code, results = swept(program + PAIR.format(REFERENCE, SAME), jobs=1)
    assert code == 0
    assert all(each.good for each in results)
