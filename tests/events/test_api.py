"""Events over HTTP."""

from urllib.parse import quote

import msgspec
import pytest
from tests.support.http import Browser, open_browser

from postroom.db.room import Room
from postroom.events import Event, EventStore
from postroom.events.api import ENDPOINTS
from postroom.http.asgi import HttpApplication
from postroom.http.auth import Authenticator
from postroom.runtime.endpoint import Site


def nested(levels: int) -> list[object]:
    inner: list[object] = []
    for _ in range(levels - 1):
        inner = [inner]
    return inner


OPENED = {"type": "WalletOpened", "tags": ["wallet=1", "owner=Smith, John"], "data": {"balance": 5}}


@pytest.fixture
async def browser(room: Room) -> Browser:
    site = Site(ENDPOINTS, tools=(EventStore(room.pool),))
    return await open_browser(room, app=HttpApplication(room, (), auth=Authenticator(room.pool), sites=(site,)))


async def test_events_are_appended_and_read(browser: Browser, room: Room) -> None:
    """201 with the last position; events are read back unchanged."""
    events = [OPENED, {"type": "Deposited", "tags": ["wallet=1"], "correlation_id": "c"}]
    answer = await browser.post("/v1/events", json={"events": events, "occurred_at": "2030-01-31T09:00:00+01:00"})
    transaction_id = await room.pool.fetchval("SELECT max(transaction_id) FROM events")
    assert answer.json == {"position": 2, "transaction_id": transaction_id, "events_count": 2, "cursor": None}
    assert answer.status == 201
    first, second = (await browser.get("/v1/events")).json["items"]
    assert first == {
        **OPENED,
        "position": 1,
        "transaction_id": transaction_id,
        "occurred_at": "2030-01-31T08:00:00Z",
        "correlation_id": None,
        "causation_id": None,
    }
    assert (second["data"], second["correlation_id"]) == ({}, "c")


async def test_idempotency_key_appends_once(browser: Browser, room: Room) -> None:
    """A repeated key returns the first response, other events with it are a conflict, a rejected append frees it."""
    headers = {"Idempotency-Key": "order-77"}
    first = await browser.post("/v1/events", json={"events": [OPENED]}, headers=headers)
    again = await browser.post("/v1/events", json={"events": [OPENED]}, headers=headers)
    assert (first.status, again.status) == (201, 200)
    assert first.json == again.json
    assert (await browser.post("/v1/events", json={"events": [{"type": "Other"}]}, headers=headers)).status == 409
    assert len((await browser.get("/v1/events")).json["items"]) == 1
    tried = await room.pool.fetchval("SELECT last_value FROM commands_id_seq")
    refused = {"events": [OPENED], "condition": {"query": [{"tags": ["wallet=1"]}]}}
    assert (await browser.post("/v1/events", json=refused, headers={"Idempotency-Key": "k"})).status == 409
    # A second attempt would have used another position; the condition is the caller's, so there is only one.
    assert await room.pool.fetchval("SELECT last_value FROM commands_id_seq") == tried + 1
    allowed = {"events": [{"type": "Other"}]}
    assert (await browser.post("/v1/events", json=allowed, headers={"Idempotency-Key": "k"})).status == 201


async def test_events_are_queried_by_type_and_tag(browser: Browser) -> None:
    """Type and tag must both match; a query in JSON is an OR of items."""
    for wallet in (1, 2):
        for kind in ("A", "B"):
            await browser.post("/v1/events", json={"events": [{"type": kind, "tags": [f"wallet={wallet}"]}]})

    async def found(target: str) -> list[int]:
        return [item["position"] for item in (await browser.get(f"/v1/events?{target}")).json["items"]]

    assert await found("type=A") == [1, 3]
    assert await found("type=B&tag=wallet%3D2") == [4]
    items = [{"types": ["A"], "tags": ["wallet=1"]}, {"types": ["B"], "tags": ["wallet=2"]}]
    assert await found(f"query={quote(msgspec.json.encode(items))}") == [1, 4]


async def test_pages_have_no_gaps(browser: Browser) -> None:
    """Pages are complete forwards and backwards; the last page has no next cursor."""
    await browser.post("/v1/events", json={"events": [{"type": "A"}] * 5})
    for direction, expected in (("false", [1, 2, 3, 4, 5]), ("true", [5, 4, 3, 2, 1])):
        seen: list[int] = []
        cursor: str | None = ""
        while cursor is not None:
            more = f"&cursor={quote(cursor)}" if cursor else ""
            page = (await browser.get(f"/v1/events?limit=2&backwards={direction}{more}")).json
            seen += [item["position"] for item in page["items"]]
            cursor = page["next_cursor"]
        assert seen == expected


