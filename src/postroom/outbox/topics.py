"""Topics: their conditions and publishers. Every change is audited."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import BadInput
from postroom.events import store as event_store
from postroom.events.audit import AuditNote, audited
from postroom.outbox import store
from postroom.outbox.errors import ProgressNotFound, TopicExists, TopicNeeded, TopicNotFound
from postroom.outbox.model import CONDITIONS, VIEW, Subscription, Topic, check_publisher, check_topic

_NEEDERS = {"webhook": "webhook endpoint", "intake": "mail rule"}
"""The names of the dependants of a publisher, for error messages."""


async def list_topics(pool: Pool) -> list[Topic]:
    return await store.list_topics(pool)


async def get_topic(pool: Pool, name: str) -> Topic:
    return TopicNotFound.unless(next((topic for topic in await list_topics(pool) if topic.name == name), None))


async def create_topic(
    pool: Pool, topic: Topic, *, publishers: Sequence[str] = (), from_now: bool = True, actor: str
) -> Topic:
    """Create a topic, and subscribe these publishers from now or from the beginning.

    Raises `BadInput`, and `TopicExists` without changing anything.
    """
    _check(topic, publishers)
    async with _audited_topic(pool, actor, "outbox.topic.create", topic, publishers) as (connection, _note):
        if not await store.insert_topic(connection, name=topic.name, **_conditions(topic)):
            raise TopicExists(f"A topic named {topic.name!r} already exists; nothing was changed.")
        await _follow(connection, topic.name, publishers, from_now=from_now)
    return await get_topic(pool, topic.name)


async def save_topic(
    pool: Pool,
    topic: Topic,
    *,
    publishers: Sequence[str] = (),
    from_now: bool = True,
    everything: bool = False,
    actor: str,
) -> Topic:
    """Create a topic or change its conditions for all its publishers, and subscribe these publishers too.

    Subscribed publishers keep their position. Raises `BadInput`, also for the topic of a view, and for a change that
    would remove all conditions of a topic unless `everything` is true.
    """
    _check(topic, publishers)
    async with _audited_topic(pool, actor, "outbox.topic.save", topic, publishers) as (connection, note):
        if any(
            use.startswith(VIEW) for use, _id in await store.list_uses(connection, topic=topic.name, publisher=None)
        ):
            raise BadInput.of("name", "belongs to a view: its conditions are set in the view's code")
        before = await store.find_topic(connection, name=topic.name)
        had_conditions = before is not None and any(_conditions(before).values())
        if had_conditions and not any(_conditions(topic).values()) and not everything:
            raise BadInput.of("everything", "must be true to remove all conditions: the topic would match every event")
        await _save(connection, topic)
        await _follow(connection, topic.name, publishers, from_now=from_now)
        note.before = _conditions(before) if before else None
    return await get_topic(pool, topic.name)


async def delete_topic(pool: Pool, name: str, *, force: bool = False, actor: str) -> None:
    """Delete a topic, its rules, and the progress of its publishers.

    Raises `TopicNotFound`; and `TopicNeeded` while endpoints, rules or a view use it, unless `force` is true.
    """
    async with audited(pool, actor, "outbox.topic.delete", f"topic:{name}") as (connection, _note):
        if not force:
            await _refuse_needed(connection, name, None)
        followers = TopicNotFound.unless(await store.delete_topic(connection, name=name))
        await _forget(connection, followers)
        await store.notify_outbox(connection)


async def add_publisher(pool: Pool, pair: Subscription, *, from_now: bool = True, actor: str) -> bool:
    """Subscribe a publisher from now or from the beginning; False if it is subscribed, and then keeps its position.

    The topic's conditions stay the same. Raises `TopicNotFound` and `BadInput`.
    """
    check_publisher(pair.publisher)
    after = {"from_now": from_now}
    async with audited(pool, actor, "outbox.publisher.add", f"outbox:{pair}", after=after) as (connection, note):
        is_new = await ensure_pair(connection, pair, from_now=from_now)
        note.is_dropped = not is_new
    return is_new


async def remove_publisher(pool: Pool, pair: Subscription, *, force: bool = False, actor: str) -> None:
    """Unsubscribe a publisher from a topic.

    Raises `ProgressNotFound`; and `TopicNeeded` while endpoints or rules depend on it, or if it maintains a view,
    unless `force` is true. A view that is installed again is emptied and begins with the first event.
    """
    async with audited(pool, actor, "outbox.publisher.remove", f"outbox:{pair}") as (connection, _note):
        if not force:
            await _refuse_needed(connection, pair.topic, pair.publisher)
        followers = ProgressNotFound.unless(await store.remove_progress(connection, **pair._asdict()))
        await _forget(connection, followers)
        await store.notify_outbox(connection)


async def ensure_pair(connection: Connection, pair: Subscription, *, from_now: bool) -> bool:
    """Subscribe a publisher to an existing topic, in the caller's transaction; False if it is subscribed already."""
    if await store.find_topic(connection, name=pair.topic) is None:
        raise TopicNotFound(f"The topic {pair.topic!r} does not exist.")
    is_new = await store.ensure_progress(connection, **pair._asdict(), from_now=from_now)
    if is_new:
        await store.notify_outbox(connection)
    return is_new


async def ensure_topic(connection: Connection, topic: Topic, pair: Subscription, *, from_now: bool) -> bool:
    """Create or change a topic defined in code, such as a view's; False if its publisher is subscribed already."""
    found = await store.find_topic(connection, name=topic.name)
    if found is None or _conditions(found) != _conditions(topic):
        await _save(connection, topic)
    return await ensure_pair(connection, pair, from_now=from_now)


def _check(topic: Topic, publishers: Iterable[str]) -> None:
    check_topic(topic)
    for publisher in publishers:
        check_publisher(publisher)


async def _follow(connection: Connection, topic: str, publishers: Iterable[str], *, from_now: bool) -> None:
    """Subscribe these, and the publishers of endpoints that name the topic: endpoints outlive a deleted topic."""
    for publisher in publishers:
        await store.ensure_progress(connection, topic=topic, publisher=publisher, from_now=from_now)
    for publisher in {publisher for publisher, _id in await store.list_uses(connection, topic=topic, publisher=None)}:
        await store.ensure_progress(connection, topic=topic, publisher=publisher, from_now=True)
    await store.notify_outbox(connection)


async def _refuse_needed(connection: Connection, topic: str, publisher: str | None) -> None:
    uses = await store.list_uses(connection, topic=topic, publisher=publisher)
    if uses:
        raise TopicNeeded(topic, [_needer(*use) for use in uses])


def _needer(publisher: str, number: int | None) -> str:
    if publisher.startswith(VIEW):
        return f"view {publisher.removeprefix(VIEW)}"
    return f"{_NEEDERS[publisher]} {number}"


async def _forget(connection: Connection, followers: Iterable[int]) -> None:
    """Delete follower rows: appends would send them needless notifications."""
    for follower_id in followers:
        await event_store.forget_follower(connection, id=follower_id)


async def _save(connection: Connection, topic: Topic) -> None:
    await store.save_topic(connection, name=topic.name, **_conditions(topic))


def _audited_topic(
    pool: Pool, actor: str, action: str, topic: Topic, publishers: Sequence[str]
) -> AbstractAsyncContextManager[tuple[Connection, AuditNote]]:
    after = {**_conditions(topic), "publishers": list(publishers)}
    return audited(pool, actor, action, f"topic:{topic.name}", after=after)


def _conditions(topic: Topic) -> dict[str, list[str]]:
    """The conditions of a topic, for statements and the audit log."""
    return {name: list(getattr(topic, name)) for name in CONDITIONS}
