"""A page of the dashboard: its request, the session behind it, and the row of its endpoint.

To add a page, write a function from `PageRequest` to `Answer` and a row in `endpoints.ENDPOINTS`; a link to it is a
row in `navigation.GROUPS`. A list of records needs no template: `PageRequest.listing` takes columns and filters
as data. An action is a form that posts; `PageRequest.done` leads back to a page with a sentence about the result, and
`PageRequest.confirm` asks before an action, with the result of its dry run.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from postroom.dashboard import service
from postroom.dashboard.codes import SignInCodes
from postroom.dashboard.listing import Filter, FormField, ListColumn, query_with
from postroom.dashboard.navigation import current, groups_for
from postroom.dashboard.oidc import OidcProvider
from postroom.dashboard.preferences import COOKIE, Viewer, read_viewer
from postroom.dashboard.service import FigureReader
from postroom.dashboard.session import DashboardSession, Sessions
from postroom.dashboard.views import PageTemplates
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery.contents import Contents
from postroom.errors import BadInput, ScopeMissing
from postroom.http.auth import Authenticator
from postroom.http.model import ApiKey, Operator
from postroom.http.problems import Problem
from postroom.http.routing import LARGEST_ID
from postroom.rooms.service import Discover
from postroom.runtime.endpoint import Answer, Call, Endpoint, ProtocolError, redirect
from postroom.runtime.page import Found
from postroom.runtime.peers import WrongKeyCounter
from postroom.runtime.zones import instant_of

READ = "deliveries:read"
OPERATE = "deliveries:operate"
INBOX = "inbox:read"

SESSION_COOKIE = "postroom_session"

HTML = "text/html; charset=utf-8"
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
    "cache-control": "no-store",
}
"""Headers of every answer, unless a page sets a stricter value itself."""

_FORM = "application/x-www-form-urlencoded"
_LARGEST_FORM = 65_536
_LONGEST_VALUE = 1000
_LOCAL = re.compile(r"/(?:[A-Za-z0-9_-][A-Za-z0-9/_?=&%.@+-]*)?")


class SignInError(ProtocolError):
    """The request has no valid session."""

    def __init__(self) -> None:
        super().__init__(HTTPStatus.UNAUTHORIZED, "Sign in first.")


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The tools of all pages."""

    room: Room
    views: PageTemplates
    sessions: Sessions
    auth: Authenticator
    guesses: WrongKeyCounter
    figures: FigureReader
    static: Mapping[str, bytes]
    is_secure: bool
    oidc: OidcProvider | None = None
    discover: Discover | None = None

    def cookie(self, name: str) -> str:
        """A cookie's name; behind https, with the prefix that makes browsers refuse it from any other host.

        Browsers permit the prefix `__Host-` only for cookies of a whole host.
        """
        prefix = "__Secure-" if self.room.settings.url_path else "__Host-"
        return f"{prefix}{name}" if self.is_secure else name

    def with_cookie(self, answer: Answer, name: str, value: str, *, age_s: int, same_site: str = "strict") -> Answer:
        """The answer with a cookie that scripts and other sites cannot read."""
        path = f"{self.room.settings.url_path}/"
        cookie = f"{self.cookie(name)}={value}; HttpOnly; Max-Age={age_s}; Path={path}; SameSite={same_site}"
        cookie += "; Secure" if self.is_secure else ""
        return replace(answer, headers={**answer.headers, "set-cookie": cookie})

    def with_session(self, answer: Answer, session: DashboardSession | None) -> Answer:
        """The answer with a cookie that holds the session, or removes it."""
        if session is None:
            return self.with_cookie(answer, SESSION_COOKIE, "", age_s=0)
        age_s = self.sessions.left_s(session)
        return self.with_cookie(answer, SESSION_COOKIE, self.sessions.seal(session), age_s=age_s)

    def page(self, template: str, *, status: int = 200, **values: Any) -> Answer:
        """A page without a session."""
        return Answer(self.views.draw(template, viewer=Viewer(), principal=None, **values).encode(), status, HTML)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request, its session, and the API key or operator of the session."""

    dashboard: Dashboard
    call: Call
    session: DashboardSession
    principal: ApiKey | Operator
    viewer: Viewer
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def pool(self) -> Pool:
        return self.call.room.pool

    @property
    def contents(self) -> Contents:
        return self.call.tool(Contents)

    @property
    def actor(self) -> str:
        return self.principal.actor

    def id(self, name: str) -> int:
        """The number in the path."""
        number: int = self.call.path[name]
        return number

    def asked(self, name: str) -> str | None:
        """A parameter of the query; an empty field of a form counts as absent."""
        return checked(name, query_of(self.call).get(name))

    def number(self, name: str) -> int | None:
        """An id of the query."""
        written = self.asked(name)
        if written is None:
            return None
        if not written.isdecimal() or int(written) > LARGEST_ID:
            raise BadInput.of(name, "must be the id of one")
        return int(written)

    def moment(self, name: str) -> datetime | None:
        """A time of the query, in the viewer's zone unless it has its own."""
        written = self.asked(name)
        if written is None:
            return None
        try:
            moment = datetime.fromisoformat(written)
        except ValueError:
            raise BadInput.of(name, "must be a time such as 2026-11-16T14:30") from None
        return moment if moment.tzinfo else instant_of(moment, self.viewer.zone)

    def may(self, scope: str) -> bool:
        """Whether the principal has this scope; a page offers only actions that it has."""
        return self.principal.allows(scope)

    def need(self, scope: str) -> None:
        """Raise `ScopeMissing` unless the principal has this scope."""
        if not self.principal.allows(scope):
            raise ScopeMissing(scope, self.principal.name)

    def draw(self, template: str, **values: Any) -> str:
        """A template with the viewer's preferences, as HTML."""
        return self.dashboard.views.draw(
            template, viewer=self.viewer, may=self.may, token=self.dashboard.sessions.form_token(self.session), **values
        )

    def page(self, template: str, *, status: int = 200, **values: Any) -> Answer:
        groups, here = list(groups_for(self.principal)), self.call.asgi["path"]
        drawn = self.draw(
            template,
            principal=self.principal,
            groups=groups,
            current=current(groups, here),
            here=here,
            done=self._sentence(),
            **values,
        )
        return Answer(drawn.encode(), status, HTML)

    def listing(
        self,
        title: str,
        columns: Sequence[ListColumn],
        found: "Found[Any]",
        *,
        filters: Sequence[Filter] = (),
        **values: Any,
    ) -> Answer:
        """A page of records as a table.

        `values` may hold `lead`, `empty` (sentences), `actions`, `row_actions` (record → actions), `tabs` (name,
        address, is shown) and `live`: the address of the stream that keeps the first page current.
        """
        given = {"lead": None, "actions": (), "tabs": (), "live": None, **values}
        is_first = self.asked("cursor") is None
        rows = self.rows(columns, found, filters=filters, path=self.call.asgi["path"], **given)
        query = query_with(filters)
        return self.page(
            "listing.html", title=title, filters=filters, rows=rows, is_first=is_first, query=query, **given
        )

    def rows(
        self,
        columns: Sequence[ListColumn],
        found: "Found[Any]",
        *,
        path: str,
        filters: Sequence[Filter] = (),
        **values: Any,
    ) -> str:
        """The table of a listing at this path and its pager, as HTML."""
        records, next_cursor = found
        given = {"empty": "The list is empty.", "row_actions": None, **values}
        return self.draw(
            "parts/rows.html",
            columns=columns,
            records=records,
            next_cursor=next_cursor,
            is_first=self.asked("cursor") is None,
            query=query_with(filters),
            path=path,
            **given,
        )

    def form_page(self, title: str, fields: Sequence[FormField], *, to: str, button: str, **values: Any) -> Answer:
        """A form that posts to `to`, filled with its rejected values if there are some.

        `values` may hold `lead`, `back`, `actions`, `tabs` (name, address, is shown), `suggestions` (values by the name
        in `FormField.suggestions`) and `problem`: then its status is 400.
        """
        given = {"lead": None, "problem": None, "back": None, "tabs": (), "actions": (), "suggestions": {}, **values}
        status, filled = HTTPStatus.BAD_REQUEST if given["problem"] else HTTPStatus.OK, self.filled(fields)
        return self.page("form.html", status=int(status), title=title, fields=filled, to=to, button=button, **given)

    def filled(self, fields: Sequence[FormField]) -> list[FormField]:
        """The fields with the values that were posted, if there are some."""
        return [replace(each, value=self.form.get(each.name, each.value)) for each in fields]

    def confirm(self, title: str, question: str, *, to: str, button: str, **values: Any) -> Answer:
        """A page that asks before an action and posts `fields` to `to`. `back` is where a change of mind leads."""
        given = {"fields": {}, "back": "/", "warning": None, "findings": (), "is_possible": True, **values}
        return self.page("confirm.html", title=title, question=question, to=to, button=button, **given)

    def done(self, path: str, sentence: str) -> Answer:
        """Lead to a local page, which shows this sentence."""
        path = local_path(path)
        shown = urlencode({"done": sentence, "seal": self._seal(sentence)})
        return redirect(f"{path}{'&' if '?' in path else '?'}{shown}")

    def _sentence(self) -> str | None:
        """The sentence in the address, if it was made by `done` in this session and not by the author of a link."""
        query = query_of(self.call)
        sentence = query.get("done")
        return sentence if sentence and query.get("seal") == self._seal(sentence) else None

    def _seal(self, sentence: str) -> str:
        return self.dashboard.sessions.sentence_seal(self.session, sentence)


