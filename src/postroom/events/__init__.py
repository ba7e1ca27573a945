"""events: the event store.

NAME     events, facts and the audit log: the consistency boundary of an append is the query that its decision has read
OWNS     the tables `events`, `event_tags` (the same tags, one per row), `commands`, `event_clock`, `event_followers`,
         `event_gate` (a lock) and `audit_log`; the sequences `room_marks` and `event_lock_key`; the channel
         `<room>_events`; the stored functions `append_events`, `append_events_batch`, `append_events_if`,
         `read_events`, `event_cursor_now`, `record_audit`
ORDER    (transaction_id, position). Followers read below the oldest open transaction, in that order, and never skip.
         Decisions read all that is committed; their cursor is the snapshot they read with. Facts of one delivery are in
         the order in which they were made, whichever transaction began first (delivery's `assign_step_place`).
FACTS    about deliveries are not stored twice: `read_events` reads them from `all_steps`, which has the same order and
         positions, through delivery's `match_steps`, only for a query that may match them. Deliveries take no lock
         of the event store, so a condition must not name these facts (`BadInput`); a condition on everything covers
         the table `events`. A room with the event store alone has no such facts
CALLED BY  every service whose use-case is a fact or a manual action; the outbox follows; applications, on connections
         of any driver of `db.drivers`, and by `postroom.sync`
FAILURES   `AppendConditionFailed` and `DuplicateAppend`, both with the event that matched; `BadInput`; `EventsBusy`:
         timed out waiting for a lock of another open transaction, retry; `EventUnreadable`, with the event's position
         and a cursor after it. At REPEATABLE READ and above also SQLSTATE 40001, to be retried: the snapshot is older
         than the locks of a condition or idempotency query, or a new epoch has begun or a mark has changed since.
EPOCH    the room stores the identifier of the cluster that assigned its transaction ids; restored into another cluster
         it begins a new epoch, above the old ids, so that restored events come before all later ones
MARKS    `event_clock` also tells whether the room has limits or erased addresses (`mark_room`). Mail reads epoch and
         marks as one number from the sequence `room_marks`, without a query. A change of the table makes the number
         unknown at once (`forget_room_marks`), and the table is read until a process has verified it
         (`verify_room_marks`)
AUDIT    `audit_log` is append-only, enforced by a trigger, and written in the caller's transaction
"""

from postroom.events.commands import Command, CommandResult
from postroom.events.decider import Decider
from postroom.events.model import (
    AppendCondition,
    Appended,
    Cursor,
    Event,
    Head,
    Place,
    Query,
    QueryItem,
    Reading,
    SequencedEvent,
    split_tag,
    tag,
    tags_of,
)
from postroom.events.periods import period_tag, period_tags
from postroom.events.service import EventStore
from postroom.events.session import EventSession
from postroom.events.typed import event
from postroom.events.writer import CombiningWriter

__all__ = [
    "AppendCondition",
    "Appended",
    "CombiningWriter",
    "Command",
    "CommandResult",
    "Cursor",
    "Decider",
    "Event",
    "EventSession",
    "EventStore",
    "Head",
    "Place",
    "Query",
    "QueryItem",
    "Reading",
    "SequencedEvent",
    "event",
    "period_tag",
    "period_tags",
    "split_tag",
    "tag",
    "tags_of",
]
