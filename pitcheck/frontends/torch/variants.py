"""Variants of a specification: the same programs with other known integers.

A specification that lists several packings or routings has one variant for each, and for each
pairing of both. Every variant is a specification of one packing and one routing at most, and is
checked by itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from pitcheck.errors import UsageError
from pitcheck.frontends.torch.packing.derived import packed_batch
from pitcheck.frontends.torch.packing.layout import layouts
from pitcheck.frontends.torch.program import Spec


def variants(spec: Spec) -> dict[str, Spec]:
    """Return the variants of a specification by name; one of the name "" if it has none.

    Raises UsageError for a packing that does not fit the batch, and for two variants of one name.
    """
    found: dict[str, Spec] = {}
    for packing, packed in _packed(spec).items():
        for routing, one in _routed(packed).items():
            name = ", ".join(filter(None, (packing, routing)))
            found[name] = one
    return found


def not_covered(spec: Spec) -> tuple[str, ...]:
    """Return sentences on what a proof of all variants leaves open."""
    listed = {"packings": spec.packings, "routings": spec.routings}
    return tuple(
        f"{what} other than those that were checked" for what, own in listed.items() if own
    )


def only_variant(spec: Spec) -> Spec:
    """Return the one variant of a specification.

    Raises UsageError if it has several, which no two plans stand for.
    """
    found = variants(spec)
    if len(found) > 1:
        raise UsageError(
            f"the specification has {len(found)} variants, and this needs one; give one of them a "
            f"name in the file, as in ONE = variants(SPEC)[{next(iter(found))!r}], with variants "
            f"of pitcheck.torch; the others are {'; '.join(list(found)[1:])}"
        )
    return next(iter(found.values()))


def _packed(spec: Spec) -> dict[str, Spec]:
    """Return a specification for each packing of the batch, by name."""
    if not spec.packings:
        _check_unpacked(spec)
        return {"": spec}
    if not spec.mesh:
        raise UsageError("packings need a mesh with an axis; give one of size 1 for one rank")
    return {
        layout.name(): replace(spec, batch=packed_batch(spec, layout), packings=(layout.packing(),))
        for layout in layouts(spec)
    }


def _routed(spec: Spec) -> dict[str, Spec]:
    """Return a specification for each routing of tokens to experts, by name.

    Raises UsageError if two have one name.
    """
    if not spec.routings:
        return {"": spec}
    found = {routing.name: replace(spec, routings=(routing,)) for routing in spec.routings}
    if len(found) < len(spec.routings):
        (name, _), *_ = Counter(routing.name for routing in spec.routings).most_common()
        raise UsageError(f"Spec.routings has two routings called {name!r}; give each another name")
    return found


def _check_unpacked(spec: Spec) -> None:
    for name, given in spec.batch.items():
        if given.packed or given.tokens is not None:
            raise UsageError(
                f"batch[{name!r}] is of a packing, but the specification has none; give "
                f"packings=[Packing(...)]"
            )
