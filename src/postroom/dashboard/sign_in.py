"""Coming in and going out. A person pastes an API key once; from then on a cookie stands for it."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from postroom.dashboard.service import end_session
from postroom.dashboard.visit import READ, Desk, SignInNeeded, Visit, admit, go, local_path, read_form
from postroom.errors import ScopeMissing, Unauthenticated
from postroom.events.audit import record_audit

UNKNOWN = "This is not a key of this room, or it was revoked."
UNFIT = f"This key may not look at deliveries: it lacks the scope {READ}."


async def show_sign_in(desk: Desk, request: Request) -> Response:
    """The form; whoever is signed in already goes where they wanted to."""
    to = local_path(request.query_params.get("next"))
    try:
        await admit(desk, request)
    except SignInNeeded:
        return desk.page("sign_in.html", next=to, problem=None)
    return go(to)


async def sign_in(desk: Desk, request: Request) -> Response:
    """Check the key and open a session. What is wrong with a key that is not known is not said."""
    form = await read_form(desk, request)
    to = local_path(form.get("next"))
    address = desk.origins.of(request.scope)
    try:
        key = await desk.auth.authenticate(f"Bearer {form.get('key', '').strip()}", READ, client=address)
    except Unauthenticated:
        return _wrong_key(desk, to, address)
    except ScopeMissing:
        return desk.page("sign_in.html", status=HTTPStatus.FORBIDDEN, next=to, problem=UNFIT)
    async with desk.room.pool.acquire() as connection:
        await record_audit(connection, actor=key.actor, action="dashboard.sign_in", subject=f"key:{key.id}")
    answer = go(to)
    desk.set_cookie(answer, desk.sessions.begin(key))
    return answer


def _wrong_key(desk: Desk, to: str, address: str) -> Response:
    """Count the wrong key; a right one passes however many were wrong before it."""
    wait = desk.guesses.wait_s(address)
    desk.guesses.failed(address)
    if not wait:
        return desk.page("sign_in.html", status=HTTPStatus.UNAUTHORIZED, next=to, problem=UNKNOWN)
    problem = f"Too many wrong keys from this address. Try again in {wait} seconds."
    answer = desk.page("sign_in.html", status=HTTPStatus.TOO_MANY_REQUESTS, next=to, problem=problem)
    answer.headers["retry-after"] = str(wait)
    return answer


async def sign_out(visit: Visit) -> Response:
    """End the session in every process and take the cookie back."""
    await end_session(visit.pool, visit.session)
    answer = go("/sign-in")
    visit.desk.set_cookie(answer, None)
    return answer
