"""Validation of requests: each rule names its field, and accepted values are stored unchanged."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.builders import NOON, a_mail, addresses
from tests.support.requests import BAD as SHARED
from tests.support.requests import GOOD

from postroom.db.pool import Pool, Session
from postroom.delivery import service, store
from postroom.delivery.check import check_batch, check_request, problems
from postroom.delivery.model import DeliveryRequest, Lane
from postroom.delivery.send import send
from postroom.errors import BadInput
from postroom.post.address import Address
from postroom.post.mime import Attachment

NOT_ASKED = cast("Session", SimpleNamespace(fetchrow=print))
PNG = Attachment("a.png", "image/png", "aGk=")
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)

BAD: list[tuple[str, dict[str, Any]]] = [
    ("to", {"to": ()}),
    ("to", {"to": addresses(*(f"p{n}@example.org" for n in range(60))), "cc": addresses(*["c@example.org"] * 41)}),
    ("to[0]", {"to": addresses("nobody")}),
    ("to[1]", {"to": addresses("a@example.org", "b@example.org\r\nBcc: c@example.org")}),
    ("to[0]", {"to": (Address("a@example.org", "two\nlines"),)}),
    ("to[0]", {"to": addresses("a@" + "x" * 254)}),
    ("cc[0]", {"cc": addresses("nobody")}),
    ("bcc[0]", {"bcc": addresses("nobody")}),
    ("reply_to[0]", {"reply_to": addresses("nobody")}),
    ("reply_to", {"reply_to": addresses(*["r@example.org"] * 101)}),
    ("from", {"sender": Address("nobody")}),
    ("subject", {"subject": None}),
    ("subject", {"subject": " "}),
    ("subject", {"subject": "two\r\nlines"}),
    ("subject", {"subject": "x" * 999}),
    ("subject", {"subject": "\ud800"}),
    ("text", {"text": None}),
    ("text", {"text": "\x00"}),
    ("text", {"text": "\udfff"}),
    ("text", {"text": "x" * (5 * 1024 * 1024 + 1)}),
    ("html", {"html": "\x00"}),
    ("template", {"template": "../etc/passwd"}),
    ("subject", {"template": "welcome", "subject": "Hello"}),
    ("locale", {"locale": "../etc"}),
    ("headers.From", {"headers": {"From": "a@example.org"}}),
    ("headers.X-A", {"headers": {"X-A": "a\r\nBcc: b@example.org"}}),
    ("headers.x-a", {"headers": {"X-A": "1", "x-a": "2"}}),
    ("headers.a b", {"headers": {"a b": "1"}}),
    ("attachments[0].filename", {"attachments": (Attachment("", "a/b", "aGk="),)}),
    ("attachments[0].filename", {"attachments": (Attachment("a\nb", "a/b", "aGk="),)}),
    ("attachments[0].content_type", {"attachments": (Attachment("a", "nonsense", "aGk="),)}),
    ("attachments[0].content_type", {"attachments": (Attachment("a", "a/b\r\nX: y", "aGk="),)}),
    ("attachments[0].content_type", {"attachments": (Attachment("a", "a/b; c=\r\nX: y", "aGk="),)}),
    ("attachments[0].content_type", {"attachments": (Attachment("a", "a/b; c", "aGk="),)}),
    ("attachments[1].content", {"attachments": (PNG, Attachment("a", "a/b", "not base64"))}),
    ("attachments[0].content", {"attachments": (Attachment("a", "a/b", "é"),)}),
    ("attachments[0].content_id", {"attachments": (Attachment("a", "a/b", "aGk=", "a b"),)}),
    ("source", {"source": ""}),
    ("source", {"source": "x" * 101}),
    ("idempotency_key", {"idempotency_key": ""}),
    ("idempotency_key", {"idempotency_key": "a\x00b"}),
    ("ladder", {"ladder": "endless"}),
    ("send_at", {"send_at": datetime(2030, 1, 1)}),  # noqa: DTZ001 - the mistake under test
    ("send_at", {"send_at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))}),
    ("expires_at", {"expires_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))}),
    ("tags", {"tags": {str(n): "x" for n in range(51)}}),
    ("tags", {"tags": {"a": "\x00"}}),
    ("variables", {"template": "welcome", "variables": {"a": ["\ud800"]}}),
    ("variables", {"template": "welcome", "variables": {"a": 2**63}}),
    ("variables", {"template": "welcome", "variables": {"a": object()}}),
    ("variables", {"template": "welcome", "variables": {"a": ENDLESS}}),
    ("custom_data", {"custom_data": {"a": float("nan")}}),
    ("custom_data", {"custom_data": {"a": float("inf")}}),
    ("custom_data", {"custom_data": {1: "a"}}),
    ("traceparent", {"traceparent": "a\x00b"}),
]


@pytest.mark.parametrize("field, change", BAD, ids=lambda value: value if isinstance(value, str) else repr(value)[:40])
def test_a_broken_rule_names_its_field(field: str, change: dict[str, Any]) -> None:
    """An invalid value is reported with its field."""
    with pytest.raises(BadInput) as caught:
        check_batch([a_mail(**change)])
    assert field in [error.field for error in caught.value.errors]


@pytest.mark.parametrize(
    "field, change", SHARED, ids=lambda value: value if isinstance(value, str) else repr(value)[:40]
)
async def test_python_refuses_what_sql_refuses(field: str, change: dict[str, Any]) -> None:
    """`postroom.send` rejects each case of the shared table before it uses the database."""
    with pytest.raises(BadInput) as caught:
        await send(NOT_ASKED, **{**GOOD, **change})
    assert field in [error.field for error in caught.value.errors]


def test_all_invalid_fields_are_reported_at_once() -> None:
    """All invalid fields are reported together."""
    found = [field for field, _ in problems(a_mail(subject=None, text=None, source="", to=()))]
    assert found == ["to", "subject", "text", "source"]


def test_a_good_request_has_no_problems() -> None:
    """Ordinary mail passes all rules."""
    request = a_mail(
        html="<p>Hi</p>",
        headers={"X-A": "1", "List-Unsubscribe": "<mailto:u@example.org>"},
        attachments=(PNG,),
        tags={"a": "b"},
        custom_data={"deep": [1, 2.5, None, True, {"x": "é"}]},
        send_at=NOON,
    )
    assert list(problems(request)) == []


# ── anything at all ───────────────────────────────────────────────────────────────────────────────────────────────────

ANY_TEXT = st.text(max_size=30) | st.text(st.characters(categories=["Cs", "Cc", "Zs", "Lu"]), max_size=5)
EMAIL = st.just("a@example.org") | st.builds("{}@{}".format, ANY_TEXT, ANY_TEXT) | ANY_TEXT
ADDRESS = st.builds(Address, EMAIL, st.none() | ANY_TEXT)
ADDRESSES = st.lists(ADDRESS, max_size=3).map(tuple)
# A whole number beyond 2^53 that is written as a float comes back as the integer its digits name: JSON has one kind.
EXACT = st.floats(-(2.0**53), 2.0**53, width=32) | st.sampled_from([float("nan"), float("inf"), float("-inf")])
NUMBER = st.integers(-(2**70), 2**70) | EXACT
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
DATA = st.dictionaries(ANY_TEXT, VALUE, max_size=3)
MOMENT = st.none() | st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=14))]))
ATTACHMENT = st.builds(
    Attachment,
    ANY_TEXT | st.just("a.txt"),
    ANY_TEXT | st.just("text/plain"),
    ANY_TEXT | st.just("aGk="),
    st.none() | ANY_TEXT,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "to": ADDRESSES,
    "cc": ADDRESSES,
    "bcc": ADDRESSES,
    "reply_to": ADDRESSES,
    "sender": st.none() | ADDRESS,
    "subject": st.none() | ANY_TEXT,
    "text": st.none() | ANY_TEXT,
    "html": st.none() | ANY_TEXT,
    "template": st.none() | ANY_TEXT | st.just("welcome"),
    "variables": DATA,
    "locale": st.none() | ANY_TEXT | st.just("fr"),
    "headers": st.dictionaries(ANY_TEXT | st.just("X-A"), ANY_TEXT, max_size=3),
    "attachments": st.lists(ATTACHMENT, max_size=2).map(tuple),
    "tags": st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3),
    "custom_data": st.none() | DATA,
    "lane": st.sampled_from(list(Lane)),
    "source": ANY_TEXT,
    "idempotency_key": st.none() | ANY_TEXT,
    "send_at": MOMENT,
    "expires_at": MOMENT,
    "ladder": st.none() | ANY_TEXT | st.just("auth"),
    "traceparent": st.none() | ANY_TEXT,
}
CHANGES = st.lists(st.sampled_from(sorted(FIELDS)), max_size=4, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in names})
)
STORED_AS_IT_CAME = (
    *("sender", "subject", "text", "html", "variables", "headers", "attachments", "tags", "lane", "source"),
    *("idempotency_key", "expires_at", "locale", "traceparent"),
)


@pytest.fixture
async def session(pool: Pool) -> AsyncIterator[Session]:
    async with pool.acquire() as connection:
        yield connection


async def accept_and_forget(session: Session, request: DeliveryRequest) -> None:
    """Accept, compare and roll back: the request is stored unchanged, or a field is named."""
    transaction = session.transaction()
    await transaction.start()
    try:
        accepted = await service.accept(session, check_request(request))
        found = await store.find_delivery(session, delivery_id=accepted.id)
    except BadInput:
        return
    finally:
        await transaction.rollback()
    assert found is not None
    for name in STORED_AS_IT_CAME:
        assert getattr(found, name) == getattr(request, name), name
    assert (found.custom_data or None) == (request.custom_data or None)
    written = [(r.address, r.name) for r in found.recipients]
    asked = [*request.to, *request.cc, *request.bcc, *request.reply_to]
    assert written == [(address.email, address.name) for address in asked]


async def test_anything_is_either_refused_by_name_or_stored_as_it_came(session: Session) -> None:
    """Any request is rejected with a named field or stored unchanged."""
    loop, tried = asyncio.get_running_loop(), 0

    @settings(max_examples=300, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(changes=CHANGES)
    def anything(changes: dict[str, Any]) -> None:
        nonlocal tried
        request = a_mail(**changes)
        asyncio.run_coroutine_threadsafe(accept_and_forget(session, request), loop).result(60)
        tried += 1

    await asyncio.to_thread(anything)
    assert tried >= 300
