"""Views: each event applied exactly once, rebuilding, waiting."""

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


async def test_a_view_applies_past_and_future_events(
    pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox
) -> None:
    """A view starts with the first event, and a caller can wait until it has applied a certain event."""
    await append(store, 4, wallet=1)
    async with run_outbox(view):
        await ViewCatalog(pool).catch_up(view)
        assert await balance(pool) == 0 + 1 + 2 + 3
        appended = await store.append(Event.of("Deposited", {"n": 10}, wallet=1))
        await ViewCatalog(pool).wait_for(view, appended.place)
        assert await balance(pool) == 16


async def test_waiting_for_an_unmatched_event_ends(
    pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox
) -> None:
    """An event of another topic counts as applied as soon as the view has passed it."""
    async with run_outbox(view):
        appended = await store.append(Event.of("Noise"))
        await ViewCatalog(pool).wait_for(view, appended.place)
        assert await balance(pool) is None


async def test_a_view_is_rebuilt_from_zero(pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox) -> None:
    """A view is emptied and filled again while its leader runs; the result is the same."""
    await append(store, 5, wallet=1)
    views = ViewCatalog(pool)
    async with run_outbox(view):
        await views.catch_up(view)
        await pool.execute("UPDATE balances SET balance = -1")
        await views.rebuild(view, actor="tests")
        await views.catch_up(view)
        assert await balance(pool) == 10


async def test_a_view_is_not_reset(pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox) -> None:
    """A reset would apply events twice; only a rebuild, which empties the view, is allowed."""
    await append(store, 3, wallet=1)
    async with run_outbox(view):
        await ViewCatalog(pool).catch_up(view)
        with pytest.raises(BadInput, match=r"ViewCatalog\.rebuild"):
            await service.reset(pool, view.pair, position=0, actor="tests")
        await append(store, 1, wallet=1)
        await ViewCatalog(pool).catch_up(view)
    assert await balance(pool) == 0 + 1 + 2 + 0


async def test_waiting_for_a_view_times_out(pool: Pool, store: EventStore, view: View) -> None:
    """Waiting for a view without a leader ends with a timeout."""
    appended = await store.append(Event.of("Deposited", {"n": 1}, wallet=1))
    with pytest.raises(TimeoutError, match="no worker leads it"):
        await ViewCatalog(pool).wait_for(view, appended.place, timeout=timedelta(milliseconds=50))


async def test_a_view_that_was_never_installed_is_not_found(pool: Pool) -> None:
    """Rebuilding an unknown view is an error."""
    with pytest.raises(ProgressNotFound):
        await ViewCatalog(pool).rebuild(View("other", add, empty), actor="tests")


async def test_failing_handler_stops_only_its_view(
    pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox
) -> None:
    """A database error in a handler is a failure; the changes of its batch are rolled back."""
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
    """An invalid name is rejected in Python, before the database."""
    with pytest.raises(BadInput, match="name"):
        View(name, add, empty)


async def test_installing_twice_has_no_effect(pool: Pool, view: View) -> None:
    """Installing at every start is harmless; changed conditions are saved."""
    views = ViewCatalog(pool)
    await views.install(view)
    await views.install(View("balances", add, empty, types=("Withdrawn",)))
    assert await pool.fetchval("SELECT types FROM outbox_topics") == ["Withdrawn"]


async def test_a_view_that_has_failed_is_rebuilt(
    pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox
) -> None:
    """A rebuild restarts a failed view without `resume` and clears its errors; a paused view stays paused."""
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
    """Topic and publisher of a view are removed only with `force`, and its conditions are set only in code."""
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


async def test_reinstalled_view_counts_nothing_twice(
    pool: Pool, store: EventStore, view: View, run_outbox: RunOutbox
) -> None:
    """A view whose pair was lost is emptied when it is installed again."""
    await append(store, 4, wallet=1)
    views = ViewCatalog(pool)
    for _ in range(2):
        async with run_outbox(view):
            await views.catch_up(view)
        assert await balance(pool) == 0 + 1 + 2 + 3
        await topics.delete_topic(pool, view.pair.topic, force=True, actor="tests")
        await views.install(view)
    assert await balance(pool) is None


def test_a_view_accepts_any_keys() -> None:
    """A view accepts `any_keys`, as a topic does."""
    assert View("some", add, empty, any_keys=("wallet", "purse")).topic.any_keys == ("wallet", "purse")


@pytest.mark.parametrize("field", ["types", "exact_tags", "required_keys", "any_keys"])
def test_a_view_rejects_strings_for_lists(field: str) -> None:
    """A string is rejected: it would be read character by character, and the view would stay empty."""
    with pytest.raises(BadInput, match=f"{field}: must be a list"):
        View("some", add, empty, **{field: "a=1"})  # the mistake under test
