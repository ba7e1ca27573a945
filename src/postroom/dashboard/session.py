"""Who is looking: a signed cookie that names a key, and the count of wrong guesses.

The cookie holds the id of an API key, when it was made, an expiry and a nonce, signed with HMAC-SHA256 under a key of
its own that is derived from the installation's secret and the room. It holds nothing of the API key. A session lives as
long as its cookie says, and ends at the next request once its API key is revoked.
"""

import base64
import binascii
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from postroom.http.model import ApiKey

LIFETIME_S = 12 * 3600
GUESSES = 10
GUESS_WINDOW_S = 60.0

_LONGEST_COOKIE = 400
_MOST_REMEMBERED = 10_000
_SHAPE = tuple[int, int, int, str]


@dataclass(frozen=True, slots=True)
class Session:
    """An open session."""

    key_id: int
    key_made: int  # microseconds: in a room made anew, the same id is another key
    expires: int
    nonce: str

    def is_of(self, key: ApiKey) -> bool:
        return self.key_id == key.id and self.key_made == _made(key)


class Sessions:
    """Opens, seals and ends sessions of one room."""

    def __init__(self, secret: bytes, room: str, *, now: Callable[[], float] = time.time) -> None:
        self._seal_key = hmac.digest(secret, b"postroom dashboard session\0" + room.encode(), "sha256")
        self._form_key = hmac.digest(secret, b"postroom dashboard form\0" + room.encode(), "sha256")
        self._now = now
        self._ended: dict[str, int] = {}

    def begin(self, key: ApiKey) -> Session:
        return Session(key.id, _made(key), int(self._now()) + LIFETIME_S, secrets.token_urlsafe(16))

    def seal(self, session: Session) -> str:
        """The session as a cookie's value."""
        body = _text(msgspec.json.encode((session.key_id, session.key_made, session.expires, session.nonce)))
        return f"{body}.{_text(hmac.digest(self._seal_key, body.encode(), 'sha256'))}"

    def open(self, cookie: str | None) -> Session | None:
        """The session in a cookie, if we sealed it and it is not over."""
        if cookie is None or len(cookie) > _LONGEST_COOKIE or not cookie.isascii():
            return None
        body, _, seal = cookie.partition(".")
        if not hmac.compare_digest(_text(hmac.digest(self._seal_key, body.encode(), "sha256")), seal):
            return None
        try:
            session = Session(*msgspec.json.decode(_bytes(body), type=_SHAPE))
        except (binascii.Error, ValueError, msgspec.MsgspecError):
            return None
        return session if self.is_open(session) else None

    def is_open(self, session: Session) -> bool:
        return session.expires > self._now() and session.nonce not in self._ended

    def end(self, session: Session) -> None:
        """Refuse the session from now on, in this process; elsewhere its cookie is gone from the browser."""
        self._ended = {nonce: expires for nonce, expires in self._ended.items() if expires > self._now()}
        if len(self._ended) < _MOST_REMEMBERED:
            self._ended[session.nonce] = session.expires

    def form_token(self, session: Session) -> str:
        """What every form of this session carries, and nobody else can know."""
        return _text(hmac.digest(self._form_key, session.nonce.encode(), "sha256"))

    def is_form_token(self, session: Session, token: str) -> bool:
        return hmac.compare_digest(self.form_token(session).encode(), token.encode("utf-8", "replace"))


class Guesses:
    """Wrong keys by address: after `GUESSES` within `GUESS_WINDOW_S` seconds, an address waits.

    A key has 256 bits and cannot be guessed; this keeps the log and the database quiet while somebody tries.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._tried: dict[str, list[float]] = {}

    def wait_s(self, address: str) -> int:
        """Seconds until this address may try again; 0 if it may now."""
        now = self._monotonic()
        recent = [at for at in self._tried.get(_network(address), ()) if at > now - GUESS_WINDOW_S]
        return 0 if len(recent) < GUESSES else max(1, int(recent[-GUESSES] + GUESS_WINDOW_S - now) + 1)

    def tried(self, address: str) -> None:
        """Count a try; before it is judged, so that tries at the same moment count too."""
        now = self._monotonic()
        if len(self._tried) >= _MOST_REMEMBERED:
            self._tried = {who: when for who, when in self._tried.items() if when[-1] > now - GUESS_WINDOW_S}
        if len(self._tried) >= _MOST_REMEMBERED:
            self._tried.clear()
        self._tried[_network(address)] = [*self._tried.get(_network(address), ()), now][-GUESSES:]

    def succeeded(self, address: str) -> None:
        self._tried.pop(_network(address), None)


def _network(address: str) -> str:
    """An IPv6 host owns a whole network of addresses; they count as one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address  # noqa: PLR2004 - IPv6


def _made(key: ApiKey) -> int:
    return round(key.created_at.timestamp() * 1_000_000)


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
