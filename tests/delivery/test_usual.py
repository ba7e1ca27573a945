"""The short way of `postroom.send`: it takes only valid mail, and accepts it as the longer way does."""

import re
from datetime import UTC, datetime, timedelta
from inspect import signature
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import postroom
from postroom.db.room import Room
from postroom.delivery import service, store
from postroom.delivery.check import RESERVED_SOURCES, problems
from postroom.delivery.model import IDEMPOTENCY_TTL, DeliveryRequest, Lane
from postroom.delivery.rows import USUAL, send_values
from postroom.delivery.send import _TYPES
from postroom.delivery.usual import _choose_call, usual_call
from postroom.post.address import Address, parse_address
from postroom.post.mime import Attachment

CONTENT: dict[str, Any] = {"to": "ann@example.org", "subject": "Hello", "text": "Hello Ann", "locale": "fr"}
BY_TEMPLATE: dict[str, Any] = {"to": "ann@example.org", "template": "welcome", "variables": {"name": "Ann"}}
EVERY_MAIL: dict[str, Any] = {"lane": Lane.AUTH, "source": "shop", "idempotency_key": "order-42"}
RARE: dict[str, Any] = {
    "cc": "bob@example.org",
    "bcc": ["carl@example.org"],
    "reply_to": "dora@example.org",
    "sender": "shop@example.org",
    "headers": {"X-Order": "42"},
    "attachments": iter(()),
    "tags": {"order": "42"},
    "custom_data": {},
    "send_at": datetime(2030, 1, 31, tzinfo=UTC),
    "expires_at": datetime(2030, 2, 28, tzinfo=UTC),
    "max_retries": 0,
    "give_up_after": timedelta(hours=1),
    "idempotency_ttl": timedelta(days=1),
}

FILE = Attachment("a.txt", "text/plain", "aGk=")

NOT_TEXTS: list[Any] = [1, True, 1.0, b"x", ("x",), ["x"], {"x": "x"}]
INVALID_FORMS = [
    *product(("room", "template", "locale", "lane", "source"), NOT_TEXTS),
    *(("template", "Hello Ann" * 1000), ("locale", ""), ("lane", "express"), ("source", "admin"), ("source", None)),
]

CONNECTION = SimpleNamespace(fetchrow=print)
"""Has the method of a connection; no statement runs."""

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [*sorted(RESERVED_SOURCES), "Ann <ann@example.org>", "ANN@example.org", "ann@bücher.example", "bulk"]
    ),
    st.builds(lambda letter, length: letter * length, st.sampled_from("xé\n"), st.integers(50, 1000)),
)
"""Short texts, texts that have a meaning in one of the fields, and texts near the limits of lengths."""

_ARGUMENT = re.compile(r"p_(\w+) => \$(\d+)")


def passed_values(mail: dict[str, Any]) -> dict[str, str] | None:
    """The arguments that the short way passes, by their names in its call; None if it does not take the mail."""
    given = {"room": "postroom", "lane": "transactional", "source": "python", **mail}
    found = usual_call(given["room"], tuple(given.get(name) for name in USUAL))
    if found is None:
        return None
    call, *arguments = found
    places = {name: int(place) - 1 for name, place in _ARGUMENT.findall(call)}
    assert sorted(places.values()) == list(range(len(arguments)))
    return {name: arguments[place] for name, place in places.items()}


@given(
    st.sampled_from([{"to": "ann@example.org"}, CONTENT, BY_TEMPLATE]),
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(
                ("to", "subject", "text", "html", "template", "locale", "source", "idempotency_key"), TEXTS
            ),
            "lane": st.sampled_from(Lane),
            "variables": st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.none()), max_size=3),
        },
    ),
)
@example(CONTENT, {"html": "<p>Hello</p>", "variables": {"name": "Ann"}, **EVERY_MAIL})
@example(BY_TEMPLATE, {"locale": "fr", **EVERY_MAIL})
@example(CONTENT, {"subject": "Hello\u2028"})
@example(CONTENT, {"subject": " "})
@example(CONTENT, {"text": "\ud800"})
@example(BY_TEMPLATE, {"subject": "Hello"})
@example(BY_TEMPLATE, {"variables": {"name": "Ann\0"}})
@example(BY_TEMPLATE, {"variables": {"name": "\N{GRINNING FACE}" * 70_000}})
def test_a_mail_that_takes_the_short_way_is_valid(usual: dict[str, Any], other: dict[str, Any]) -> None:
    """The exact check finds no problem in its fields, and its arguments are those of the longer way."""
    mail = {**usual, **other}
    values = passed_values(mail)
    if values is not None:
        request = DeliveryRequest(**{**mail, "to": (parse_address(mail["to"]),)})
        assert list(problems(request)) == []
        assert request.source not in RESERVED_SOURCES
        passed = send_values(request, idempotency_ttl=IDEMPOTENCY_TTL)
        assert passed.pop("to") == [mail["to"]]
        assert values == {**passed, "email": mail["to"]}


