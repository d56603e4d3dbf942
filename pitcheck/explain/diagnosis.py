"""Mistakes as data: the kind, the place and the facts. ``messages`` makes words of them last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Step

Family = tuple[object, ...]
"""Equal for diagnoses of one kind of mistake, wherever it was made."""


@dataclass(frozen=True)
class Kind:
    """A kind of mistake: its code, and the words for it and for its repair, with facts in braces.

    Two mistakes of a kind are of one family if the facts named in ``same`` are equal: names of
    tensors and operators may differ.
    """

    code: str
    said: str
    repair: str = ""
    same: tuple[str, ...] = ()
    unsized: Kind | None = None
    """The kind of the same mistake if no size of the plan is its factor; None: this one."""
    edits: tuple[str, ...] = ()
    """The repair as changed lines of the plan, with facts in braces. Each begins with "- " or "+ ".
    """
    title: str = ""
    """The title of its finding, with facts in braces; "": that of its code."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """A mistake: its kind and the facts that its words need.

    ``codes``: the coordinates where it shows, shape (n,); None: those of the value. ``step``: the
    operator at fault; None: the value's writer. ``value``: what is wrong; None: what was asked
    about.
    """

    kind: Kind
    facts: Mapping[str, object] = field(default_factory=dict)
    codes: Codes | None = None
    step: Step | None = None
    value: int | None = None
    reduced: bool = False
    """True if it is about how addends are reduced: what the outputs themselves show comes before
    it.
    """

    @property
    def code(self) -> str:
        """The code of its kind."""
        return self.kind.code

    @property
    def explains(self) -> bool:
        """False if no cause was found."""
        return self.code != "PIT100"

    def named(self, **facts: object) -> Diagnosis:
        """Return it with further facts; those that it has stay."""
        return replace(self, facts={**facts, **self.facts})

    @property
    def family(self) -> Family:
        """Equal for diagnoses of one kind of mistake, wherever it was made."""
        return (self.kind, *(self.facts.get(name) for name in self.kind.same))
