"""Validation of people; errors name every invalid field."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date

from postroom.delivery.check import check_url, is_locale, is_template_id
from postroom.errors import BadInput, FieldError
from postroom.post.address import parse_address
from postroom.runtime.zones import is_zone
from postroom.schedule.model import Person

LONGEST_NAME = 100  # fits a greeting
BAD_TEMPLATE = "is not a valid template name such as birthday"
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_UNWANTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check_person(person: Person, *, today: date) -> None:
    """Raise `BadInput` with every invalid field."""
    errors = [FieldError(field, message) for field, message in problems(person, today=today)]
    if errors:
        raise BadInput(errors)


def problems(person: Person, *, today: date) -> Iterator[tuple[str, str]]:
    """The invalid fields of a person, each with a message."""
    for field, name in (("first_name", person.first_name), ("last_name", person.last_name)):
        if not name.strip() or len(name) > LONGEST_NAME or _UNWANTED.search(name):
            yield field, f"must be 1 to {LONGEST_NAME} characters on one line, not all blank"
    if person.date_of_birth >= today:
        yield "date_of_birth", "must be in the past"
    if not is_zone(person.timezone):
        yield "timezone", "must be an IANA time zone such as Europe/London, or UTC"
    yield from _mail_problems(person)
    if person.webhook_url is not None and (reason := check_url(person.webhook_url)) is not None:
        yield "webhook_url", reason


def _mail_problems(person: Person) -> Iterator[tuple[str, str]]:
    if person.email is not None and not _is_address(person.email):
        yield "email", "is not an e-mail address"
    if person.locale is not None and not is_locale(person.locale):
        yield "locale", "is not a locale such as fr or fr-FR"
    if person.template is not None and not is_template_id(person.template):
        yield "template", BAD_TEMPLATE


def read_person(person: Person, born: str, *, today: date) -> Person:
    """The person with a date of birth parsed from text; raises `BadInput` with every invalid field."""
    errors: list[FieldError] = []
    try:
        person = replace(person, date_of_birth=read_date(born))
    except BadInput as bad:
        errors.extend(bad.errors)
    errors.extend(FieldError(field, message) for field, message in problems(person, today=today))
    if errors:
        raise BadInput(errors)
    return person


def read_date(text: str) -> date:
    """Parse a date in the form 1815-12-10 only; raises `BadInput` for `date_of_birth`."""
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:  # no such day
        pass
    raise BadInput.of("date_of_birth", "must be a date such as 1815-12-10")


def _is_address(email: str) -> bool:
    try:
        parsed = parse_address(email)
    except ValueError:
        return False
    return parsed.name is None
