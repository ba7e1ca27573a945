"""Read models on the same follower: exactly once, rebuilt from zero, waited for."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from tests.outbox.conftest import RunOutbox
from tests.support.outbox import append, until

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import BadInput
from postroom.events import Event, EventStore, SequencedEvent
from postroom.outbox import service, topics
from postroom.outbox.errors import ProgressNotFound, TopicNeeded, ViewFailed
from postroom.outbox.model import PublisherStatus, Subscription, Topic
from postroom.outbox.views import View, ViewCatalog


async def add(connection: Connection, events: Sequence[SequencedEvent]) -> None:
    for event in events:
        await connection.execute(
            "INSERT INTO balances VALUES ($1, $2) ON CONFLICT (wallet) DO UPDATE SET balance = balances.balance + $2",
            event.values("wallet")[0],
            event.data["n"],
        )


async def empty(connection: Connection) -> None:
    await connection.execute("DELETE FROM balances")


@pytest.fixture
async def view(pool: Pool) -> View:
    await pool.execute("CREATE TABLE balances (wallet text PRIMARY KEY, balance bigint NOT NULL)")
    view = View("balances", add, empty, types=("Deposited",), required_keys=("wallet",))
    await ViewCatalog(pool).install(view)
    return view


async def balance(pool: Pool) -> int | None:
    found: int | None = await pool.fetchval("SELECT balance FROM balances WHERE wallet = '1'")
    return found


async def test_a_view_holds_what_was_before_and_what_comes(
    pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox
) -> None:
    """From the first event on; and one can wait until one's own event is in it."""
    await append(store, 4, wallet=1)
    async with run_outbox(view):
        await ViewCatalog(pool).catch_up(view)
        assert await balance(pool) == 0 + 1 + 2 + 3
        appended = await store.append(Event.of("Deposited", {"n": 10}, wallet=1))
        await ViewCatalog(pool).wait_for(view, appended.place)
        assert await balance(pool) == 16


async def test_waiting_for_an_event_that_is_not_the_view_s_ends_too(
    pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox
) -> None:
    """What does not concern the view is held as soon as it is passed."""
    async with run_outbox(view):
        appended = await store.append(Event.of("Noise"))
        await ViewCatalog(pool).wait_for(view, appended.place)


async def test_a_view_is_rebuilt_from_zero(pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox) -> None:
    """Emptied and filled again, while its leader runs; the result is the same."""
    await append(store, 5, wallet=1)
    views = ViewCatalog(pool)
    async with run_outbox(view):
        await views.catch_up(view)
        await pool.execute("UPDATE balances SET balance = -1")
        await views.rebuild(view, actor="tests")
        await views.catch_up(view)
        assert await balance(pool) == 10


async def test_a_view_is_not_reset(pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox) -> None:
    """What it holds already would be counted again: only a rebuild, which empties it, goes back."""
    await append(store, 3, wallet=1)
    async with run_outbox(view):
        await ViewCatalog(pool).catch_up(view)
        with pytest.raises(BadInput, match=r"ViewCatalog\.rebuild"):
            await service.reset(pool, view.pair, position=0, actor="tests")
        await append(store, 1, wallet=1)
        await ViewCatalog(pool).catch_up(view)
    assert await balance(pool) == 0 + 1 + 2 + 0


async def test_waiting_has_an_end(pool: Pool, store: EventStore, view: View) -> None:
    """Without anybody to keep the view, waiting times out instead of lasting for ever."""
    appended = await store.append(Event.of("Deposited", {"n": 1}, wallet=1))
    with pytest.raises(TimeoutError, match="no worker leads it"):
        await ViewCatalog(pool).wait_for(view, appended.place, timeout=timedelta(milliseconds=50))


async def test_a_view_that_was_never_installed_is_not_found(pool: Pool) -> None:
    """There is nothing to rebuild."""
    with pytest.raises(ProgressNotFound):
        await ViewCatalog(pool).rebuild(View("other", add, empty), actor="tests")


