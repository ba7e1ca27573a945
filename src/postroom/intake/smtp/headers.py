"""Headers that control Postroom. They are removed from the sent mail.

| header               | means                                                                            |
|----------------------|----------------------------------------------------------------------------------|
| Idempotency-Key      | accept this once, for each transaction if there are several; without it the      |
|                      | Message-ID and the recipients are the key                                        |
| X-Postroom-Lane      | `auth`, `transactional` or `bulk`                                                |
| X-Postroom-Template  | a template's id: it replaces subject and bodies; attachments are kept            |
| X-Postroom-Variables | the template's variables, a JSON object; only with a template                    |
| X-Postroom-Locale    | the template's locale; only with a template                                      |
| X-Postroom-Campaign  | stored in the delivery's custom data as `campaign`                               |
| X-Postroom-Tag       | `name=value`, or a value alone, which is named `tag`; repeatable                 |

An unknown X-Postroom header is a typo: the message is rejected.
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
    """The parsed headers that control Postroom."""

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
    """Parse the control headers of a message; `BadInput` names an invalid header."""
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
    with BadInput.naming("X-Postroom-Lane", f"must be one of {', '.join(Lane)}"):
        return Lane.TRANSACTIONAL if value is None else Lane(value.lower())


def _variables(value: str | None) -> dict[str, Any]:
    if value is None:
        return {}
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise BadInput.of("X-Postroom-Variables", "must be a JSON object") from None
