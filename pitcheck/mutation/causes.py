"""The codes of ``pitcheck explain`` that name a mutant's mistake rightly, by kind of mutation.

The first code of each kind is the best name.
"""

from __future__ import annotations

from collections.abc import Mapping

RIGHT_CODES: Mapping[str, tuple[str, ...]] = {
    "drop-reduction": ("PIT104", "PIT113"),
    "drop-exchange": ("PIT107", "PIT103"),
    "repeat-reduction": ("PIT105",),
    "insert-reduction": ("PIT105", "PIT106", "PIT101"),
    "regroup": ("PIT106",),
    "members": ("PIT107", "PIT106"),
    "reduction": ("PIT111", "PIT102"),
    "average": ("PIT111", "PIT101", "PIT102"),
    "slice": ("PIT107",),
    "offset": ("PIT107", "PIT102"),
    "random": ("PIT114", "PIT102"),
    "axis": ("PIT107", "PIT102"),
    "constant": ("PIT102", "PIT101"),
    "attribute": ("PIT102", "PIT107"),
    "mask": ("PIT102", "PIT107"),
    "function": ("PIT102", "PIT101"),
    "factor": ("PIT101",),
    "operand": ("PIT103", "PIT115"),
    "exchange": ("PIT103", "PIT107"),
    "stale": ("PIT116", "PIT103"),
    "microbatch": ("PIT108",),
    "term": ("PIT108", "PIT113"),
    "skip": ("PIT115", "PIT102", "PIT103", "PIT108"),
    "peer": ("PIT103", "PIT106", "PIT107"),
    "order": ("PIT116", "PIT103"),
    "collective-order": ("PIT116", "PIT103"),
    "given": ("PIT107", "PIT110"),
}
"""The codes of every kind of mutation; where several say the same of it, each is right.

A left-out addition is a missing term; an operand that was meant to go through one operator first is
an operator that is passed over.
"""
