"""Proving distinct stages on several processes of one machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection

from pitcheck.check.prove import Proof, Settings, prove_stage
from pitcheck.errors import UsageError
from pitcheck.stages.pair import Stage

Work = Mapping[str, tuple[Stage, dict[int, str]]]
"""Stages by their canonical form, with the keys of their reference inputs."""


def prove_on(jobs: int, work: Work, settings: Settings) -> dict[str, Proof]:
    """Proofs of those stages that hold. The others are left to the caller, who needs their values; so is what a worker that died left undone.

    Workers are forks, which inherit the stages; the numbers drawn do not depend on who draws them. Raises UsageError where the system cannot fork.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise UsageError("--jobs above 1 needs a system that can fork processes; leave it at 1")
    context = multiprocessing.get_context("fork")
    names = list(work)
    running = []
    for number in range(min(jobs, len(names))):
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_prove, args=({name: work[name] for name in names[number::jobs]}, settings, theirs), daemon=True)
        process.start()
        theirs.close()
        running.append((process, mine))
    proofs: dict[str, Proof] = {}
    for process, mine in running:
        try:
            while True:
                name, proof = mine.recv()
                proofs[name] = proof
        except EOFError:
            process.join()
    return {name: proofs[name] for name in names if name in proofs}


def _prove(work: Work, settings: Settings, pipe: Connection) -> None:
    for name, (stage, keys) in work.items():
        proof = prove_stage(stage, keys, settings)
        if proof.outcome == "proven":
            pipe.send((name, replace(proof, comparison=None, evaluated=None, shaped=None)))
    pipe.close()
