"""Topics: what is published, and by whom. Changing one is a person's decision and audited."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import BadInput
from postroom.events import store as event_store
from postroom.events.audit import record_audit
from postroom.outbox import store
from postroom.outbox.errors import ProgressNotFound, TopicExists, TopicNeeded, TopicNotFound
from postroom.outbox.model import VIEW, Subscription, Topic, check_publisher, check_topic

_NEEDERS = {"webhook": "webhook endpoint", "intake": "mail rule"}
"""Who depends on which publisher."""


async def list_topics(pool: Pool) -> list[Topic]:
    async with pool.acquire() as connection:
        return await store.list_topics(connection)


async def get_topic(pool: Pool, name: str) -> Topic:
    found = next((topic for topic in await list_topics(pool) if topic.name == name), None)
    if found is None:
        raise TopicNotFound
    return found


async def create_topic(
    pool: Pool, topic: Topic, *, publishers: Sequence[str] = (), from_now: bool = True, actor: str
) -> Topic:
    """Make a topic, and let these publishers follow it, from now or from the beginning.

    Raises `BadInput`, and `TopicExists`, which has changed nothing.
    """
    _check(topic, publishers)
    async with pool.acquire() as connection, connection.transaction():
        if not await store.insert_topic(connection, name=topic.name, **_told(topic)):
            raise TopicExists(f"There is a topic {topic.name!r} already; nothing was changed.")
        await _follow(connection, topic.name, publishers, from_now=from_now)
        await _audit_topic(connection, "outbox.topic.create", topic, publishers, actor=actor)
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
    """Make a topic or change what it is about, for all its publishers, and let these follow it too.

    Publishers that follow it already stay where they are. Raises `BadInput`; so it does for a topic that had
    conditions and would have none, unless `everything` says that this is meant, and for a view's.
    """
    _check(topic, publishers)
    async with pool.acquire() as connection, connection.transaction():
        if any(
            use.startswith(VIEW) for use, _id in await store.list_uses(connection, topic=topic.name, publisher=None)
        ):
            raise BadInput.of("name", "belongs to a view: what it is about is said in the view's code")
        before = await store.find_topic(connection, name=topic.name)
        if before is not None and any(_told(before).values()) and not any(_told(topic).values()) and not everything:
            raise BadInput.of("everything", "must be true to make the topic about every event: it has conditions now")
        await _save(connection, topic)
        await _follow(connection, topic.name, publishers, from_now=from_now)
        await _audit_topic(connection, "outbox.topic.save", topic, publishers, actor=actor, before=before)
    return await get_topic(pool, topic.name)


async def delete_topic(pool: Pool, name: str, *, force: bool = False, actor: str) -> None:
    """Forget a topic, its rules, and how far its publishers were.

    Raises `TopicNotFound`; and `TopicNeeded` while endpoints, rules or a view need it, unless `force` says to go on.
    """
    async with pool.acquire() as connection, connection.transaction():
        if not force:
            await _refuse_needed(connection, name, None)
        followers = await store.delete_topic(connection, name=name)
        if followers is None:
            raise TopicNotFound
        await _forget(connection, followers)
        await record_audit(connection, actor=actor, action="outbox.topic.delete", subject=f"topic:{name}")
        await store.notify_outbox(connection)


async def add_publisher(pool: Pool, pair: Subscription, *, from_now: bool = True, actor: str) -> bool:
    """Let a publisher follow a topic, from now or from the beginning; False if it does, and stays where it is.

    What the topic is about stays too. Raises `TopicNotFound` and `BadInput`.
    """
    check_publisher(pair.publisher)
    async with pool.acquire() as connection, connection.transaction():
        if not await ensure_pair(connection, pair, from_now=from_now):
            return False
        after = {"from_now": from_now}
        await record_audit(
            connection, actor=actor, action="outbox.publisher.add", subject=f"outbox:{pair}", after=after
        )
    return True


async def remove_publisher(pool: Pool, pair: Subscription, *, force: bool = False, actor: str) -> None:
    """Let a publisher follow a topic no longer.

    Raises `ProgressNotFound`; and `TopicNeeded` while endpoints or rules depend on it, or if it keeps a view, unless
    `force` says to go on. A view that is installed again is emptied, and begins with the first event there is.
    """
    async with pool.acquire() as connection, connection.transaction():
        if not force:
            await _refuse_needed(connection, pair.topic, pair.publisher)
        followers = await store.remove_progress(connection, **pair._asdict())
        if followers is None:
            raise ProgressNotFound
        await _forget(connection, followers)
        await record_audit(connection, actor=actor, action="outbox.publisher.remove", subject=f"outbox:{pair}")
        await store.notify_outbox(connection)


async def ensure_pair(connection: Connection, pair: Subscription, *, from_now: bool) -> bool:
    """Let a publisher follow a topic that exists, in the caller's transaction; False if it does already."""
    if await store.find_topic(connection, name=pair.topic) is None:
        raise TopicNotFound(f"There is no topic {pair.topic!r}.")
    is_new = await store.ensure_progress(connection, **pair._asdict(), from_now=from_now)
    if is_new:
        await store.notify_outbox(connection)
    return is_new


async def ensure_topic(connection: Connection, topic: Topic, pair: Subscription, *, from_now: bool) -> bool:
    """Make or change a topic that belongs to code, such as a view's; False if its one publisher follows it already."""
    found = await store.find_topic(connection, name=topic.name)
    if found is None or _told(found) != _told(topic):
        await _save(connection, topic)
    return await ensure_pair(connection, pair, from_now=from_now)


def _check(topic: Topic, publishers: Iterable[str]) -> None:
    check_topic(topic)
    for publisher in publishers:
        check_publisher(publisher)


async def _follow(connection: Connection, topic: str, publishers: Iterable[str], *, from_now: bool) -> None:
    """Let these follow, and whoever posts to the endpoints that name the topic: they outlive a topic's deletion."""
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
    """A sleeper that nobody will ever wake would be rung for with every append."""
    for follower_id in followers:
        await event_store.forget_follower(connection, id=follower_id)


async def _save(connection: Connection, topic: Topic) -> None:
    await store.save_topic(connection, name=topic.name, **_told(topic))


async def _audit_topic(
    connection: Connection,
    action: str,
    topic: Topic,
    publishers: Sequence[str],
    *,
    actor: str,
    before: Topic | None = None,
) -> None:
    await record_audit(
        connection,
        actor=actor,
        action=action,
        subject=f"topic:{topic.name}",
        before=_told(before) if before else None,
        after={**_told(topic), "publishers": list(publishers)},
    )


def _told(topic: Topic) -> dict[str, list[str]]:
    """What a topic is about."""
    plain = asdict(replace(topic, created_at=None))
    return {name: list(plain[name]) for name in ("types", "required_keys", "any_keys", "exact_tags")}
