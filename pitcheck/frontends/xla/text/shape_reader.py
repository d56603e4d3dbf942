"""Reading shapes. Layouts are checked and dropped: they say where elements lie, not which."""

from __future__ import annotations

import re
from math import prod

from pitcheck.frontends.xla.text.lexer import Kind, Lexer
from pitcheck.frontends.xla.text.limits import LARGEST_ARRAY
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType, Shape, TupleShape

_ARRAY = re.compile(r"([a-z0-9]+)\[([0-9,]*)\](?:\{([0-9,]*)((?::[A-Za-z0-9,()*#\-]*)?)\})?")
_LONGEST_SIZE = 19


class ShapeReader:
    """A reader of shapes. Equal shapes of a text are one object.

    So two shapes that are equal are compared in no time, however large they are.
    """

    def __init__(self) -> None:
        self._texts: dict[str, ArrayShape] = {}
        self._arrays: dict[ArrayShape, ArrayShape] = {}
        self._tuples: dict[tuple[int, ...], TupleShape] = {}

    def read(self, lexer: Lexer, depth: int = 0) -> Shape:
        """Return the shape that is next."""
        if lexer.kind is Kind.ARRAY:
            return self.array(lexer)
        if not lexer.at("("):
            raise self._no_shape(lexer)
        lexer.nested(depth + 1, "a tuple's shape")
        lexer.advance()
        elements: list[Shape] = []
        while not lexer.take(")"):
            if elements:
                lexer.expect(",", "between the elements of a tuple's shape")
            elements.append(self.read(lexer, depth + 1))
        return self._tuples.setdefault(tuple(map(id, elements)), TupleShape(tuple(elements)))

    def array(self, lexer: Lexer) -> ArrayShape:
        """Return the array's shape that is next."""
        if lexer.kind is not Kind.ARRAY:
            raise self._no_shape(lexer)
        known = self._texts.get(lexer.text)
        if known is None:
            shape = _array(lexer)
            known = self._texts[lexer.text] = self._arrays.setdefault(shape, shape)
        lexer.advance()
        return known

    @staticmethod
    def _no_shape(lexer: Lexer) -> Exception:
        if lexer.kind is not Kind.WORD:
            return lexer.damaged(f"a shape is expected, not {lexer.shown()}")
        word = lexer.advance()
        if not lexer.take("["):
            return lexer.damaged(f"a shape is expected, not {word[:60]!r}")
        if word not in set(ElementType):
            return lexer.unsupported(f"the element type {word[:60]!r} has no meaning here")
        while lexer.text.isdecimal() or lexer.at(","):
            lexer.advance()
        if lexer.at("<=") or lexer.at("?"):
            return lexer.unsupported(
                f"an array of {word} has a dimension whose size is known only when it runs; "
                "sizes must be fixed"
            )
        return lexer.damaged(f"an array of {word} has {lexer.shown()} among its sizes")


def _array(lexer: Lexer) -> ArrayShape:
    """Return the shape that the next token says."""
    found = _ARRAY.fullmatch(lexer.text)
    if found is None:
        raise lexer.damaged(f"{lexer.shown()} has a layout that is none")
    element = ElementType(found[1])
    dimensions = _sizes(lexer, found[2])
    lexer.counted(len(dimensions), "an array")
    if prod(size for size in dimensions if size) > LARGEST_ARRAY:
        raise lexer.too_large(f"{lexer.shown()} has more than {LARGEST_ARRAY} elements")
    if dimensions and not element.has_values:
        raise lexer.damaged(f"{lexer.shown()}: {element} has no dimensions")
    if found[3] and sorted(_sizes(lexer, found[3])) != list(range(len(dimensions))):
        raise lexer.damaged(f"the layout of {lexer.shown()} does not name each dimension once")
    return ArrayShape(element, dimensions)


def _sizes(lexer: Lexer, text: str) -> tuple[int, ...]:
    """Return whole numbers between commas."""
    pieces = text.split(",") if text else []
    if not all(0 < len(piece) <= _LONGEST_SIZE for piece in pieces):
        raise lexer.damaged(f"{lexer.shown()} has a size that is none")
    return tuple(map(int, pieces))
