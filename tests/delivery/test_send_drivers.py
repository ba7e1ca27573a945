"""`postroom.send` and `postroom.sync.send` in the application's transaction: one table of cases on every driver."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.orm import scoped_session, sessionmaker
from tests.conftest import TestServer, cloned_database
from tests.support.drivers import ASYNCHRONOUS, SYNCHRONOUS, Application, run_case

import postroom
from postroom import sync
from postroom.db.errors import RoomMissing

HELLO: dict[str, Any] = {
    "to": "Ada Lovelace <ada@example.org>",
    "subject": "Hello",
    "text": "100 % of \\ 'quotes' and $1, Ada.",
}
LATER = datetime(2035, 1, 1, 12, tzinfo=UTC)
FULL: dict[str, Any] = {
    "to": ["Ada Lovelace <ada@example.org>", '"B, Bob" <bob@example.org>'],
    "cc": ["c@example.org"],
    "sender": "Desk <desk@example.org>",
    "subject": "Grüße, 100 %",
    "html": "<p>\\ 'quoted' %s %(p1)s $1 :name</p>",
    "headers": {"X-Shop": "1"},
    "attachments": [postroom.Attachment("a.txt", "text/plain", "aGk=")],
    "tags": {"kind": "order"},
    "custom_data": {"order": 7, "names": ["%", "'"]},
    "idempotency_key": "full",
    "idempotency_ttl": timedelta(hours=2),
    "send_at": LATER,
    "expires_at": LATER + timedelta(hours=1),
    "max_retries": 2,
    "give_up_after": timedelta(hours=3),
    "source": "shop",
}
STORED = """
    SELECT p.subject, p.html_body, p.from_email, p.headers, d.tags, d.custom_data, d.next_attempt_at, d.expires_at,
        d.max_retries, d.give_up_after, d.source, d.idempotency_expires_at - d.created_at,
        p.attachments -> 0 ->> 'filename'
    FROM deliveries AS d JOIN delivery_payloads AS p ON p.delivery_id = d.id
"""

Observer = Callable[[str], list[Any]]


class Undo(Exception):  # noqa: N818 - not an error: it ends a block
    """Rolls a block back."""


@pytest.fixture(scope="module")
async def url(server: TestServer) -> AsyncIterator[str]:
    """One database for the whole table: each test empties it."""
    async with cloned_database(server) as cloned:
        yield cloned


@pytest.fixture(scope="module")
def observer(url: str) -> Iterator[psycopg.Connection]:
    """Another session, which sees committed rows only."""
    with psycopg.connect(url, autocommit=True, options="-csearch_path=postroom") as connection:
        yield connection


@pytest.fixture
def observe(observer: psycopg.Connection) -> Observer:
    """Query as the observer, in an empty room."""
    for table in ("deliveries", "delivery_payloads", "other_recipients", "due_deliveries", "suppressions"):
        observer.execute(f"DELETE FROM {table}".encode())
    return lambda query: observer.execute(query.encode()).fetchall()


async def accept(app: Application, observe: Observer) -> None:
    """A mail is accepted with the transaction, not before, and every field arrives."""
    async with app.transaction():
        await app.send(**FULL)
        assert observe("SELECT id FROM deliveries") == []
    assert observe(STORED) == [
        (
            *(FULL["subject"], FULL["html"], "desk@example.org", FULL["headers"], FULL["tags"], FULL["custom_data"]),
            *(LATER, FULL["expires_at"], 2, FULL["give_up_after"], "shop", FULL["idempotency_ttl"], "a.txt"),
        )
    ]
    recipients = observe("SELECT kind, email, name FROM delivery_recipients ORDER BY kind, position")
    assert recipients == [
        ("to", "ada@example.org", "Ada Lovelace"),
        ("to", "bob@example.org", "B, Bob"),
        ("cc", "c@example.org", None),
    ]


async def repeat_a_key(app: Application, observe: Observer) -> None:
    """The same key with the same content returns the first id again, in the same transaction and in a later one."""
    async with app.transaction():
        first = await app.send(**HELLO, idempotency_key="k")
        again = await app.send(**HELLO, idempotency_key="k")
    async with app.transaction():
        later = await app.send(**HELLO, idempotency_key="k")
    assert (again, later, observe("SELECT id FROM deliveries")) == (first, first, [(first,)])


async def repeat_a_key_with_other_content(app: Application, observe: Observer) -> None:
    """The same key with other content raises; after a savepoint the transaction goes on."""
    async with app.transaction():
        first = await app.send(**HELLO, idempotency_key="k")
        with pytest.raises(postroom.IdempotencyConflict, match="already used with a different request"):
            async with app.savepoint():
                await app.send(**{**HELLO, "text": "Other."}, idempotency_key="k")
        second = await app.send(**HELLO, idempotency_key="other")
    assert observe("SELECT id FROM deliveries ORDER BY id") == [(first,), (second,)]


async def name_an_unknown_template(app: Application, observe: Observer) -> None:
    """The stored function's error is the same `BadInput` everywhere, with the field that is invalid."""
    with pytest.raises(postroom.BadInput) as refused:
        async with app.transaction():
            await app.send(to="ada@example.org", template="no-such", variables={"a": 1})
    assert [error.field for error in refused.value.errors] == ["template"]
    assert "there is no template 'no-such'" in str(refused.value)
    assert observe("SELECT id FROM deliveries") == []


