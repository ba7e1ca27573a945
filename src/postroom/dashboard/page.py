"""A page of the dashboard: its request, the session behind it, and the row of its endpoint.

To add a page, write a row in `PAGES` of its module; a link to it is a row in `navigation.GROUPS`. There are four kinds:

- `listing` shows the records that a service function finds, as columns, with filters in the types of its filter record;
- `form_pages` is a form and the function that takes it; an error shows the form again with its values;
- `actions` are buttons that call one service function and lead back with a sentence (`listing.PageAction`);
- `page` and `form` are all others: a function from `PageRequest` to `Answer`, with a template.

`PageRequest.confirm` asks before an action, with the result of its dry run.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from inspect import signature
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from postroom.dashboard import service
from postroom.dashboard.errors import SecondFactorError, SignInAgainError
from postroom.dashboard.listing import Filter, FormField, ListColumn, PageAction, is_final, query_with
from postroom.dashboard.navigation import current, groups_for
from postroom.dashboard.preferences import COOKIE, Viewer, read_viewer
from postroom.dashboard.problem_pages import refuse
from postroom.dashboard.request import checked, cookie_of, local_path, query_of, read_form
from postroom.dashboard.session import DashboardSession
from postroom.dashboard.site import HEADERS, HTML, SESSION_COOKIE, Dashboard, SignInError
from postroom.db.pool import Pool
from postroom.delivery.contents import Contents
from postroom.errors import AccessError, BadInput, ConflictError, LimitError, PostroomError, ScopeMissing
from postroom.http.model import MANAGING, ApiKey, Operator
from postroom.http.request import LARGEST_ID
from postroom.http.sessions import touch_session
from postroom.runtime.endpoint import Answer, Call, Endpoint, ProtocolError, redirect
from postroom.runtime.page import Found
from postroom.runtime.wrong_field import find_wrong_field
from postroom.runtime.zones import instant_of

READ = "deliveries:read"
OPERATE = "deliveries:operate"
INBOX = "inbox:read"

Model = TypeVar("Model")

_FORM = "application/x-www-form-urlencoded"
_LARGEST_FORM = 65_536  # a mail with text and HTML fits; file forms have their own limit


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request, its session, and the API key or operator of the session."""

    dashboard: Dashboard
    call: Call
    session: DashboardSession
    principal: ApiKey | Operator
    viewer: Viewer
    form: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None  # why the values of the form were rejected

    @property
    def pool(self) -> Pool:
        return self.call.room.pool

    @property
    def contents(self) -> Contents:
        return self.call.tool(Contents)

    @property
    def actor(self) -> str:
        return self.principal.actor

    def id(self, name: str) -> Any:
        """The number, name or UUID in the path."""
        return self.call.path[name]

    def asked(self, name: str) -> str | None:
        """A field of the form or a parameter of the query; an empty one counts as absent."""
        return checked(name, self.form.get(name) or query_of(self.call).get(name))

    def number(self, name: str, *, most: int = LARGEST_ID) -> int | None:
        """An id or another whole number that was asked for."""
        written = self.asked(name)
        if written is None:
            return None
        if not written.isdecimal() or int(written) > most:
            raise BadInput.of(name, "must be a whole number")
        return int(written)

    def moment(self, name: str, *, has_zone: bool = False) -> datetime | None:
        """A time that was asked for, in the viewer's zone unless it has its own, which `has_zone` demands."""
        written = self.asked(name)
        if written is None:
            return None
        try:
            moment = datetime.fromisoformat(written)
            if not has_zone and moment.tzinfo is None:
                moment = instant_of(moment, self.viewer.zone)
        except (ValueError, OverflowError):
            raise BadInput.of(name, "must be a time such as 2026-11-16T14:30") from None
        if moment.tzinfo is None:
            raise BadInput.of(name, "must have a time zone")
        return moment

    def read(self, kind: type[Model], fields: Mapping[str, Any]) -> Model:
        """Values of a form as a record; an empty one is absent. Raises `BadInput`."""
        given = {name: value for name, value in fields.items() if value not in ("", [])}
        try:
            return msgspec.convert(given, kind, strict=False)
        except msgspec.ValidationError as error:
            raise BadInput.of(*find_wrong_field(str(error), kind)) from None

    def chosen(self, filters: Sequence[Filter]) -> dict[str, Any]:
        """The value of each filter in the address, by the name of its field."""
        return {each.field or each.name: self._read(each) for each in filters}

    def _read(self, chosen: Filter) -> Any:
        if chosen.type is int:
            return self.number(chosen.name)
        if chosen.type is datetime:
            return self.moment(chosen.name)
        written = self.asked(chosen.name)
        with BadInput.naming(chosen.name, f"must be one of {', '.join(chosen.options)}"):
            return chosen.type(written) if written else None

    def filters(self, declared: Sequence[Filter]) -> list[Filter]:
        """The filters with their values in the address, for a form."""
        return [replace(each, value=self.asked(each.name)) for each in declared]

    def choice(self, name: str, options: Collection[str]) -> str:
        """The option that was asked for, or the first."""
        asked = self.asked(name)
        return asked if asked is not None and asked in options else next(iter(options))

    def may(self, scope: str) -> bool:
        """Whether the principal has this scope; a page offers only actions that it has."""
        return self.principal.allows(scope)

    def need(self, scope: str) -> None:
        """Raise `ScopeMissing` unless the principal has this scope."""
        if not self.principal.allows(scope):
            raise ScopeMissing(scope, self.principal.name)

    @property
    def is_fresh(self) -> bool:
        """Whether the viewer signed in within the last minutes."""
        return self.dashboard.sessions.is_fresh(self.session)

    def need_fresh(self, to: str) -> None:
        """Raise `SignInAgainError` unless the viewer signed in lately; `to` is the page that follows."""
        if not self.is_fresh:
            raise SignInAgainError(to)

    def draw(self, template: str, **values: Any) -> str:
        """A template with the viewer's preferences, as HTML."""
        return self.dashboard.views.draw(
            template, viewer=self.viewer, may=self.may, token=self.dashboard.sessions.form_token(self.session), **values
        )

    def page(self, template: str, **values: Any) -> Answer:
        """A page; after a rejected form, the one that shows it again with the problem and status 400."""
        groups, here = list(groups_for(self.principal)), self.call.asgi["path"]
        link = current(groups, here)
        given = {
            "principal": self.principal,
            "groups": groups,
            "current": link.path if link else None,
            "section": link if link and link.path != here else None,  # the first crumb; tabs lead back without one
            "here": here,
            "done": self._sentence(),
            "problem": self.problem,
            **values,
        }
        status = HTTPStatus.BAD_REQUEST if given["problem"] else HTTPStatus.OK
        return Answer(self.draw(template, **given).encode(), int(status), HTML)

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
        given |= {"section": None} if given["tabs"] else {}
        given |= {"is_first": self.asked("cursor") is None, "query": query_with(self.filters(filters))}
        rows = self.rows(columns, found, filters=filters, path=self.call.asgi["path"], **given)
        return self.page("listing.html", title=title, filters=self.filters(filters), rows=rows, **given)

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
        given |= {"is_first": self.asked("cursor") is None, "query": query_with(self.filters(filters))}
        return self.draw(
            "parts/rows.html", columns=columns, records=records, next_cursor=next_cursor, path=path, **given
        )

    def form_page(self, title: str, fields: Sequence[FormField], *, button: str, **values: Any) -> Answer:
        """A form that posts to its own address, filled with its rejected values if there are some.

        `values` may hold `to` (another address), `lead`, `back`, `actions`, `tabs` (name, address, is shown) and
        `suggestions` (values by the name in `FormField.suggestions`).
        """
        given = {"lead": None, "back": None, "tabs": (), "actions": (), "suggestions": {}, **values}
        given = {"to": quote(self.call.asgi["path"]), **given}
        return self.page("form.html", title=title, fields=self.filled(fields), button=button, **given)

    def filled(self, fields: Sequence[FormField]) -> list[FormField]:
        """The fields with the values that were posted, if there are some. Browsers do not post an unchecked box."""
        if not self.form:
            return list(fields)
        return [
            replace(each, value=self.form.get(each.name, "" if each.kind == "check" else each.value)) for each in fields
        ]

    def secret_page(self, title: str, secret: str, *, about: str, back: str, until: datetime | None = None) -> Answer:
        """A new secret, which no later page shows; `until` is the time at which the one before it ends."""
        return self.page("secret.html", title=title, secret=secret, about=about, back=back, until=until)

    def confirm(self, title: str, question: str, *, to: str, button: str, **values: Any) -> Answer:
        """A page that asks before an action and posts `fields` to `to`. `back` is where a change of mind leads."""
        given = {"fields": {}, "back": "/", "warning": None, "findings": (), "is_possible": True, "tick": None} | values
        given["is_final"] = is_final(button)
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


