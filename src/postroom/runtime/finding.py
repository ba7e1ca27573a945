"""The result of a check: severity, sentence and advice."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Severity(StrEnum):
    """The severity of a finding. Only `fail` makes `doctor` exit with 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report."""

    check: str
    verdict: Severity
    found: str
    advice: str = ""


def ok(check: str, found: str) -> Finding:
    return Finding(check, Severity.OK, found)


def warn(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Severity.WARN, found, advice)


def fail(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Severity.FAIL, found, advice)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """The findings in the order in which a person reads them: failures, warnings, the others."""
    return sorted(findings, key=lambda finding: list(Severity)[::-1].index(finding.verdict))


def rough(age: timedelta) -> str:
    """An age as people say it: 40 s, 12 min, 3 h, 2 d."""
    seconds = age.total_seconds()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
