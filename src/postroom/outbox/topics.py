"""Topics: what is published, and by whom. Changing one is a person's decision and audited."""

from collections.abc import Iterable
from dataclasses import asdict, replace

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import ProgressNotFound, TopicNotFound
from postroom.events import store as event_store
from postroom.events.audit import record_audit
from postroom.outbox import store
from postroom.outbox.model import Pair, Topic, check_publisher, check_topic


async def list_topics(pool: Pool) -> list[Topic]:
    async with pool.acquire() as connection:
        return await store.list_topics(connection)


async def get_topic(pool: Pool, name: str) -> Topic:
    found = next((topic for topic in await list_topics(pool) if topic.name == name), None)
    if found is None:
        raise TopicNotFound
    return found


async def save_topic(
    pool: Pool, topic: Topic, *, publishers: Iterable[str] = (), from_now: bool = True, actor: str
) -> Topic:
    """Make a topic or change what it is about, and let these publishers follow it, from now or from the beginning.

    Publishers that follow it already stay where they are. Raises `BadInput`.
    """
    check_topic(topic)
    for publisher in publishers:
        check_publisher(publisher)
    async with pool.acquire() as connection, connection.transaction():
        before = await store.find_topic(connection, name=topic.name)
        await _save(connection, topic)
        for publisher in publishers:
            await store.ensure_progress(connection, topic=topic.name, publisher=publisher, from_now=from_now)
        await record_audit(
            connection,
            actor=actor,
            action="outbox.topic.save",
            subject=f"topic:{topic.name}",
            before=_told(before) if before else None,
            after={**_told(topic), "publishers": list(publishers)},
        )
        await store.notify_outbox(connection)
    return await get_topic(pool, topic.name)


async def delete_topic(pool: Pool, name: str, *, actor: str) -> None:
    """Forget a topic and how far its publishers were."""
    async with pool.acquire() as connection, connection.transaction():
        followers = await store.delete_topic(connection, name=name)
        if followers is None:
            raise TopicNotFound
        await _forget(connection, followers)
        await record_audit(connection, actor=actor, action="outbox.topic.delete", subject=f"topic:{name}")
        await store.notify_outbox(connection)


async def remove_publisher(pool: Pool, pair: Pair, *, actor: str) -> None:
    """Let a publisher follow a topic no longer."""
    async with pool.acquire() as connection, connection.transaction():
        followers = await store.remove_progress(connection, **pair._asdict())
        if followers is None:
            raise ProgressNotFound
        await _forget(connection, followers)
        await record_audit(connection, actor=actor, action="outbox.publisher.remove", subject=f"outbox:{pair}")
        await store.notify_outbox(connection)


async def ensure_pair(connection: Connection, pair: Pair, *, from_now: bool) -> None:
    """Let a publisher follow a topic that exists, in the caller's transaction."""
    if await store.find_topic(connection, name=pair.topic) is None:
        raise TopicNotFound(f"There is no topic {pair.topic!r}.")
    if await store.ensure_progress(connection, **pair._asdict(), from_now=from_now):
        await store.notify_outbox(connection)


async def ensure_topic(connection: Connection, topic: Topic, pair: Pair, *, from_now: bool) -> None:
    """Make or change a topic that belongs to code, such as a view's, with its one publisher."""
    found = await store.find_topic(connection, name=topic.name)
    if found is None or _told(found) != _told(topic):
        await _save(connection, topic)
    await ensure_pair(connection, pair, from_now=from_now)


async def _forget(connection: Connection, followers: Iterable[int]) -> None:
    """A sleeper that nobody will ever wake would be rung for with every append."""
    for follower_id in followers:
        await event_store.forget_follower(connection, id=follower_id)


async def _save(connection: Connection, topic: Topic) -> Topic:
    return await store.save_topic(connection, name=topic.name, **_told(topic))


def _told(topic: Topic) -> dict[str, list[str]]:
    """What a topic is about."""
    plain = asdict(replace(topic, created_at=None))
    return {name: list(plain[name]) for name in ("types", "required_keys", "any_keys", "exact_tags")}