async def test_failed_condition_is_409_with_the_matching_event(browser: Browser) -> None:
    """The cursor of a read is safe as `after`; the problem names the event that matched."""
    wallet = [{"tags": ["wallet=1"]}]
    seen = (await browser.get("/v1/events?tag=wallet%3D1")).json["cursor"]
    body = {"events": [OPENED], "condition": {"query": wallet, "after": seen}}
    won = await browser.post("/v1/events", json=body)
    lost = await browser.post("/v1/events", json=body)
    assert (won.status, lost.status, lost.headers["content-type"]) == (201, 409, "application/problem+json")
    assert lost.json["code"] == "append_condition_failed"
    assert lost.json["matched"] == {"position": 1, "type": "WalletOpened", "tags": OPENED["tags"]}
    after = {"events": [OPENED], "condition": {"query": wallet, "after": won.json["cursor"]}}
    assert (await browser.post("/v1/events", json=after)).status == 201


async def test_duplicate_is_409_and_checked_first(browser: Browser) -> None:
    """A repeated request is reported as a duplicate, not as a conflict."""
    body = {
        "events": [{"type": "Transferred", "tags": ["transfer=7"]}],
        "idempotency": [{"tags": ["transfer=7"]}],
        "condition": {"query": [{"types": ["Transferred"]}]},
    }
    assert (await browser.post("/v1/events", json=body)).status == 201
    again = await browser.post("/v1/events", json=body)
    assert (again.status, again.json["code"], again.json["matched"]["position"]) == (409, "duplicate_append", 1)


async def test_the_head_has_seen_everything(browser: Browser, room: Room) -> None:
    """The head's cursor reads nothing until an event is appended."""
    await browser.post("/v1/events", json={"events": [OPENED]})
    head = (await browser.get("/v1/events/head")).json
    assert head["position"] == 1
    assert (await browser.get(f"/v1/events?cursor={quote(head['cursor'])}")).json["items"] == []
    await EventStore(room.pool).append(Event.of("X"))
    assert len((await browser.get(f"/v1/events?cursor={quote(head['cursor'])}")).json["items"]) == 1


@pytest.mark.parametrize(
    "body,field",
    [
        ({"events": []}, "events"),
        ({"events": [{"type": ""}]}, "events[0].type"),
        ({"events": [{"type": "A", "tags": ["nonsense"]}]}, "events[0].tags[0]"),
        ({"events": [{"type": "A"}], "condition": {"query": [{}, {"tags": ["h:1"]}]}}, "condition.query[1].tags[0]"),
        ({"events": [{"type": "A"}], "idempotency": [{"tags": ["=1"]}]}, "idempotency[0].tags[0]"),
        ({"events": [{"type": "A", "data": "\0"}]}, "events[0].data"),
        ({"events": [{"type": "A"}, {"type": "A", "data": nested(500)}]}, "events[1].data"),
        ({"events": [{"type": "A"}], "condition": {"query": []}}, "condition.query"),
        ({"events": [{"type": "A"}], "condition": {"query": [{}], "after": "x"}}, "condition.after"),
        ({"events": [{"type": "A"}], "condition": {"query": [{}], "after": "9:5:///"}}, "condition.after"),
        ({"events": [{"type": "A"}], "occurred_at": "9999-12-31T23:59:59-01:00"}, "occurred_at"),
        ({"events": [{"type": "A", "causation_id": "\0"}]}, "events[0].causation_id"),
        ({"events": [{"type": "A"}], "extra": 1}, "extra"),
    ],
)
async def test_bad_input_is_400_and_named(browser: Browser, body: object, field: str) -> None:
    """Nothing is stored."""
    for headers in ({}, {"Idempotency-Key": "key"}):
        answer = await browser.post("/v1/events", json=body, headers=headers)
        assert (answer.status, answer.fields) == (400, [field])
    assert (await browser.get("/v1/events")).json["items"] == []


@pytest.mark.parametrize(
    "target", ["cursor=x", "cursor=x&backwards=true", "query=x", "query=[]", "query=[{}]&type=A", "limit=0"]
)
async def test_a_bad_query_is_400(browser: Browser, target: str) -> None:
    """An invalid cursor, an invalid query, and both kinds of query at once are rejected."""
    assert (await browser.get(f"/v1/events?{target}")).status == 400


