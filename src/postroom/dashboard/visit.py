"""One request of somebody who is signed in: who, what they may do, what they sent."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from postroom.dashboard import service
from postroom.dashboard.service import FigureReader
from postroom.dashboard.session import Session, Sessions
from postroom.dashboard.views import Views
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.errors import BadInput, ScopeMissing
from postroom.http.auth import Authenticator
from postroom.http.model import ApiKey
from postroom.runtime.endpoint import Refused
from postroom.runtime.peers import Guesses
from postroom.tracking.origins import Origins

READ = "deliveries:read"
OPERATE = "deliveries:operate"
INBOX = "inbox:read"

LARGEST_ID = 2**63 - 1
_LARGEST_FORM = 65_536
_LONGEST_VALUE = 1000
_LOCAL = re.compile(r"/(?:[A-Za-z0-9_-][A-Za-z0-9/_?=&%.@+-]*)?")


class SignInNeeded(Exception):  # noqa: N818 - a condition, like the leaves of errors.py
    """Nobody is signed in, or no longer."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What every page needs, made once."""

    room: Room
    views: Views
    sessions: Sessions
    auth: Authenticator
    guesses: Guesses
    figures: FigureReader
    origins: Origins
    is_secure: bool

    @property
    def cookie(self) -> str:
        """The prefix makes browsers refuse the cookie from anybody but this very host."""
        return "__Host-postroom_session" if self.is_secure else "postroom_session"

    def set_cookie(self, answer: Response, session: Session | None) -> None:
        """Give the browser the session, or take it back."""
        answer.set_cookie(
            self.cookie,
            "" if session is None else self.sessions.seal(session),
            max_age=0 if session is None else self.sessions.left_s(session),
            path="/",
            httponly=True,
            samesite="strict",
            secure=self.is_secure,
        )

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """A page for somebody who is not signed in."""
        return HTMLResponse(self.views.draw(template, key=None, **values), status)


@dataclass(frozen=True, slots=True)
class Visit:
    """A request and the key it was made with."""

    desk: Desk
    request: Request
    session: Session
    key: ApiKey
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def pool(self) -> Pool:
        return self.desk.room.pool

    @property
    def actor(self) -> str:
        return self.key.actor

    def may(self, scope: str) -> bool:
        return self.key.allows(scope)

    def need(self, scope: str) -> None:
        if not self.may(scope):
            raise ScopeMissing(scope)

    def id(self, name: str) -> int:
        """The number in the path; no row has one that the database could not hold."""
        number = int(self.request.path_params[name])
        if number > LARGEST_ID:
            raise Refused(HTTPStatus.NOT_FOUND, "There is nothing at this path.")
        return number

    def asked(self, name: str) -> str | None:
        """A parameter of the query; what an empty field of a form sends is nothing."""
        return checked(name, self.request.query_params.get(name))

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        done = _DONE.get(self.request.query_params.get("done", ""))
        return HTMLResponse(
            self.desk.views.draw(
                template,
                key=self.key,
                may_operate=self.may(OPERATE),
                may_inbox=self.may(INBOX),
                token=self.desk.sessions.form_token(self.session),
                here=self.request.url.path,
                done=done,
                **values,
            ),
            status,
        )


Page = Callable[[Visit], Awaitable[Response]]

_DONE = {
    "cancel": "The delivery is cancelled.",
    "retry": "The delivery is due now.",
    "resend": "This is a new delivery of the same message.",
    "settle": "The delivery counts as sent.",
    "redrive": "The dead letters are back in the queue.",
}


def checked(name: str, value: str | None) -> str | None:
    """A value that the database can hold, or nothing."""
    value = (value or "").strip()
    if len(value) > _LONGEST_VALUE or "\x00" in value:
        raise BadInput.of(name, f"must be at most {_LONGEST_VALUE} characters without NUL")
    return value or None


def go(to: str) -> Response:
    return RedirectResponse(to, HTTPStatus.SEE_OTHER)


def local_path(asked: str | None) -> str:
    """Where to go after signing in: a path of ours, or the overview. Never another host."""
    return asked if asked is not None and len(asked) <= _LONGEST_VALUE and _LOCAL.fullmatch(asked) else "/"


async def admit(desk: Desk, request: Request) -> Visit:
    """The visit of whoever is signed in. Raises `SignInNeeded`."""
    session = desk.sessions.open(request.cookies.get(desk.cookie))
    if session is None:
        raise SignInNeeded
    key = await service.find_key(desk.room.pool, session)
    if key is None or not key.allows(READ):
        raise SignInNeeded
    return Visit(desk, request, session, key)


async def admit_form(desk: Desk, request: Request) -> Visit:
    """The same for a form, which must be ours: sent from our page, with the session's token."""
    visit = await admit(desk, request)
    form = await read_form(desk, request)
    if not desk.sessions.is_form_token(visit.session, form.get("token", "")):
        raise Refused(HTTPStatus.FORBIDDEN, "This form is too old. Go back, reload the page and try again.")
    return Visit(desk, request, visit.session, visit.key, form)


async def read_form(desk: Desk, request: Request) -> dict[str, str]:
    """The fields of a form that a page of ours sent."""
    if not _is_ours(desk, request):
        raise Refused(HTTPStatus.FORBIDDEN, "This form was sent by another site.")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body must be a form.")
    raw = b""
    async for part in request.stream():
        raw += part
        if len(raw) > _LARGEST_FORM:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too large.")
    try:
        return dict(parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50))
    except ValueError:
        raise Refused(HTTPStatus.BAD_REQUEST, "The form has too many fields.") from None


def _is_ours(desk: Desk, request: Request) -> bool:
    """What the browser says about where a form came from; one that says nothing is left to the token."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    known = {request.headers.get("host"), urlsplit(desk.room.settings.public_url or "").netloc or None}
    return origin is None or urlsplit(origin).netloc in known