@pytest.mark.parametrize("mail", [CONTENT, BY_TEMPLATE])
def test_usual_mail_takes_the_short_way(mail: dict[str, Any]) -> None:
    """Otherwise the rules above would hold for no mail at all. None stands for a field without a value."""
    assert passed_values(mail) is not None
    assert passed_values({**mail, **EVERY_MAIL, "html": None}) is not None


@pytest.mark.parametrize("field,value", INVALID_FORMS)
def test_a_form_that_may_be_invalid_is_not_kept(field: str, value: object) -> None:
    """The cache would hold a text of any size, take True for 1, and raise `TypeError` for a list."""
    kept = _choose_call.cache_info().currsize
    assert passed_values({**BY_TEMPLATE, field: value}) is None
    assert _choose_call.cache_info().currsize == kept


@pytest.mark.parametrize("field", ["room", "template", "locale", "lane", "source"])
def test_a_value_that_only_equals_a_text_takes_the_longer_way(field: str) -> None:
    """Also after mail of the same form was sent: lazy translations have the hash of their text."""

    class Lazy:
        def __eq__(self, other: object) -> bool:
            return bool(mail[field] == other)

        def __hash__(self) -> int:
            return hash(mail[field])

    mail = {**BY_TEMPLATE, "room": "postroom", "locale": "fr", "lane": "auth", "source": "shop"}
    assert passed_values(mail) is not None
    assert passed_values({**mail, field: Lazy()}) is None


