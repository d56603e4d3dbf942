"""Write the random programs with their outputs by XLA: ``python write_texts.py PYTHON [THEME]``.

``PYTHON`` is an interpreter that has JAX. The tests need it not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from xla.hlo_random import THEMES, programs  # noqa: E402


def main() -> None:
    """Write the texts of some themes, or of all."""
    interpreter, *themes = sys.argv[1:]
    for theme in themes or THEMES:
        given = "\n".join(json.dumps(program.case()) for program in programs(theme))
        made = subprocess.run(
            [interpreter, str(HERE / "xla_oracle.py")],
            input=given,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        (HERE / "texts" / f"{theme}.jsonl").write_text(made.stdout)


if __name__ == "__main__":
    main()
