"""A parser of HLO text, by recursive descent.

No library reads it: XLA's own parser is C++ inside jaxlib, which is large, changes with every
release, repairs what it reads, and can abort the process. A generic grammar tool gives neither the
line of each instruction nor a refusal of each attribute that nobody has thought of. What is read
here has a meaning for the check, or is known to have none; everything else is an error with its
line.

A text is read once from start to end. Instructions stand behind their operands and computations
behind those that they call, as XLA prints them, so that no cycle can be written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pitcheck.errors import BudgetError, PlanError
from pitcheck.frontends.xla.text.attributes import Value, read_attribute
from pitcheck.frontends.xla.text.checks.instructions import check_entry, check_instruction
from pitcheck.frontends.xla.text.header import read_header, read_stacks
from pitcheck.frontends.xla.text.lexer import Kind, Lexer
from pitcheck.frontends.xla.text.limits import LARGEST_TEXT, LONGEST_PROGRAM
from pitcheck.frontends.xla.text.literals import Literal, read_literal
from pitcheck.frontends.xla.text.mesh import DeviceLists
from pitcheck.frontends.xla.text.metadata import read_metadata
from pitcheck.frontends.xla.text.module import Computation, Instruction, Module
from pitcheck.frontends.xla.text.opcodes import COMMON, OPCODES, Opcode
from pitcheck.frontends.xla.text.shape_reader import ShapeReader
from pitcheck.frontends.xla.text.shapes import Shape
from pitcheck.frontends.xla.text.sharding import AnySharding
from pitcheck.frontends.xla.text.sharding_reader import read_sharding
from pitcheck.frontends.xla.text.sources import NO_METADATA, Metadata

Signature = tuple[tuple[Shape, ...], Shape]


def read_hlo(path: Path) -> Module:
    """Return the module in a file of HLO text.

    Raises:
        PlanError: for a text that is damaged or contradicts itself.
        UnsupportedError: for what has no meaning here, such as an unknown opcode or attribute.
        BudgetError: for a text that is too large.
        OSError: if the file cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(LARGEST_TEXT + 1)
    if len(data) > LARGEST_TEXT:
        raise BudgetError(f"{path.name}: the text has more than {LARGEST_TEXT} bytes")
    try:
        source = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PlanError("the text is not UTF-8", f"{path.name}:{line}") from None
    return parse_hlo(source, path.name)


def parse_hlo(source: str, file: str = "HLO text") -> Module:
    """Return the module in a text. ``file`` is the name that messages give it.

    Raises PlanError, UnsupportedError and BudgetError as :func:`read_hlo` does.
    """
    return _Parser(source, file).run()


