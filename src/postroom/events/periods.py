"""Closing the books: tags for the hour, day, month or year of an event, so that old events need not be read.

A ledger that grows for years cannot be decided by reading all of it. So its events are tagged with their period, and at
the end of a period a closing event carries the balance into the next one:

    month = period_tag("month", now)                                        # "month=2026-11"
    books = Query.of(tags=["wallet=1", month])
    balance, seen = await store.project(0, {"BooksOpened": …, "Deposited": …, "Withdrawn": …}, books)
    await store.append(Event("Withdrawn", {"amount": 5}, ("wallet=1", month)), AppendCondition(books, seen))

A decision reads one period: it begins with that period's `BooksOpened`, which holds the balance brought forward.
The first writer in a new period opens it:

    late = Query.of("BooksOpened", tags=["wallet=1", month])
    balance, seen = await store.project(0, …, last_books | late)
    opening = Event("BooksOpened", {"balance": balance}, ("wallet=1", month))
    await store.append(opening, AppendCondition(last_books | late, seen), idempotency=late)

The condition on the last period's books ensures that the balance includes all its entries; the idempotency query
ensures that a period is opened once. Late entries of the last period use `last_books | late` as well: once the next
period is open the append is rejected, and the writer reads `BooksOpened` and adds the entry there.
"""

from datetime import UTC, datetime
from typing import Literal

from postroom.errors import BadInput
from postroom.events.model import tag

Period = Literal["hour", "day", "month", "year"]

_FORMS: dict[Period, str] = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}


def period_tag(period: Period, moment: datetime) -> str:
    """The tag of the period of a time, in UTC: `hour=2026-11-15T09`."""
    if moment.tzinfo is None:
        raise BadInput.of("moment", "must have a time zone")
    return tag(period, moment.astimezone(UTC).strftime(_FORMS[period]))


def period_tags(moment: datetime) -> tuple[str, ...]:
    """The tags of all four periods, from the year to the hour."""
    return tuple(period_tag(period, moment) for period in reversed(_FORMS))
