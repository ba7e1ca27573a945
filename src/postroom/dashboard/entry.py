"""From a proven identity to a session: every way to sign in ends here.

An operator with a second factor who proved the address only, by a mailed code or at a provider, enters a code of the
authenticator app first; a sealed cookie remembers the proof for `LIFETIME_S` seconds. A link comes from the machine of
the server and needs no second factor, so it also helps after the loss of a phone.
"""

from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import quote

from postroom.dashboard.problem_pages import sign_in_page, too_often
from postroom.dashboard.request import cookie_of, local_path, query_of, read_form
from postroom.dashboard.service import end_session, find_owner
from postroom.dashboard.session import DashboardSession, Sessions
from postroom.dashboard.site import SESSION_COOKIE, Dashboard
from postroom.events.audit import record_audit
from postroom.http import second_factor
from postroom.http.errors import SecondFactorTooOften
from postroom.http.model import ApiKey, Operator
from postroom.http.notices import Notify, OperatorNotice, notifier
from postroom.http.sessions import record_session
from postroom.runtime.endpoint import Answer, Call, redirect
from postroom.runtime.refusals import sign_in_refused, signed_in

PATH = "/sign-in/second-factor"
LIFETIME_S = 300  # to take out the phone
WRONG_CODE = "This code is wrong or was used. Enter the present code of the app, or a recovery code."

_COOKIE = "postroom_second_factor"
_ONE_FACTOR = ("code", "oidc")
_FROM_ELSEWHERE = ("link", "oidc")


class PendingSignIns:
    """Seals the first factor while the second one is asked for, by its method."""

    def __init__(self, secret: bytes, room: str) -> None:
        self._sealed = {each: Sessions(secret, room, purpose=f"second factor after {each}") for each in _ONE_FACTOR}

    def seal(self, operator: Operator, method: str) -> str:
        sealed = self._sealed[method]
        return sealed.seal(sealed.begin(operator, lifetime_s=LIFETIME_S))

    def open(self, token: str | None) -> tuple[DashboardSession, str] | None:
        """The pending sign-in and its method."""
        found = ((sealed.open(token), method) for method, sealed in self._sealed.items())
        return next(((pending, method) for pending, method in found if pending is not None), None)


async def begin_session(call: Call, owner: ApiKey | Operator, to: str, *, by: str) -> Answer:
    """Open a session that leads to a page, or ask for the second factor; `by` is the method of the sign-in."""
    if isinstance(owner, Operator) and owner.second_factor_since is not None and by in _ONE_FACTOR:
        answer = _lead(call, f"{PATH}?next={quote(to, safe='')}", by=by)
        token = call.tool(PendingSignIns).seal(owner, by)
        return call.tool(Dashboard).with_cookie(answer, _COOKIE, token, age_s=LIFETIME_S)
    return await _open_session(call, owner, _lead(call, to, by=by), facts={"by": by})


def _lead(call: Call, to: str, *, by: str) -> Answer:
    """A redirect; a page if the browser comes from another site, because a redirect would carry no strict cookie."""
    return call.tool(Dashboard).page("signed_in.html", next=to) if by in _FROM_ELSEWHERE else redirect(to)


async def _open_session(call: Call, owner: ApiKey | Operator, answer: Answer, *, facts: dict[str, str]) -> Answer:
    """The answer with the cookie of a new session; the former session of the browser ends."""
    dashboard = call.tool(Dashboard)
    session = dashboard.sessions.begin(owner)
    former = dashboard.sessions.open(cookie_of(call, dashboard.cookie(SESSION_COOKIE)))
    async with call.room.pool.acquire() as connection, connection.transaction():
        is_new_place = await record_session(
            connection,
            owner,
            nonce=session.nonce,
            expires_at=datetime.fromtimestamp(session.expires, UTC),
            method=facts["by"],
            client=call.client,
            agent=call.headers.get("user-agent", ""),
        )
        await record_audit(connection, owner.actor, "dashboard.sign_in", subject_of(owner), after=facts)
        if is_new_place and isinstance(owner, Operator):
            await notify_of(call)(connection, owner, OperatorNotice.SIGN_IN)
    if former is not None:
        await end_session(call.room.pool, former)
    signed_in(facts["by"])
    return dashboard.with_session(answer, session)


def subject_of(owner: ApiKey | Operator) -> str:
    return owner.actor if isinstance(owner, Operator) else f"key:{owner.id}"


def notify_of(call: Call) -> Notify:
    """Mails notices about this request."""
    return notifier(call.room.settings, client=call.client, agent=call.headers.get("user-agent", ""))


# ── the second factor ──────────────────────────────────────────────────────────────────────────────────────────────


async def show_second_factor(call: Call) -> Answer:
    return _code_page(call, local_path(query_of(call).get("next")))


async def redeem_second_factor(call: Call) -> Answer:
    """Check a code of the app, or a recovery code, and open the session."""
    dashboard, fields, pool = call.tool(Dashboard), read_form(call), call.room.pool
    to = local_path(fields.get("next"))
    if wait := dashboard.guesses.wait_s(call.client):
        sign_in_refused("second_factor", call.client, "too_often")
        return too_often(call, to, wait)
    found = call.tool(PendingSignIns).open(cookie_of(call, dashboard.cookie(_COOKIE)))
    owner = None if found is None else await find_owner(pool, found[0])
    if found is None or not isinstance(owner, Operator):
        return sign_in_page(call, to, "This sign-in took too long. Begin again.", HTTPStatus.UNAUTHORIZED)
    code = fields.get("code", "")
    try:
        is_right = await second_factor.check_code(pool, dashboard.box, owner, code, notify=notify_of(call))
    except SecondFactorTooOften as error:
        sign_in_refused("second_factor", call.client, error.code)
        return _code_page(call, to, error.message, HTTPStatus.TOO_MANY_REQUESTS)
    if not is_right:
        dashboard.guesses.failed(call.client)
        sign_in_refused("second_factor", call.client, "wrong_code")
        return _code_page(call, to, WRONG_CODE, HTTPStatus.UNAUTHORIZED)
    await end_session(pool, found[0])  # a pending sign-in is used once
    signed_in("second_factor")
    return await _open_session(call, owner, redirect(to), facts={"by": found[1], "second_factor": "app"})


def _code_page(call: Call, to: str, problem: str | None = None, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return call.tool(Dashboard).page("sign_in_second_factor.html", status=status, next=to, problem=problem)
