"""Sessions, without a room."""

from datetime import UTC, datetime

import pytest

from postroom.dashboard.session import IDLE_S, LIFETIME_S, RENEWED_AFTER_S, DashboardSession, Sessions
from postroom.http.model import ApiKey

SECRET = bytes(32)
KEY = ApiKey(7, "ada", "pr_abcdefgh", ("*",), datetime(2030, 6, 1, tzinfo=UTC), None, None)


class Seconds:
    """A clock set by the test."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_sealed_session_opens() -> None:
    """A sealed session can be opened again, and belongs to its key only."""
    sessions = Sessions(SECRET, "postroom")
    session = sessions.open(sessions.seal(sessions.begin(KEY)))
    assert session is not None
    assert session.is_of(KEY)
    made_anew = ApiKey(7, "ada", "pr_abcdefgh", ("*",), datetime(2030, 6, 2, tzinfo=UTC), None, None)
    assert not session.is_of(made_anew)


def test_the_cookie_holds_nothing_of_the_key() -> None:
    """Not even the part of a key that people may see is in the cookie's session."""
    session = Sessions(SECRET, "postroom").begin(KEY)
    assert set(DashboardSession.__dataclass_fields__) == {"kind", "owner_id", "since", "expires", "nonce", "seen"}
    assert KEY.prefix not in repr(session)


def test_every_changed_character_spoils_the_seal() -> None:
    """No part of a cookie can be altered."""
    sessions = Sessions(SECRET, "postroom")
    cookie = sessions.seal(sessions.begin(KEY))
    for index, character in enumerate(cookie):
        other = "A" if character != "A" else "Q"
        assert sessions.open(cookie[:index] + other + cookie[index + 1 :]) is None


@pytest.mark.parametrize("cookie", [None, "", ".", "a.b", "é.é", "x" * 10_000, "W10.", "." + "A" * 43])
def test_garbage_opens_nothing(cookie: str | None) -> None:
    """An arbitrary cookie value is neither a session nor an error."""
    assert Sessions(SECRET, "postroom").open(cookie) is None


def test_a_session_of_another_room_or_secret_does_not_open() -> None:
    """The seal is made of the secret and the room."""
    cookie = Sessions(SECRET, "postroom").seal(Sessions(SECRET, "postroom").begin(KEY))
    assert Sessions(SECRET, "other").open(cookie) is None
    assert Sessions(b"\x01" * 32, "postroom").open(cookie) is None


def test_a_session_expires() -> None:
    """After its lifetime a cookie is worth nothing, whatever the browser still sends."""
    clock = Seconds()
    sessions = Sessions(SECRET, "postroom", now=clock)
    begun = sessions.begin(KEY)
    clock.now += LIFETIME_S - 1
    used = sessions.renewed(begun)
    assert used is not None
    assert sessions.open(sessions.seal(used)) == used
    clock.now += 1
    assert sessions.open(sessions.seal(used)) is None


def test_a_session_that_is_not_used_ends() -> None:
    """An hour without a page ends it; a page that is read in time extends it, and writes the cookie again."""
    clock = Seconds()
    sessions = Sessions(SECRET, "postroom", now=clock)
    session = sessions.begin(KEY)
    clock.now += RENEWED_AFTER_S
    assert sessions.renewed(session) is None
    clock.now += 1
    used = sessions.renewed(session)
    assert used is not None
    clock.now += IDLE_S - RENEWED_AFTER_S - 1
    assert sessions.open(sessions.seal(session)) is None
    assert sessions.open(sessions.seal(used)) == used


def test_form_tokens_are_of_one_session() -> None:
    """A token of one session is refused in another."""
    sessions = Sessions(SECRET, "postroom")
    one, other = sessions.begin(KEY), sessions.begin(KEY)
    assert sessions.is_form_token(one, sessions.form_token(one))
    assert not sessions.is_form_token(other, sessions.form_token(one))
    assert not sessions.is_form_token(one, "\udcff é")
