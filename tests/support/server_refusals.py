"""Refusals of real mail servers with their class, from `tests/post/refusals`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from postroom.feedback.model import BounceClass, classify
from postroom.post.meaning import Hardness, meaning_of
from postroom.post.reply import Stage

FOLDER = Path(__file__).parents[1] / "post" / "refusals"
LATER = "later"
"""The class of a temporary refusal, whatever its subject."""

_NOT_THE_ADDRESS = {"policy", "message", "unknown"}
_LINE = re.compile(
    r"(?P<wanted>[a-z_,]+) > (?:(?P<stage>connect|login|sender|final|report) )?(?:(?P<code>\d{3})[ -]?)?"
    r"(?P<enhanced>[245]\.\d+\.\d+)? ?(?P<text>.*)"
)


@dataclass(frozen=True)
class Refusal:
    """One reply and the classes that are right for it."""

    line: str
    wanted: frozenset[str]
    stage: Stage | None  # None: quoted in a report
    code: int | None
    enhanced: str | None
    text: str

    def classes(self) -> Iterator[BounceClass]:
        """Its class as a reply in the session, and quoted in a report."""
        for stage in (self.stage, None):
            yield classify(self.code, self.enhanced, self.text, stage=stage)

    @property
    def is_recognised(self) -> bool:
        """True if its class is right in the session."""
        meaning = meaning_of(self.stage, self.code, self.enhanced, self.text)
        is_later = meaning.hardness is Hardness.LATER and LATER in self.wanted
        return is_later or next(self.classes()).value in self.wanted

    @property
    def is_harmful(self) -> bool:
        """True if the address would be suppressed or held although only we, or this mail, are refused."""
        classes = {each.value for each in self.classes()}
        if "recipient_hard" in classes - self.wanted:
            return True
        return self.wanted <= _NOT_THE_ADDRESS and not classes.isdisjoint(("recipient_soft", "infrastructure"))


def read_refusals(name: str) -> list[Refusal]:
    """The refusals of one file."""
    lines = [line for line in (FOLDER / f"{name}.txt").read_text().splitlines() if line and not line.startswith("#")]
    return [_refusal(line) for line in lines]


def _refusal(line: str) -> Refusal:
    found = _LINE.fullmatch(line)
    assert found is not None, line
    return Refusal(
        line,
        frozenset(found["wanted"].split(",")),
        None if found["stage"] == "report" else Stage(found["stage"] or Stage.RECIPIENT),
        int(found["code"]) if found["code"] else None,
        found["enhanced"],
        found["text"],
    )
