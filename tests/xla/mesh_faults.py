"""Mistakes in programs that are partitioned for eight devices: each changes one line of a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

DEVICES = 8
EACH = 2
"""The mistakes of one kind that are made in a text."""

_GROUPS = re.compile(
    r"replica_groups=(\{\{.*?\}\}|\[.*?\]<=\[.*?\](?:T\(.*?\))?"
    r"|mesh\[.*?\](?:, device_ids=\(.*?\]?(?:T\(.*?\))?\))? \{.*?\})"
)
_IOTA = re.compile(r"(?:\[(.*?)\]<=)?\[(.*?)\](?:T\((.*?)\))?")
_MESH = re.compile(r"mesh\[(.*?)\](?:, device_ids=\((.*)\))? \{(.*?)\}")
_BEHIND = r"\((%[\w.-]+)\).*$"
_TWO = r"\((%[\w.-]+), (%[\w.-]+)\)"


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _counted(text: str) -> np.ndarray:
    """Return 0, 1, ... in sizes and an order: those of ``[4,2]<=[2,4]T(1,0)`` or ``[2,4]``."""
    found = _IOTA.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sizes, counted, order = found.groups()
    numbers = np.arange(np.prod(_numbers(counted))).reshape(_numbers(counted))
    numbers = numbers.transpose(_numbers(order)) if order else numbers
    return numbers.reshape(_numbers(sizes)) if sizes else numbers.reshape(-1)


def groups_of(text: str) -> list[list[int]]:
    """Return the groups that a text of XLA stands for, in any of its three forms."""
    mesh = _MESH.fullmatch(text)
    if mesh is not None:
        axes, order, chosen = mesh.groups()
        pairs = re.findall(r"'(\w+)'=(\d+)", axes)
        sizes = [int(size) for _, size in pairs]
        devices = _counted(order) if order else np.arange(np.prod(sizes))
        inner = [number for number, (name, _) in enumerate(pairs) if f"'{name}'" in chosen]
        outer = [number for number in range(len(pairs)) if number not in inner]
        members = int(np.prod([sizes[number] for number in inner]))
        return devices.reshape(sizes).transpose(outer + inner).reshape(-1, members).tolist()
    if text.startswith("["):
        return _counted(text).tolist()
    return [_numbers(group) for group in text.split("},{")]


def in_full(line: str) -> str:
    """Return a line with its groups written out."""
    return _GROUPS.sub(lambda found: f"replica_groups={_written(groups_of(found[1]))}", line)


def _written(groups: list[list[int]]) -> str:
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


def _others(found: re.Match[str]) -> str:
    """Return groups of the same size that have other members."""
    groups = groups_of(found[1])
    members = len(groups[0])
    near = np.arange(DEVICES).reshape(-1, members)
    far = np.arange(DEVICES).reshape(members, -1).T
    same = {frozenset(group) for group in groups}
    others = near if same != {frozenset(group) for group in near.tolist()} else far
    return f"replica_groups={_written(others.tolist())}"


def _reordered(found: re.Match[str]) -> str:
    """Return the same groups with their members in another order."""
    groups = [group[::-1] for group in groups_of(found[2])]
    return f"{found[1]}replica_groups={_written(groups)}"


def _swapped_targets(found: re.Match[str]) -> str:
    pairs = re.findall(r"(\d+),(\d+)", found[0])
    (a, b), (c, d), *others = pairs
    text = ",".join(f"{{{s},{t}}}" for s, t in [(a, d), (c, b), *others])
    return f"source_target_pairs={{{text}}}"


def _next_numbers(found: re.Match[str]) -> str:
    """Return a table whose first number is at the end."""
    first, *others = found[2].split(", ")
    return f"{found[1]}{', '.join([*others, first])}}}"


def _half(found: re.Match[str]) -> str:
    return f"{found[1]}{float(found[2]) / 2!r})"


def _turned(found: re.Match[str]) -> str:
    """Return a product of square matrices over the other dimension of the first."""
    return f"{found[1]}{1 - int(found[2])}}}"


Replacement = str | Callable[[re.Match[str]], str]
KINDS: dict[str, tuple[str, Replacement]] = {
    "other groups": (_GROUPS.pattern, _others),
    "groups in another order": (
        rf"((?:all-gather|reduce-scatter|all-to-all)\(.*){_GROUPS.pattern}",
        _reordered,
    ),
    "no sum": (rf"all-reduce{_BEHIND}", r"copy(\1)"),
    "no exchange": (rf"(?:all-to-all|collective-permute){_BEHIND}", r"copy(\1)"),
    "two targets swapped": (r"source_target_pairs=\{\{\d,\d\},\{\d,\d\}.*?\}\}", _swapped_targets),
    "a pair left out": (r"source_target_pairs=\{\{\d,\d\},", "source_target_pairs={"),
    "another table of starts": (r"(s32\[\d\]\{0\} constant\(\{)([\d, ]+)\}", _next_numbers),
    "another table of devices": (r"(u32\[8\]\{0\} constant\(\{)([\d, ]+)\}", _next_numbers),
    "a constant halved": (r"(f32\[\] constant\()(-?[1-9][\de.+-]*|0\.[\de.+-]*[1-9]\d*)\)", _half),
    "the other operand": (rf"(f32\[\d\S+ (?:subtract|divide)){_TWO}", r"\1(\3, \2)"),
    "one operand twice": (rf"(f32\[\d\S+ (?:multiply|add)){_TWO}", r"\1(\2, \2)"),
    "another branch": (r"(f32\S+ select)\((%\S+), (%\S+), (%\S+)\)", r"\1(\2, \4, \3)"),
    "no nonlinearity": (
        rf"(?<=\}} )(?:tanh|exponential|rsqrt|sqrt|cosine|sine){_BEHIND}",
        r"copy(\1)",
    ),
    "another dimension": (r"(f32\[2,2\]\S* dot\(.*lhs_contracting_dims=\{)([01])\}", _turned),
    "the other direction": (r"(pred\[\d.*)direction=EQ", r"\1direction=NE"),
    "a bound moved": (r"(pred\[\d.*)direction=LT", r"\1direction=LE"),
}
"""A pattern of a line for each mistake, and what is there instead."""


@dataclass(frozen=True)
class Fault:
    """A mistake of a kind in a line, counted from 1, and the text that has it."""

    kind: str
    line: int
    text: str


def faults(text: str) -> Iterator[Fault]:
    """Yield mistakes of each kind: in the first line that allows it, and in the last."""
    lines = text.splitlines()
    for kind, (pattern, replacement) in KINDS.items():
        edited = [
            (number, found)
            for number, line in enumerate(lines)
            if (found := re.sub(pattern, replacement, line, count=1)) != line
        ]
        for number, found in islice({**dict(edited[:1]), **dict(edited[-1:])}.items(), EACH):
            whole = "\n".join([*lines[:number], found, *lines[number + 1 :]])
            yield Fault(kind, number + 1, whole)


def lines_around(text: str, line: int) -> set[int]:
    """Return a line, those of its operands, and those that read its result, directly or by one.

    Constants and copies are no operators of a plan: a finding stands at what reads them.
    """
    names = [re.findall(r"%[\w.-]+", each) for each in text.splitlines()]
    made = {each[0]: number for number, each in enumerate(names, start=1) if each}

    def readers(name: str) -> set[int]:
        return {number for number, each in enumerate(names, start=1) if name in each[1:]}

    _, *operands = names[line - 1]
    direct = readers(names[line - 1][0])
    behind = {number for each in direct for number in readers(names[each - 1][0])}
    return {line, *direct, *behind, *(made[name] for name in operands if name in made)}
