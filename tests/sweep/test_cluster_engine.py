"""The engine for Ray, with a stub in the place of Ray: nothing lost, doubled or mixed up."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from sweep.test_results import planned_of
from sweep.test_sweep import DEMO, REFERENCE, SAME, WRONG, swept

from pitcheck.cache.meaning import meaning
from pitcheck.errors import UsageError
from pitcheck.report.report import Report
from pitcheck.sweep.affected import Inputs
from pitcheck.sweep.child.task import Task, Terms
from pitcheck.sweep.cluster import engine as cluster_engine
from pitcheck.sweep.cluster.engine import RETRIES, RayEngine, connected
from pitcheck.sweep.cluster.node import Order, answer
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import Result, of_report, without_report
from pitcheck.sweep.summary import line

TERMS = Terms(seed=1, fixed=True, seconds=9.0, memory=1 << 30, backend="numpy")
NODES = ("one", "two")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine wait for no node."""
    monkeypatch.setattr(cluster_engine, "PATIENCE", 0.0)


class DiedError(Exception):
    """A worker that died."""


def right(task: Task) -> Result:
    """Return the result of a task that was checked."""
    report = Report(verdict="equivalent", seed=task.seed)
    return msgspec.structs.replace(of_report(task.planned, report, ""), code=meaning())


class StubbedRay:
    """Ray as the engine uses it. ``answers`` says what becomes of a task on a node.

    Tasks go to the first node that may take them. ``most`` is the greatest number in flight.
    """

    exceptions = SimpleNamespace(RayError=DiedError)

    def __init__(self, answers: Callable[[str, Task], Any], nodes: Sequence[str] = NODES) -> None:
        self._answers = answers
        self._nodes = nodes
        self.sent: list[tuple[str, Task, dict[str, Any]]] = []
        self._options: dict[str, Any] = {}
        self._running: set[int] = set()
        self.most = 0

    def remote(self, *content: Any) -> Any:
        if callable(content[0]):
            return self
        order = msgspec.json.decode(content[1], type=Order)
        left_out = self._options.get("label_selector", {}).get("ray.io/node-id", "")
        self.sent.append(
            (
                next((n for n in self._nodes if n not in left_out), ""),
                order.task,
                self._options,
            )
        )
        self._running.add(len(self.sent) - 1)
        self.most = max(self.most, len(self._running))
        return len(self.sent) - 1

    def options(self, **options: Any) -> StubbedRay:
        self._options = options
        return self

    def wait(self, references: Sequence[int], timeout: float) -> tuple[list[int], list[int]]:
        ended = [each for each in references if self.sent[each][0]][-1:]
        return ended, [each for each in references if each not in ended]

    def get(self, reference: int) -> Any:
        node, task, _ = self.sent[reference]
        self._running.discard(reference)
        found = self._answers(node, task)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, Result):
            return node, "1.2.3.4", "", msgspec.json.encode(found)
        if isinstance(found, bytes):
            return node, "1.2.3.4", "", found
        return node, "1.2.3.4", found, b""

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0, "GPU": 2.0}

    def nodes(self) -> list[dict[str, Any]]:
        resources = {"CPU": 4.0, "memory": 8.0 * (1 << 30)}
        return [{"NodeID": n, "Alive": True, "Resources": resources} for n in self._nodes]


def engine_of(ray: StubbedRay, **changes: Any) -> RayEngine:
    terms = msgspec.structs.replace(TERMS, **changes.pop("terms", {}))
    return RayEngine(ray, terms, **{"jobs": None, **changes})


def results_of(
    answers: Callable[[str, Task], Any], planned: Sequence[Planned] | None = None, **changes: Any
) -> list[Result]:
    """Return the results of a sweep of three configurations, sorted by name."""
    given = planned_of(3) if planned is None else planned
    found = engine_of(StubbedRay(answers), **changes).run(given)
    return sorted((e for e in found if isinstance(e, Result)), key=lambda each: each.name)


def once(*answers: Any) -> Callable[[str, Task], Any]:
    """Return what gives these answers of ``m tp=1`` one after the other, and right results else."""
    left: Iterator[Any] = iter(answers)

    def found(node: str, task: Task) -> Any:
        return next(left, right(task)) if task.planned.name == "m tp=1" else right(task)

    return found


def test_every_configuration_begins_and_ends_once() -> None:
    ray = StubbedRay(lambda _, task: right(task))
    found = list(engine_of(ray).run(planned_of(7)))
    names = [f"m tp={n}" for n in range(7)]
    assert sorted(each.name for each in found if isinstance(each, Planned)) == names
    assert sorted(each.name for each in found if isinstance(each, Result)) == names
    assert all(each.status == "as expected" for each in found if isinstance(each, Result))
    assert ray.most == 3
    assert {task.seed for _, task, _ in ray.sent} == {
        TERMS.task(each).seed for each in planned_of(7)
    }


