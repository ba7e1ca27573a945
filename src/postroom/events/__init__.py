"""events: facts.

NAME     events, what happened and who did it: a store whose consistency boundary is whatever a decision has read
OWNS     the tables `events`, `event_tags` (the same tags, one per row), `commands`, `event_clock`, `event_followers`
         and `audit_log`; the channel `<room>_events`; the stored functions `append_events`, `append_events_batch`,
         `append_events_if`, `read_events`, `event_cursor_now`, `record_audit`
ORDER    (transaction_id, position). Followers read below the oldest open transaction, in that order, and never skip.
         Decisions read all that is committed; their cursor is the snapshot they read with.
CALLED BY  every service whose use-case is a fact or a person's decision; the outbox follows
FAILURES   `AppendConditionFailed` and `DuplicateAppend`, both naming the event that matched; `BadInput`; `EventsBusy`:
         somebody's open transaction holds the append up, try again; `EventUnreadable`, naming an event's position and a
         way past it. At REPEATABLE READ and above also SQLSTATE 40001, to be retried: something was asked, by a
         condition or an idempotency query, and the snapshot was older than the locks; or a new epoch has begun since.
EPOCH    the room knows the cluster its transaction ids were counted in; restored into another one it begins an epoch,
         which stands above them, so that whatever came with the dump comes before whatever follows
AUDIT    `audit_log` is append-only, refused by trigger otherwise, and stands or falls with the caller's transaction
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