async def test_a_handler_that_fails_stops_its_view_and_nothing_else(
    pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox
) -> None:
    """The database's complaint is a failure like any other; what was written before it in the batch is rolled back."""
    await store.append(Event.of("Deposited", {"n": 1}, wallet=1))
    await store.append(Event.of("Deposited", {"n": "many"}, wallet=1))

    async def has_failed() -> bool:
        lines = await service.list_progress(pool)
        return lines[0].status == "FAILED"

    async with run_outbox(view):
        await until(has_failed)
        with pytest.raises(ViewFailed, match=r"view:balances has failed at position 2.*DataError"):
            await ViewCatalog(pool).catch_up(view)
    (line,) = await service.list_progress(pool)
    assert (await balance(pool), line.failed_position) == (1, 2)
    assert "DataError" in (line.last_error or "")


@pytest.mark.parametrize("name", ["Balances", "my balances", "b" * 96])
def test_a_view_s_name_is_checked(name: str) -> None:
    """Before the database would complain in words of its own."""
    with pytest.raises(BadInput, match="name"):
        View(name, add, empty)


async def test_installing_twice_is_installing_once(pool: Pool, view: View) -> None:
    """A process installs its views at every start; one that is about other events now says so."""
    views = ViewCatalog(pool)
    await views.install(view)
    await views.install(View("balances", add, empty, types=("Withdrawn",)))
    assert await pool.fetchval("SELECT types FROM outbox_topics") == ["Withdrawn"]


async def test_a_view_that_has_failed_is_rebuilt(
    pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox
) -> None:
    """It is kept again, without anybody's resume, and its errors are forgotten; one that is paused stays so."""
    await append(store, 3, wallet=1)
    views = ViewCatalog(pool)
    await pool.execute("UPDATE outbox_topic_progress SET status = 'FAILED', error_count = 3, last_error = 'it broke'")
    await views.rebuild(view, actor="tests")
    (line,) = await service.list_progress(pool)
    assert (line.status, line.error_count, line.last_error) == (PublisherStatus.ACTIVE, 0, None)
    async with run_outbox(view):
        await views.catch_up(view)
        assert await balance(pool) == 3
    await service.pause(pool, view.pair, actor="tests")
    await views.rebuild(view, actor="tests")
    assert [line.status for line in await service.list_progress(pool)] == [PublisherStatus.PAUSED]


async def test_a_view_s_topic_and_publisher_stay_unless_forced(pool: Pool, view: View) -> None:
    """Who follows it knows how far the view is; and what it is about is said in its code."""
    with pytest.raises(TopicNeeded, match="view balances"):
        await topics.remove_publisher(pool, view.pair, actor="tests")
    with pytest.raises(TopicNeeded, match="view balances"):
        await topics.delete_topic(pool, view.pair.topic, actor="tests")
    with pytest.raises(BadInput, match="view"):
        await topics.save_topic(pool, Topic(name=view.pair.topic, types=("Other",)), actor="tests")
    await topics.add_publisher(pool, Subscription(view.pair.topic, "log"), actor="tests")
    await topics.remove_publisher(pool, Subscription(view.pair.topic, "log"), actor="tests")
    await topics.remove_publisher(pool, view.pair, force=True, actor="tests")
    await topics.delete_topic(pool, view.pair.topic, actor="tests")


async def test_a_view_that_is_installed_again_counts_nothing_twice(
    pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox
) -> None:
    """It is emptied with the progress that its pair had, however the pair was lost."""
    await append(store, 4, wallet=1)
    views = ViewCatalog(pool)
    for _ in range(2):
        async with run_outbox(view):
            await views.catch_up(view)
        assert await balance(pool) == 0 + 1 + 2 + 3
        await topics.delete_topic(pool, view.pair.topic, force=True, actor="tests")
        await views.install(view)
    assert await balance(pool) is None


def test_a_view_may_be_about_events_with_any_of_some_keys() -> None:
    """As a topic may."""
    assert View("some", add, empty, any_keys=("wallet", "purse")).topic.any_keys == ("wallet", "purse")


@pytest.mark.parametrize("field", ["types", "exact_tags", "required_keys", "any_keys"])
def test_a_view_takes_lists_and_not_a_text(field: str) -> None:
    """A text would be taken letter by letter, and the view would stay empty for ever."""
    with pytest.raises(BadInput, match=f"{field}: must be a list"):
        View("some", add, empty, **{field: "a=1"})  # the mistake under test
