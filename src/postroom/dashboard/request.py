"""Read what a browser sends: the query, cookies and forms of a request."""

import re
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from postroom.errors import BadInput
from postroom.runtime.endpoint import Call, ProtocolError

_LONGEST_VALUE = 1000  # an address or a URL; bounds the work for a hostile query
_LOCAL = re.compile(r"/(?:[A-Za-z0-9_-][A-Za-z0-9/_?=&%.@+-]*)?")


def query_of(call: Call) -> dict[str, str]:
    return dict(parse_qsl(call.asgi["query_string"].decode("latin-1"), keep_blank_values=True))


def cookie_of(call: Call, name: str) -> str | None:
    pairs = (pair.strip().partition("=") for pair in call.headers.get("cookie", "").split(";"))
    return next((value for found, _, value in pairs if found == name), None)


def checked(name: str, value: str | None) -> str | None:
    """A value that the database can hold, or None."""
    value = (value or "").strip()
    if len(value) > _LONGEST_VALUE or "\x00" in value:
        raise BadInput.of(name, f"must be at most {_LONGEST_VALUE} characters without NUL")
    return value or None


def local_path(asked: str | None) -> str:
    """Where to go after signing in: a path of ours, or the overview. Never another host."""
    return asked if asked is not None and len(asked) <= _LONGEST_VALUE and _LOCAL.fullmatch(asked) else "/"


def read_form(call: Call) -> dict[str, str]:
    """The fields of a form that a page of ours sent."""
    need_own(call)
    try:
        return dict(parse_qsl(call.raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50))
    except ValueError:
        raise ProtocolError(HTTPStatus.BAD_REQUEST, "The form has too many fields.") from None


def need_own(call: Call) -> None:
    """Raise `ProtocolError` if another site sent the form."""
    if not _is_ours(call):
        raise ProtocolError(HTTPStatus.FORBIDDEN, "This form was sent by another site.")


def _is_ours(call: Call) -> bool:
    """True unless the browser says that the form came from another site; without a word of it, the token decides."""
    site = call.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = call.headers.get("origin")
    known = {call.headers.get("host"), urlsplit(call.room.settings.public_url or "").netloc or None}
    return origin is None or urlsplit(origin).netloc in known
