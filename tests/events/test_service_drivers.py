"""The event store in the application's transaction: one table of cases on every driver."""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import psycopg
import pytest
from django.conf import settings
from tests.conftest import TestServer, cloned_database
from tests.support.drivers import ASYNCHRONOUS, SYNCHRONOUS, Application, run_case

from postroom import sync
from postroom.events import AppendCondition, Event, Query, SequencedEvent, tag
from postroom.events.errors import AppendConditionFailed, DuplicateAppend

DATA = {"text": "100 % of \\ 'quotes', \"$1\" and ü", "list": [1, 2.5, None, {"deep": True}]}
BALANCE: dict[str, Callable[[int, SequencedEvent], int]] = {
    "Deposited": lambda total, event: total + event.data["amount"],
    "Withdrawn": lambda total, event: total - event.data["amount"],
}
wallets = count(1)


@pytest.fixture(scope="module")
async def url(server: TestServer) -> AsyncIterator[str]:
    """One database for the whole table: each case has a wallet of its own."""
    async with cloned_database(server) as cloned:
        yield cloned


class Undo(Exception):  # noqa: N818 - not an error: it ends a block
    """Rolls a block back."""


class Wallet:
    """The events of one wallet, as another session sees them."""

    def __init__(self, url: str) -> None:
        self._url, self.number = url, next(wallets)
        self.query = Query.of(tags={"wallet": self.number})

    def event(self, type_: str = "Deposited", amount: int = 10) -> Event:
        return Event.of(type_, {"amount": amount}, wallet=self.number)

    def append(self, event: Event) -> None:
        with psycopg.connect(self._url) as connection:
            sync.EventStore(connection).append(event)

    def types(self) -> list[str]:
        with psycopg.connect(self._url) as connection:
            return [event.type for event in sync.EventStore(connection).read(self.query).events]


async def append_and_read(app: Application, wallet: Wallet) -> None:
    """Events are visible to others after the commit, and read with the same values by every kind of read."""
    given = Event.of("Noted", DATA, wallet=wallet.number, name='Smith, "J" \\ {x}')
    async with app.transaction():
        appended = await app.events("append", [wallet.event(), given])
        assert (appended.events_count, wallet.types()) == (2, [])
    both = wallet.query | Query.of("Noted", tags={"wallet": wallet.number})
    for query in (wallet.query, both):
        _deposited, noted = (await app.events("read", query, limit=10)).events
        assert (noted.data, set(noted.tags)) == (DATA, set(given.tags))
        assert (noted.position, noted.transaction_id) == (appended.position, appended.transaction_id)
        assert noted.occurred_at.utcoffset() is not None
    newest = (await app.events("read", both, limit=1, backwards=True)).events
    assert [event.position for event in newest] == [appended.position]


async def fail_a_condition(app: Application, wallet: Wallet) -> None:
    """An event appended since the read is named by the error, and the transaction goes on."""
    async with app.transaction():
        balance, seen = await app.events("project", 0, BALANCE, wallet.query)
        wallet.append(wallet.event())
        with pytest.raises(AppendConditionFailed) as failed:
            await app.events("append", wallet.event("Withdrawn"), AppendCondition(wallet.query, seen))
        await app.events("append", wallet.event("Noted"))
    assert (balance, failed.value.type, failed.value.tags) == (0, "Deposited", (tag("wallet", wallet.number),))
    assert wallet.types() == ["Deposited", "Noted"]


async def append_twice(app: Application, wallet: Wallet) -> None:
    """An event that matches the idempotency query is not appended again."""
    async with app.transaction():
        await app.events("append", wallet.event(), idempotency=wallet.query)
        with pytest.raises(DuplicateAppend):
            await app.events("append", wallet.event(), idempotency=wallet.query)
    assert wallet.types() == ["Deposited"]


async def decide_again(app: Application, wallet: Wallet) -> None:
    """A decision that another session overtakes reads the new event and is made once more."""
    asked: list[int] = []

    def withdraw(total: int) -> Event | None:
        asked.append(total)
        if len(asked) == 1:
            wallet.append(wallet.event("Withdrawn", 8))
        return wallet.event("Withdrawn", 5) if total >= 5 else None

    wallet.append(wallet.event())
    async with app.transaction():
        assert await app.events("decide", wallet.query, 0, BALANCE, withdraw) is None
    assert (asked, wallet.types()) == ([10, 2], ["Deposited", "Withdrawn"])


async def roll_back(app: Application, wallet: Wallet) -> None:
    """A rollback removes the events; followers read no event of an open transaction."""
    with suppress(Undo):
        async with app.transaction():
            await app.events("append", wallet.event())
            followed = await app.events("follow", wallet.query)
            raise Undo
    assert (followed.events, wallet.types()) == ([], [])


CASES = (append_and_read, fail_a_condition, append_twice, decide_again, roll_back)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


@each_case
@pytest.mark.parametrize("driver", SYNCHRONOUS)
def test_a_synchronous_driver(driver: str, case: Callable[..., Any], url: str) -> None:
    """The case holds on the driver, without an event loop."""
    run_case(driver, url, lambda app: case(app, Wallet(url)))


@each_case
@pytest.mark.parametrize("driver", ASYNCHRONOUS)
async def test_an_asynchronous_driver(driver: str, case: Callable[..., Any], url: str) -> None:
    """The case holds on the driver."""
    async with ASYNCHRONOUS[driver](url) as app:
        await case(app, Wallet(url))


def test_times_have_a_zone_in_a_site_without_zones(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Django without USE_TZ returns times without a zone: the event's time is that of other drivers."""
    wallet = Wallet(url)
    wallet.append(wallet.event())

    async def read(app: Application) -> None:
        [event] = (await app.events("read", wallet.query)).events
        with psycopg.connect(url) as connection:
            [same] = sync.EventStore(connection).read(wallet.query).events
        assert event.occurred_at == same.occurred_at

    monkeypatch.setattr(settings, "USE_TZ", False)
    run_case("django", url, read)


def test_synchronous_reads_keep_their_types(url: str) -> None:
    """The head, and a fold whose state has its own type."""
    with psycopg.connect(url) as connection:
        events = sync.EventStore(connection)
        state, cursor = events.project(timedelta(), {}, Query.of(tags={"wallet": 0}))
        assert state.total_seconds() == 0
        assert events.head().cursor.base >= cursor.base
