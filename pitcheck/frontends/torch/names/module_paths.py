"""The paths that the modules of a rank have in the reference, told by their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def paths_in_reference(names: Mapping[str, str]) -> Callable[[str], str]:
    """Return the function from the path of a module here to its path in the reference.

    ``names`` has the reference's names of parameters by their names here. A module without
    parameters lies below the nearest module with some. A path stays as it is if its parameters lie
    at different paths of the reference.

    >>> path_of = paths_in_reference({"layers.0.up.weight": "layers.3.up.weight"})
    >>> path_of("layers.0.up.activation"), path_of("layers"), path_of("")
    ('layers.3.up.activation', 'layers', '')
    """
    found = _common_paths(names)

    def path_of(path: str) -> str:
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            there = found.get(".".join(parts[:end]))
            if there is not None:
                return ".".join([there, *parts[end:]])
        return path

    return path_of


def _common_paths(names: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    differ: set[str] = set()
    for here, there in names.items():
        own, whole = here.split("."), there.split(".")
        while len(own) > 1 and len(whole) > 1 and own[-1] == whole[-1]:
            own, whole = own[:-1], whole[:-1]
            path = ".".join(own)
            if found.setdefault(path, ".".join(whole)) != ".".join(whole):
                differ.add(path)
    return {path: there for path, there in found.items() if path not in differ}
