"""`SELECT postroom.send(…)`: acceptance from any language, inside the caller's transaction."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from tests.conftest import TestServer, cloned_database
from tests.support.addresses import ACCEPTED, REFUSED
from tests.support.builders import outcomes_of, state_of
from tests.support.requests import ALLOWED, BAD, GOOD, as_sql

from postroom.db.pool import Pool, Session
from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.model import DeliveryState, Lane
from postroom.post.address import Address
from postroom.post.header import FORBIDDEN_HEADERS, RELAY_HEADERS
from postroom.post.mime import Attachment
from postroom.post.text import is_storable

HELLO = {"p_to": ["ada@example.org"], "p_subject": "Hello", "p_text": "Hello, Ada."}


@pytest.fixture
async def foreign(room: Room) -> AsyncIterator[Session]:
    """An application's own connection, without settings for the room."""
    connection = await asyncpg.connect(room.url, server_settings={"search_path": "public"})
    yield connection
    await connection.close()


@pytest.fixture(scope="module")
async def strict(server: TestServer) -> AsyncIterator[Session]:
    """A shared connection for invalid input: rejected calls store nothing, so one database serves the whole table."""
    async with cloned_database(server) as url:
        connection = await asyncpg.connect(url, server_settings={"search_path": "public"})
        yield connection
        await connection.close()


async def send(connection: Session, **arguments: Any) -> int:
    """Call `send` with named arguments."""
    named = ", ".join(f"{name} => ${place}" for place, name in enumerate(arguments, start=1))
    return int(await connection.fetchval(f"SELECT postroom.send({named})", *arguments.values()))


async def count(pool: Pool) -> int:
    async with pool.acquire() as connection:
        return int(await connection.fetchval("SELECT count(*) FROM deliveries"))


async def test_a_committed_call_is_a_delivery(pool: Pool, foreign: Session) -> None:
    """The result is the id of a queued delivery."""
    delivery = await send(foreign, **HELLO)
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.source, found.lane, found.ladder) == (
        DeliveryState.QUEUED,
        "sql",
        Lane.TRANSACTIONAL,
        "generic",
    )


async def test_a_rolled_back_call_is_nothing(pool: Pool, foreign: Session) -> None:
    """A rollback removes the delivery."""
    transaction = foreign.transaction()
    await transaction.start()
    await send(foreign, **HELLO)
    await transaction.rollback()
    assert await count(pool) == 0


async def test_every_argument_arrives(pool: Pool, foreign: Session) -> None:
    """Addresses with names, content, data and bookkeeping are stored as given."""
    delivery = await send(
        foreign,
        p_to=["Ada Lovelace <ada@example.org>", '"B, Bob" <bob@example.org>'],
        p_cc=["c@example.org"],
        p_bcc=["d@example.org"],
        p_reply_to=["r@example.org"],
        p_from="Desk <desk@example.org>",
        p_subject="Hello",
        p_html="<p>Hi</p>",
        p_lane="auth",
        p_source="shop",
        p_idempotency_key="k",
        p_headers='{"X-Shop": "1"}',
        p_attachments='[{"filename": "a.ics", "content_type": "text/calendar; method=REQUEST", "content": "aGk="}]',
        p_tags='{"kind": "order"}',
        p_custom_data='{"order": 7}',
        p_max_retries=2,
        p_give_up_after=timedelta(hours=3),
    )
    found = await service.get_delivery(pool, delivery)
    assert [(r.address, r.name) for r in found.recipients] == [
        ("ada@example.org", "Ada Lovelace"),
        ("bob@example.org", "B, Bob"),
        ("c@example.org", None),
        ("d@example.org", None),
        ("r@example.org", None),
    ]
    assert found.sender == Address("desk@example.org", "Desk")
    assert (found.lane, found.ladder, found.idempotency_key) == (Lane.AUTH, "auth", "k")
    assert (found.headers, found.tags, found.custom_data) == ({"X-Shop": "1"}, {"kind": "order"}, {"order": 7})
    assert (found.max_retries, found.give_up_after) == (2, timedelta(hours=3))
    assert found.attachments == (Attachment("a.ics", "text/calendar; method=REQUEST", "aGk="),)


