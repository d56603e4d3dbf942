"""Run mistaken programs by XLA on eight devices, and say which of them compute something else.

``python judge_faults.py PYTHON NAME...``: an interpreter that has JAX, and files of the folder
``texts`` without their endings. Prints a line of JSON for each mistake. The tests need it not.

All is computed in float64, so that what is neutral differs by rounding alone.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mesh_faults import DEVICES, faults, in_full

HERE = Path(__file__).parent
NEAR = 1e-10
"""The difference that is rounding, as a share of the largest element of an output."""
PATIENCE = 1200.0
"""The seconds for the mistakes of a program, behind which one is taken to hang."""
Outputs = list[list[Any]]


def inputs_of(case: dict[str, Any], text: str) -> list[list[tuple[str, Any]]]:
    """Return what each device is given: a type and elements for each input."""
    held: list[list[tuple[str, Any]]] = [[] for _ in range(DEVICES)]
    for whole, places in zip(case["inputs"], case["places"], strict=True):
        array = np.array(whole)
        kind = "f64" if array.dtype.kind == "f" else "s32"
        for device, place in enumerate(places):
            part = array[tuple(slice(*ends) for ends in place)]
            held[device].append((kind, part.tolist()))
    return held


def run(python: str, case: dict[str, Any], texts: list[str]) -> Iterator[Outputs | None]:
    """Yield the outputs of texts; None for one that XLA refuses, or stops at."""
    given = [
        {
            "text": "\n".join(map(in_full, text.replace("f32[", "f64[").splitlines())),
            "devices": DEVICES,
            "inputs": inputs_of(case, text),
        }
        for text in texts
    ]
    while given:
        done = _run_until_stopped(python, given)
        yield from done
        if len(done) < len(given):
            yield None
        given = given[len(done) + 1 :]


def _run_until_stopped(python: str, given: list[dict[str, Any]]) -> list[Outputs]:
    lines = "\n".join(map(json.dumps, given))
    process = subprocess.Popen(
        [python, str(HERE / "xla_oracle.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        made, _ = process.communicate(lines, PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        made, _ = process.communicate()
    return [json.loads(line)["outputs"] for line in made.splitlines() if line.endswith("}")]


def differ(right: Outputs, found: Outputs) -> bool:
    """Return True if outputs differ by more than rounding, on any device."""
    for held, other in zip(right, found, strict=True):
        for whole, part in zip(held, other, strict=True):
            a, b = np.array(whole, dtype=float), np.array(part, dtype=float)
            if not np.allclose(a, b, rtol=0, atol=NEAR * max(np.abs(a).max(), 1e-30)):
                return True
    return False


def main() -> None:
    """Print the mistakes in all programs of some files."""
    python, *names = sys.argv[1:]
    for name in names:
        held = gzip.decompress((HERE / "texts" / f"{name}.jsonl.gz").read_bytes()).decode()
        for case in map(json.loads, held.splitlines()):
            found = list(faults(case["after"]))
            texts = [case["after"], *(fault.text for fault in found)]
            right, *others = run(python, case, texts)
            if right is None:
                raise SystemExit(f"XLA does not run {case['name']}")
            for fault, outputs in zip(found, others, strict=True):
                wrong = None if outputs is None else differ(right, outputs)
                line = {"kind": fault.kind, "line": fault.line, "wrong": wrong}
                print(json.dumps({"program": case["name"], **line}), flush=True)


if __name__ == "__main__":
    main()