WRONG_TYPES: list[tuple[str, object, str]] = [
    ("to", 5, "to: must be an address or a list of addresses"),
    ("cc", [5], "cc[0]: must be a text"),
    ("bcc", 5, "bcc: must be an address or a list of addresses"),
    ("reply_to", 5, "reply_to: must be an address or a list of addresses"),
    ("subject", 5, "subject: must be a text"),
    ("text", b"Hello", "text: must be a text"),
    ("html", ["Hello"], "html: must be a text"),
    ("template", 5, "template: must be a text"),
    ("variables", "name", "variables: must be a mapping"),
    ("locale", 5, "locale: must be a text"),
    ("lane", ["auth"], "lane: must be a text"),
    ("source", 5, "source: must be a text"),
    ("idempotency_key", 5, "idempotency_key: must be a text"),
    ("sender", 5, "from: must be a text"),
    ("headers", "X-Order", "headers: must be a mapping"),
    ("headers", {"X-Order": 5}, "headers.X-Order: must be a text"),
    ("tags", ["vip"], "tags: must be a mapping"),
    ("custom_data", "vip", "custom_data: must be a mapping"),
    ("send_at", "2026-11-19", "send_at: must be a datetime"),
    ("expires_at", 5, "expires_at: must be a datetime"),
    ("max_retries", "5", "max_retries: must be an integer"),
    ("give_up_after", 60, "give_up_after: must be a timedelta"),
    ("attachments", 5, "attachments: must be a list of attachments"),
    ("attachments", [("a.txt", "QQ==")], "attachments[0]: must be an Attachment with texts"),
    ("attachments", [Attachment("a.txt", "text/plain", b"QQ==")], "attachments[0].content: is not base64"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("field, value, error", WRONG_TYPES)
async def test_a_value_of_another_type_is_named(field: str, value: object, error: str) -> None:
    """Every field that is given with another type is bad input, before anything is sent to the database."""
    with pytest.raises(postroom.BadInput, match=re.escape(error)):
        await postroom.send(CONNECTION, **{**CONTENT, **EVERY_MAIL, field: value})


def test_every_field_is_given_with_another_type() -> None:
    assert {field for field, _value, _error in WRONG_TYPES} == set(_TYPES)


def test_every_keyword_of_send_is_usual_or_rare() -> None:
    """A keyword that is neither would be lost on the short way."""
    keywords = set(signature(postroom.send).parameters) - {"connection", "room"}
    assert keywords == {*RARE, *CONTENT, *BY_TEMPLATE, *EVERY_MAIL, "html"}


async def test_each_keyword_becomes_the_field_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """`send` names the values of the longer way by their order."""
    requests: list[DeliveryRequest] = []

    async def accept(_connection: object, request: DeliveryRequest, **_options: object) -> None:
        requests.append(request)

    monkeypatch.setattr(service, "accept_from_application", accept)
    mail = {**CONTENT, "html": "<p>Hello</p>", "variables": {"name": "Ann"}, **EVERY_MAIL, **RARE}
    await postroom.send(CONNECTION, **mail)
    people = {"to": "ann", "cc": "bob", "bcc": "carl", "reply_to": "dora"}
    addresses = {name: (Address(f"{person}@example.org"),) for name, person in people.items()}
    del mail["idempotency_ttl"]
    sender = Address("shop@example.org")
    assert requests == [DeliveryRequest(**{**mail, **addresses, "sender": sender, "attachments": ()})]


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


@pytest.mark.parametrize(
    "field,value,passed",
    [
        ("headers", {}, "{}"),
        ("tags", {}, "{}"),
        ("custom_data", {}, "{}"),
        ("attachments", (), "[]"),
        ("attachments", (FILE,), '[{"filename": "a.txt", "content_type": "text/plain", "content": "aGk="}]'),
    ],
)
async def test_sql_accepts_the_same_mail(room: Room, field: str, value: Any, passed: str) -> None:
    """An empty field, or an attachment without a Content-ID, is the same request from Python and from SQL."""
    async with room.pool.acquire() as connection:
        sent = await postroom.send(connection, **CONTENT, idempotency_key="order-42", **{field: value})
        repeated = await connection.fetchval(
            "SELECT send('{ann@example.org}', 'Hello', 'Hello Ann', p_locale => 'fr', p_source => 'python',"
            f" p_idempotency_key => 'order-42', p_{field} => $1::text::jsonb)",
            passed,
        )
    assert sent == repeated


async def test_sql_accepts_the_same_mail_without_variables(room: Room) -> None:
    """Empty variables are the same as no variables."""
    async with room.pool.acquire() as connection:
        sent = await postroom.send(
            connection, to="ann@example.org", template="welcome", variables={}, idempotency_key="order-42"
        )
        repeated = await connection.fetchval(
            "SELECT send('{ann@example.org}', p_template => 'welcome', p_variables => '{}', p_source => 'python',"
            " p_idempotency_key => 'order-42')"
        )
    assert sent == repeated


@pytest.mark.parametrize(
    "first,second",
    [
        ({"text": "a", "html": "b"}, {"text": "b", "html": "a"}),
        ({"text": "ab"}, {"html": "ab"}),
        ({"text": "a", "html": "b"}, {"text": "ab"}),
        ({"text": "a\x01hx", "html": "y"}, {"text": "a", "html": "x\x01hy"}),
        ({"subject": "Hi\x01tBody", "html": "b"}, {"subject": "Hi", "text": "Body", "html": "b"}),
        ({"html": "b", "headers": {"X-Order": "42"}}, {"html": 'b\x01r(email,,,,"{""X-Order"": ""42""}",,,,,)'}),
    ],
)
async def test_the_same_texts_in_other_fields_are_another_mail(
    room: Room, first: dict[str, Any], second: dict[str, Any]
) -> None:
    """With one fingerprint for both, the second would be taken for the first and not be sent."""
    mail = {"to": "ann@example.org", "subject": "Hello", "idempotency_key": "order-42"}
    async with room.pool.acquire() as connection:
        await postroom.send(connection, **{**mail, **first})
        with pytest.raises(postroom.IdempotencyConflict):
            await postroom.send(connection, **{**mail, **second})


async def test_a_checked_recipient_beside_rare_fields_loses_none(room: Room) -> None:
    """SQL that passes the argument of Postroom's library by hand gets what it asked for."""
    await room.pool.execute(
        "SELECT send('{ann@example.org}', 'Hello', 'Hello', p_email => 'bob@example.org', p_cc => '{carl@example.org}')"
    )
    found = await room.pool.fetch("SELECT kind::text, email FROM delivery_recipients")
    assert {tuple(row) for row in found} == {
        ("to", "ann@example.org"),
        ("to", "bob@example.org"),
        ("cc", "carl@example.org"),
    }


@pytest.mark.parametrize("nothing", [[], (), "", None])
def test_no_variables_are_valid_in_any_form(nothing: Any) -> None:
    request = DeliveryRequest(to=(Address("ann@example.org"),), template="welcome", variables=nothing)
    assert list(problems(request)) == []
