"""Mistakes in the texts of ``shard_map`` programs: each changes one line."""

from __future__ import annotations

import re
from collections.abc import Iterator

_GROUPS = r"replica_groups=\{\{0,1\},\{2,3\}\}"
_OTHERS = r"replica_groups=\{\{0,2\},\{1,3\}\}"
_ALL = r"replica_groups=\{\{0,1,2,3\}\}"
_RING = r"source_target_pairs=\{\{0,1\},\{1,2\},\{2,3\},\{3,0\}\}"
_TWO = r"\((%[\w.-]+), (%[\w.-]+)\)"
_BEHIND = r"\((%[\w.-]+)\)[^%]*?(, sharding=.*)?$"

FAULTS = {
    "other groups": (_GROUPS, "replica_groups={{0,2},{1,3}}"),
    "groups of others": (_OTHERS, "replica_groups={{0,1},{2,3}}"),
    "smaller groups": (_ALL, "replica_groups={{0,1},{2,3}}"),
    "groups in another order": (
        rf"((?:all-gather|reduce-scatter)\(.*){_GROUPS}",
        r"\1replica_groups={{1,0},{3,2}}",
    ),
    "others in another order": (
        rf"((?:all-gather|reduce-scatter)\(.*){_OTHERS}",
        r"\1replica_groups={{2,0},{3,1}}",
    ),
    "all in another order": (rf"(all-to-all\(.*){_ALL}", r"\1replica_groups={{0,2,1,3}}"),
    "no sum": (rf"all-reduce{_BEHIND}", r"copy(\1)\2"),
    "no exchange": (rf"(?:all-to-all|collective-permute){_BEHIND}", r"copy(\1)\2"),
    "backwards": (_RING, "source_target_pairs={{1,0},{2,1},{3,2},{0,3}}"),
    "two targets swapped": (_RING, "source_target_pairs={{0,2},{1,1},{2,3},{3,0}}"),
    "a pair left out": (r"source_target_pairs=\{\{\d,\d\},", "source_target_pairs={"),
    "another axis of the mesh": (rf"(u32\[\] )remainder{_TWO}", r"\1divide(\2, \3)"),
    "another table": (r"(s32\[2\]\{0\} constant\(\{)0, 4\}", r"\g<1>4, 0}"),
    "a larger constant": (r"(f32\[\] constant\()([1-9][\d.]*)\)", r"\g<1>\g<2>5)"),
    "another integer": (r"(s32\[\] constant\()2\)", r"\g<1>3)"),
    "no nonlinearity": (rf"(?:tanh|negate|exponential|rsqrt){_BEHIND}", r"copy(\1)\2"),
    "operands swapped": (rf"(f32\[\S+ (?:subtract|divide)){_TWO}", r"\1(\3, \2)"),
    "one operand twice": (rf"(f32\[\d\S+ (?:multiply|add)){_TWO}", r"\1(\2, \2)"),
    "the other operand twice": (rf"(f32\S+ maximum){_TWO}", r"\1(\3, \3)"),
    "another branch": (r"(f32\S+ select)\((%\S+), (%\S+), (%\S+)\)", r"\1(\2, \4, \3)"),
    "another reduction": (r"(ROOT %\S+ = f32\[\] )add", r"\1maximum"),
    # Not the maximum of a softmax: on the reals another number there gives the same.
    "the other extremum": (r"(ROOT %max\S* = f32\[\] )maximum", r"\1minimum"),
    "a sum of factors": (r"(f32\[\d\S+ )multiply", r"\1add"),
    "a difference": (r"(f32\[\d\S+ )add", r"\1subtract"),
    "another dimension": (
        r"(dot\(.*lhs_contracting_dims=\{)1(\}, rhs_contracting_dims=\{)0",
        r"\g<1>0\g<2>1",
    ),
    "the other direction": (r"(s32.*|%eq.*)direction=EQ", r"\1direction=NE"),
}
"""A pattern of a line for each mistake, and what is there instead."""


def faults(text: str, manual: bool) -> Iterator[tuple[str, str, str]]:
    """Yield each mistake, the line that it changes, and the text with it: first one of each kind.

    ``manual``: only lines of manual regions are changed, of the text before partitioning.
    """
    lines = text.splitlines()
    found: dict[str, list[tuple[int, str]]] = {}
    for fault, (pattern, replacement) in FAULTS.items():
        for number, line in enumerate(lines):
            edited = re.sub(pattern, replacement, line)
            if edited != line and (not manual or "manual}" in line):
                found.setdefault(fault, []).append((number, edited))
    while found:
        for fault in list(found):
            number, edited = found[fault].pop(0)
            if not found[fault]:
                del found[fault]
            whole = "\n".join([*lines[:number], edited, *lines[number + 1 :]])
            yield fault, f"{number + 1}: {lines[number].strip()}", whole
