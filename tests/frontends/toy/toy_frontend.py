"""A frontend for toy programs (.toy): one device, or ranks that all run the same lines."""

from __future__ import annotations

from pathlib import Path

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.protocol import Frontend, Request
from pitcheck.plan.model import Axis, Group, Lineage, Operator, Output, Plan, Role, Shard, Tensor

RANK = "rank"
"""The only axis of the mesh."""
KINDS = {"matmul": "matmul", "add": "add", "relu": "relu", "sum_over_ranks": "all_reduce"}
"""The operators in docs/operators.md that the toy's functions are."""


class Toy:
    """A program, as far as its lines have been read."""

    def __init__(self) -> None:
        self.ranks = 1
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.outputs: list[Output] = []

    def line(self, text: str, place: str) -> None:
        """Read a line. Raises PlanError if it is wrong, UnsupportedError for its function."""
        match text.partition("#")[0].split():
            case []:
                pass
            case ["ranks", count] if not self.tensors:
                self.ranks = number(count, place)
            case ["input" | "weight" as word, name, shape]:
                self.given(word, name, sizes(shape, place), None)
            case ["input" | "weight" as word, name, shape, "cut", dim]:
                self.given(word, name, sizes(shape, place), number(dim, place))
            case [name, shape, "=", function, *operands]:
                self.step(name, sizes(shape, place), function, operands, place)
            case ["output", name]:
                self.outputs.append(Output(name, name))
            case _:
                raise PlanError(f"{text.strip()!r} is no line of a toy program", place)

    def given(self, word: str, name: str, shape: tuple[int, ...], cut: int | None) -> None:
        """Add the reference's tensor of that name, or a part per rank along dimension ``cut``."""
        role: Role = "input" if word == "input" else "parameter"
        lineage = Lineage(name, () if cut is None else (Shard(cut, by=(RANK,)),))
        self.tensors.append(Tensor(name, shape, role=role, lineage=lineage))

    def step(
        self, name: str, shape: tuple[int, ...], function: str, operands: list[str], place: str
    ) -> None:
        """Add an operator and the tensor that it writes."""
        if function not in KINDS:
            known = ", ".join(KINDS)
            raise UnsupportedError(f"{place}: {function!r} is not known; known are {known}")
        summed = function == "sum_over_ranks"
        self.tensors.append(Tensor(name, shape))
        self.operators.append(
            Operator(
                id=place,
                kind=KINDS[function],
                inputs=tuple(operands),
                outputs=(name,),
                attributes={"reduction": "sum"} if summed else {},
                group=Group(axes=(RANK,)) if summed else None,
                source=place,
            )
        )

    def plan(self) -> Plan:
        """Return the program as a plan."""
        mesh = (Axis(RANK, self.ranks),)
        return Plan(mesh, tuple(self.tensors), tuple(self.operators), outputs=tuple(self.outputs))


def number(text: str, place: str) -> int:
    """Return the number in a text. Raises PlanError for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise PlanError(f"{text!r} is no number", place)
    return int(text)


def sizes(text: str, place: str) -> tuple[int, ...]:
    """Return the sizes of a shape such as 4x6."""
    return tuple(number(size, place) for size in text.split("x"))


def read(request: Request) -> list[Plan]:
    """Return the plan in a file. Raises the errors of ``Toy.line``."""
    toy = Toy()
    file = Path(request.source)
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    for place, text in enumerate(lines, start=1):
        toy.line(text, f"{file.name}:{place}")
    return [toy.plan()]


FRONTEND = Frontend("toy", "a toy program (.toy)", lambda source: source.endswith(".toy"), read)
