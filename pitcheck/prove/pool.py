"""A pool of processes that prove stages which are all known: one on each GPU, or on processors.

A process is a copy of this one. It has the stages that were known when it began, is told one after
the other by name, and sends back the proofs. It lives on from stage to stage, since a GPU takes
seconds to begin. The proof of a stage does not depend on who makes it.

>>> import numpy as np
>>> Pool(["", ""], Settings(np, 1, -64.0, 1, True, 1 << 30), prove_stage).places
2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from pitcheck.algebra.devices import shared_gpus, use_one
from pitcheck.errors import BudgetError, UsageError
from pitcheck.forks import NO_FORK, Answering, can_fork, ready, usable_jobs
from pitcheck.prove.proof import MadeAhead, Proof, Settings
from pitcheck.prove.stage_proof import prove_at_reduced_sizes, prove_stage
from pitcheck.prove.workers import Keys
from pitcheck.stage.stage import Stage

Stages = Mapping[str, tuple[Stage, Keys]]
Made = TypeVar("Made")
Prove = Callable[[Stage, Keys, Settings, str], Made]
"""The way to prove a stage, given its keys, the settings, and its name."""


@dataclass(frozen=True)
class _Process:
    """A process of the pool, and the names of the stages that it knows."""

    runs: Answering
    stages: frozenset[str]


class Pool(Generic[Made]):
    """Processes that begin when they are needed, one for each of ``gpus``.

    A GPU is "" for a process that stays on processors. No two processes have one GPU at a time. All
    stages are proven by the same settings, in the same way ``prove``.
    """

    def __init__(self, gpus: Sequence[str], settings: Settings, prove: Prove[Made]) -> None:
        self._prove = prove
        self._gpus = tuple(gpus)
        self._settings = settings
        self._stages: dict[str, tuple[Stage, Keys]] = {}
        self._made: dict[str, Made] = {}
        self._processes: dict[int, _Process] = {}
        self._asked: dict[int, str] = {}

    @property
    def places(self) -> int:
        """Return the number of stages that are proven at a time."""
        return len(self._gpus)

    def know(self, stages: Stages) -> None:
        """Take in stages, of which processes that begin later know all."""
        self._stages.update({k: each for k, each in stages.items() if k not in self._stages})

    def proofs(
        self, order: Sequence[str], wanted: Callable[[str], bool] = lambda _: True
    ) -> Iterator[tuple[str, Made]]:
        """Yield the proofs of known stages as they are made, with the names of the stages.

        Stages begin in the order of their names. One that is no longer ``wanted`` is passed over,
        or ended. A stage whose process dies is proven once more, alone.

        Raises:
            UsageError: a process cannot use its GPU.
            BudgetError: a stage's process dies twice.
        """
        waiting, lost = list(reversed(order)), []
        while waiting or self._asked:
            self._deal(waiting, wanted)
            for place, key, proof in self._answers():
                if proof is None:
                    lost.append(key)
                    self._end(place)
                else:
                    self._made[key] = proof
                    yield key, proof
        for key in lost:
            if wanted(key):
                self._made[key] = self._again(key)
                yield key, self._made[key]

    def has_made(self, key: str) -> bool:
        """Return True if the proof of a stage was made here."""
        return key in self._made

    def prove(self, key: str, stage: Stage, keys: Keys) -> Made:
        """Return the proof of one stage, while no other is being proven."""
        self.know({key: (stage, keys)})
        if key not in self._made:
            for _ in self.proofs([key]):
                pass
        return self._made[key]

    def stop(self) -> None:
        """End all processes."""
        for place in list(self._processes):
            self._end(place)

    def _deal(self, waiting: list[str], wanted: Callable[[str], bool]) -> None:
        """Give every free place the next stage that is wanted; end those that no longer are."""
        for place, key in list(self._asked.items()):
            if not wanted(key):
                self._end(place)
        for place in range(self.places):
            while waiting and place not in self._asked:
                key = waiting.pop()
                if wanted(key):
                    self._ask(place, key)

    def _again(self, key: str) -> Made:
        """Return the proof of a stage whose process died once.

        Raises:
            BudgetError: it dies again.
        """
        self.stop()
        self._ask(0, key)
        ((_, _, proof),) = self._answers()
        if proof is None:
            raise BudgetError(
                f"the process that proves the stage of {self._stages[key][0].name!r} ended "
                f"twice without an answer, at last with exit code {self._end(0)} (-9: killed, as "
                f"when memory runs out); choose a smaller --max-memory"
            )
        return proof

    def _ask(self, place: int, key: str) -> None:
        """Let the process of a place prove a stage; a new one, if that does not know the stage."""
        process = self._processes.get(place)
        if process is None or key not in process.stages:
            self._end(place)
            begin = partial(_begun, self._gpus[place], self._stages, self._settings, self._prove)
            process = _Process(Answering(begin), frozenset(self._stages))
            self._processes[place] = process
        process.runs.ask(key)
        self._asked[place] = key

    def _answers(self) -> Iterator[tuple[int, str, Made | None]]:
        """Yield the answers of places that have one, after waiting for the first.

        None is that of a process that died.
        """
        pipes = {self._processes[place].runs.pipe: place for place in self._asked}
        for pipe in ready(pipes) if pipes else ():
            place = pipes[pipe]
            key = self._asked.pop(place)
            try:
                answer = self._processes[place].runs.answer()
            except EOFError:
                yield place, key, None
                continue
            if isinstance(answer, str):
                raise UsageError(f"the process for GPU {self._gpus[place]}: {answer}")
            yield place, key, answer

    def _end(self, place: int) -> int | None:
        """End the process of a place, and return its exit code."""
        self._asked.pop(place, None)
        process = self._processes.pop(place, None)
        return None if process is None else process.runs.stop()


def pool_of(settings: Settings, jobs: int) -> Pool[Proof] | None:
    """Return the processes for stages that are proven once all are known; None if none are.

    These are stages on several GPUs, and all stages at full shapes.

    Raises:
        UsageError: the system cannot fork.
    """
    gpus = shared_gpus(settings.xp)
    if jobs < 2 or not (settings.in_pieces or gpus):
        return None
    if not can_fork():
        raise UsageError(NO_FORK)
    return Pool(gpus or ("",) * jobs, settings, prove_stage)


def ahead_of(settings: Settings) -> Pool[MadeAhead] | None:
    """Return processes that prove stages at reduced sizes while this one uses its GPU.

    Return None if the GPU is not used at full shapes, or if no processor is free for it.
    """
    alone = settings.xp is np or shared_gpus(settings.xp)
    free = usable_jobs() - 1
    if alone or not settings.in_pieces or free < 1 or not can_fork():
        return None
    return Pool(("",) * free, settings, prove_at_reduced_sizes)


def _begun(
    gpu: str, stages: Stages, settings: Settings, prove: Prove[Made]
) -> Callable[[str], Made | str]:
    """Return what proves a stage in a process that has just begun."""
    if gpu:
        try:
            settings = replace(settings, xp=use_one(gpu))
        except UsageError as error:
            return partial(_refused, str(error))
    return partial(_proven, stages, settings, prove)


def _refused(why: str, _: Any) -> str:
    return why


def _proven(stages: Stages, settings: Settings, prove: Prove[Made], key: str) -> Made:
    stage, keys = stages[key]
    return prove(stage, keys, settings, key)
