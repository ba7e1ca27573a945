"""The results of the cases of one target."""

from collections import Counter
from dataclasses import dataclass, field

MOST_FAILURES = 20


@dataclass(slots=True)
class Tally:
    """Counts by class of answer, and the cases that must not happen."""

    target: str
    cases: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def count(self, answer: str) -> None:
        self.answers[answer] += 1

    def fail(self, case: str, what: str) -> None:
        """A case that shows a defect."""
        self.answers["defect"] += 1
        if len(self.failures) < MOST_FAILURES:
            self.failures.append(f"{case}: {what}")

    @property
    def server_errors(self) -> int:
        return sum(number for answer, number in self.answers.items() if answer.startswith("HTTP 5"))


@dataclass(slots=True)
class Case:
    """One case: its name for reproduction, and where its answers are counted."""

    name: str
    tally: Tally

    def http(self, status: int, what: str) -> None:
        """Count an HTTP status; 0 means that the connection ended without one."""
        self.tally.count(f"HTTP {status}" if status else "closed")
        if status >= 500:
            self.tally.fail(self.name, f"{status} {what}")

    def smtp(self, code: int) -> None:
        self.tally.count(f"SMTP {code}" if code else "closed")
