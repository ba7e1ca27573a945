"""Refusals as pages: an error with its sentence, or the way to sign in."""

from dataclasses import replace
from http import HTTPStatus
from urllib.parse import quote

from postroom.dashboard.codes import SignInCodes
from postroom.dashboard.errors import SecondFactorError, SignInAgainError
from postroom.dashboard.site import HEADERS, Dashboard, SignInError
from postroom.runtime.endpoint import Answer, Call, Problem, redirect

AGAIN = "This needs a sign-in within the last ten minutes: sign in again."


def refuse(call: Call, error: Exception, problem: Answer) -> Answer | None:
    """A refusal as a page; for programs, and below /v1, the problem document."""
    path: str = call.asgi["path"]
    if "authorization" in call.headers or path.startswith("/v1/"):
        return None
    if isinstance(error, SignInError):
        return _to_sign_in(call)
    if isinstance(error, SignInAgainError):
        return sign_in_page(call, error.to, f"Nothing was done. {AGAIN}", HTTPStatus.FORBIDDEN)
    if isinstance(error, SecondFactorError) and call.method == "GET":
        return redirect("/second-factor")
    shown: Problem = problem.value
    reference = call.request_id if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR else None
    viewed = call.tool(Dashboard) if call.admitted is None else call.admitted
    answer = viewed.page("trouble.html", problem=shown, reference=reference)
    return replace(answer, status=problem.status, headers={**HEADERS, **problem.headers})


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
        again="&again=1" if problem and AGAIN in problem else "",
        mails_codes=call.tool(SignInCodes).are_offered(call.client),
        oidc=dashboard.oidc.name if dashboard.oidc else None,
    )


def too_often(call: Call, to: str, wait: int) -> Answer:
    problem = f"Too many wrong keys or codes from this address. Try again in {wait} seconds."
    answer = sign_in_page(call, to, problem, HTTPStatus.TOO_MANY_REQUESTS)
    return replace(answer, headers={"retry-after": str(wait)})
