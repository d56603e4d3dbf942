"""Variants of a specification: the same programs on batches of other known integers.

A specification that lists several packings has one variant for each. Every variant is a
specification without variants, and is checked by itself.
"""

from __future__ import annotations

from dataclasses import replace

from pitcheck.errors import UsageError
from pitcheck.frontends.torch.packing.derived import packed_batch
from pitcheck.frontends.torch.packing.layout import layouts
from pitcheck.frontends.torch.program import Spec


def variants(spec: Spec) -> dict[str, Spec]:
    """Return the variants of a specification by name; one of the name "" if it has none.

    Raises UsageError for a packing that does not fit the batch.
    """
    return _packed(spec)


def not_covered(spec: Spec) -> tuple[str, ...]:
    """Return sentences on what a proof of all variants leaves open."""
    return ("packings other than those that were checked",) if spec.packings else ()


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


def _check_unpacked(spec: Spec) -> None:
    for name, given in spec.batch.items():
        if given.packed or given.tokens is not None:
            raise UsageError(
                f"batch[{name!r}] is of a packing, but the specification has none; give "
                f"packings=[Packing(...)]"
            )
