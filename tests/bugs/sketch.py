"""Small plans of known bugs, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.builder import Builder, Spec

from pitcheck.plan.model import Operand


class Sketch(Builder):
    """A builder that puts the plan's name into names that it makes up.

    Names that are equal in the reference by chance would say what is to be compared.
    """

    def op(
        self,
        kind: str,
        *inputs: Operand,
        out: str | Sequence[str] = "",
        where: Any = (),
        group: Any = None,
        hint: Spec = None,
        **attributes: Any,
    ) -> Any:
        """Append a record as a Builder does; return the name of its output, or the names."""
        name = out or f"{self.name}.{kind}.{len(self.operators)}"
        return super().op(
            kind, *inputs, out=name, where=where, group=group, hint=hint, **attributes
        )
