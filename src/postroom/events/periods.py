"""Closing the books: tags that name the hour, the day, the month or the year, so that old events need not be read.

A ledger that lives for years cannot be decided by reading all of it. So its events carry the period they belong to,
and at the end of a period a closing event carries the balance into the next one:

    month = period_tag("month", now)                                        # "month=2026-11"
    books = Query.of(tags=["wallet=1", month])
    balance, seen = await store.project(0, {"BooksOpened": …, "Deposited": …, "Withdrawn": …}, books)
    await store.append(Event("Withdrawn", {"amount": 5}, ("wallet=1", month)), AppendCondition(books, seen))

A decision reads one period: it begins with that period's `BooksOpened`, which holds the balance brought forward.
Whoever is first in a new period opens it:

    late = Query.of("BooksOpened", tags=["wallet=1", month])
    balance, seen = await store.project(0, …, last_books | late)
    opening = Event("BooksOpened", {"balance": balance}, ("wallet=1", month))
    await store.append(opening, AppendCondition(last_books | late, seen), idempotency=late)

The condition on the last period's books means that no entry of it is left out of the balance; the idempotency query,
that a period is opened once. And whoever still wants to write into the last period decides by `last_books | late` too:
once the next one is open he is refused, reads `BooksOpened`, and puts his entry there.
"""

from datetime import UTC, datetime
from typing import Literal

from postroom.errors import BadInput
from postroom.events.model import tag

Period = Literal["hour", "day", "month", "year"]

_FORMS: dict[Period, str] = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}


def period_tag(period: Period, moment: datetime) -> str:
    """The tag of the period that a moment lies in, in UTC: `hour=2026-11-15T09`."""
    if moment.tzinfo is None:
        raise BadInput.of("moment", "must have a time zone")
    return tag(period, moment.astimezone(UTC).strftime(_FORMS[period]))


def period_tags(moment: datetime) -> tuple[str, ...]:
    """All four, from the year to the hour."""
    return tuple(period_tag(period, moment) for period in reversed(_FORMS))
