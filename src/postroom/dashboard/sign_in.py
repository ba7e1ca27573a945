"""Sign-in with an API key, which a session cookie stands for afterwards, and sign-out."""

from dataclasses import replace
from http import HTTPStatus

from postroom.dashboard.page import READ, Dashboard, PageRequest, SignInError, admit, local_path, query_of, read_form
from postroom.dashboard.service import end_session
from postroom.errors import ScopeMissing, Unauthenticated
from postroom.events.audit import record_audit
from postroom.runtime.endpoint import Answer, Call, redirect

UNKNOWN = "This is not a key of this room, or it was revoked."
UNFIT = f"This key may not look at deliveries: it lacks the scope {READ}."


async def show_sign_in(call: Call) -> Answer:
    """The form; with a valid session, a redirect to the page behind it."""
    to = local_path(query_of(call).get("next"))
    try:
        await admit(call)
    except SignInError:
        return call.tool(Dashboard).page("sign_in.html", next=to, problem=None)
    return redirect(to)


async def sign_in(call: Call) -> Answer:
    """Check the key and open a session. The answer does not say why an unknown key is unknown."""
    dashboard = call.tool(Dashboard)
    fields = read_form(call)
    to = local_path(fields.get("next"))
    try:
        key = await dashboard.auth.authenticate(f"Bearer {fields.get('key', '').strip()}", READ, client=call.client)
    except Unauthenticated:
        return _wrong_key(dashboard, to, call.client)
    except ScopeMissing:
        return dashboard.page("sign_in.html", status=HTTPStatus.FORBIDDEN, next=to, problem=UNFIT)
    await record_audit(call.room.pool, key.actor, "dashboard.sign_in", f"key:{key.id}")
    return dashboard.with_cookie(redirect(to), dashboard.sessions.begin(key))


def _wrong_key(dashboard: Dashboard, to: str, address: str) -> Answer:
    """Count the wrong key; a right one is accepted however many were wrong before it."""
    wait = dashboard.guesses.wait_s(address)
    dashboard.guesses.failed(address)
    if not wait:
        return dashboard.page("sign_in.html", status=HTTPStatus.UNAUTHORIZED, next=to, problem=UNKNOWN)
    problem = f"Too many wrong keys from this address. Try again in {wait} seconds."
    answer = dashboard.page("sign_in.html", status=HTTPStatus.TOO_MANY_REQUESTS, next=to, problem=problem)
    return replace(answer, headers={"retry-after": str(wait)})


async def sign_out(request: PageRequest) -> Answer:
    """End the session in every process and remove the cookie."""
    await end_session(request.pool, request.session)
    return request.dashboard.with_cookie(redirect("/sign-in"), None)