Page = Callable[[PageRequest], Awaitable[Answer]]


# ── rows of the table of endpoints ─────────────────────────────────────────────────────────────────────────────────


def page(path: str, show: Page, *, scope: str = READ, keeps_session: bool = True) -> Endpoint:
    """A page that is read; unless a script reads it, it keeps the session from expiring."""
    return public("GET", path, partial(_show, show, scope, keeps_session))


def listing_page(path: str, show: Page, *, scope: str = READ) -> Endpoint:
    """A page of records or figures, which may be read from the replica."""
    return replace(page(path, show, scope=scope), from_replica=True)


def form(path: str, act: Page, *, scope: str = READ, most_body: int = _LARGEST_FORM) -> Endpoint:
    """A page that a form posts to: it needs the session's token, and a browser that says the form was ours."""
    return replace(public("POST", path, partial(_act, act, scope)), most_body=most_body)


def public(method: str, path: str, handler: Callable[[Call], Awaitable[Answer]]) -> Endpoint:
    """A page without a session."""
    is_form = method == "POST"
    return Endpoint(
        method=method,
        path=path,
        handler=handler,
        summary="A page of the dashboard.",
        scope=None,
        tag="dashboard",
        accepts=(_FORM,) if is_form else (),
        most_body=_LARGEST_FORM if is_form else None,
        refuse=refuse,
        is_page=True,
        headers=HEADERS,
    )