def listing(  # noqa: PLR0913 - a page as data
    path: str,
    title: str,
    columns: Sequence[ListColumn],
    read: Callable[..., Awaitable[Any]],
    *,
    scope: str = READ,
    filters: Sequence[Filter] = (),
    from_replica: bool = False,
    **values: Any,
) -> Endpoint:
    """A page with the records that `read` finds, given the pool, the values of the filters and a cursor.

    `values` as for `PageRequest.listing`.
    """
    taken = signature(read).parameters.values()
    is_paged = any(each.name == "cursor" or each.kind is each.VAR_KEYWORD for each in taken)

    async def show(request: PageRequest) -> Answer:
        place = {"cursor": request.asked("cursor")} if is_paged else {}
        found = await read(request.pool, **request.chosen(filters), **place)
        return request.listing(title, columns, found if is_paged else (found, None), filters=filters, **values)

    return replace(page(path, show, scope=scope), from_replica=from_replica)


def form(path: str, act: Page, *, scope: str = READ, most_body: int = _LARGEST_FORM) -> Endpoint:
    """A page that a form posts to: it needs the session's token, and a browser that says the form was ours."""
    return replace(public("POST", path, partial(_act, act)), admit=partial(admit, scope=scope), most_body=most_body)


def form_pages(
    path: str, ask: Page, act: Page, *, scope: str = READ, most_body: int = _LARGEST_FORM
) -> tuple[Endpoint, Endpoint]:
    """A form and the page that it posts to; a rejected form is shown again with its values and the problem."""

    async def save(request: PageRequest) -> Answer:
        try:
            return await act(request)
        except (AccessError, LimitError):  # other values would be refused too
            raise
        except PostroomError as error:
            status = HTTPStatus.CONFLICT if isinstance(error, ConflictError) else HTTPStatus.BAD_REQUEST
            return replace(await ask(replace(request, problem=error.message)), status=int(status))

    return page(path, ask, scope=scope), form(path, save, scope=scope, most_body=most_body)


