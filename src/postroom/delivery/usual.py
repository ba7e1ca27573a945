"""The usual mail: one plain recipient, a template or content, and no rare field.

`postroom.send` passes it to PostgreSQL as it is. Making and checking a `DeliveryRequest` takes 10 µs in a loop, but
45 µs in an application that has just waited for a commit, when the caches of its processor are cold: a tenth of the
time of accepting a mail (ADR 66). The recipient is passed as `p_email`, so that SQL `send` does not check the mail
again for Postroom's own roles (ADR 70). A request that comes alone over HTTP is accepted by the same function.

The form of a mail is its room, template, locale, lane and source, and which other fields it has. Many mails have the
same form: it is checked once, and the other fields for each mail.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import compress
from operator import itemgetter
from typing import Any

from postroom.delivery.check import (
    MAX_BODY_BYTES,
    MAX_KEY,
    MAX_SOURCE,
    MAX_SUBJECT,
    RESERVED_SOURCES,
    is_label,
    is_locale,
    is_plain_data,
    is_template_id,
)
from postroom.delivery.model import Lane
from postroom.delivery.rows import USUAL, encode_json
from postroom.delivery.store import QUERIES
from postroom.post.address import is_plain_address
from postroom.post.text import is_storable

_LANES = frozenset(Lane)
_LONGEST_BODY = MAX_BODY_BYTES // 4  # in characters, each of at most four bytes


def usual_call(room: str, mail: tuple[Any, ...]) -> tuple[str, ...] | None:
    """The call of SQL `send` for a usual mail and its arguments; None for any other, and for one that may be invalid.

    `mail` has the values of `USUAL`; None stands for a field without a value. No invalid value passes.
    """
    to, subject, text, html, template, variables, locale, lane, source, key = mail
    given = (subject is not None, text is not None, html is not None, variables is not None, key is not None)
    try:
        if not (
            (isinstance(to, str) and is_plain_address(to))
            and (subject is None or (_is_line(subject, MAX_SUBJECT) and not subject.isspace()))
            and (text is None or _is_body(text))
            and (html is None or _is_body(html))
            and (variables is None or (variables and is_plain_data(variables)))
            and (key is None or _is_line(key, MAX_KEY))
        ):
            return None
        call, pick = _choose_call(room, template, locale, lane, source, given)
    except (AttributeError, TypeError, ValueError):  # a value is no text; an unhashable one is a TypeError too
        return None
    encoded = None if variables is None else encode_json(variables)
    return call, *pick((to, subject, text, html, template, encoded, locale, lane, source, key))


# 100 templates in ten languages, in 0.6 MB. A form that is not kept takes 1.7 µs, one that is 0.2 µs.
@lru_cache(maxsize=1024, typed=True)
def _choose_call(
    room: str, template: str | None, locale: str | None, lane: str, source: str, given: tuple[bool, ...]
) -> tuple[str, Callable[[tuple[Any, ...]], Any]]:
    """The call for mails of this form, and the function that picks its arguments from the values of `USUAL`.

    Raises `TypeError` or `ValueError` for a form that may be invalid. The cache keeps no exception, so that a body that
    was passed as a template is not held; `typed`, because a lazy translation equals a text but is not one.
    """
    has_subject, has_text, has_html, has_variables, has_key = given
    if not (
        all(isinstance(value, str) for value in (room, lane, source))
        and (template is None or is_template_id(template))
        and (locale is None or is_locale(locale))
        and lane in _LANES
        and is_label(source, MAX_SOURCE)
        and source not in RESERVED_SOURCES
        and has_subject == (has_text or has_html) == (template is None)
    ):
        raise ValueError("may be invalid")
    is_other_lane = lane != Lane.TRANSACTIONAL  # the default of SQL send
    passed = (True, *given[:3], template is not None, has_variables, locale is not None, is_other_lane, True, has_key)
    pick = itemgetter(*compress(range(len(USUAL)), passed))
    return QUERIES.call_in_room("send_usual", room, pick(USUAL)).sql, pick


def _is_line(text: str, longest: int) -> bool:
    return 0 < len(text) <= longest and text.isprintable()


def _is_body(body: str) -> bool:
    return len(body) <= _LONGEST_BODY and is_storable(body)
