"""One function per statement of `queries.sql`, with the same name. Rows become models only here."""

from collections.abc import Iterable

import asyncpg

from postroom.db.queries import Connection, column, columns, load, model
from postroom.events import Place, SequencedEvent
from postroom.events.errors import EventUnreadable
from postroom.events.store import event_of
from postroom.outbox.model import (
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


def _read(rows: Iterable[asyncpg.Record]) -> tuple[list[SequencedEvent], EventUnreadable | None]:
    """The events up to the first unreadable one, and the error of that one: SQL can store values Python cannot hold."""
    events: list[SequencedEvent] = []
    for row in rows:
        try:
            events.append(event_of(row[-8:]))
        except EventUnreadable as error:
            return events, error
    return events, None


def _place(row: asyncpg.Record) -> Place:
    return Place(row["transaction_id"], row["position"])


advance = QUERIES["advance"].has
"""False if the progress has moved, or another instance leads."""
announce = QUERIES["announce"].exec


async def beat(connection: Connection, *, instance: str) -> set[Subscription]:
    return {Subscription(**row) for row in await QUERIES["beat"].many(connection, instance=instance)}


break_stale_leads = QUERIES["break_stale_leads"].exec
check_transaction = QUERIES["check_transaction"].one
count_between = QUERIES["count_between"].one_as(columns("events", "is_more"))
"""The number of events, and whether there are more than were scanned; None without any."""
delete_old_lag = QUERIES["delete_old_lag"].exec
delete_topic = QUERIES["delete_topic"].maybe_as(column("follower_ids", list))
"""The follower ids that are no longer used; None if the topic does not exist."""
ensure_progress = QUERIES["ensure_progress"].has
find_next_event = QUERIES["find_next_event"].maybe_as(lambda row: (_place(row), read_row(Skipped, row)))
find_place = QUERIES["find_place"].maybe_as(lambda row: (_place(row), row["is_settled"]))
"""The place, and whether it is settled."""
find_progress = QUERIES["find_progress"].maybe_as(model(Progress))
find_reached = QUERIES["find_reached"].maybe_as(model(ProgressCheck))
find_settled_end = QUERIES["find_settled_end"].one_as(_place)
find_stall = QUERIES["find_stall"].maybe_as(lambda row: Stall(**row))
find_topic = QUERIES["find_topic"].maybe_as(model(Topic))


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


insert_topic = QUERIES["insert_topic"].has
"""False if the name exists."""
list_instances = QUERIES["list_instances"].dict_as("pid", column("publishers", list[str]))
list_lag = QUERIES["list_lag"].many_as(model(LagSample))
list_pairs = QUERIES["list_pairs"].many_as(lambda row: Subscription(**row))
list_progress = QUERIES["list_progress"].many_as(model(ProgressLine))
list_topics = QUERIES["list_topics"].many_as(model(Topic))
list_uses = QUERIES["list_uses"].many_as(columns("publisher", "id"))
"""The publisher and the id of each endpoint and rule, and the publisher of each view."""
move = QUERIES["move"].exec
notify_outbox = QUERIES["notify_outbox"].exec
prepare_seat = QUERIES["prepare_seat"].one
record_failure = QUERIES["record_failure"].maybe_as(lambda row: (PublisherStatus(row["status"]), row["error_count"]))
"""The status and the number of consecutive errors; None if another instance leads."""
record_lag = QUERIES["record_lag"].exec
release_lead = QUERIES["release_lead"].exec
remove_progress = QUERIES["remove_progress"].maybe_as(
    lambda row: [row["follower_id"]] if row["follower_id"] is not None else []
)
"""The follower id that is no longer used, if any; None if the pair does not exist."""
save_follower = QUERIES["save_follower"].exec
save_topic = QUERIES["save_topic"].exec
set_status = QUERIES["set_status"].exec


async def take_lead(connection: Connection, *, topic: str, publisher: str, instance: str) -> tuple[bool, int | None]:
    """True if the pair still exists, with the follower id of its leaders."""
    row = await QUERIES["take_lead"].maybe(connection, topic=topic, publisher=publisher, instance=instance)
    return (False, None) if row is None else (True, row["follower_id"])


try_lock = QUERIES["try_lock"].one_as(column("is_locked", bool))
