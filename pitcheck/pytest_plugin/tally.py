"""The count of the checks of one test, which also has what the test swallows."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """The checks of one test: those that began, those that passed, and the texts of the others.

    ``asked`` is False for a test that asks for no check.
    """

    asked: bool = True
    begun: int = 0
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    told: bool = False
    """True once a failure of the test is reported."""

    def failed(self) -> str:
        """Return why the checks that began let no test pass, "" if they do."""
        if self.failures:
            return "a check failed, and the test went on; what it said was:\n\n" + "\n\n".join(
                self.failures
            )
        if self.passed < self.begun:
            return (
                f"{self.begun - self.passed} of {self.begun} checks ended without a verdict, and "
                f"the test went on; let the error of pitcheck_check reach pytest"
            )
        return ""

    def missing(self) -> str:
        """Return why a test that would pass must fail, "" if it may pass."""
        if self.asked and not self.begun:
            return (
                "nothing was checked: the test has the fixture 'pitcheck_check' and never called "
                "it; call it with what `pitcheck check` takes"
            )
        return self.failed()
