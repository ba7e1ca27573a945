"""Sessions: a signed cookie that names an API key or an operator.

The cookie holds the kind and the id of its owner, since when the owner's sessions are valid, an expiry, a nonce and the
last use, signed with HMAC-SHA256 under a key that is derived from the installation's secret and the room. It holds
nothing of the API key. A session ends after `LIFETIME_S` seconds, after `IDLE_S` seconds without a page, when its API
key is revoked, when its operator is disabled or removed, and when it is signed out: the nonces of signed-out sessions
are kept in the room, so that every process refuses them.
"""

import base64
import binascii
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace

import msgspec

from postroom.http.model import ApiKey, Operator
from postroom.http.sessions import IDLE, OwnerKind, kind_of

LIFETIME_S = 12 * 3600  # a working day
IDLE_S = int(IDLE.total_seconds())
FRESH_S = 600  # to change authenticators and to give every right, a person signs in again
RENEWED_AFTER_S = 300  # a cookie is written again with the last use when it is older than this

_LONGEST_COOKIE = 400  # ours are shorter; bounds the work for a forged one
_SHAPE = tuple[OwnerKind, int, int, int, str, int]


@dataclass(frozen=True, slots=True)
class DashboardSession:
    """An open session."""

    kind: OwnerKind
    owner_id: int
    since: int  # microseconds: in a recreated room, the same id is another owner
    expires: int
    nonce: str
    seen: int

    def is_of(self, owner: ApiKey | Operator) -> bool:
        return (self.kind, self.owner_id, self.since) == (kind_of(owner), owner.id, _since(owner))


class Sessions:
    """Opens, seals and ends sessions of one room."""

    def __init__(
        self, secret: bytes, room: str, *, purpose: str = "session", now: Callable[[], float] = time.time
    ) -> None:
        self._seal_key = hmac.digest(secret, f"postroom dashboard {purpose}\0{room}".encode(), "sha256")
        self._form_key = hmac.digest(secret, b"postroom dashboard form\0" + room.encode(), "sha256")
        self._now = now

    def begin(self, owner: ApiKey | Operator, *, lifetime_s: int | None = None) -> DashboardSession:
        now = int(self._now())
        nonce = secrets.token_urlsafe(16)
        expires = now + (LIFETIME_S if lifetime_s is None else lifetime_s)
        return DashboardSession(kind_of(owner), owner.id, _since(owner), expires, nonce, now)

    def renewed(self, session: DashboardSession) -> DashboardSession | None:
        """The session as it was used now, if its cookie is due to be written again."""
        now = int(self._now())
        return replace(session, seen=now) if now - session.seen > RENEWED_AFTER_S else None

    def is_fresh(self, session: DashboardSession) -> bool:
        """Whether its owner signed in lately; the cookie holds the end, which is `LIFETIME_S` after the begin."""
        return session.expires - LIFETIME_S + FRESH_S > self._now()

    def left_s(self, session: DashboardSession) -> int:
        """For how many seconds a browser needs to keep the cookie."""
        return max(0, session.expires - int(self._now()))

    def seal(self, session: DashboardSession) -> str:
        """The session as a cookie's value."""
        body = base64url(msgspec.json.encode(astuple(session)))
        return f"{body}.{base64url(hmac.digest(self._seal_key, body.encode(), 'sha256'))}"

    def open(self, cookie: str | None) -> DashboardSession | None:
        """The session in a cookie, if we sealed it and it has not expired."""
        if cookie is None or len(cookie) > _LONGEST_COOKIE or not cookie.isascii():
            return None
        body, _, seal = cookie.partition(".")
        if not hmac.compare_digest(base64url(hmac.digest(self._seal_key, body.encode(), "sha256")), seal):
            return None
        try:
            session = DashboardSession(*msgspec.json.decode(_bytes(body), type=_SHAPE))
        except (binascii.Error, ValueError, msgspec.MsgspecError):
            return None
        return session if self.is_open(session) else None

    def is_open(self, session: DashboardSession) -> bool:
        now = self._now()
        return session.expires > now and session.seen + IDLE_S > now

    def form_token(self, session: DashboardSession) -> str:
        """The anti-forgery token of this session's forms."""
        return base64url(hmac.digest(self._form_key, session.nonce.encode(), "sha256"))

    def is_form_token(self, session: DashboardSession, token: str) -> bool:
        return hmac.compare_digest(self.form_token(session).encode(), token.encode("utf-8", "replace"))

    def sentence_seal(self, session: DashboardSession, sentence: str) -> str:
        """The proof that a sentence in an address was written by this session's pages."""
        return base64url(hmac.digest(self._form_key, f"{session.nonce} {sentence}".encode(), "sha256")[:12])


def _since(owner: ApiKey | Operator) -> int:
    """Since when sessions of this owner are valid: a key's creation, an operator's last end of all sessions."""
    moment = owner.sessions_since if isinstance(owner, Operator) else owner.created_at
    return round(moment.timestamp() * 1_000_000)


def base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
