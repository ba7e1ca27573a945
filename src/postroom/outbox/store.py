"""One function per statement of `queries.sql`, with the same name. Rows become models only here."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from postroom.db.queries import Connection, load
from postroom.events import Place, SequencedEvent
from postroom.events.errors import EventUnreadable
from postroom.events.store import event_of
from postroom.outbox.model import (
    LAG_BOUND,
    LagSample,
    NextEvents,
    Progress,
    ProgressCheck,
    ProgressLine,
    PublisherStatus,
    Skipped,
    Stall,
    Subscription,
    Topic,
)
from postroom.runtime.record import read_row

QUERIES = load("postroom.outbox")


async def advance(connection: Connection, *, topic: str, publisher: str, **values: Any) -> bool:
    """False if the progress has moved, or another instance leads."""
    return await QUERIES["advance"].maybe(connection, topic=topic, publisher=publisher, **values) is not None


async def announce(connection: Connection, *, publishers: Sequence[str]) -> None:
    await QUERIES["announce"].exec(connection, publishers=publishers)


async def beat(connection: Connection, *, instance: str) -> set[Subscription]:
    return {Subscription(**row) for row in await QUERIES["beat"].many(connection, instance=instance)}


async def break_stale_leads(connection: Connection, *, silence: timedelta) -> None:
    await QUERIES["break_stale_leads"].exec(connection, silence=silence)


async def check_transaction(connection: Connection) -> None:
    await QUERIES["check_transaction"].one(connection)


async def count_between(
    connection: Connection, *, topic: str, scan_limit: int = LAG_BOUND, **places: int
) -> tuple[int, bool]:
    """The number of events, and whether there are more than were scanned."""
    row = await QUERIES["count_between"].one(connection, topic=topic, scan_limit=scan_limit, **places)
    return row["events"], bool(row["is_more"])


async def delete_old_lag(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_lag"].exec(connection, retention=retention, batch_limit=batch_limit, now=now)


async def delete_topic(connection: Connection, *, name: str) -> list[int] | None:
    """The follower ids that are no longer used; None if the topic does not exist."""
    row = await QUERIES["delete_topic"].maybe(connection, name=name)
    return None if row is None else list(row["follower_ids"])


async def ensure_progress(connection: Connection, *, topic: str, publisher: str, from_now: bool) -> bool:
    row = await QUERIES["ensure_progress"].maybe(connection, topic=topic, publisher=publisher, from_now=from_now)
    return row is not None


async def find_next_event(connection: Connection, *, topic: str, publisher: str) -> tuple[Place, Skipped] | None:
    row = await QUERIES["find_next_event"].maybe(connection, topic=topic, publisher=publisher)
    if row is None:
        return None
    return Place(row["transaction_id"], row["position"]), Skipped(row["position"], row["type"])


async def find_place(connection: Connection, *, position: int) -> tuple[Place, bool] | None:
    """The place, and whether it is settled."""
    row = await QUERIES["find_place"].maybe(connection, position=position)
    return None if row is None else (Place(row["transaction_id"], row["position"]), row["is_settled"])


async def find_progress(connection: Connection, *, topic: str, publisher: str) -> Progress | None:
    row = await QUERIES["find_progress"].maybe(connection, topic=topic, publisher=publisher)
    return None if row is None else read_row(Progress, row)


async def find_reached(
    connection: Connection, *, topic: str, publisher: str, transaction_id: int, position: int
) -> ProgressCheck | None:
    row = await QUERIES["find_reached"].maybe(
        connection, topic=topic, publisher=publisher, transaction_id=transaction_id, position=position
    )
    return None if row is None else read_row(ProgressCheck, row)


async def find_settled_end(connection: Connection) -> Place:
    row = await QUERIES["find_settled_end"].one(connection)
    return Place(row["transaction_id"], row["position"])


async def find_stall(connection: Connection) -> Stall | None:
    row = await QUERIES["find_stall"].maybe(connection)
    return None if row is None else Stall(**row)


async def find_topic(connection: Connection, *, name: str) -> Topic | None:
    row = await QUERIES["find_topic"].maybe(connection, name=name)
    return None if row is None else _topic(row)


async def follow_topic(
    connection: Connection, *, topic: str, publisher: str, batch_limit: int, scan_limit: int
) -> NextEvents | None:
    rows = await QUERIES["follow_topic"].many(
        connection, topic=topic, publisher=publisher, batch_limit=batch_limit, scan_limit=scan_limit
    )
    if not rows:
        return None
    first = rows[0]
    events, unreadable = _read(row for row in rows if row["position"] is not None)
    reached = Place(first["end_transaction_id"], first["end_position"])
    if unreadable is not None:  # this scan ends before the unreadable event
        reached = events[-1].place if events else Place(first["last_transaction_id"], first["last_position"])
    return NextEvents(
        status=PublisherStatus(first["status"]),
        leader_instance=first["leader_instance"],
        place=Place(first["last_transaction_id"], first["last_position"]),
        end=reached,
        scanned=first["scanned"],
        has_unsettled=first["has_unsettled"],
        horizon=first["horizon"],
        newest=first["newest"],
        events=tuple(events),
        unreadable=unreadable,
    )


async def insert_topic(connection: Connection, *, name: str, **conditions: Sequence[str]) -> bool:
    """False if the name exists."""
    return await QUERIES["insert_topic"].maybe(connection, name=name, **conditions) is not None


async def list_instances(connection: Connection, *, silence: timedelta) -> dict[int, list[str]]:
    rows = await QUERIES["list_instances"].many(connection, silence=silence)
    return {row["pid"]: row["publishers"] for row in rows}


async def list_lag(
    connection: Connection, *, begin: datetime, step: timedelta, topic: str | None, publisher: str | None
) -> list[LagSample]:
    rows = await QUERIES["list_lag"].many(connection, begin=begin, step=step, topic=topic, publisher=publisher)
    return [read_row(LagSample, row) for row in rows]


async def list_pairs(connection: Connection) -> list[Subscription]:
    return [Subscription(**row) for row in await QUERIES["list_pairs"].many(connection)]


async def list_progress(
    connection: Connection, *, topic: str | None, scan_limit: int = LAG_BOUND
) -> list[ProgressLine]:
    rows = await QUERIES["list_progress"].many(connection, topic=topic, scan_limit=scan_limit)
    return [_line(row, scan_limit) for row in rows]


async def list_topics(connection: Connection) -> list[Topic]:
    return [_topic(row) for row in await QUERIES["list_topics"].many(connection)]


async def list_uses(connection: Connection, *, topic: str, publisher: str | None) -> list[tuple[str, int | None]]:
    """The publisher and the id of each endpoint and rule, and the publisher of each view."""
    rows = await QUERIES["list_uses"].many(connection, topic=topic, publisher=publisher)
    return [(row["publisher"], row["id"]) for row in rows]


async def move(
    connection: Connection, *, topic: str, publisher: str, transaction_id: int, position: int, forgets: bool
) -> int:
    return await QUERIES["move"].exec(
        connection,
        topic=topic,
        publisher=publisher,
        transaction_id=transaction_id,
        position=position,
        forgets=forgets,
    )


async def notify_outbox(connection: Connection) -> None:
    await QUERIES["notify_outbox"].exec(connection)


async def prepare_seat(connection: Connection) -> None:
    await QUERIES["prepare_seat"].one(connection)


async def record_failure(
    connection: Connection, *, topic: str, publisher: str, **values: Any
) -> tuple[PublisherStatus, int] | None:
    """The status and the number of consecutive errors; None if another instance leads."""
    row = await QUERIES["record_failure"].maybe(connection, topic=topic, publisher=publisher, **values)
    return None if row is None else (PublisherStatus(row["status"]), row["error_count"])


async def record_lag(connection: Connection, **columns: Sequence[Any]) -> int:
    return await QUERIES["record_lag"].exec(connection, **columns)


async def release_lead(connection: Connection, *, topic: str, publisher: str, instance: str) -> None:
    await QUERIES["release_lead"].exec(connection, topic=topic, publisher=publisher, instance=instance)


async def remove_progress(connection: Connection, *, topic: str, publisher: str) -> list[int] | None:
    """The follower id that is no longer used, if any; None if the pair does not exist."""
    row = await QUERIES["remove_progress"].maybe(connection, topic=topic, publisher=publisher)
    return None if row is None else [row["follower_id"]] if row["follower_id"] is not None else []


async def save_follower(connection: Connection, *, topic: str, publisher: str, follower_id: int) -> int:
    return await QUERIES["save_follower"].exec(connection, topic=topic, publisher=publisher, follower_id=follower_id)


async def save_topic(
    connection: Connection,
    *,
    name: str,
    types: Sequence[str],
    required_keys: Sequence[str],
    any_keys: Sequence[str],
    exact_tags: Sequence[str],
) -> None:
    await QUERIES["save_topic"].exec(
        connection,
        name=name,
        types=types,
        required_keys=required_keys,
        any_keys=any_keys,
        exact_tags=exact_tags,
    )


async def set_status(connection: Connection, *, topic: str, publisher: str, status: PublisherStatus) -> int:
    return await QUERIES["set_status"].exec(connection, topic=topic, publisher=publisher, status=status.value)


async def take_lead(connection: Connection, *, topic: str, publisher: str, instance: str) -> tuple[bool, int | None]:
    """True if the pair still exists, with the follower id of its leaders."""
    row = await QUERIES["take_lead"].maybe(connection, topic=topic, publisher=publisher, instance=instance)
    return (False, None) if row is None else (True, row["follower_id"])


async def try_lock(connection: Connection, *, topic: str, publisher: str) -> bool:
    return bool((await QUERIES["try_lock"].one(connection, topic=topic, publisher=publisher))["is_locked"])


def _read(rows: Iterable[asyncpg.Record]) -> tuple[list[SequencedEvent], EventUnreadable | None]:
    """The events up to the first unreadable one, and the error of that one: SQL can store values Python cannot hold."""
    events: list[SequencedEvent] = []
    for row in rows:
        try:
            events.append(event_of(row[-8:]))
        except EventUnreadable as error:
            return events, error
    return events, None


def _line(row: asyncpg.Record, bound: int) -> ProgressLine:
    values: dict[str, Any] = dict(row)
    scanned = values.pop("lag_scanned")
    return read_row(ProgressLine, {**values, "lag_is_more": scanned >= bound})


def _topic(row: asyncpg.Record) -> Topic:
    return read_row(Topic, row)