def test_tasks_in_flight_are_bounded_and_say_what_they_need() -> None:
    ray = StubbedRay(lambda _, task: right(task))
    list(engine_of(ray, jobs=2, terms={"jobs": 4}).run(planned_of(5)))
    assert ray.most == 2
    needs = {"num_cpus": 4, "num_gpus": 0, "memory": 4 << 30, "max_retries": 0}
    for _, task, options in ray.sent:
        assert options == {**needs, "name": f"pitcheck {task.planned.name}"}


def test_a_gpu_is_asked_for_by_cupy() -> None:
    ray = StubbedRay(lambda _, task: right(task))
    with pytest.raises(UsageError, match="CPU 1, memory 1073741824, GPU 1"):
        list(
            engine_of(StubbedRay(once(), nodes=[""]), terms={"backend": "cupy"}).run(planned_of(1))
        )
    list(engine_of(ray, terms={"backend": "cupy"}).run(planned_of(5)))
    assert ray.most == 2
    assert all(options["num_gpus"] == 1 for _, _, options in ray.sent)


def test_a_task_whose_worker_dies_is_sent_again_and_counts_once() -> None:
    died = DiedError("the node is gone\nand more")
    found = results_of(once(died, died))
    assert [each.status for each in found] == ["as expected"] * 3
    assert [each.lost for each in found] == [(), ("DiedError: the node is gone",) * 2, ()]
    assert "2 workers died with it: DiedError: the node is gone" in line(found[1])


def test_a_task_whose_workers_die_always_is_one_red_row() -> None:
    found = results_of(once(*[DiedError("killed")] * 9))
    assert [each.status for each in found] == ["as expected", "crashed", "as expected"]
    assert found[1].said == "3 workers died with it, the last by DiedError: killed"
    assert len(found[1].lost) == RETRIES + 1
    assert found[1].inputs == "", "--resume runs it again"


def test_a_node_that_refuses_gets_nothing_more(capsys: pytest.CaptureFixture[str]) -> None:
    ray = StubbedRay(lambda node, task: "another pitcheck" if node == "one" else right(task))
    found = list(engine_of(ray, jobs=1).run(planned_of(3)))
    assert [node for node, _, _ in ray.sent] == ["one", "two", "two", "two"]
    assert len([each for each in found if isinstance(each, Planned)]) == 3
    assert all(each.good and not each.lost for each in found if isinstance(each, Result))
    assert capsys.readouterr().err == "node 1.2.3.4 checks nothing: another pitcheck\n"


def test_a_cluster_on_which_nothing_can_run_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"configuration needs .*; node 1\.2\.3\.4 checks"):
        results_of(lambda *_: "another pitcheck")


@pytest.mark.parametrize("fixed", [True, False])
def test_an_answer_with_another_seed_is_not_believed(fixed: bool) -> None:
    def other(task: Task) -> Result:
        return right(msgspec.structs.replace(task, seed=task.seed + 1))

    found = results_of(lambda _, task: other(task), terms={"fixed": fixed})
    assert {each.status for each in found} == {"crashed" if fixed else "as expected"}


def changed(**changes: Any) -> Callable[[str, Task], Any]:
    return lambda _, task: msgspec.structs.replace(right(task), **changes)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (changed(name="m tp=9"), "that of another task"),
        (changed(expect="mismatch"), "that of another task"),
        (changed(code="another version"), "that of another task"),
        (changed(code=""), "that of another task"),
        (changed(verdict="mismatch"), "that of another task"),
        (changed(status="unexpected"), "that of another task"),
        (lambda *_: b"{", "is no result"),
    ],
)
def test_an_answer_that_is_not_of_the_task_is_not_believed(
    answers: Callable[[str, Task], Any], said: str
) -> None:
    for each in results_of(answers):
        assert each.status == "crashed"
        assert said in each.said


def test_what_a_process_did_on_its_node_is_a_result() -> None:
    late = [
        without_report(task.planned, task.seed, "out of time", "late")
        for task in map(TERMS.task, planned_of(3))
    ]
    found = results_of(lambda _, task: next(e for e in late if e.name == task.planned.name))
    assert [each.status for each in found] == ["out of time"] * 3


def test_what_cannot_run_is_not_sent() -> None:
    ray = StubbedRay(lambda _, task: right(task))
    found = [*engine_of(ray).run(planned_of(2, impossible="a rule"))]
    assert [each.status for each in found if isinstance(each, Result)] == ["skipped"] * 2
    assert ray.sent == []


# --- on a node


