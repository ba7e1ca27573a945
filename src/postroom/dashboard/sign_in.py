"""Sign-in with an API key, a mailed code or at an OpenID Connect provider, and sign-out.

A session cookie stands for the sign-in afterwards.
"""

from http import HTTPStatus
from urllib.parse import quote

from postroom.dashboard.codes import LIFETIME, SignInCodes
from postroom.dashboard.entry import begin_session, subject_of
from postroom.dashboard.errors import CodesTooOften
from postroom.dashboard.oidc import FLOW_S, OidcProvider, OidcRefusedError, person_of
from postroom.dashboard.page import READ, PageRequest, admit
from postroom.dashboard.problem_pages import AGAIN, sign_in_page, too_often
from postroom.dashboard.request import cookie_of, local_path, query_of, read_form
from postroom.dashboard.service import end_session
from postroom.dashboard.site import Dashboard, SignInError
from postroom.errors import BadInput, ScopeMissing, Unauthenticated
from postroom.events.audit import record_audit
from postroom.http import operators
from postroom.http.errors import IdentityMismatch
from postroom.runtime.endpoint import Answer, Call, ProtocolError, redirect
from postroom.runtime.refusals import sign_in_refused

UNKNOWN = "This is not a key of this room, or it was revoked."
UNFIT = f"This key may not look at deliveries: it lacks the scope {READ}."
WRONG_CODE = "This code is wrong, has expired or was used. After five attempts, request a new code."

_CODE_COOKIE = "postroom_sign_in_code"
_OIDC_COOKIE = "postroom_oidc"


async def show_sign_in(call: Call) -> Answer:
    """The form; with a valid session, a redirect to the page behind it, unless that asked for another sign-in."""
    asked = query_of(call)
    to = local_path(asked.get("next"))
    if "again" in asked:
        return sign_in_page(call, to, AGAIN)
    try:
        await admit(call)
    except SignInError:
        return sign_in_page(call, to)
    return redirect(to)


async def sign_in(call: Call) -> Answer:
    """Check the key and open a session. The answer does not say why an unknown key is unknown."""
    dashboard = call.tool(Dashboard)
    fields = read_form(call)
    to = local_path(fields.get("next"))
    try:
        key = await dashboard.auth.authenticate(f"Bearer {fields.get('key', '').strip()}", READ, client=call.client)
    except Unauthenticated as error:
        sign_in_refused("key", call.client, error.code)
        # A right key is accepted however many were wrong before it: it is too long to guess.
        wait = dashboard.guesses.wait_s(call.client)
        dashboard.guesses.failed(call.client)
        return too_often(call, to, wait) if wait else sign_in_page(call, to, UNKNOWN, HTTPStatus.UNAUTHORIZED)
    except ScopeMissing as error:
        sign_in_refused("key", call.client, error.code)
        return sign_in_page(call, to, UNFIT, HTTPStatus.FORBIDDEN)
    return await begin_session(call, key, to, by="key")


async def sign_out(request: PageRequest) -> Answer:
    """End the session in every process and remove the cookie."""
    if await end_session(request.pool, request.session):
        await record_audit(request.pool, request.actor, "dashboard.sign_out", subject_of(request.principal))
    return request.dashboard.with_session(redirect("/sign-in"), None)


# ── by a mailed code ───────────────────────────────────────────────────────────────────────────────────────────────


async def request_code(call: Call) -> Answer:
    """Mail a code and ask for it. The answer is the same for an address that belongs to no operator."""
    fields = read_form(call)
    to = local_path(fields.get("next"))
    try:
        nonce = await _codes(call).request(fields.get("email", "").strip(), client=call.client)
    except BadInput as error:
        return sign_in_page(call, to, error.message, HTTPStatus.BAD_REQUEST)
    except CodesTooOften as error:
        sign_in_refused("code", call.client, error.code)
        raise
    dashboard = call.tool(Dashboard)
    answer = redirect(f"/sign-in/code?next={quote(to, safe='')}")
    return dashboard.with_cookie(answer, _CODE_COOKIE, nonce, age_s=int(LIFETIME.total_seconds()))


async def show_code(call: Call) -> Answer:
    return _code_page(call, local_path(query_of(call).get("next")))


async def redeem_code(call: Call) -> Answer:
    """Check the code of the browser that requested it, and open a session."""
    dashboard, fields = call.tool(Dashboard), read_form(call)
    to, codes = local_path(fields.get("next")), _codes(call)
    if wait := dashboard.guesses.wait_s(call.client):
        sign_in_refused("code", call.client, "too_often")
        return too_often(call, to, wait)
    operator = await codes.redeem(cookie_of(call, dashboard.cookie(_CODE_COOKIE)) or "", fields.get("code", ""))
    if operator is None:
        dashboard.guesses.failed(call.client)
        sign_in_refused("code", call.client, "wrong_code")
        return _code_page(call, to, WRONG_CODE, HTTPStatus.UNAUTHORIZED)
    return await begin_session(call, operator, to, by="code")


def _code_page(call: Call, to: str, problem: str | None = None, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return call.tool(Dashboard).page("sign_in_code.html", status=status, next=to, problem=problem)


def _codes(call: Call) -> SignInCodes:
    codes = call.tool(SignInCodes)
    if not codes.are_offered(call.client):
        raise ProtocolError(HTTPStatus.FORBIDDEN, "This installation does not mail sign-in codes to this address.")
    return codes


# ── at an OpenID Connect provider ──────────────────────────────────────────────────────────────────────────────────


async def begin_oidc(call: Call) -> Answer:
    """Send the browser to the provider."""
    dashboard = call.tool(Dashboard)
    try:
        asked = query_of(call)
        address, cookie = await _provider(dashboard).begin(local_path(asked.get("next")), again="again" in asked)
    except OidcRefusedError as error:
        return _refused(call, error, HTTPStatus.BAD_GATEWAY)
    # Lax: the way back is a navigation from the provider's site, which carries no strict cookie.
    return dashboard.with_cookie(redirect(address), _OIDC_COOKIE, cookie, age_s=FLOW_S, same_site="lax")


async def finish_oidc(call: Call) -> Answer:
    """Check the provider's answer and open a session of the operator with the verified address."""
    dashboard = call.tool(Dashboard)
    cookie = cookie_of(call, dashboard.cookie(_OIDC_COOKIE))
    try:
        claims, to = await _provider(dashboard).finish(cookie, query_of(call))
        person, role = person_of(claims, call.room.settings)
        operator = await operators.sign_in_by_oidc(call.room.pool, person, role)
    except OidcRefusedError as error:
        return _refused(call, error, HTTPStatus.FORBIDDEN)
    except IdentityMismatch as error:
        return _refused(call, OidcRefusedError(error.message), HTTPStatus.FORBIDDEN)
    except BadInput:
        return _refused(call, OidcRefusedError("The provider sent an invalid address."), HTTPStatus.FORBIDDEN)
    if operator is None:
        return _refused(call, OidcRefusedError(f"{person.email} is not an operator here."), HTTPStatus.FORBIDDEN)
    return await begin_session(call, operator, to, by="oidc")


def _provider(dashboard: Dashboard) -> OidcProvider:
    if dashboard.oidc is None:
        raise ProtocolError(HTTPStatus.NOT_FOUND, "There is nothing at this path.")
    return dashboard.oidc


def _refused(call: Call, error: OidcRefusedError, status: HTTPStatus) -> Answer:
    sign_in_refused("oidc", call.client, str(error))
    return sign_in_page(call, "/", str(error), status)
