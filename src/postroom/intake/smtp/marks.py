"""Headers that speak to Postroom. They are read, and never leave.

| header               | says                                                                             |
|----------------------|----------------------------------------------------------------------------------|
| Idempotency-Key      | accept this once, for each transaction if there are several; without it the      |
|                      | Message-ID and the recipients are the key                                        |
| X-Postroom-Lane      | `auth`, `transactional` or `bulk`                                                |
| X-Postroom-Template  | a template's id: it replaces subject and bodies, files stay                      |
| X-Postroom-Variables | the template's variables, a JSON object; only with a template                    |
| X-Postroom-Locale    | the template's locale; only with a template                                      |
| X-Postroom-Campaign  | kept in the delivery's custom data as `campaign`                                 |
| X-Postroom-Tag       | `name=value`, or a value, whose name is `tag` then; repeatable                   |

One that is not in the table is a typing mistake and refuses the message.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from postroom.delivery.model import Lane
from postroom.errors import BadInput
from postroom.inbox.reader import decode_words
from postroom.intake.smtp.message import Headers

IDEMPOTENCY_KEY = "idempotency-key"
PREFIX = "x-postroom-"

_KEY = re.compile(r"[!-~]{1,255}")
_ONCE = ("lane", "template", "variables", "locale", "campaign")


@dataclass(frozen=True, slots=True)
class SubmissionHeaders:
    """What the headers of a message say to Postroom."""

    idempotency_key: str | None = None
    lane: Lane = Lane.TRANSACTIONAL
    template: str | None = None
    variables: dict[str, Any] = field(default_factory=dict)
    locale: str | None = None
    campaign: str | None = None
    tags: dict[str, str] = field(default_factory=dict)


def is_mark(name: str) -> bool:
    lowered = name.lower()
    return lowered == IDEMPOTENCY_KEY or lowered.startswith(PREFIX)


def read_marks(headers: Headers) -> SubmissionHeaders:
    """The marks of a message; `BadInput` names the header that is wrong."""
    given: dict[str, str] = {}
    tags: dict[str, str] = {}
    for name, raw in headers:
        if not is_mark(name):
            continue
        value = decode_words(raw).strip()
        what = name.lower().removeprefix(PREFIX)
        if what == "tag":
            key, equals, text = value.partition("=")
            label, text = (key.strip(), text.strip()) if equals else ("tag", value)
            if label in tags:
                raise BadInput.of(name, f"names {label} twice; write name=value")
            tags[label] = text
        elif what not in (*_ONCE, IDEMPOTENCY_KEY):
            raise BadInput.of(name, "is not a header of Postroom")
        elif what in given:
            raise BadInput.of(name, "is given twice")
        else:
            given[what] = value
    return _marks(given, tags)


def _marks(given: dict[str, str], tags: dict[str, str]) -> SubmissionHeaders:
    key = given.get(IDEMPOTENCY_KEY)
    if key is not None and not _KEY.fullmatch(key):
        raise BadInput.of("Idempotency-Key", "must be 1 to 255 visible ASCII characters")
    for only in ("variables", "locale"):
        if only in given and "template" not in given:
            raise BadInput.of(f"X-Postroom-{only.title()}", "needs an X-Postroom-Template")
    return SubmissionHeaders(
        idempotency_key=key,
        lane=_lane(given.get("lane")),
        template=given.get("template"),
        variables=_variables(given.get("variables")),
        locale=given.get("locale"),
        campaign=given.get("campaign"),
        tags=tags,
    )


def _lane(value: str | None) -> Lane:
    try:
        return Lane.TRANSACTIONAL if value is None else Lane(value.lower())
    except ValueError:
        raise BadInput.of("X-Postroom-Lane", f"must be one of {', '.join(Lane)}") from None


def _variables(value: str | None) -> dict[str, Any]:
    if value is None:
        return {}
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise BadInput.of("X-Postroom-Variables", "must be a JSON object") from None