def actions(*declared: PageAction) -> list[Endpoint]:
    """The forms behind the buttons of these actions."""
    return [form(each.path, partial(_run, each), scope=each.scope) for each in declared]


async def _run(action: PageAction, request: PageRequest) -> Answer:
    assert action.act is not None
    taken = signature(action.act).parameters
    by = {"actor": request.actor, "by": request.principal}
    place = request.call.path
    result = await action.act(request.pool, *place.values(), **{name: by[name] for name in by if name in taken})
    to = action.to.format(result, **place) if action.to else quote(request.call.asgi["path"].rpartition("/")[0])
    return request.done(to, action.done.format(result, **place))


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
    if used is not None:
        await touch_session(request.dashboard.room.pool, used.nonce)
    return answer if used is None else request.dashboard.with_session(answer, used)


async def _act(act: Page, call: Call) -> Answer:
    return await act(with_form(call.admitted, read_form(call)))


def with_form(request: PageRequest, fields: Mapping[str, str]) -> PageRequest:
    """The request with the fields of its form. Raises `ProtocolError` without the token of the session."""
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
    # From here on a refusal is a page with the navigation.
    request = call.admitted = PageRequest(dashboard, call, session, owner, read_viewer(cookie_of(call, COOKIE)))
    if not owner.allows(scope):
        raise ScopeMissing(scope, owner.name)
    if scope in MANAGING and await service.lacks_second_factor(dashboard.room, owner, session):
        raise SecondFactorError
    return request