async def _show(show: Page, scope: str, keeps_session: bool, call: Call) -> Answer:  # noqa: FBT001 - bound by `page`
    request = await admit(call, scope)
    answer = await show(request)
    used = request.dashboard.sessions.renewed(request.session) if keeps_session else None
    return answer if used is None else request.dashboard.with_session(answer, used)


async def _act(act: Page, scope: str, call: Call) -> Answer:
    request = await admit(call, scope)
    return await act(with_form(request, read_form(call)))


def with_form(request: PageRequest, fields: Mapping[str, str]) -> PageRequest:
    """The request with the fields of its form; raises `ProtocolError` without the token of the session."""
    if not request.dashboard.sessions.is_form_token(request.session, fields.get("token", "")):
        raise ProtocolError(HTTPStatus.FORBIDDEN, "This form is too old. Go back, reload the page and try again.")
    return replace(request, form=fields)


async def admit(call: Call, scope: str = READ) -> PageRequest:
    """The request with its session. Raises `SignInError`, and `ScopeMissing` if the principal lacks the scope."""
    if "authorization" in call.headers:  # a program with an API key has mistyped a path: it gets no HTML
        raise ProtocolError(HTTPStatus.NOT_FOUND, "There is nothing at this path.")
    dashboard = call.tool(Dashboard)
    session = dashboard.sessions.open(cookie_of(call, dashboard.cookie(SESSION_COOKIE)))
    owner = None if session is None else await service.find_owner(dashboard.room.pool, session)
    if session is None or owner is None or not owner.allows(READ):
        raise SignInError
    if not owner.allows(scope):
        raise ScopeMissing(scope, owner.name)
    return PageRequest(dashboard, call, session, owner, read_viewer(cookie_of(call, COOKIE)))


def refuse(call: Call, error: Exception, problem: Answer) -> Answer | None:
    """A refusal as a page; for programs, and below /v1, the problem document."""
    path: str = call.asgi["path"]
    if "authorization" in call.headers or path.startswith("/v1/"):
        return None
    if isinstance(error, SignInError):
        return _to_sign_in(call)
    shown: Problem = problem.value
    reference = call.request_id if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR else None
    answer = call.tool(Dashboard).page("trouble.html", status=problem.status, problem=shown, reference=reference)
    return replace(answer, headers={**HEADERS, **problem.headers})


def _to_sign_in(call: Call) -> Answer:
    """Send people to the sign-in page, and from there to where they were going."""
    path: str = call.asgi["path"]
    if path.endswith("/live"):  # read by a script, which cannot sign in
        return Answer(b"Sign in first.", int(HTTPStatus.UNAUTHORIZED), "text/plain")
    if call.method == "POST":  # the form's fields would be lost on the way back
        problem = "Nothing was done: the session is over. Sign in and try again."
        return sign_in_page(call, "/", problem, HTTPStatus.UNAUTHORIZED)
    query = call.asgi["query_string"].decode("latin-1")
    to = f"{path}?{query}" if query else path
    return redirect("/sign-in" if to == "/" else f"/sign-in?next={quote(to, safe='')}")


def sign_in_page(call: Call, to: str, problem: str | None = None, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """The forms of all methods to sign in that this client can use; `to` is the page that follows."""
    dashboard = call.tool(Dashboard)
    return dashboard.page(
        "sign_in.html",
        status=status,
        next=to,
        problem=problem,
        mails_codes=call.tool(SignInCodes).are_offered(call.client),
        oidc=dashboard.oidc.name if dashboard.oidc else None,
    )


# ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────────


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
