"""The page of results, ``docs/model-zoo.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date

from toys.classes import HEADS, entries
from toys.results import Key, Row
from toys.texts import FOOT, HEAD, LINE

TITLES = {"ddp": "DistributedDataParallel", "fsdp2": "FSDP2"}


def page(found: Sequence[Row]) -> str:
    """Return the page as Markdown."""
    by_key = {row.key: row for row in found}
    plain = [row for row in found if row.wrapper == "plain"]
    trained = [row for row in plain if row.verdict == "trains"]
    parts = [
        HEAD.format(date=date.today().isoformat()),
        _figures(by_key, plain, trained),
        _causes(by_key, trained),
        "## The table\n",
        "\n".join(_lines(by_key, trained)),
        _left_out(plain),
        FOOT,
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def is_right(row: Row, plain: Row) -> bool:
    """Tell whether a verdict is right: a mismatch is, where halves of a batch do not average."""
    return row.verdict == ("mismatch" if plain.differs else "equivalent")


def _figures(found: Mapping[Key, Row], plain: Sequence[Row], trained: Sequence[Row]) -> str:
    lines = [
        "## Figures\n",
        f"The library lists {len(list(entries()))} classes with a language, image or audio head.\n"
        f"Of {len(plain)} that were tried so far, {len(trained)} train in plain PyTorch.\n",
        "| wrapper | checked | right | inconclusive | invalid | wrong | right share |",
        "|---|---|---|---|---|---|---|",
    ]
    for wrapper, title in TITLES.items():
        pairs = [
            (found[row.name, wrapper, ""], row)
            for row in trained
            if (row.name, wrapper, "") in found
        ]
        counts: Counter[str] = Counter(
            "right" if is_right(row, of) else row.verdict for row, of in pairs
        )
        wrong = counts["equivalent"] + counts["mismatch"]
        undecided = len(pairs) - counts["right"] - counts["invalid"] - wrong
        share = f"{counts['right'] / len(pairs):.0%}" if pairs else ""
        lines.append(
            f"| {title} | {len(pairs)} | {counts['right']} | {undecided} | {counts['invalid']} "
            f"| {wrong} | {share} |"
        )
    planted = [row for row in found.values() if row.mistake]
    caught = sum(row.verdict == "mismatch" for row in planted)
    passed = sum(row.verdict == "equivalent" for row in planted)
    lines.append(
        f"\nOf {len(planted)} programs with a planted mistake {caught} are a mismatch, and "
        f"{passed} are called equivalent.\n"
    )
    return "\n".join(lines)


def _causes(found: Mapping[Key, Row], trained: Sequence[Row]) -> str:
    causes: dict[str, list[str]] = {}
    for plain in trained:
        for wrapper, title in TITLES.items():
            row = found.get((plain.name, wrapper, ""))
            if row is not None and not is_right(row, plain):
                causes.setdefault(_cause(row), []).append(f"{plain.name} ({title})")
    lines = ["## What is not decided\n", "| cause | classes |", "|---|---|"]
    for cause, names in sorted(causes.items(), key=lambda each: -len(each[1])):
        lines.append(f"| {cause} | {len(names)}: {', '.join(names)} |")
    return "\n".join(lines)


def _cause(row: Row) -> str:
    """Return a finding as a cell, without what differs from class to class."""
    reason = row.reason.split("; ")[0].replace("|", "\\|")
    return f"{row.code} {reason[:160]}"


def _lines(found: Mapping[Key, Row], trained: Sequence[Row]) -> list[str]:
    lines = [
        "| class | head | DDP | FSDP2 | planted mistake | why not equivalent | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    heads = list(HEADS)
    for plain in sorted(trained, key=lambda row: (heads.index(row.head), row.name)):
        rows = {wrapper: found.get((plain.name, wrapper, "")) for wrapper in TITLES}
        if not any(rows.values()):
            continue
        planted = [row for row in found.values() if row.name == plain.name and row.mistake]
        cells = (
            plain.name,
            plain.head,
            *(row.verdict if row else "" for row in rows.values()),
            ", ".join(f"{row.mistake}: {row.verdict}" for row in planted),
            _why([row for row in rows.values() if row], plain),
            " / ".join(f"{row.seconds:.0f}" for row in rows.values() if row),
        )
        lines.append(LINE.format(" | ".join(cells)))
    return lines


def _why(rows: Sequence[Row], plain: Row) -> str:
    """Return why a class is not equivalent: what is expected, else the first finding."""
    if plain.differs:
        return f"expected: {plain.because}"
    for row in rows:
        if row.verdict != "equivalent":
            at = f" at {row.place}" if row.place else ""
            return f"{row.code}{at}: {row.reason[:160]}".replace("|", "\\|")
    return ""


def _left_out(plain: Sequence[Row]) -> str:
    lines = ["## Left out\n", "These classes train no step in plain PyTorch at toy size.\n"]
    lines += [
        f"- {row.name}: {row.reason[:140].replace('<', '').replace('>', '')}"
        for row in plain
        if row.verdict != "trains"
    ]
    return "\n".join(lines)
