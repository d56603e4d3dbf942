"""The engine that checks configurations on the nodes of a Ray cluster, one task for each.

Nodes keep nothing: whatever becomes of them, only this process writes results, and each
configuration gets one. A task whose worker dies is sent again, a few times, and its result says so.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from pitcheck.base.streams import say
from pitcheck.cache.meaning import meaning
from pitcheck.errors import UsageError
from pitcheck.report.lines import printable
from pitcheck.sweep.affected import Inputs
from pitcheck.sweep.child.process import MOST_SAID, Processes, is_sound
from pitcheck.sweep.child.task import Terms
from pitcheck.sweep.cluster.node import Order
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import Result, without_report

RETRIES = 2
"""The times that a configuration is sent again after its worker died."""
POLL = 2.0
"""The seconds after which a cluster where nothing ends is looked at."""
ANSWERS = 10.0
"""The seconds in which a cluster must answer at all."""
PATIENCE = 120.0
"""The seconds that are waited for a node on which a configuration can run."""
Answer = tuple[str, str, str, bytes]
"""The number and the address of a node, why it refuses or "", and the JSON of a result."""


class Attempt(NamedTuple):
    """A configuration that is sent, and what became of each worker that died with it before.

    ``begun``: it was sent before.
    """

    planned: Planned
    lost: tuple[str, ...] = ()
    begun: bool = False


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Yield the module ``ray``, connected to a cluster until the caller is done.

    Without an address it is the cluster of RAY_ADDRESS, or one on this machine that ends with the
    caller. Raises UsageError without Ray, and for a cluster that does not answer.
    """
    # Without a name Ray takes the cluster that somebody began here last: it may be anyone's.
    named = address or os.environ.get("RAY_ADDRESS") or "local"
    # A cluster that begins here tells nobody that it is used, unless somebody wants that.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise UsageError(
            f"--engine ray needs the package ray ({error}): install pitcheck[ray]"
        ) from None
    try:
        _reach(named)
        ray.init(address=named, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        where = f"--address {address}" if address else "--engine ray"
        raise UsageError(f"{where}: no Ray cluster answers: {_line(error)}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT: Ray would try for a quarter of an hour.

    Raises UsageError for a client's address, which gives no sight of nodes.
    """
    if address.startswith("ray://"):
        raise UsageError(f"{address} is for Ray clients; give HOST:PORT, as ray start prints it")
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS).close()


@dataclass
class RayEngine:
    """Tasks on the cluster to which ``ray`` is connected, at most ``jobs`` of them in flight.

    ``jobs`` None: as many as the cluster has room for by its processors or GPUs.
    """

    ray: Any
    terms: Terms
    jobs: int | None
    _refused: dict[str, str] = field(default_factory=dict)
    """Why each node that can check nothing cannot, by its number."""

    def run(self, planned: Sequence[Planned]) -> Iterator[Planned | Result]:
        """Yield every configuration when it is sent first, and its one result when it has ended.

        Raises UsageError if no node can run one. If the caller stops early, Ray ends all tasks when
        it is disconnected.
        """
        waiting = deque(map(Attempt, planned))
        running: dict[Any, Attempt] = {}
        work = self.ray.remote(_sendable())
        while waiting or running:
            while waiting and len(running) < self._most():
                attempt = waiting.popleft()
                if not attempt.begun:
                    yield attempt.planned
                if attempt.planned.impossible:
                    yield Processes().checked(self.terms.task(attempt.planned), {})
                else:
                    running[self._sent(work, attempt)] = attempt
            for reference in self._some_ended(list(running)):
                found = self._ended(running.pop(reference), reference)
                if isinstance(found, Result):
                    yield found
                else:
                    waiting.appendleft(found)

    def _some_ended(self, running: Sequence[Any]) -> Sequence[Any]:
        """Wait for tasks, and return those that have ended: none if none is running.

        Raises UsageError if no node that could run one appears for long.
        """
        begun = since = monotonic()
        told = False
        while running:
            ended, _ = self.ray.wait(running, timeout=POLL)
            if ended:
                return list(ended)
            if self._has_room():
                since = monotonic()
                if not told and since - begun > self.terms.seconds + PATIENCE:
                    say(printable(self._silent(len(running))))
                    told = True
            elif monotonic() - since > PATIENCE:
                raise UsageError(f"{self._no_room()}; --resume goes on with the results")
            elif not told:
                say(printable(f"{self._no_room()}; waiting for one"))
                told = True
        return []

    @property
    def _needs(self) -> dict[str, int]:
        """The resources that one configuration needs of a node, by Ray's names."""
        needs = {"CPU": self.terms.jobs, "memory": self.terms.memory * self.terms.jobs}
        return {**needs, "GPU": 1} if self._gpu else needs

    @property
    def _gpu(self) -> bool:
        return self.terms.backend == "cupy"

    def _most(self) -> int:
        """Return the number of tasks that may be in flight."""
        if self.jobs is not None:
            return self.jobs
        there, name = self.ray.cluster_resources(), "GPU" if self._gpu else "CPU"
        return max(1, int(there.get(name, 0) // self._needs[name]))

    def _has_room(self) -> bool:
        """Return True if some node could run a configuration once others are done there."""
        return any(
            node["Alive"]
            and node["NodeID"] not in self._refused
            and all(node["Resources"].get(name, 0) >= least for name, least in self._needs.items())
            for node in self.ray.nodes()
        )

    def _silent(self, running: int) -> str:
        return (
            f"nothing has ended for {self.terms.seconds + PATIENCE:g} s, and {running} "
            f"configurations were sent to the Ray cluster: others use its room, or a node is frozen"
        )

    def _no_room(self) -> str:
        needs = ", ".join(f"{name} {least}" for name, least in self._needs.items())
        refused = "".join(f"; {said}" for said in self._refused.values())
        return (
            f"no node of the Ray cluster has what a configuration needs ({needs}; the memory in "
            f"bytes is that of the sweep's file){refused}"
        )

    def _sent(self, work: Any, attempt: Attempt) -> Any:
        """Send a task, and return the reference to its answer."""
        order = Order(
            task=self.terms.task(attempt.planned),
            directory=str(Path.cwd()),
            files=Inputs().named(attempt.planned),
        )
        needs = self._needs
        # Ray does not send again by itself: what it did would be in no result.
        options: dict[str, Any] = {
            "num_cpus": needs["CPU"],
            "num_gpus": needs.get("GPU", 0),
            "memory": needs["memory"],
            "max_retries": 0,
            "name": f"pitcheck {attempt.planned.name}",
        }
        if self._refused:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(self._refused)})"}
        return work.options(**options).remote(meaning(), msgspec.json.encode(order))

    def _ended(self, attempt: Attempt, reference: Any) -> Result | Attempt:
        """Return the result of a task, or the attempt to make next."""
        try:
            node, address, refused, content = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            return self._lost(attempt, f"{type(error).__name__}: {_line(error)}")
        if refused:
            self._refuse(node, f"node {address} checks nothing: {refused}")
            return attempt._replace(begun=True)
        result = self._read(attempt.planned, address, content)
        return msgspec.structs.replace(result, lost=attempt.lost)

    def _refuse(self, node: str, said: str) -> None:
        """Send nothing more to a node, and say why."""
        if node not in self._refused:
            self._refused[node] = said
            say(printable(said))

    def _lost(self, attempt: Attempt, said: str) -> Result | Attempt:
        """Return the next attempt after a worker has died, or a result after the last one."""
        lost = (*attempt.lost, said)
        if len(lost) <= RETRIES:
            return Attempt(attempt.planned, lost, begun=True)
        task = self.terms.task(attempt.planned)
        died = f"{len(lost)} workers died with it, the last by {said}"
        result = without_report(attempt.planned, task.seed, "crashed", died)
        return msgspec.structs.replace(result, lost=lost)

    def _read(self, planned: Planned, address: str, content: bytes) -> Result:
        """Return the result in an answer, if it is one of this configuration."""
        task = self.terms.task(planned)
        try:
            result = msgspec.json.decode(content, type=Result)
        except msgspec.MsgspecError as error:
            said = f"the answer of node {address} is no result: {error}"
            return without_report(planned, task.seed, "crashed", said)
        unchecked = result.report is None and not result.code
        if not (unchecked or result.code == meaning()) or not is_sound(task, result):
            said = f"the answer of node {address} is that of another task"
            return without_report(planned, task.seed, "crashed", said)
        return result


def _sendable() -> Callable[[str, bytes], Answer]:
    """Return what a node runs.

    A function within another one is sent as it stands, so that a node without pitcheck answers.
    """

    def work(code: str, content: bytes) -> Answer:
        from importlib import import_module  # noqa: PLC0415

        ray = import_module("ray")
        node = ray.get_runtime_context().get_node_id()
        address = ray.util.get_node_ip_address()
        try:
            from pitcheck.sweep.cluster.node import answer  # noqa: PLC0415
        except ImportError as error:
            return node, address, f"it cannot import pitcheck: {error}", b""
        return node, address, *answer(code, content)

    return work


def _line(error: BaseException) -> str:
    """Return the first line of an error, not longer than a line of results."""
    lines = str(error).strip().splitlines()
    return lines[0][:MOST_SAID] if lines else type(error).__name__
