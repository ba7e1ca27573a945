"""Pages of deliveries: choose the index, examine a bounded number of ids, apply the other filters."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.listing import store
from postroom.delivery.model import DeliverySummary
from postroom.post.address import as_stored, domain_of, fold_local
from postroom.post.keyed_hash import LARGEST_ID
from postroom.runtime.page import Found, decode_cursor, encode_cursor

EXAMINED = 5_000
"""Most ids of a window, and most deliveries whose addresses a page compares. Reading that many takes about 10 ms."""

WINDOWS = 3
"""The first window has the size of the page, each further one ten times that of the one before: a page that finds
nothing takes about 12 ms."""

SCALARS = 10
"""Most scalars of a filter by custom data, and its deepest level, whose frequency is determined."""

CLOCK_SLACK = timedelta(seconds=10)
"""Ids follow times to within this: a batch reads the clock once for all its ids, and NTP may set the clock back."""

Find = Callable[..., Awaitable[list[int]]]

FINDERS: dict[str, Find] = {
    "message_id": store.ids_by_message_id,
    "ids": store.ids_given,
    "idempotency_key": store.ids_by_idempotency_key,
    "recipient": partial(store.ids_by_column, column="recipient"),
    "endpoint_id": partial(store.ids_by_column, column="endpoint_id"),
    "campaign_id": partial(store.ids_by_column, column="campaign_id"),
    "custom_data": store.ids_given,
    "tags": store.ids_given,
    "state": store.ids_unsent,
    "recipient_domain": partial(store.ids_by_column, column="recipient_domain"),
    "template_id": partial(store.ids_by_column, column="template_id"),
    "recipient_contains": store.ids_by_recipient_part,
    "source": partial(store.ids_by_column, column="source"),
}
"""Filter → the function that finds its ids. The first one given finds; the others filter. Tags and custom data that
very many deliveries have only filter."""

_BY_STATE: dict[StateFilter, Find] = {
    StateFilter.SENDING: store.ids_sending,
    **dict.fromkeys((StateFilter.WAITING, StateFilter.QUEUED, StateFilter.RENDERED), store.ids_waiting),
}


@dataclass(frozen=True, slots=True)
class Search:
    """The index that finds ids, its value, the ids still to be searched, and how many to find at once."""

    find: Find
    value: dict[str, Any]
    before_id: int
    first_id: int
    id_limit: int
    rest_id: int | None = None
    """The next page continues below this id; None: nothing below `first_id` matches."""

    async def ids(self, connection: Connection) -> tuple[list[int], int | None]:
        """The next ids, and the id below which the search continues; None at its end."""
        window = {"before_id": self.before_id, "first_id": self.first_id, "id_limit": self.id_limit}
        ids = await self.find(connection, **self.value, **window)
        return ids, ids[-1] if len(ids) == self.id_limit else self.rest_id


async def search_deliveries(
    pool: Pool, chosen: DeliveryFilter, *, cursor: str | None = None, limit: int = 50
) -> Found[DeliverySummary]:
    """A page of deliveries, newest first, and the cursor of the next page, which may follow a page without items."""
    before_id = LARGEST_ID if cursor is None else decode_cursor(cursor, tuple[int])[0]
    async with pool.acquire() as connection:
        search, filters = await _search(connection, chosen, before_id, limit + 1)
        return await _read(connection, search, filters, limit)


async def read_window(
    connection: Connection, chosen: DeliveryFilter, *, before_id: int, id_limit: int
) -> tuple[list[int], int | None]:
    """The ids of one window that match every filter, and the id below which the next window begins; None at the end."""
    search, filters = await _search(connection, chosen, before_id, id_limit)
    ids, more = await search.ids(connection)
    return await store.match_deliveries(connection, delivery_ids=ids, page_limit=id_limit, **filters), more


async def _read(connection: Connection, search: Search, filters: dict[str, Any], limit: int) -> Found[DeliverySummary]:
    found: list[int] = []
    before_id: int | None = search.before_id
    for _ in range(WINDOWS):
        ids, before_id = await search.ids(connection)
        wanted = limit + 1 - len(found)  # one more than requested shows that there is a next page
        found += await store.match_deliveries(connection, delivery_ids=ids, page_limit=wanted, **filters)
        if len(found) > limit:
            before_id = found[limit - 1]
        if len(found) > limit or before_id in (None, search.rest_id):
            break
        search = replace(search, before_id=before_id, id_limit=min(EXAMINED, search.id_limit * 10))
    listed = await store.list_deliveries(connection, delivery_ids=found[:limit])
    return listed, None if before_id is None else encode_cursor(before_id)


async def _search(
    connection: Connection, chosen: DeliveryFilter, before_id: int, id_limit: int
) -> tuple[Search, dict[str, Any]]:
    """The search for a filter, and the filters that its statement applies."""
    filters, first_id = _filters(chosen), 0
    if (end := _shifted(_accepted_before(chosen), CLOCK_SLACK)) is not None:
        before_id = min(before_id, await store.find_id_since(connection, since=end))
    if (begin := _shifted(chosen.created_from, -CLOCK_SLACK)) is not None:
        first_id = await store.find_id_since(connection, since=begin)
    find, value = await _finder(connection, chosen, filters)
    rest_id = None
    if find is store.ids_by_recipient_part:
        rest_id = await store.find_rest_id(connection, before_id=before_id, first_id=first_id, row_limit=EXAMINED)
    filters.pop("message_id")  # its index finds exactly the deliveries that match
    return Search(find, value, before_id, rest_id or first_id, id_limit, rest_id), filters


def _shifted(moment: datetime | None, by: timedelta) -> datetime | None:
    """None at the ends of the calendar, where a filter such as `created_before=9999-12-31T23:59Z` bounds nothing."""
    with suppress(OverflowError):
        return None if moment is None else moment + by
    return None


def _accepted_before(chosen: DeliveryFilter) -> datetime | None:
    """A delivery that was finished before a time was accepted before it."""
    return min(filter(None, (chosen.created_before, chosen.finished_before)), default=None)


async def _finder(
    connection: Connection, chosen: DeliveryFilter, filters: dict[str, Any]
) -> tuple[Find, dict[str, Any]]:
    state = chosen.state
    for name, find in FINDERS.items():
        if filters[name] is None or (name == "state" and state is StateFilter.SENT):
            continue  # nearly all deliveries are sent: any other filter selects more
        if name == "state" and state in _BY_STATE:
            return _BY_STATE[state], {}
        if name not in ("custom_data", "tags"):
            return find, {"value": filters[name]}
        if (ids := await _rare_ids(connection, name, getattr(chosen, name))) is not None:
            return find, {"value": ids}
    return store.ids_newest, {"created_before": _accepted_before(chosen)}


async def _rare_ids(connection: Connection, name: str, value: Mapping[str, Any]) -> list[int] | None:
    """The deliveries with the first scalar that few deliveries have; None without one."""
    for scalar in islice(_scalars(value, SCALARS), SCALARS):
        given = {"tags": None, "custom_data": None, name: _json(scalar)}
        if (ids := await store.rare_ids(connection, **given, id_limit=EXAMINED)) is not None:
            return ids
    return None


def _scalars(value: Any, levels: int) -> Iterator[Any]:
    """Each scalar of a JSON value, inside the objects and arrays that lead to it, which the index has together."""
    if not isinstance(value, Mapping | list):
        yield value
    elif levels:
        inner = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, each in inner:
            for scalar in _scalars(each, levels - 1):
                yield {key: scalar} if isinstance(value, Mapping) else [scalar]


def _filters(chosen: DeliveryFilter) -> dict[str, Any]:
    filters = asdict(chosen)
    for name in ("tags", "custom_data"):
        if filters[name] is not None:
            filters[name] = _json(filters[name])
    if chosen.recipient is not None:
        filters["recipient"] = as_stored(chosen.recipient)
    if chosen.recipient_contains is not None:
        filters["recipient_contains"] = fold_local(chosen.recipient_contains)
    if chosen.recipient_domain is not None:
        filters["recipient_domain"] = domain_of(as_stored(f"x@{chosen.recipient_domain}"))
    if chosen.message_id is not None:
        filters["message_id"] = f"<{chosen.message_id.strip().strip('<>')}>"
    return filters


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
