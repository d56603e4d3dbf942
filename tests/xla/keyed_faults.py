"""Mistakes in partitioned programs with random numbers: each changes one line."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TWO = r"\((%[\w.-]+), (%[\w.-]+)\)"
FAULTS = {
    "another rotation": (r"(u32\[4\]\S* constant\(\{)13,", r"\g<1>14,"),
    "another rotation at last": (r"(u32\[4\]\S* constant\(\{17, 29, 16, )24\}", r"\g<1>25}"),
    "another parity": (r"constant\(466688986\)", "constant(466688987)"),
    "one shift more": (r"(u32\[\] constant\()9\)", r"\g<1>10)"),
    "fewer bits of one": (r"(u32\[\] constant\()1065353216\)", r"\g<1>1056964608)"),
    "another width": (r"(u32\[\] constant\()32\)", r"\g<1>31)"),
    "the block of another": (r"(s32\[4\]\S* constant\(\{0, )(\d+), (\d+),", r"\g<1>\3, \2,"),
    "the first block": (r"(s32\[4\]\S* constant\(\{)0, \d+, \d+, \d+\}", r"\g<1>0, 0, 0, 0}"),
    "the first block at last": (r"(s32\[4\]\S* constant\(\{0, \d+, \d+, )\d+\}", r"\g<1>0}"),
    "another half": (r"(s32\[2\]\S* constant\(\{)0, (\d+)\}", r"\g<1>\2, 0}"),
    "another algorithm": ("algorithm=rng_default", "algorithm=rng_three_fry"),
    "no sum of words": (rf"(u32\[\S+ )add{_TWO}", r"\1subtract(\2, \3)"),
    "another mixing": (rf"(u32\[\S+ )xor{_TWO}", r"\1or(\2, \3)"),
    "no rotation": (rf"(u32\[\S+ )or{_TWO}", r"\1or(\2, \2)"),
    "shifted the other way": (r"shift-left", "shift-right-logical"),
    "with its sign": (r"shift-right-logical", "shift-right-arithmetic"),
    "the other word": (r"(u32\[1\]\S* slice\(.*slice=\{)\[0:1\]", r"\1[1:2]"),
    "the complement": (r"direction=LT", "direction=GE"),
    "the other choice": (r"(f32\S+ select)\((%\S+), (%\S+), (%\S+)\)", r"\1(\2, \4, \3)"),
    "one operand twice": (rf"(f32\[\d\S+ multiply){_TWO}", r"\1(\2, \2)"),
    "another range": (r"(f32\[\] constant\()0.5\)", r"\g<1>0.25)"),
    "another step": (r"(u64\[\] constant\()4\)", r"\g<1>5)"),
    "other pairs": (r"source_target_pairs=\{\{(\d),(\d)\}", r"source_target_pairs={{\2,\1}"),
    "no pairs": (r"source_target_pairs=\{\{\d,\d\},\{", "source_target_pairs={{"),
    "the smaller first": (r"(u32\S* concatenate)\((%\S+), (%\S+)\)", r"\1(\3, \2)"),
    "another remainder": (r"(u32\[\] constant\()8\)", r"\g<1>7)"),
    "another step of the loop": (r"(s32\[\] constant\()5\)", r"\g<1>4)"),
}
"""A pattern of a line for each mistake, and what is there instead."""


def faults(text: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, and the text with it: each mistake in its first and its last lines."""
    lines = text.splitlines()
    for kind, (pattern, replacement) in FAULTS.items():
        places = [
            number
            for number, line in enumerate(lines)
            if re.sub(pattern, replacement, line, count=1) != line
        ]
        for number in dict.fromkeys((*places[:1], *places[-1:])):
            edited = re.sub(pattern, replacement, lines[number], count=1)
            whole = "\n".join([*lines[:number], edited, *lines[number + 1 :]])
            yield f"{kind}, line {number + 1}", whole
