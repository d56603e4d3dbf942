"""From diagnoses to text: the only place where facts become words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.graph.spoken_names import OF_GRADIENT
from pitcheck.report.codes import find
from pitcheck.report.report import Edit, TriedRepair

MOST_PLACES = 12
"""Places of one mistake that are listed; of more only the number is said."""


MOST_IN_TITLE = 6
"""Further parameters that a title names; of more only the number is said."""


def said(diagnosis: Diagnosis) -> str:
    """Return the cause as text."""
    return diagnosis.kind.said.format(**diagnosis.facts)


def repair(diagnosis: Diagnosis) -> str:
    """Return the repair as text; "" if none is known."""
    return diagnosis.kind.repair.format(**diagnosis.facts)


def edits(places: Iterable[Diagnosis]) -> tuple[Edit, ...]:
    """Return the repair of one mistake as changed lines of the plan; none if it is not known.

    ``places``: the mistake wherever it was made. The lines of at most MOST_PLACES are returned.
    """
    lines = (
        line.format(**each.facts)
        for each in islice(places, MOST_PLACES)
        for line in each.kind.edits
    )
    return tuple(
        Edit(sign="-" if line.startswith("-") else "+", text=line[2:])
        for line in dict.fromkeys(lines)
    )


def places(others: Sequence[tuple[str, str]]) -> str:
    """Return the further places of one mistake as text: operator and tensor of each."""
    if not others:
        return ""
    named = ", ".join(
        f"{operator!r} ({tensor!r})" if operator else repr(tensor)
        for operator, tensor in others[:MOST_PLACES]
    )
    more = len(others) - MOST_PLACES
    return f"; the same mistake is made at {named}{f' and {more} more' if more > 0 else ''}"


def tried(
    effect: TriedRepair,
    *,
    mended: bool,
    everything: int,
    mesh: Mapping[str, int] | None = None,
    one_sided: Sequence[str] = (),
    sought: int = 0,
) -> str:
    """Return as text that a repair was tested, and which outputs it makes right.

    "every output" is said only if every output was computed anew and compared. ``mesh``: the sizes
    of the mesh axes, named if the repair was tried at other sizes, too. ``one_sided``: operators
    of which the inputs that were tried show one outcome alone, as ``sought`` other inputs do.
    """
    if mended and not effect.wrong:
        right = f"every output {'' if effect.compared == everything else 'that differs '}is right"
    else:
        right = f"{_some(effect.right)} right"
        right += f", {_some(effect.wrong)} not" if effect.wrong else ""
    sizes = {} if mesh is None else mesh
    others = [_changed(sizes, each) for each in effect.meshes]
    first = ", at ".join([_spelled(sizes), *others[:-1]])
    where = f" at {first} and at {others[-1]}" if others else ""
    faultless = (
        f"; at {_changed(sizes, each)} no output differs as it is" for each in effect.faultless
    )
    using = "all fixes together: with them" if effect.together else "with it"
    at = f"tested{where}{_where_alike(one_sided, sought)}"
    return f"{at}{', ' if effect.together else ': '}{using}, {right}{''.join(faultless)}"


def _where_alike(operators: Sequence[str], sought: int) -> str:
    if not operators:
        return ""
    more = f" and {len(operators) - 1} more" if len(operators) > 1 else ""
    beyond = (
        f" (none of {sought} other inputs decides the other way and gives numbers)"
        if sought
        else ""
    )
    return f" only on inputs for which {operators[0]}{more} decides one way{beyond}"


def _changed(mesh: Mapping[str, int], other: Mapping[str, int]) -> str:
    return _spelled({axis: size for axis, size in other.items() if mesh.get(axis) != size})


def _spelled(mesh: Mapping[str, int]) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in mesh.items() if size > 1)


def _some(names: Sequence[str]) -> str:
    return f"{names[0]!r} is" if len(names) == 1 else f"{names[0]!r} and {len(names) - 1} more are"


def spell(box: Sequence[Sequence[tuple[int, int]]]) -> str:
    """Return a box as text, e.g. ``[0:2, 4:8]``."""
    return "[" + ", ".join("+".join(f"{a}:{b}" for a, b in intervals) for intervals in box) + "]"


def title(diagnosis: Diagnosis, output: str, result: str, others: Sequence[str] = ()) -> str:
    """Return the title of a finding, of the tensor ``result`` or of the output that differs.

    ``others``: the further tensors of which the same is true.
    """
    words = diagnosis.kind.title or find(diagnosis.code).of_finding
    return words.format(**{**diagnosis.facts, "output": output, "result": result}) + _also(
        result, others
    )


def _also(first: str, others: Sequence[str]) -> str:
    """Return as text the further parameters whose gradients, or states, are in a title as well.

    They are named from where their modules part from that of the first.
    """
    lead, names = in_title(first, others)
    if not names:
        return ""
    module = repr(first).removeprefix(lead).split(".")[:-1]
    depth = min(max(len(module) - 1, 0), *(_common(module, n.split(".")[:-1]) for n in names))
    told = [".".join(name.split(".")[depth:]) for name in names[:MOST_IN_TITLE]]
    more = f" and {len(names) - len(told)} more" if len(names) > len(told) else ""
    return f" (also {', '.join(told)}{more})"


def in_title(first: str, others: Iterable[str]) -> tuple[str, list[str]]:
    """Return what the words for tensors begin with, and the parameters of those that a title names.

    None are named unless all tensors are called alike.
    """
    lead = OF_GRADIENT
    words = dict.fromkeys(map(repr, others))
    alike = all(each.startswith(lead) for each in (repr(first), *words))
    return lead, [each.removeprefix(lead) for each in words if each != repr(first)] if alike else []


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many parts two paths begin with in common."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