async def test_data_may_have_a_hundred_levels(browser: Browser) -> None:
    """A hundred levels are stored and read, with and without an idempotency key, and as a command."""
    for headers in ({}, {"Idempotency-Key": "deep"}):
        body = {"events": [{"type": "Deep", "data": nested(100)}]}
        assert (await browser.post("/v1/events", json=body, headers=headers)).status == 201
    assert [item["data"] for item in (await browser.get("/v1/events?type=Deep")).json["items"]] == [nested(100)] * 2
    assert (await browser.get("/v1/commands")).status == 200


async def test_an_event_that_cannot_be_read_is_409(browser: Browser, room: Room) -> None:
    """The problem names the position of the event."""
    await browser.post("/v1/events", json={"events": [OPENED]})
    await room.pool.execute("UPDATE events SET data = to_jsonb('1e5000'::numeric)")
    answer = await browser.get("/v1/events?tag=wallet%3D1")
    assert (answer.status, answer.json["code"]) == (409, "event_unreadable")
    assert "position 1" in answer.json["detail"]


async def test_cursor_with_many_open_transactions_is_accepted(browser: Browser, room: Room) -> None:
    """A cursor of any length that was issued is accepted."""
    await browser.post("/v1/events", json={"events": [OPENED]})
    last = await room.pool.fetchval("SELECT max(transaction_id)::text::bigint FROM events")
    opened = ",".join(str(last + number) for number in range(1, 4000))
    cursor = f"{last}:{last + 5000}:{opened}///"
    assert (await browser.get(f"/v1/events?cursor={quote(cursor)}")).json["items"] == []
    body = {"events": [OPENED], "condition": {"query": [{"tags": ["wallet=1"]}], "after": cursor}}
    assert (await browser.post("/v1/events", json=body)).status == 201


async def test_commands_are_listed_newest_first(browser: Browser) -> None:
    """Commands are listed with request and result, page by page, or those of one transaction."""
    for number in range(3):
        body, key = {"events": [{"type": "A", "tags": [f"n={number}"]}]}, {"Idempotency-Key": f"k{number}"}
        appended = (await browser.post("/v1/events", json=body, headers=key)).json
    page = (await browser.get("/v1/commands?limit=2")).json
    assert [item["command_id"].rpartition(":")[2] for item in page["items"]] == ["k2", "k1"]
    newest = page["items"][0]
    assert (newest["type"], newest["result"], newest["metadata"]) == ("http.append_events", appended, None)
    assert newest["data"]["events"][0]["tags"] == ["n=2"]
    rest = (await browser.get(f"/v1/commands?limit=2&cursor={page['next_cursor']}")).json
    assert ([item["id"] for item in rest["items"]], rest["next_cursor"]) == ([1], None)
    found = (await browser.get(f"/v1/commands?transaction_id={appended['transaction_id']}")).json["items"]
    assert found == [newest]
    assert (await browser.get("/v1/commands?cursor=x")).status == 400


@pytest.mark.parametrize(
    "target,field",
    [("tag=h%3A1", "tag"), ("type=A&tag=a%3D1&tag=%3D1", "tag"), ('query=[{"tags":["h"]}]', "query[0].tags[0]")],
)
async def test_invalid_tag_is_400(browser: Browser, target: str, field: str) -> None:
    """An invalid tag is an error with a message instead of an empty result."""
    answer = await browser.get(f"/v1/events?{target}")
    assert (answer.status, answer.fields) == (400, [field])
    body = {"events": [{"type": "A", "tags": ["h:1"]}]}
    for told in (answer, await browser.post("/v1/events", json=body)):
        assert [error["message"] for error in told.json["errors"]] == ["must be key=value"]


async def test_event_and_command_share_a_transaction_id(browser: Browser) -> None:
    """An event and its command have the same transaction id."""
    await browser.post("/v1/events", json={"events": [OPENED]}, headers={"Idempotency-Key": "open"})
    await browser.post("/v1/events", json={"events": [OPENED]}, headers={"Idempotency-Key": "again"})
    (first, _) = (await browser.get("/v1/events")).json["items"]
    (found,) = (await browser.get(f"/v1/commands?transaction_id={first['transaction_id']}")).json["items"]
    assert found["command_id"].endswith(":open")
