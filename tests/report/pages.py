"""Pages read back with the standard library's parser, and reports of names that look like HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from msgspec.structs import replace
from report.report_samples import DRAWN, NOWHERE, RENDEZVOUS, sample

from pitcheck.report.pictures import HeldValue, HeldValues, StageStep, StageSteps
from pitcheck.report.report import Edit, Finding, Report

EMPTY = {"meta", "br", "input", "img", "link", "rect"}
"""Elements without an end tag here; those of SVG end themselves."""
PWNED = "window.pwned=1"
HOSTILE = (
    f'</script></style></iframe><script>{PWNED}</script>"><img src=x onerror="{PWNED}">'
    f"' onload='{PWNED}' {{{{ 7 * 7 }}}} <!-- &amp; \x00\x07\x1b[31m \u202eoops\u200f \u2066"
    "\ud800 שלום\n"
)
"""Text that would run, load or turn round something if a page took it for more than text."""


@dataclass
class Element:
    """An element of a page, with the text in it and below it."""

    tag: str
    attributes: dict[str, str | None]
    parent: Element | None
    text: str = ""

    def within(self, tag: str) -> bool:
        """Return True if an element stands in another one with this tag."""
        return self.parent is not None and (self.parent.tag == tag or self.parent.within(tag))

    def said(self, text: str) -> None:
        """Add text to this element and those around it."""
        self.text += text
        if self.parent is not None:
            self.parent.said(text)


@dataclass
class Page(HTMLParser):
    """All elements of a page in order. Raises AssertionError for tags that do not match."""

    elements: list[Element] = field(default_factory=list)
    here: Element | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), attrs
        element = Element(tag, dict(attrs), self.here)
        self.elements.append(element)
        if tag not in EMPTY:
            self.here = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs), self.here))

    def handle_endtag(self, tag: str) -> None:
        assert self.here is not None and self.here.tag == tag, f"</{tag}> ends {self.here}"
        self.here = self.here.parent

    def handle_data(self, data: str) -> None:
        if self.here is not None:
            self.here.said(data)

    def all(self, *tags: str) -> list[Element]:
        """Return the elements with one of these tags, in order."""
        return [element for element in self.elements if element.tag in tags]


def read_page(text: str) -> Page:
    """Return a whole page."""
    page = Page()
    page.feed(text)
    page.close()
    assert page.here is None
    return page


def named(text: str) -> Report:
    """Return a report in which every text of a plan is this one."""
    step = StageStep(
        operator=text,
        kind=text,
        reads=(text, text),
        results=(text,),
        source=text,
        ranks=text,
        holds=text,
        differs=True,
    )
    finding = Finding(
        code="PIT100",
        verdict="mismatch",
        title=text,
        stage=text,
        output=text,
        operator=text,
        source=text,
        ranks=(0, 1),
        element=(0,),
        reference_value=text,
        parallel_value=text,
        cause=text,
        repair=text,
        edits=(Edit(sign="-", text=text), Edit(sign="+", text=text)),
        witness=text,
        unsaved=text,
        steps=StageSteps(reference=(step,), parallel=(step,)),
        held=HeldValues(
            output=text,
            element=(0,),
            reference_value=text,
            terms=True,
            sums=(HeldValue(value=text, ranks=text),),
            values=(HeldValue(value=text, ranks=text),),
        ),
    )
    report = sample("mismatch", finding, RENDEZVOUS)
    return replace(
        report,
        mesh={f"{text}.": 2, "tp": 2},
        ranks=4,
        exceptions=(text,),
        assumptions=(text,) * 9,
        heuristic=(text,),
        not_covered=(text,),
        reductions=(text,),
        discrete_cases=(text,),
        dead_operators=(text,),
        shown=replace(report.shown, output=text, arithmetic=text) if report.shown else None,
    )


def on_many_ranks() -> Report:
    """Return a report on thousands of ranks."""
    finding = replace(DRAWN, ranks=tuple(rank for rank in range(8192) if rank % 8 in (2, 3, 5)))
    report = sample("mismatch", finding, NOWHERE, proven=11)
    return replace(report, mesh={"pp": 16, "dp": 64, "tp": 8}, ranks=8192)