@pytest.fixture
def ordered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    """Return an order to check two plans in the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(DEMO / REFERENCE, "a.plan.json")
    shutil.copy(DEMO / REFERENCE, "b.plan.json")
    planned = Planned(name="ab", sources=("a.plan.json", "b.plan.json"), row="a", column="b")
    return Order(
        task=msgspec.structs.replace(TERMS, memory=4 << 30, seconds=60.0).task(planned),
        directory=str(tmp_path),
        files=Inputs().named(planned),
    )


def answered(order: Order) -> Result:
    refused, content = answer(meaning(), msgspec.json.encode(order))
    assert refused == ""
    return msgspec.json.decode(content, type=Result)


def test_a_node_checks(ordered: Order) -> None:
    found = answered(ordered)
    assert (found.status, found.verdict, found.seed) == (
        "as expected",
        "equivalent",
        ordered.task.seed,
    )
    assert found.inputs == Inputs().of(ordered.task.planned)


def test_a_node_with_another_pitcheck_refuses(ordered: Order) -> None:
    refused, content = answer("0" * 64, b"an order of another version")
    assert "its pitcheck or its libraries are others" in refused
    assert content == b""


def test_a_node_without_the_folder_refuses(ordered: Order) -> None:
    missing = msgspec.structs.replace(ordered, directory="/nowhere/at/all")
    refused, content = answer(meaning(), msgspec.json.encode(missing))
    assert refused == "/nowhere/at/all: No such file or directory"
    assert content == b""


@pytest.mark.parametrize("missing", [True, False])
def test_a_node_with_other_files_checks_nothing(ordered: Order, missing: bool) -> None:
    Path("b.plan.json").unlink()
    if not missing:
        shutil.copy(DEMO / WRONG, "b.plan.json")
    found = answered(ordered)
    assert (found.status, found.verdict) == ("crashed", "")
    assert "its files are others on the node" in found.said
    assert found.inputs == "", "--resume runs it again"


def test_the_file_of_a_program_and_the_files_of_a_folder_count(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("spec = 1\n", encoding="utf-8")
    (tmp_path / "planner").mkdir()
    (tmp_path / "planner" / "one").write_text("1", encoding="utf-8")
    for source, file in ((f"{tmp_path}/p.py:spec", "p.py"), (f"{tmp_path}/planner", "planner/one")):
        planned = Planned(name="p", sources=(source,), row="p", column="p")
        before = Inputs().named(planned)
        assert Inputs().named(planned) == before
        (tmp_path / file).write_text("changed", encoding="utf-8")
        assert Inputs().named(planned) != before


# --- the connection


def test_a_cluster_that_is_not_there_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        raise ConnectionError("no cluster\nat all")

    stub = SimpleNamespace(init=init, exceptions=SimpleNamespace(RayError=DiedError))
    monkeypatch.setattr(cluster_engine, "import_module", lambda _: stub)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for address, said in (
        (None, "--engine ray: no Ray cluster answers: no cluster$"),
        ("127.0.0.1:1", "--address 127.0.0.1:1: no Ray cluster answers: .*refused"),
        ("ray://here:10001", "give HOST:PORT"),
    ):
        with pytest.raises(UsageError, match=said), connected(address):
            pass


@pytest.mark.parametrize(
    ("address", "variable", "used"),
    [
        (None, None, "local"),
        (None, "", "local"),
        (None, "auto", "auto"),
        ("auto", "local", "auto"),
    ],
)
def test_no_cluster_is_used_that_nobody_named(
    monkeypatch: pytest.MonkeyPatch, address: str | None, variable: str | None, used: str
) -> None:
    """Ray would take the one that was begun last on this machine, by whomever."""
    given: list[str] = []
    stub = SimpleNamespace(
        init=lambda **options: given.append(options["address"]),
        shutdown=lambda: None,
        exceptions=SimpleNamespace(RayError=DiedError),
    )
    monkeypatch.setattr(cluster_engine, "import_module", lambda _: stub)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    with connected(address):
        assert given == [used]


def test_a_cluster_where_nothing_ends_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    class Frozen(StubbedRay):
        looks = 0

        def wait(self, references: Sequence[int], timeout: float) -> tuple[list[int], list[int]]:
            self.looks += 1
            return ([], list(references)) if self.looks < 4 else super().wait(references, timeout)

    ray = Frozen(lambda _, task: right(task))
    found = list(engine_of(ray, terms={"seconds": 1e-9}).run(planned_of(1)))
    assert len(found) == 2
    assert capsys.readouterr().err.count("nothing has ended for 1e-09 s, and 1 conf") == 1


def test_without_ray_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(cluster_engine, "import_module", missing)
    monkeypatch.chdir(tmp_path)
    for file in (REFERENCE, SAME):
        shutil.copy(DEMO / REFERENCE, file)
    text = f'[[pair]]\nreference = "{REFERENCE}"\nparallel = "{SAME}"\n'
    with pytest.raises(UsageError, match=r"install pitcheck\[ray\]"):
        swept(text, engine="ray")
    assert not Path("r.sqlite").exists()
    with pytest.raises(UsageError, match="add --engine ray"):
        swept(text, address="127.0.0.1:6379")
