"""The dashboard of a process: the tools that its pages share, its cookies and the headers of its answers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from postroom.dashboard.oidc import OidcProvider
from postroom.dashboard.preferences import Viewer
from postroom.dashboard.service import FigureReader
from postroom.dashboard.session import DashboardSession, Sessions
from postroom.dashboard.views import PageTemplates
from postroom.db.room import Room
from postroom.http.auth import Authenticator
from postroom.rooms.service import Discover
from postroom.runtime.endpoint import Answer, ProtocolError
from postroom.runtime.peers import WrongKeyCounter
from postroom.runtime.secrets import SecretBox

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
    box: SecretBox
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
