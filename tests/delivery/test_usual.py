"""The short way of `postroom.send`: it takes only valid mail, and accepts it as the longer way does."""

from datetime import UTC, datetime, timedelta
from inspect import signature
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import postroom
from postroom.db.room import Room
from postroom.delivery import store
from postroom.delivery.check import RESERVED_SOURCES, problems
from postroom.delivery.model import IDEMPOTENCY_TTL, DeliveryRequest, Lane
from postroom.delivery.rows import send_values
from postroom.delivery.usual import usual_values
from postroom.post.address import parse_address

CONTENT: dict[str, Any] = {"to": "ann@example.org", "subject": "Hello", "text": "Hello Ann", "locale": "fr"}
BY_TEMPLATE: dict[str, Any] = {"to": "ann@example.org", "template": "welcome", "variables": {"name": "Ann"}}
RARE: dict[str, Any] = {
    "cc": "bob@example.org",
    "bcc": ["bob@example.org"],
    "reply_to": "bob@example.org",
    "sender": "shop@example.org",
    "headers": {"X-Order": "42"},
    "attachments": iter(()),
    "tags": {"order": "42"},
    "custom_data": {},
    "send_at": datetime(2030, 1, 31, tzinfo=UTC),
    "expires_at": datetime(2030, 1, 31, tzinfo=UTC),
    "max_retries": 0,
    "give_up_after": timedelta(hours=1),
    "idempotency_ttl": timedelta(days=1),
}

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [*sorted(RESERVED_SOURCES), "Ann <ann@example.org>", "ANN@example.org", "ann@bücher.example", "bulk"]
    ),
    st.builds(lambda letter, length: letter * length, st.sampled_from("xé\n"), st.integers(50, 1000)),
)
"""Short texts, texts that have a meaning in one of the fields, and texts near the limits of lengths."""


@given(
    st.fixed_dictionaries(
        {"to": st.one_of(st.just("ann@example.org"), TEXTS)},
        optional={
            **dict.fromkeys(("subject", "text", "html", "template", "locale", "source", "idempotency_key"), TEXTS),
            "lane": st.sampled_from(Lane),
            "variables": st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.none()), max_size=3),
        },
    )
)
@example({**CONTENT, "subject": "Hello\u2028"})
@example({**CONTENT, "text": "\ud800"})
@example({**BY_TEMPLATE, "subject": "Hello"})
@example({**BY_TEMPLATE, "variables": {"name": "Ann\0"}})
def test_a_mail_that_takes_the_short_way_is_valid(mail: dict[str, Any]) -> None:
    """The exact check finds no problem in its fields, and its arguments are those of the longer way."""
    values = usual_values(mail)
    if values is not None:
        request = DeliveryRequest(**{**mail, "to": (parse_address(mail["to"]),)})
        assert list(problems(request)) == []
        assert request.source not in RESERVED_SOURCES
        expected = send_values(request, idempotency_ttl=IDEMPOTENCY_TTL)
        assert {"lane": Lane.TRANSACTIONAL, **values} == {"lane": Lane.TRANSACTIONAL, **expected, "to": mail["to"]}


@pytest.mark.parametrize("mail", [CONTENT, BY_TEMPLATE])
def test_usual_mail_takes_the_short_way(mail: dict[str, Any]) -> None:
    """Otherwise the rules above would hold for no mail at all. None stands for a field without a value."""
    assert usual_values(mail) is not None
    assert (
        usual_values({**mail, "sender": None, "tags": None, "idempotency_key": "order-42", "lane": "auth"}) is not None
    )


def test_every_keyword_of_send_is_usual_or_rare() -> None:
    """A keyword that is neither would be lost on the short way."""
    keywords = set(signature(postroom.send).parameters) - {"connection", "room"}
    assert keywords == {*RARE, *CONTENT, *BY_TEMPLATE, "html", "lane", "source", "idempotency_key"}


@pytest.mark.parametrize("field", RARE)
async def test_mail_with_a_rare_field_takes_the_longer_way(
    room: Room, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """The short way would drop the field."""
    monkeypatch.setattr(store, "send_usual", None)
    async with room.pool.acquire() as connection:
        assert await postroom.send(connection, **CONTENT, **{field: RARE[field]})


async def test_empty_rare_fields_are_left_out(room: Room) -> None:
    """Applications pass what they have: an empty list of Cc, no name of a sender."""
    empty: dict[str, Any] = {"cc": "", "bcc": [], "reply_to": None, "sender": "", "attachments": None, "headers": {}}
    async with room.pool.acquire() as connection:
        sent = await postroom.send(connection, **CONTENT, **empty)
        kinds = await connection.fetch("SELECT kind FROM delivery_recipients WHERE delivery_id = $1", sent)
    assert [row["kind"] for row in kinds] == ["to"]


async def test_both_ways_accept_the_same_mail(room: Room) -> None:
    """A mail that is sent again with its key, by the other way, is the same mail: both have one fingerprint."""
    async with room.pool.acquire() as connection:
        short = await postroom.send(connection, **CONTENT, idempotency_key="order-42")
        longer = await postroom.send(connection, **CONTENT, idempotency_key="order-42", tags={})
        assert short == longer
        with pytest.raises(postroom.IdempotencyConflict):
            await postroom.send(connection, **{**CONTENT, "text": "Hello Bob"}, idempotency_key="order-42")
