"""The sessions of the dashboard as their owners see them: where they began, and when they were used last.

The signed cookie decides whether a session is valid (`dashboard.session`); a row of this list decides nothing.
"""

from datetime import datetime, timedelta
from typing import Literal

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import OperatorNotFound
from postroom.http import store
from postroom.http.model import ApiKey, OpenSession, Operator
from postroom.runtime.page import Found
from postroom.runtime.peers import network_of

OwnerKind = Literal["key", "operator"]

IDLE = timedelta(hours=1)  # an unattended screen is closed after an hour

_BROWSERS = {"Edg": "Edge", "OPR/": "Opera", "Firefox/": "Firefox", "Chrome/": "Chrome", "Safari/": "Safari"}
_SYSTEMS = {
    "Android": "Android",
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Windows": "Windows",
    "Mac OS": "macOS",
    "Linux": "Linux",
}
"""Words of a User-Agent by their meaning, the most specific first: an Android browser names Linux too."""


async def record_session(  # noqa: PLR0913 - one parameter per column
    connection: Connection,
    owner: ApiKey | Operator,
    *,
    nonce: str,
    expires_at: datetime,
    method: str,
    client: str,
    agent: str,
) -> bool:
    """Record a session that begins; True if its owner had sessions before, and none from this network."""
    return await store.insert_session(
        connection,
        nonce=nonce,
        expires_at=expires_at,
        owner_id=owner.id,
        owner_kind=kind_of(owner),
        method=method,
        client=network_of(client),
        browser=browser_of(agent),
    )


async def list_sessions(pool: Pool, owner: ApiKey | Operator) -> list[OpenSession]:
    """The open sessions of an API key or an operator, newest first."""
    since = owner.sessions_since if isinstance(owner, Operator) else owner.created_at
    return await store.list_sessions(pool, owner_kind=kind_of(owner), owner_id=owner.id, since=since, idle=IDLE)


async def list_operator_sessions(pool: Pool, operator_id: int) -> Found[OpenSession]:
    """The open sessions of an operator, newest first, in one page. Raises `OperatorNotFound`."""
    async with pool.acquire() as connection, connection.transaction():
        operator = OperatorNotFound.unless(await store.find_operator(connection, operator_id=operator_id))
    return await list_sessions(pool, operator), None


async def find_method(pool: Pool, nonce: str) -> str | None:
    """How a session was opened; None for one of a server of release 0.1.0."""
    return await store.find_session_method(pool, nonce=nonce)


async def touch_session(pool: Pool, nonce: str) -> None:
    """Record that a session is in use."""
    async with pool.acquire() as connection:
        await store.touch_session(connection, nonce=nonce)


def kind_of(owner: ApiKey | Operator) -> OwnerKind:
    return "operator" if isinstance(owner, Operator) else "key"


def browser_of(agent: str) -> str:
    """Browser and system in a User-Agent, such as `Firefox on Linux`."""
    browser, system = (
        next((name for word, name in known.items() if word in agent), None) for known in (_BROWSERS, _SYSTEMS)
    )
    return " on ".join(filter(None, (browser, system))) or "unknown"
