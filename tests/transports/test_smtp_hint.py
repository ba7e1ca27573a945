"""Reading how long a server asks us to wait."""

import pytest

from postroom.transports.smtp import parse_retry_hint


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("try again in 300 seconds", 300),
        ("Please try again in 5 minutes.", 300),
        ("retry after 5 minutes", 300),
        ("Greylisted for 60 seconds, see our page", 60),
        ("Greylisting in action, please come back in 00:04:59", 299),
        ("Too many messages; retry in 1 hour", 3_600),
        ("try again in an hour", 3_600),
        ("please wait at least 2 mins", 120),
        ("wait 1 hour and 30 minutes", 5_400),
        ("retry in 4m59s", 299),
        ("Try again later: retry-after: 120", 120),
        ("graylisted, retry in 10s", 10),
        ("TRY AGAIN AFTER 2 DAYS", 172_800),
        ("server busy, try again later (in 15 min)", None),
        ("try again later", None),
        ("try again in a few minutes", None),
        ("100 messages in 60 seconds is the limit", None),
        ("rate limit 100 per 60 seconds exceeded, try again later", None),
        ("see https://example.org/retry/5minutes", None),
        ("retry in 0 seconds", None),
        ("retry in 999999 days", None),
        ("retry in 12345678 seconds", None),
        ("try again in 5 megaseconds", None),
        ("await 30 seconds", None),
        ("", None),
    ],
)
def test_a_hint_is_read_only_where_waiting_is_spoken_of(text: str, seconds: float | None) -> None:
    """A duration counts after words of waiting; limits, vague words and absurd numbers do not."""
    assert parse_retry_hint(text) == seconds


def test_a_long_hostile_text_is_read_quickly() -> None:
    """A text made to send the pattern astray costs no more than its length."""
    assert parse_retry_hint("wait " + "in after for " * 80) is None
    assert parse_retry_hint("try again" + " " * 1_000) is None