async def test_a_template_with_variables(pool: Pool, foreign: Session) -> None:
    """A template's name and variables wait to be rendered."""
    delivery = await send(foreign, p_to=["a@example.org"], p_template="welcome", p_variables='{"n": 1}', p_locale="fr")
    found = await service.get_delivery(pool, delivery)
    assert (found.template_id, found.variables, found.locale) == ("welcome", {"n": 1}, "fr")


async def test_the_same_key_answers_the_same_id(pool: Pool, foreign: Session) -> None:
    """A repeated call with the same content is the first call again."""
    first = await send(foreign, **HELLO, p_idempotency_key="k")
    second = await send(foreign, **HELLO, p_idempotency_key="k")
    assert first == second
    assert await count(pool) == 1


async def test_a_key_for_something_else_is_a_conflict(pool: Pool, foreign: Session) -> None:
    """PR002, naming the key; nothing more is stored."""
    await send(foreign, **HELLO, p_idempotency_key="k")
    with pytest.raises(asyncpg.PostgresError) as caught:
        await send(foreign, **{**HELLO, "p_text": "Other."}, p_idempotency_key="k")
    assert (caught.value.sqlstate, caught.value.column_name) == ("PR002", "idempotency_key")
    assert await count(pool) == 1


DEEP = '{"a":' * 1500 + "1" + "}" * 1500
FILE = '"filename": "a", "content_type": "a/b", "content": "aGk="'

BAD_IN_SQL: list[tuple[str, dict[str, Any]]] = [
    ("to", {"p_to": None}),
    ("to[0]", {"p_to": [None]}),
    ("lane", {"p_lane": None}),
    ("variables", {"p_variables": "[1]"}),
    ("variables", {"p_variables": '"x"'}),
    ("variables", {"p_variables": DEEP}),
    ("variables", {"p_variables": '{"n": 1e5000}'}),
    ("headers", {"p_headers": "[1]"}),
    ("headers", {"p_headers": '{"X-A": 1}'}),
    ("attachments", {"p_attachments": "{}"}),
    ("attachments[0]", {"p_attachments": "[7]"}),
    ("attachments[0]", {"p_attachments": '[{"filename": "a.txt"}]'}),
    ("attachments[0]", {"p_attachments": f'[{{{FILE}, "x": {DEEP}}}]'}),
    ("attachments[1]", {"p_attachments": f'[{{{FILE}}}, {{{FILE}, "content_id": 7}}]'}),
    ("to", {"p_to": [["ada@example.org"]]}),
    ("cc", {"p_cc": [["ada@example.org", "bob@example.org"]]}),
    ("tags", {"p_tags": "[]"}),
    ("tags", {"p_tags": '{"a": 1}'}),
    ("custom_data", {"p_custom_data": "7"}),
    ("send_at", {"p_send_at": datetime.max.replace(tzinfo=UTC)}),
    ("idempotency_ttl", {"p_idempotency_ttl": None}),
    ("idempotency_ttl", {"p_idempotency_ttl": timedelta(days=4000)}),
]
"""Mistakes that only JSON and SQL can express; those that Python can make too are in `tests.support.requests`."""


@pytest.mark.parametrize(
    "field, change",
    [*((field, as_sql(change)) for field, change in BAD), *BAD_IN_SQL],
    ids=lambda value: value if isinstance(value, str) else repr(value)[:40],
)
async def test_bad_input_names_its_field_and_stores_nothing(
    strict: Session, field: str, change: dict[str, Any]
) -> None:
    """PR001 with the field in COLUMN."""
    with pytest.raises(asyncpg.PostgresError) as caught:
        await send(strict, **{**HELLO, **change})
    assert (caught.value.sqlstate, caught.value.column_name) == ("PR001", field)
    assert await strict.fetchval("SELECT count(*) FROM postroom.deliveries") == 0


