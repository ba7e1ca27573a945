"""The ASGI application of the dashboard: which page a path means, and what every answer carries.

Answers carry a policy that allows nothing but our own files, whatever a page holds. They are never stored by a cache,
but for the style, the script and the icon.
"""

import asyncio
import secrets
import traceback
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import quote

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroom.dashboard import dead_letters, deliveries, inbox, overview, sign_in
from postroom.dashboard.service import FigureReader
from postroom.dashboard.session import Sessions
from postroom.dashboard.views import STATIC_TYPES, Views, read_static
from postroom.dashboard.visit import Desk, Page, SignInNeeded, admit, admit_form, go
from postroom.db.room import Room
from postroom.http.asgi import HSTS, is_https
from postroom.http.auth import Authenticator
from postroom.http.problems import MEDIA_TYPE, Problem, answer_to, our_fault
from postroom.runtime.endpoint import Refused
from postroom.runtime.metrics import HTTP_REQUESTS
from postroom.runtime.peers import Guesses
from postroom.tracking.origins import Origins

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
"""On every answer, unless the page says it more strictly itself."""

_UNCHANGING = "public, max-age=31536000, immutable"
_log = structlog.get_logger()


class Dashboard:
    """Every path of the dashboard; below /v1, where only the API has any, a problem document."""

    def __init__(self, desk: Desk, router: Router) -> None:
        self._desk, self._router = desk, router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        sending = _Guarded(send, secrets.token_hex(8), is_secure=self._desk.is_secure)
        try:
            await self._router(scope, receive, sending)
        except ClientDisconnect:
            return
        except Exception as error:
            if sending.status:
                raise
            answer = self._answer_to(error, Request(scope, receive), sending.request_id)
            await answer(scope, receive, sending)
        finally:
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "other"
            if sending.status:
                HTTP_REQUESTS.labels("dashboard", method, str(sending.status)).inc()

    def _answer_to(self, error: Exception, request: Request, request_id: str) -> Response:
        if isinstance(error, SignInNeeded):
            return self._to_sign_in(request)
        found = answer_to(error)
        if found is None:
            frames = traceback.extract_tb(error.__traceback__)[-4:]
            where = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
            _log.error("page_failed", request_id=request_id, error=type(error).__name__, where=" < ".join(where))
            found = our_fault()
        problem: Problem = found.value
        if request.url.path.startswith("/v1/"):
            shown = {name: getattr(problem, name) for name in ("type", "title", "status", "detail", "code")}
            return JSONResponse({**shown, "errors": []}, found.status, media_type=MEDIA_TYPE)
        reference = request_id if found.status >= HTTPStatus.INTERNAL_SERVER_ERROR else None
        return self._desk.page("trouble.html", status=found.status, problem=problem, reference=reference)

    def _to_sign_in(self, request: Request) -> Response:
        """Send people to the door, and from there to where they were going."""
        if request.url.path == "/live":  # a script asks, which cannot sign in
            return Response("Sign in first.", HTTPStatus.UNAUTHORIZED, media_type="text/plain")
        if request.method == "POST":  # nobody comes back to a form: it would be empty
            problem = "Nothing was done: the session is over. Sign in and try again."
            return self._desk.page("sign_in.html", status=HTTPStatus.UNAUTHORIZED, next="/", problem=problem)
        to = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return go("/sign-in" if to == "/" else f"/sign-in?next={quote(to, safe='')}")


class _Guarded:
    """Adds the headers to an answer as it leaves, and remembers that it has left."""

    def __init__(self, send: Send, request_id: str, *, is_secure: bool) -> None:
        self._send, self.request_id = send, request_id
        self._always = {name.decode(): value.decode() for name, value in HSTS} if is_secure else {}
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in {**HEADERS, **self._always, "x-request-id": self.request_id}.items():
                headers.setdefault(name, value)
        await self._send(message)


def build_dashboard(room: Room, *, secret: bytes, stop: asyncio.Event | None = None) -> ASGIApp:
    """The dashboard of a room. `secret` signs its sessions; `stop` ends the live streams when the process does."""
    static = read_static()
    desk = Desk(
        room=room,
        views=Views(room.name, static),
        sessions=Sessions(secret, room.name),
        auth=Authenticator(room.pool),
        guesses=Guesses(),
        figures=FigureReader(room.pool),
        origins=Origins(room.settings.trusted_proxies),
        is_secure=is_https(room.settings),
    )

    async def show_static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in static:
            raise _not_found()
        return Response(static[name], media_type=STATIC_TYPES[name], headers={"cache-control": _UNCHANGING})

    routes = [
        *_page_routes(desk, stop or asyncio.Event()),
        *_form_routes(desk),
        _open_route(desk, "/sign-in", sign_in.show_sign_in, "GET"),
        _open_route(desk, "/sign-in", sign_in.sign_in, "POST"),
        Route("/static/{name}", show_static),
    ]
    return Dashboard(desk, Router(routes, redirect_slashes=False, default=_refuse_path))


def _page_routes(desk: Desk, stop: asyncio.Event) -> list[Route]:
    pages: dict[str, Page] = {
        "/": overview.show_overview,
        "/live": overview.live_page(stop),
        "/deliveries": deliveries.list_page,
        "/deliveries/{delivery_id:int}": deliveries.show_page,
        "/deliveries/{delivery_id:int}/preview": deliveries.preview_page,
        "/dead-letters": dead_letters.list_page,
        "/dead-letters/redrive": dead_letters.ask_page,
        "/inbox": inbox.list_page,
        "/inbox/{message_id:int}": inbox.show_page,
        "/inbox/{message_id:int}/preview": inbox.preview_page,
        "/inbox/{message_id:int}/raw": inbox.raw_page,
    }

    def admitting(page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            visit = await admit(desk, request)
            shown = await page(visit)
            # The live figures are read by a script: they do not show that a person is there.
            if request.url.path != "/live" and (used := desk.sessions.renewed(visit.session)) is not None:
                desk.set_cookie(shown, used)
            return shown

        return answer

    return [Route(path, admitting(page), methods=["GET"]) for path, page in pages.items()]


def _form_routes(desk: Desk) -> list[Route]:
    forms: dict[str, Page] = {
        "/deliveries/{delivery_id:int}/cancel": deliveries.step_page("cancel"),
        "/deliveries/{delivery_id:int}/retry": deliveries.step_page("retry"),
        "/deliveries/{delivery_id:int}/resend": deliveries.resend_page,
        "/dead-letters/redrive": dead_letters.redrive_page,
        "/dead-letters/{delivery_id:int}/settle": deliveries.step_page("settle"),
        "/sign-out": sign_in.sign_out,
    }

    def admitting(page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await page(await admit_form(desk, request))

        return answer

    return [Route(path, admitting(page), methods=["POST"]) for path, page in forms.items()]


def _open_route(desk: Desk, path: str, page: Callable[[Desk, Request], Awaitable[Response]], method: str) -> Route:
    async def answer(request: Request) -> Response:
        return await page(desk, request)

    return Route(path, answer, methods=[method])


async def _refuse_path(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise _not_found()


def _not_found() -> Refused:
    return Refused(HTTPStatus.NOT_FOUND, "There is nothing at this path.")
