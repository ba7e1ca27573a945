"""The pages of a sign-in at an OpenID Connect provider: to the provider, and back."""

from http import HTTPStatus

import structlog

from postroom.dashboard.oidc import FLOW_S, OidcProvider, OidcRefusedError, person_of
from postroom.dashboard.problem_pages import sign_in_page
from postroom.dashboard.request import cookie_of, local_path, query_of
from postroom.dashboard.sign_in import begin_session
from postroom.dashboard.site import Dashboard
from postroom.errors import BadInput
from postroom.http import operators
from postroom.runtime.endpoint import Answer, Call, ProtocolError, redirect

_COOKIE = "postroom_oidc"

_log = structlog.get_logger()


async def begin_oidc(call: Call) -> Answer:
    """Send the browser to the provider."""
    dashboard = call.tool(Dashboard)
    try:
        address, cookie = await _provider(dashboard).begin(local_path(query_of(call).get("next")))
    except OidcRefusedError as error:
        return _refused(call, error, HTTPStatus.BAD_GATEWAY)
    # Lax: the way back is a navigation from the provider's site, which carries no strict cookie.
    return dashboard.with_cookie(redirect(address), _COOKIE, cookie, age_s=FLOW_S, same_site="lax")


async def finish_oidc(call: Call) -> Answer:
    """Check the provider's answer and open a session of the operator with the verified address."""
    dashboard = call.tool(Dashboard)
    cookie = cookie_of(call, dashboard.cookie(_COOKIE))
    try:
        claims, to = await _provider(dashboard).finish(cookie, query_of(call))
        email, role = person_of(claims, call.room.settings)
        operator = await operators.sign_in_by_oidc(call.room.pool, email, role)
    except OidcRefusedError as error:
        return _refused(call, error, HTTPStatus.FORBIDDEN)
    except BadInput:
        return _refused(call, OidcRefusedError("The provider sent an invalid address."), HTTPStatus.FORBIDDEN)
    if operator is None:
        return _refused(call, OidcRefusedError(f"{email} is not an operator here."), HTTPStatus.FORBIDDEN)
    # A page instead of a redirect: the browser came from another site, so a redirect would carry no strict cookie.
    return await begin_session(call, operator, dashboard.page("signed_in.html", next=to), by="oidc")


def _provider(dashboard: Dashboard) -> OidcProvider:
    if dashboard.oidc is None:
        raise ProtocolError(HTTPStatus.NOT_FOUND, "There is nothing at this path.")
    return dashboard.oidc


def _refused(call: Call, error: OidcRefusedError, status: HTTPStatus) -> Answer:
    _log.warning("oidc_sign_in_refused", reason=str(error), request_id=call.request_id)
    return sign_in_page(call, "/", str(error), status)