async def test_sql_accepts_what_python_accepts(foreign: Session) -> None:
    """SQL accepts the limit cases of every rule."""
    ids = [await send(foreign, **as_sql({**GOOD, **change})) for change in ALLOWED]
    assert len(set(ids)) == len(ALLOWED)


@pytest.mark.parametrize("moment", ["infinity", "-infinity", "20000-01-01Z"])
@pytest.mark.parametrize("field", ["send_at", "expires_at"])
async def test_time_beyond_pythons_years_is_refused(strict: Session, field: str, moment: str) -> None:
    """No worker could read such a row."""
    with pytest.raises(asyncpg.PostgresError) as caught:
        await strict.execute(
            f"SELECT postroom.send('{{a@example.org}}', p_subject => 's', p_text => 't', p_{field} => '{moment}')"
        )
    assert (caught.value.sqlstate, caught.value.column_name) == ("PR001", field)


async def test_sql_reads_addresses_as_python_does(strict: Session) -> None:
    """SQL and Python parse the same mailbox and name; SQL rejects non-ASCII addresses with advice."""
    for written, email, name in ACCEPTED:
        call = strict.fetchval("SELECT postroom.parse_address('to[0]', $1)", written)
        if written.rpartition("<")[2].isascii():
            assert await call == [email, name], written
        else:
            with pytest.raises(asyncpg.PostgresError, match="non-ASCII"):
                await call
    for written, _ in REFUSED:
        if written.isascii() and "\x00" not in written:
            with pytest.raises(asyncpg.PostgresError) as caught:
                await strict.fetchval("SELECT postroom.parse_address('to[0]', $1)", written)
            assert (caught.value.sqlstate, caught.value.column_name) == ("PR001", "to[0]")


async def test_a_plain_address_is_parsed_as_itself(strict: Session) -> None:
    """`send` does not parse an address in the usual form: parsing would return it unchanged, and never reject it."""
    plain = "SELECT array_agg(a) FROM unnest($1::text[]) AS a WHERE postroom.is_plain_address(a)"
    found = await strict.fetchval(plain, [written for written, _, _ in ACCEPTED])
    assert found
    assert {(address, address, None) for address in found} <= set(ACCEPTED)
    assert not await strict.fetchval(plain, [written for written, _ in REFUSED if is_storable(written)])


async def test_sql_and_python_forbid_the_same_headers(foreign: Session) -> None:
    """A header that Postroom writes itself can be given by neither way."""
    for header in FORBIDDEN_HEADERS | RELAY_HEADERS:
        with pytest.raises(asyncpg.PostgresError) as caught:
            await send(foreign, **HELLO, p_headers=f'{{"{header}": "x"}}')
        assert caught.value.column_name == f"headers.{header}"


async def test_suppression_holds_here_too(pool: Pool, foreign: Session) -> None:
    """A suppressed address gets nothing through SQL either."""
    await foreign.execute(
        "INSERT INTO postroom.suppressions (address, scope, reason) VALUES ('ada@example.org', 'bulk', 'unsubscribe')"
    )
    bulk = await send(foreign, **HELLO, p_lane="bulk")
    receipt = await send(foreign, **HELLO)
    assert (await state_of(pool, bulk), await state_of(pool, receipt)) == (
        DeliveryState.SUPPRESSED,
        DeliveryState.QUEUED,
    )
    assert await outcomes_of(pool, bulk) == {"ada@example.org": "suppressed"}


async def test_it_works_from_a_trigger(pool: Pool, foreign: Session) -> None:
    """An application's trigger can send: the mail is committed with the order, and only with it."""
    await foreign.execute(
        """
        CREATE TABLE orders (id int, email text);
        CREATE FUNCTION thank() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM postroom.send(ARRAY[NEW.email], p_subject => 'Thank you', p_text => 'Order ' || NEW.id);
            RETURN NEW;
        END $$;
        CREATE TRIGGER thank AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION thank();
        """
    )
    await foreign.execute("INSERT INTO orders VALUES (1, 'a@example.org'), (2, 'b@example.org')")
    assert await count(pool) == 2