class _Parser:
    """The parser of one text."""

    def __init__(self, source: str, file: str) -> None:
        self.lexer = Lexer(source, file)
        self.shapes = ShapeReader()
        self.lists = DeviceLists()
        self.frames = 0
        self.partitions = 1
        self.computations: dict[str, Computation] = {}
        self.left = LONGEST_PROGRAM

    def run(self) -> Module:
        """Return the module."""
        lexer = self.lexer
        name, header = read_header(lexer, self.shapes)
        self.partitions = header.partitions
        stacks = read_stacks(lexer)
        self.frames = len(stacks)
        entry = ""
        while lexer.kind is not Kind.END:
            if lexer.take("ENTRY"):
                if entry:
                    raise lexer.damaged("a second computation is ENTRY")
                entry = self._computation()
            else:
                self._computation()
        if not entry:
            raise lexer.damaged("no computation is ENTRY")
        check_entry(lexer, header, self.computations[entry])
        return Module(name, lexer.name, header, MappingProxyType(self.computations), entry, stacks)

    def _computation(self) -> str:
        """Read a computation and return its name."""
        lexer = self.lexer
        line = lexer.line()
        name = lexer.identifier("the name of a computation")
        if name in self.computations:
            raise lexer.damaged(f"a second computation is named {name[:60]!r}")
        stated = self._signature() if lexer.at("(") else None
        lexer.expect("{", "before the instructions of a computation")
        instructions: dict[str, Instruction] = {}
        root = ""
        while not lexer.take("}"):
            is_root = lexer.take("ROOT")
            instruction = self._instruction(instructions)
            if is_root and root:
                raise lexer.damaged(f"computation {name[:60]!r} has a second ROOT")
            root = instruction.name if is_root else root
        if not root:
            raise lexer.damaged(f"computation {name[:60]!r} has no ROOT")
        computation = Computation(
            name, self._parameters(name, instructions), MappingProxyType(instructions), root, line
        )
        if stated is not None and stated != computation.signature:
            raise lexer.damaged(
                f"the head of computation {name[:60]!r} and its instructions differ in the shapes "
                "of parameters or of the result"
            )
        if lexer.take(","):
            lexer.expect("execution_thread", "behind a computation")
            lexer.expect("=", "behind execution_thread")
            lexer.string("the name of a thread")
        self.computations[name] = computation
        return name

    def _signature(self) -> Signature:
        """Return the shapes of parameters and result that the head of a computation states."""
        lexer = self.lexer
        lexer.expect("(", "before the parameters of a computation")
        given: list[Shape] = []
        while not lexer.take(")"):
            if given:
                lexer.expect(",", "between the parameters of a computation")
            lexer.identifier("the name of a parameter")
            lexer.expect(":", "behind the name of a parameter")
            given.append(self.shapes.read(lexer))
        lexer.expect("->", "before the shape of a computation's result")
        return tuple(given), self.shapes.read(lexer)

    def _parameters(self, name: str, instructions: dict[str, Instruction]) -> tuple[str, ...]:
        """Return the names of a computation's parameters by number."""
        numbered: dict[int, str] = {}
        for instruction in instructions.values():
            if instruction.parameter is not None:
                if instruction.parameter in numbered:
                    raise self.lexer.damaged(
                        f"computation {name[:60]!r} has two parameters {instruction.parameter}"
                    )
                numbered[instruction.parameter] = instruction.name
        if numbered and max(numbered) != len(numbered) - 1:
            raise self.lexer.damaged(
                f"computation {name[:60]!r} has {len(numbered)} parameters, but one is numbered "
                f"{max(numbered)}"
            )
        return tuple(numbered[number] for number in range(len(numbered)))

    def _instruction(self, instructions: dict[str, Instruction]) -> Instruction:
        """Read an instruction, add it to those before it, and return it."""
        lexer = self.lexer
        self.left -= 1
        if self.left < 0:
            raise lexer.too_large(f"the text has more than {LONGEST_PROGRAM} instructions")
        line = lexer.blamed = lexer.line()
        name = lexer.identifier("the name of an instruction")
        if name in instructions:
            raise lexer.damaged(f"a second instruction is named {name[:60]!r}")
        lexer.expect("=", "behind the name of an instruction")
        shape = self.shapes.read(lexer)
        opcode = lexer.word("an opcode")
        form = OPCODES.get(opcode)
        if form is None:
            raise lexer.unsupported(f"the opcode {opcode[:60]!r} has no meaning here")
        number, literal, operands = self._inner(opcode, form, shape, instructions)
        values, sharding, metadata = self._attributes(opcode, form)
        instruction = Instruction(
            name, opcode, shape, operands, values, sharding, metadata, line, number, literal
        )
        self._check_names(instruction, instructions)
        check_instruction(
            lexer, instruction, form, instructions, self.computations, self.partitions
        )
        instructions[name] = instruction
        lexer.blamed = 0
        return instruction

    def _inner(
        self, opcode: str, form: Opcode, shape: Shape, instructions: dict[str, Instruction]
    ) -> tuple[int | None, Literal | None, tuple[str, ...]]:
        """Return what stands in parentheses: a parameter's number, a literal, or operands."""
        lexer = self.lexer
        number: int | None = None
        literal: Literal | None = None
        operands: tuple[str, ...] = ()
        lexer.expect("(", "before operands")
        if opcode == "parameter":
            number = lexer.integer("the number of a parameter", 0, LONGEST_PROGRAM)
        elif opcode == "constant":
            literal = read_literal(lexer, shape)
        else:
            operands = self._operands(instructions)
        lexer.expect(")", "behind operands")
        if len(operands) < form.least or (form.most is not None and len(operands) > form.most):
            raise lexer.damaged(f"{opcode} has {len(operands)} operands; {_arity(form)} expected")
        return number, literal, operands

    def _operands(self, instructions: dict[str, Instruction]) -> tuple[str, ...]:
        """Return the names of operands, which stand above. Shapes before them are compared."""
        lexer = self.lexer
        names: list[str] = []
        while not lexer.at(")"):
            if names:
                lexer.expect(",", "between operands")
            shape: Shape | None = None
            if lexer.kind is Kind.ARRAY or lexer.at("("):
                shape = self.shapes.read(lexer)
            name = self._defined(instructions)
            if shape is not None and shape != instructions[name].shape:
                raise lexer.damaged(
                    f"operand {name[:60]!r} is said to be {shape}, and is "
                    f"{instructions[name].shape}"
                )
            names.append(name)
        return tuple(names)

    def _defined(self, instructions: dict[str, Instruction]) -> str:
        """Return the name of an instruction above that is next."""
        name = self.lexer.identifier("the name of an operand")
        if name not in instructions:
            raise self.lexer.damaged(
                f"{name[:60]!r} is no instruction that stands above in this computation"
            )
        return name

    def _attributes(
        self, opcode: str, form: Opcode
    ) -> tuple[Mapping[str, Value], AnySharding | None, Metadata]:
        """Return the attributes that are next, with sharding and metadata beside the others."""
        lexer = self.lexer
        values: dict[str, Value] = {}
        sharding: AnySharding | None = None
        metadata: Metadata = NO_METADATA
        seen: set[str] = set()
        while lexer.take(","):
            key = lexer.word("an attribute")
            if not (key in COMMON or key in form.required or key in form.optional):
                raise lexer.unsupported(
                    f"the attribute {key[:60]!r} of {opcode} has no meaning here"
                )
            if key in seen:
                raise lexer.damaged(f"{opcode} has the attribute {key} twice")
            seen.add(key)
            lexer.expect("=", f"behind {key}")
            if key == "sharding":
                sharding = read_sharding(lexer, self.lists)
            elif key == "metadata":
                metadata = read_metadata(lexer, self.frames)
            else:
                values[key] = read_attribute(lexer, self.lists, key)
        missing = form.required - seen
        if missing:
            raise lexer.damaged(f"{opcode} lacks the attribute {min(missing)}")
        return MappingProxyType(values), sharding, metadata

    def _check_names(self, instruction: Instruction, instructions: dict[str, Instruction]) -> None:
        """Raise PlanError if an attribute names what does not stand above."""
        for called in instruction.calls:
            if called not in self.computations:
                raise self.lexer.damaged(
                    f"{instruction.opcode} calls {called[:60]!r}, which is no computation above "
                    "it; a computation stands behind those that it calls, so that none calls "
                    "itself"
                )
        nothing: tuple[str, ...] = ()
        for before in instruction.get("control-predecessors", nothing):
            if before not in instructions:
                raise self.lexer.damaged(f"{before[:60]!r} is no instruction that stands above")


def _arity(form: Opcode) -> str:
    return f"{form.least} are" if form.most == form.least else f"at least {form.least} are"
