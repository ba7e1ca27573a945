"""Validation of campaigns; the error names every invalid field."""

import re
from collections.abc import Iterator

from postroom.campaigns.model import CampaignContent, CampaignRequest
from postroom.campaigns.trial import check_letter
from postroom.errors import BadInput, FieldError
from postroom.post.text import is_storable
from postroom.runtime.zones import is_zone

LONGEST_NAME = 200  # fits one line of a listing
LONGEST_SUBJECT = 998  # the line limit of RFC 5322
LARGEST_BODY = 2 * 1024 * 1024  # mail clients cut bodies far earlier (Gmail at 102 kB); more only costs memory per mail

_UNWANTED = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_YEARS = range(1970, 2900)  # far from the limits of Python and PostgreSQL, also after adding a zone


async def check_plan(plan: CampaignRequest) -> None:
    """Raise `BadInput` that names every invalid field, including a letter that does not parse."""
    errors = [FieldError(field, message) for field, message in _problems(plan)]
    if errors:
        raise BadInput(errors)
    await check_letter(plan.letter)


def _problems(plan: CampaignRequest) -> Iterator[tuple[str, str]]:
    if not plan.name.strip() or len(plan.name) > LONGEST_NAME or _UNWANTED.search(plan.name):
        yield "name", f"must be 1 to {LONGEST_NAME} characters on one line, not all blank"
    yield from _letter_problems(plan.letter)
    if not is_zone(plan.time_zone):
        yield "time_zone", "must be an IANA time zone such as Europe/London, or UTC"
    if plan.start_at is not None and plan.start_at.utcoffset() is None:
        yield "start_at", "must have a time zone, such as 2030-01-31T09:00:00Z"
    elif plan.start_at is not None and plan.start_at.year not in _YEARS:
        yield "start_at", f"must be between the years {_YEARS[0]} and {_YEARS[-1]}"
    if plan.local_time is not None and plan.local_time.tzinfo is not None:
        yield "local_time", "must be a time without a zone, such as 09:00"


def _letter_problems(letter: CampaignContent) -> Iterator[tuple[str, str]]:
    subject = letter.subject
    if not subject.strip() or len(subject) > LONGEST_SUBJECT or _UNWANTED.search(subject):
        yield "subject", f"must be one line of 1 to {LONGEST_SUBJECT} characters"
    if letter.html is None and letter.text is None:
        yield "html", "html or text is required"
    for field, body in (("html", letter.html), ("text", letter.text)):
        if body is not None and not is_storable(body):
            yield field, "contains a NUL character or an unpaired surrogate"
        elif body is not None and len(body.encode()) > LARGEST_BODY:
            yield field, f"must be at most {LARGEST_BODY} bytes"
