"""Sessions and guesses, without a room."""

from datetime import UTC, datetime

import pytest

from postroom.dashboard.session import GUESS_WINDOW_S, GUESSES, LIFETIME_S, Guesses, Session, Sessions
from postroom.http.model import ApiKey

SECRET = bytes(32)
KEY = ApiKey(7, "ada", "pr_abcdefgh", ("*",), datetime(2030, 6, 1, tzinfo=UTC), None, None)


class Seconds:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_sealed_session_opens() -> None:
    """What was sealed comes back, and belongs to its key only."""
    sessions = Sessions(SECRET, "postroom")
    session = sessions.open(sessions.seal(sessions.begin(KEY)))
    assert session is not None
    assert session.is_of(KEY)
    made_anew = ApiKey(7, "ada", "pr_abcdefgh", ("*",), datetime(2030, 6, 2, tzinfo=UTC), None, None)
    assert not session.is_of(made_anew)


def test_the_cookie_holds_nothing_of_the_key() -> None:
    """Not even the part of a key that people may see is in the cookie's session."""
    session = Sessions(SECRET, "postroom").begin(KEY)
    assert set(Session.__dataclass_fields__) == {"key_id", "key_made", "expires", "nonce"}
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
    """Whatever a stranger sends as a cookie is no session, and no error."""
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
    cookie = sessions.seal(sessions.begin(KEY))
    clock.now += LIFETIME_S - 1
    assert sessions.open(cookie) is not None
    clock.now += 1
    assert sessions.open(cookie) is None


def test_an_ended_session_stays_ended() -> None:
    """A copy of the cookie does not outlive signing out."""
    sessions = Sessions(SECRET, "postroom")
    session, other = sessions.begin(KEY), sessions.begin(KEY)
    sessions.end(session)
    assert sessions.open(sessions.seal(session)) is None
    assert sessions.open(sessions.seal(other)) == other


def test_form_tokens_are_of_one_session() -> None:
    """A token of one session is refused in another."""
    sessions = Sessions(SECRET, "postroom")
    one, other = sessions.begin(KEY), sessions.begin(KEY)
    assert sessions.is_form_token(one, sessions.form_token(one))
    assert not sessions.is_form_token(other, sessions.form_token(one))
    assert not sessions.is_form_token(one, "\udcff é")


def test_guessing_is_slowed_down_per_address() -> None:
    """After so many tries an address waits; others do not, and time or success forgives."""
    clock = Seconds()
    guesses = Guesses(monotonic=clock)
    for _ in range(GUESSES):
        assert guesses.wait_s("192.0.2.1") == 0
        guesses.tried("192.0.2.1")
    assert 0 < guesses.wait_s("192.0.2.1") <= GUESS_WINDOW_S + 1
    assert guesses.wait_s("192.0.2.2") == 0
    clock.now += GUESS_WINDOW_S
    assert guesses.wait_s("192.0.2.1") == 0
    guesses.tried("192.0.2.1")
    guesses.succeeded("192.0.2.1")
    assert not guesses._tried


def test_one_network_of_ipv6_is_one_guesser() -> None:
    """Another address of the same /64 gets no new tries."""
    guesses = Guesses(monotonic=Seconds())
    for number in range(GUESSES):
        guesses.tried(f"2001:db8::{number:x}")
    assert guesses.wait_s("2001:db8::ffff") > 0
    assert guesses.wait_s("2001:db8:0:1::1") == 0


def test_the_memory_of_guesses_is_bounded() -> None:
    """No number of addresses makes it grow without end."""
    guesses = Guesses(monotonic=Seconds())
    for number in range(10_050):
        guesses.tried(f"host-{number}")
    assert len(guesses._tried) <= 10_000
