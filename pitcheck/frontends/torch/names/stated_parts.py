"""The parts of parameters and state that ``Program.parts`` says a rank holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from pitcheck.errors import PlanError
from pitcheck.frontends.torch.known_names import check_known
from pitcheck.frontends.torch.program import Part, StatedPart
from pitcheck.frontends.torch.recording import parameter_lineage as lineage
from pitcheck.frontends.torch.recording.rank_batch import place_among
from pitcheck.frontends.torch.trace import Intervals

WILD = frozenset("*?[")
STATE = ":"
"""The separator of the key of an optimizer's state and the name of its parameter."""


class StatedParts:
    """The statements of ``Program.parts``, by name or pattern, as of one rank.

    ``mesh`` and ``coordinate`` are the rank's; both are empty for the reference.
    """

    def __init__(
        self,
        parts: Mapping[str, StatedPart],
        mesh: Mapping[str, int],
        coordinate: Mapping[str, int],
    ) -> None:
        self._parts = parts
        self._mesh = mesh
        self._coordinate = coordinate

    def of(self, name: str, shape: Sequence[int]) -> lineage.Part | None:
        """Return the part that a tensor of ``shape`` is here; None if nothing is said of it.

        Raises PlanError for two statements about one name, and for one that does not fit.
        """
        found = [key for key in self._parts if _matches(key, name)]
        if len(found) > 1:
            raise PlanError(
                f"Program.parts says two things about {name!r}: as {found[0]!r} and as "
                f"{found[1]!r}; let only one of them match it"
            )
        if not found:
            return None
        said = self._parts[found[0]]
        if isinstance(said, Part):
            return self._split(found[0], said, name, shape)
        return _held(said, shape, name)

    def of_state(self, name: str, shape: Sequence[int]) -> lineage.Part | None:
        """Return the part of an optimizer's state "KEY:PARAMETER", as :meth:`of` does.

        Only what names a key is said of state: "*.weight" means parameters alone.
        """
        said = {key: part for key, part in self._parts.items() if STATE in key}
        return StatedParts(said, self._mesh, self._coordinate).of(name, shape)

    def check(self, known: Collection[str]) -> None:
        """Raise PlanError for a statement that is about none of the ``known`` names."""
        check_known([key for key in self._parts if not WILD & set(key)], known, "Program.parts")
        for key in self._parts:
            if not any(_matches(key, name) for name in known):
                raise PlanError(
                    f"Program.parts has the pattern {key!r}, which matches none of the "
                    f"{len(known)} tensors of the program, such as "
                    f"{', '.join(map(repr, sorted(known)[:3])) or 'none'}"
                )

    def _split(self, key: str, said: Part, name: str, shape: Sequence[int]) -> lineage.Part:
        if said.sum or said.mean:
            raise PlanError(
                f"Program.parts[{key!r}] is a sum or a mean; ranks hold the terms of an output, "
                f"but of a parameter only parts (split)"
            )
        whole = list(shape)
        box: dict[int, Intervals] = {}
        for dim, axes in said.split.items():
            if not 0 <= dim < len(shape):
                raise PlanError(
                    f"Program.parts[{key!r}] splits dimension {dim} of {name!r}, whose shape is "
                    f"{tuple(shape)}"
                )
            members, place = place_among(
                axes, self._mesh, self._coordinate, f"Program.parts[{key!r}]"
            )
            whole[dim] *= members
            box[dim] = ((place * shape[dim], (place + 1) * shape[dim]),)
        return lineage.Part(
            tuple(whole), tuple(box.get(dim, ((0, size),)) for dim, size in enumerate(shape))
        )


def _matches(key: str, name: str) -> bool:
    return fnmatchcase(name, key) if WILD & set(key) else key == name


def _held(
    pieces: Mapping[int, Sequence[tuple[int, int]]], shape: Sequence[int], name: str
) -> lineage.Part:
    """Return the part of a tensor of ``shape`` from the intervals that a rank holds.

    It does not tell the shape of the whole. Raises PlanError if the intervals do not add up to
    ``shape``.
    """
    box: list[Intervals] = [((0, size),) for size in shape]
    for dim, intervals in pieces.items():
        held = tuple((int(start), int(stop)) for start, stop in intervals)
        if not 0 <= dim < len(box) or sum(stop - start for start, stop in held) != shape[dim]:
            raise PlanError(
                f"parts[{name!r}] gives dimension {dim} the intervals {held}, but the tensor here "
                f"has shape {tuple(shape)}; "
                "their lengths must add up to its size; what lies beyond the end of the whole, as "
                "rows 2 to 4 of 3, is padding"
            )
        box[dim] = held
    return lineage.Part((), tuple(box))
