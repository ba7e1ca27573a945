"""Sign-in links: printed by `postroom up` and `postroom sign-in-link`, short-lived, usable once, on loopback only.

A link holds a sealed session that has not begun. It needs the installation's secret to make, and the room remembers
that it was used.
"""

from http import HTTPStatus
from urllib.parse import urlsplit

from postroom.dashboard import service
from postroom.dashboard.entry import begin_session
from postroom.dashboard.problem_pages import sign_in_page
from postroom.dashboard.request import query_of
from postroom.dashboard.session import Sessions
from postroom.db.room import Room
from postroom.errors import SettingInvalid
from postroom.events.audit import record_audit
from postroom.http import operators
from postroom.http.model import ApiKey, Operator
from postroom.runtime.endpoint import Answer, Call
from postroom.runtime.peers import LOOPBACK, is_within
from postroom.runtime.refusals import sign_in_refused

LIFETIME_S = 600  # time to copy a link from a terminal to a browser
PATH = "/sign-in/link"

USED = "This link has expired or was used. `postroom sign-in-link` prints another."
ELSEWHERE = "A sign-in link works in a browser on the machine of the server only."

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host")


class SignInLinks:
    """Makes and uses the sign-in links of a room."""

    def __init__(self, secret: bytes, room: str) -> None:
        self._sealed = Sessions(secret, room, purpose="link")

    def token(self, owner: ApiKey | Operator) -> str:
        return self._sealed.seal(self._sealed.begin(owner, lifetime_s=LIFETIME_S))

    async def use(self, call: Call, token: str | None) -> ApiKey | Operator | None:
        """The owner of an unused link, which is used now."""
        link = self._sealed.open(token)
        owner = None if link is None else await service.find_owner(call.room.pool, link)
        if link is None or owner is None or not await service.end_session(call.room.pool, link):
            return None
        if isinstance(owner, Operator):
            async with call.room.pool.acquire() as connection:
                return await operators.record_sign_in(connection, owner.id)
        return owner


async def make_link(room: Room, owner: ApiKey | Operator, *, url: str, actor: str) -> str:
    """A link to sign in as a key or an operator at `url`, an address of this machine. Making it is audited."""
    if room.settings.secret_key is None:
        raise SettingInvalid("POSTROOM_SECRET_KEY", "is required to sign the link; `postroom up` keeps one in a file")
    token = SignInLinks(room.settings.secret_key, room.name).token(owner)
    await record_audit(room.pool, actor, "dashboard.sign_in_link", owner.actor)
    return f"{url}{PATH}?token={token}"


async def use_link(call: Call) -> Answer:
    """Open a session. The answer is a page that leads on, because a redirect from another site carries no cookie."""
    if not _is_local(call):
        sign_in_refused("link", call.client, "not_local")
        return sign_in_page(call, "/", ELSEWHERE, HTTPStatus.FORBIDDEN)
    is_opened = call.method == "GET" and "sec-purpose" not in call.headers  # a prefetch must not use the link
    owner = await call.tool(SignInLinks).use(call, query_of(call).get("token")) if is_opened else None
    if owner is None:
        sign_in_refused("link", call.client, "used_or_expired")
        return sign_in_page(call, "/", USED, HTTPStatus.UNAUTHORIZED)
    return await begin_session(call, owner, "/", by="link")


def _is_local(call: Call) -> bool:
    """True if client and host are loopback and no proxy is between them, as far as headers tell."""
    try:
        host = urlsplit(f"//{call.headers.get('host', '')}").hostname or ""
    except ValueError:
        return False
    is_ours = host == "localhost" or (host != "" and is_within(host, LOOPBACK))
    return is_ours and is_within(call.client, LOOPBACK) and not any(name in call.headers for name in _FORWARDED)