async def name_a_missing_room(app: Application, observe: Observer) -> None:
    """Neither a driver's error nor a statement: the room is missing, and a command creates it."""
    with pytest.raises(RoomMissing, match=r"no such room in this database.*nope.* Create it with `postroom migrate`"):
        async with app.transaction():
            await app.send(**HELLO, room="nope")


async def give_bad_input(app: Application, observe: Observer) -> None:
    """Invalid fields are found before the database is asked, and the transaction stays usable."""
    async with app.transaction():
        with pytest.raises(postroom.BadInput, match="subject"):
            await app.send(to="ada@example.org", text="Hello")
        await app.send(**HELLO)
    assert len(observe("SELECT id FROM deliveries")) == 1


async def send_to_a_suppressed_address(app: Application, observe: Observer) -> None:
    """The mail is stored as suppressed, and never sent."""
    observe("INSERT INTO suppressions (address, scope, reason) VALUES ('ada@example.org', 'all', 'manual') RETURNING 1")
    async with app.transaction():
        await app.send(**HELLO)
    assert observe("SELECT state FROM deliveries") == [("suppressed",)]


async def roll_back(app: Application, observe: Observer) -> None:
    """A rollback removes the mail."""
    with suppress(Undo):
        async with app.transaction():
            await app.send(**HELLO)
            raise Undo
    assert observe("SELECT id FROM deliveries") == []


async def roll_back_to_a_savepoint(app: Application, observe: Observer) -> None:
    """A savepoint removes the mail that was sent after it, and keeps the mail before it."""
    async with app.transaction():
        kept = await app.send(**HELLO)
        with suppress(Undo):
            async with app.savepoint():
                await app.send(**HELLO)
                raise Undo
    assert observe("SELECT id FROM deliveries") == [(kept,)]


CASES = (
    accept,
    repeat_a_key,
    repeat_a_key_with_other_content,
    name_an_unknown_template,
    name_a_missing_room,
    give_bad_input,
    send_to_a_suppressed_address,
    roll_back,
    roll_back_to_a_savepoint,
)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


@each_case
@pytest.mark.parametrize("driver", SYNCHRONOUS)
def test_a_synchronous_driver(driver: str, case: Callable[..., Any], url: str, observe: Observer) -> None:
    """The case holds on the driver, without an event loop."""
    run_case(driver, url, lambda app: case(app, observe))


@each_case
@pytest.mark.parametrize("driver", ASYNCHRONOUS)
async def test_an_asynchronous_driver(driver: str, case: Callable[..., Any], url: str, observe: Observer) -> None:
    """The case holds on the driver."""
    async with ASYNCHRONOUS[driver](url) as app:
        await case(app, observe)


def test_the_rows_and_cursors_of_the_application_do_not_matter(url: str, observe: Observer) -> None:
    """Connections that return rows as dictionaries, and cursors that bind parameters in the client, work too."""
    with psycopg.connect(url, row_factory=dict_row, cursor_factory=psycopg.ClientCursor) as connection:
        sync.send(connection, **HELLO)
    connection = psycopg2.connect(url, cursor_factory=psycopg2.extras.RealDictCursor)
    with connection:
        sync.send(connection, **HELLO)
    connection.close()
    assert len(observe("SELECT id FROM deliveries")) == 2


def test_a_scoped_session(url: str, observe: Observer) -> None:
    """The proxy that Flask-SQLAlchemy hands out is a session too."""
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    session = scoped_session(sessionmaker(engine))
    sync.send(session, **HELLO)
    session.rollback()
    sync.send(session, **HELLO)
    session.commit()
    session.remove()
    engine.dispose()
    assert len(observe("SELECT id FROM deliveries")) == 1


async def test_a_synchronous_connection_is_not_awaited(url: str) -> None:
    """It would block the event loop: the error names the function for it."""
    with psycopg.connect(url) as connection, pytest.raises(TypeError, match=r"use postroom\.sync, without await"):
        await postroom.send(connection, **HELLO)


async def test_an_asynchronous_connection_needs_await(url: str) -> None:
    """The error names the function for it, for asyncpg and for others."""
    for driver in ("asyncpg", "psycopg-async"):
        async with ASYNCHRONOUS[driver](url) as app:
            with pytest.raises(TypeError, match=r"is an asynchronous connection: use `await postroom\.send"):
                sync.send(app.connection, **HELLO)


def test_another_driver_is_refused_by_name() -> None:
    """The error names the connection's class, the drivers, and the SQL function."""
    with sqlite3.connect(":memory:") as connection, pytest.raises(TypeError) as refused:
        sync.send(connection, **HELLO)
    assert "sqlite3.Connection is not a connection that Postroom can use" in str(refused.value)
    assert "SELECT postroom.send(…)" in str(refused.value)


def test_another_database_is_refused_by_name() -> None:
    """SQLAlchemy and Django lead to other databases too."""
    with (
        sqlalchemy.create_engine("sqlite://").connect() as connection,
        pytest.raises(TypeError, match="leads to sqlite"),
    ):
        sync.send(connection, **HELLO)
