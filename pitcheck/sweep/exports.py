"""The results of a sweep for programs: JSON lines, JUnit XML, SARIF."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import msgspec

from pitcheck.report import sarif
from pitcheck.report.lines import printable, told_apart
from pitcheck.sweep.result import command
from pitcheck.sweep.results import Results
from pitcheck.sweep.summary import UNKNOWN, line, summary, what_to_do

SCHEMA = "pitcheck.sweep/1"
BROKEN_OFF = "it has no result: the sweep was broken off"
NOTHING = "nothing was checked"


def text(results: Results) -> bytes:
    """Return the summary, and every result that somebody has to look at."""
    planned = results.planned()
    found = summary(planned, results.results())
    lines = [*what_to_do(planned, found), found.sentence()]
    return "".join(f"{printable(each)}\n" for each in lines).encode()


def json_lines(results: Results) -> bytes:
    """Return a line of JSON on the sweep, and one for every result, with its report."""
    about = {"schema": SCHEMA, **msgspec.to_builtins(results.about())}
    by_name = {each.name: each for each in results.planned()}
    lines = [msgspec.json.encode(about)]
    lines += [
        msgspec.json.encode(
            {"command": command(by_name[each.name], each.seed), **msgspec.to_builtins(each)}
        )
        for each in results.results(reports=True)
    ]
    return b"".join(each + b"\n" for each in lines)


def junit(results: Results) -> bytes:
    """Return JUnit XML with a test case for every configuration of the sweep.

    One without a result is an error, so that a sweep that was broken off is not taken for good. If
    nothing was checked, that is an error as well.
    """
    cases = list(_cases(results))
    if _has_only_skipped(results):
        cases.append(Element("testcase", {"classname": "pitcheck sweep", "name": NOTHING}))
        SubElement(cases[-1], "error", {"message": NOTHING})
    counts = {
        "tests": str(len(cases)),
        "failures": str(_with(cases, "failure")),
        "errors": str(_with(cases, "error")),
        "skipped": str(_with(cases, "skipped")),
    }
    root = Element("testsuites", {"name": "pitcheck sweep"})
    suite = SubElement(root, "testsuite", {"name": "pitcheck sweep", **counts})
    suite.extend(cases)
    ElementTree.indent(root)
    xml: bytes = ElementTree.tostring(root, "utf-8", xml_declaration=True)
    return xml + b"\n"


def _has_only_skipped(results: Results) -> bool:
    """Return True if a sweep is not good, and no configuration of it says so."""
    found = summary(results.planned(), results.results())
    return not (found.checked or found.missing or found.bad)


def _with(cases: Iterable[Element], tag: str) -> int:
    return sum(case.find(tag) is not None for case in cases)


def _cases(results: Results) -> Iterator[Element]:
    found = {each.name: each for each in results.results()}
    every = results.planned()
    # Readers tell cases by their names, and what is not printable in them is written out.
    names = told_apart(planned.name for planned in every)
    for planned, name in zip(every, names, strict=True):
        result = found.get(planned.name)
        case = Element(
            "testcase",
            {
                "classname": printable(planned.row),
                "name": name,
                "time": f"{result.seconds if result else 0:.3f}",
            },
        )
        if result is None:
            SubElement(case, "error", {"message": BROKEN_OFF})
        elif result.status == "skipped":
            SubElement(case, "skipped", {"message": printable(result.said)})
        elif not result.good:
            kind = "error" if result.status in UNKNOWN else "failure"
            message = printable(f"{result.status}: {result.verdict} {result.said}")
            ended = SubElement(case, kind, {"message": message})
            ended.text = printable(f"{line(result)}; again: {command(planned, result.seed)}")
        yield case


def _without_results(said: str) -> dict[str, Any]:
    """Return the run of a configuration that is not good, and of which no finding says why."""
    note = {"level": "error", "message": {"text": printable(said)}}
    return {
        "tool": {"driver": {"name": "pitcheck"}},
        "invocations": [{"executionSuccessful": False, "toolExecutionNotifications": [note]}],
        "results": [],
    }


def sarif_log(results: Results) -> bytes:
    """Return a SARIF log with a run for every configuration that is not good or has no result."""
    by_name = {each.name: each for each in results.planned()}
    runs: list[Any] = []
    for each in results.results(reports=True):
        if each.good:
            continue
        found = []
        if each.report is not None:
            own = msgspec.json.decode(sarif.encode(each.report, by_name[each.name].sources))
            found = [run for run in own["runs"] if run["results"]]
        runs += [
            {**run, "automationDetails": {"id": f"pitcheck sweep/{each.name}"}}
            for run in found or [_without_results(line(each))]
        ]
    done = {each.name for each in results.results()}
    runs += [
        {**_without_results(BROKEN_OFF), "automationDetails": {"id": f"pitcheck sweep/{name}"}}
        for name in by_name
        if name not in done
    ]
    if _has_only_skipped(results):
        runs.append(_without_results(NOTHING))
    log = {"$schema": sarif.SCHEMA, "version": "2.1.0", "runs": runs}
    return msgspec.json.format(msgspec.json.encode(log), indent=2)


FORMATS: Mapping[str, Callable[[Results], bytes]] = {
    "text": text,
    "jsonl": json_lines,
    "junit": junit,
    "sarif": sarif_log,
}
