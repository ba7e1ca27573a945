"""The usual mail: one plain recipient, a template or content, and no rare field.

`postroom.send` passes it to PostgreSQL as it is. Making and checking a `DeliveryRequest` takes 10 µs in a loop, but
45 µs in an application that has just waited for a commit, when the caches of its processor are cold: a tenth of the
time of accepting a mail (ADR 66). SQL `send` makes the same distinction.
"""

from collections.abc import Callable, Mapping
from typing import Any

from postroom.delivery.check import (
    MAX_BODY_BYTES,
    MAX_KEY,
    MAX_SOURCE,
    MAX_SUBJECT,
    RESERVED_SOURCES,
    is_label,
    is_locale,
    is_printable,
    is_template_id,
)
from postroom.delivery.model import Lane
from postroom.delivery.rows import encode_json
from postroom.post.address import is_plain_address
from postroom.post.text import is_storable

_LONGEST_BODY = MAX_BODY_BYTES // 4  # in characters, each of at most four bytes


def usual_values(mail: Mapping[str, Any]) -> dict[str, str] | None:
    """The arguments of SQL `send` for a usual mail; None for any other, and for one that may have an invalid field.

    `mail` has the fields of `_RULES`; None stands for a field without a value.
    """
    values = {}
    for name, value in mail.items():
        if value is not None:
            if not _RULES[name](value):
                return None
            values[name] = value
    if not _has_one_content(values):
        return None
    if "variables" in values:
        values["variables"] = encode_json(values["variables"])
    return values


def _has_one_content(values: Mapping[str, str]) -> bool:
    """True if it has either a template, or a subject and a body."""
    has_body = "text" in values or "html" in values
    return ("subject" not in values and not has_body) if "template" in values else ("subject" in values and has_body)


def _is_plain(to: object) -> bool:
    return isinstance(to, str) and is_plain_address(to)


def _is_source(source: str) -> bool:
    return is_label(source, MAX_SOURCE) and source not in RESERVED_SOURCES


def _is_key(key: str) -> bool:
    return is_label(key, MAX_KEY)


def _is_subject(subject: str) -> bool:
    return 0 < len(subject) <= MAX_SUBJECT and subject.isprintable() and not subject.isspace()


def _is_body(body: str) -> bool:
    return len(body) <= _LONGEST_BODY and is_storable(body)


def _are_variables(variables: Mapping[str, Any]) -> bool:
    return bool(variables) and is_printable(variables)


_RULES: Mapping[str, Callable[[Any], bool]] = {
    "to": _is_plain,
    "subject": _is_subject,
    "text": _is_body,
    "html": _is_body,
    "template": is_template_id,
    "variables": _are_variables,
    "locale": is_locale,
    "lane": frozenset(Lane).__contains__,
    "source": _is_source,
    "idempotency_key": _is_key,
}
"""The fields that a usual mail may have. No invalid value passes its rule."""
