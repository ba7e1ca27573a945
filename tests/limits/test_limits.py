"""Limits of API keys and of the room, over HTTP, SMTP, the drop-ins and SQL."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from tests.intake.conftest import Serve, serve  # noqa: F401 - the fixture
from tests.support.http import Browser, Response, served
from tests.support.sessions import until_blocked
from tests.support.submission import MAIL, submit, with_client

import postroom
from postroom.db.room import Room
from postroom.delivery.service import AcceptCombiner
from postroom.dropins.ses.answers import refusal
from postroom.errors import BadInput, KeyExpired, PostroomError
from postroom.events.audit import list_audit
from postroom.http import service as keys
from postroom.http.asgi import build_app, make_combiner
from postroom.http.auth import Authenticator
from postroom.limits import service, store
from postroom.limits.errors import FromNotAllowed, QuotaExceeded, RateExceeded, RoomClosed
from postroom.limits.model import AllowanceAnswer
from postroom.limits.store import take_allowance

PAST = datetime(2026, 1, 1, tzinfo=UTC)
Client = Callable[..., Awaitable[Browser]]


@pytest.fixture
async def client(room: Room) -> Any:
    """Makes a browser whose key has limits; several share one process."""
    accepting = make_combiner(room)
    app = build_app(room, accepting=accepting, auth=Authenticator(room.pool))

    async def make(name: str = "shop", **limits: Any) -> Browser:
        key, _row = await keys.create_key(room.pool, name, scopes=["deliveries:write"], actor="tests", limits=limits)
        return Browser(app, key)

    yield make
    await accepting.close()


def mail(*to: str, **fields: Any) -> dict[str, Any]:
    return {"to": list(to) or ["ada@example.org"], "subject": "Hello", "text": "Hello", **fields}


async def stored(room: Room) -> int:
    return int(await room.pool.fetchval("SELECT count(*) FROM deliveries"))


async def used(room: Room, holder: str) -> int:
    return (await service.read_use(room.pool, [holder]))[holder].day_used


async def send(browser: Browser, *to: str, **headers: str) -> Response:
    return await browser.post("/v1/deliveries", json=mail(*to), headers=headers)


async def test_quota_counts_recipients_and_names_its_reset(client: Client, room: Room) -> None:
    """To, Cc and Bcc count; a mail that does not fit is 429 with the time until midnight UTC, and is not stored."""
    browser = await client(daily_quota=5)
    body = mail("a@example.org", "b@example.org", cc=["c@example.org"], bcc=["d@example.org"])
    assert (await browser.post("/v1/deliveries", json=body)).status == 202
    refused = await send(browser, "e@example.org", "f@example.org")
    assert (refused.status, refused.json["code"]) == (429, "quota_exceeded")
    assert 0 < int(refused.headers["retry-after"]) <= 86_400
    assert "5 mails per day and has 1 left" in refused.json["detail"]
    assert "00:00 UTC" in refused.json["detail"]
    assert (await send(browser)).status == 202
    assert await stored(room) == 2


async def test_rate_is_per_minute(client: Client, room: Room) -> None:
    """The third mail of a minute is 429 with the seconds of its rest; the next minute starts from zero."""
    browser = await client(rate_per_minute=2)
    answers = [await send(browser) for _ in range(4)]
    accepted = [answer.status for answer in answers].count(202)
    assert accepted in (2, 4)  # 4: a minute of the clock began between them
    taken = "SELECT exceeded, wait, granted FROM take_allowance('key:9', 2, NULL, $1, $1, 0, 0, NULL, $2)"
    at = datetime(2026, 11, 1, 12, 0, 30, tzinfo=UTC)
    assert tuple(await room.pool.fetchrow(taken, 2, at)) == (None, None, 2)
    assert tuple(await room.pool.fetchrow(taken, 1, at)) == ("rate", timedelta(seconds=30), 0)
    assert tuple(await room.pool.fetchrow(taken, 1, at + timedelta(seconds=30))) == (None, None, 1)


async def test_batch_that_does_not_fit_is_rejected_as_a_whole(client: Client, room: Room) -> None:
    """Nothing of it is stored, and nothing is counted."""
    browser = await client(daily_quota=3)
    assert (await send(browser)).status == 202
    batch = {"deliveries": [mail(), mail(), mail()]}
    assert (await browser.post("/v1/deliveries/batch", json=batch)).status == 429
    assert await stored(room) == 1
    assert (await browser.post("/v1/deliveries/batch", json={"deliveries": [mail(), mail()]})).status == 202


async def test_batch_larger_than_the_limit_is_invalid(client: Client, room: Room) -> None:
    """It would never fit, so 429 would make clients retry without end."""
    browser = await client(daily_quota=2)
    refused = await browser.post("/v1/deliveries/batch", json={"deliveries": [mail(), mail(), mail()]})
    assert (refused.status, refused.fields) == (400, ["request"])
    assert await stored(room) == 0


async def test_replays_and_rejected_mails_are_not_counted(client: Client, room: Room) -> None:
    """A repeated request and a conflict return what they took."""
    browser = await client(daily_quota=2)
    for _ in range(3):
        answer = await send(browser, **{"idempotency-key": "k"})
    assert (answer.status, answer.json["replayed"]) == (200, True)
    conflict = await send(browser, "other@example.org", **{"idempotency-key": "k"})
    assert conflict.status == 409
    assert (await send(browser)).status == 202
    assert (await send(browser)).status == 429


async def test_from_outside_the_allowed_domains_is_named(client: Client, room: Room) -> None:
    """403 with the field; a missing From is outside too, because the default belongs to the installation."""
    browser = await client(from_domains=["Shop.Example", "bücher.example"])
    body = {"deliveries": [mail(**{"from": "a@shop.example"}), mail(**{"from": "a@other.example"})]}
    refused = await browser.post("/v1/deliveries/batch", json=body)
    assert (refused.status, refused.fields) == (403, ["[1].from"])
    assert (await send(browser)).fields == ["from"]
    for sender in ("a@SHOP.example", "a@bücher.example"):
        assert (await browser.post("/v1/deliveries", json=mail(**{"from": sender}))).status == 202
    assert await stored(room) == 2


async def test_expired_key_is_401_with_the_reason(client: Client, room: Room) -> None:
    """The text names the key; extending it makes it work again."""
    browser = await client(expires_at=PAST)
    refused = await send(browser)
    assert (refused.status, refused.json["code"]) == (401, "key_expired")
    assert "shop expired at 2026-01-01 00:00 UTC" in refused.json["detail"]
    key_id = await room.pool.fetchval("SELECT id FROM api_keys WHERE name = 'shop'")
    await keys.change_key(room.pool, key_id, {"expires_at": None}, actor="tests")
    assert (await send(Browser(build_app(room), browser.key))).status == 202


async def test_limits_of_a_key_are_set_and_changed_over_http(room: Room, browser_with_all: Browser) -> None:
    """Fields that are left out stay, null removes a limit, and the change is audited."""
    made = await browser_with_all.post(
        "/v1/keys",
        json={"name": "shop", "scopes": ["deliveries:write"], "daily_quota": 5, "from_domains": ["A.example"]},
    )
    assert (made.status, made.json["daily_quota"], made.json["from_domains"]) == (201, 5, ["a.example"])
    path = f"/v1/keys/{made.json['id']}"
    changed = await browser_with_all.ask("PATCH", path, json={"rate_per_minute": 60, "daily_quota": None})
    assert (changed.status, changed.json["rate_per_minute"], changed.json["daily_quota"]) == (200, 60, None)
    assert changed.json["from_domains"] == ["a.example"]
    assert (await browser_with_all.ask("PATCH", path, json={"rate_per_minute": 0})).status == 400
    assert (await browser_with_all.ask("PATCH", path, json={"from_domains": ["no domain"]})).fields == [
        "from_domains[0]"
    ]
    [entry, _made], _more = await list_audit(room.pool, subject=f"key:{made.json['id']}", limit=10)
    assert entry.action == "key.change"
    assert (entry.before["daily_quota"], entry.after["rate_per_minute"]) == (5, 60)


@pytest.mark.parametrize("scope", ["*", "campaigns:write", "keys:manage", "deliveries:operate"])
async def test_limited_key_cannot_have_a_scope_that_sends_past_its_limits(room: Room, scope: str) -> None:
    """Only deliveries:write and reading; an expiry alone is fine with any scope."""
    with pytest.raises(BadInput) as bad:
        await keys.create_key(room.pool, "shop", scopes=[scope], actor="tests", limits={"daily_quota": 1})
    assert [error.field for error in bad.value.errors] == ["scopes"]
    await keys.create_key(room.pool, "shop", scopes=[scope], actor="tests", limits={"expires_at": PAST})


async def test_submission_applies_the_limits(serve: Serve, room: Room) -> None:  # noqa: F811 - the fixture
    """450 4.7.1 over the quota, 550 5.7.1 for another From, 535 5.7.8 for an expired key."""
    async with serve() as served:
        await keys.change_key(room.pool, served.key_id, {"daily_quota": 1}, actor="tests")
        first, second = await with_client(served, lambda smtp: (submit(smtp, MAIL % b""), submit(smtp, MAIL % b"")))
        assert (first[0], second[0]) == (250, 450)
        assert second[1].startswith(b"4.7.1 The API key shop may send 1 mails per day")
    async with serve() as served:
        await keys.change_key(room.pool, served.key_id, {"from_domains": ["other.example"]}, actor="tests")
        code, text = await with_client(served, lambda smtp: submit(smtp, MAIL % b""))
        assert (code, text[:5]) == (550, b"5.7.1")
        await keys.change_key(room.pool, served.key_id, {"expires_at": PAST}, actor="tests")
        served.auth.forget(served.key_id)
        refused = await with_client(served, lambda smtp: smtp.docmd("AUTH", _plain(served.key)), login=False)
        assert refused[0] == 535
        assert b"expired at 2026-01-01" in refused[1]
    assert await stored(room) == 1


async def test_submission_larger_than_a_limit_is_refused_for_good(serve: Serve, room: Room) -> None:  # noqa: F811 - the fixture
    """554 5.6.0: a retry could never succeed. Nothing is counted, and a smaller message is accepted."""
    recipients = ("ada@example.org", "bob@example.org", "cyd@example.org")
    for limits in ({"daily_quota": 2}, {"rate_per_minute": 2}):
        async with serve() as served:
            await keys.change_key(room.pool, served.key_id, limits, actor="tests")
            large, small = await with_client(
                served, lambda smtp: (submit(smtp, MAIL % b"", *recipients), submit(smtp, MAIL % b"", *recipients[:2]))
            )
        assert (large[0], large[1][:5], small[0]) == (554, b"5.6.0", 250)
        assert b"has 3 mails; the API key shop" in large[1]
        assert await used(room, f"key:{served.key_id}") == 2


def _plain(key: str) -> str:
    return "PLAIN " + base64.b64encode(f"\0x\0{key}".encode()).decode()


async def test_resend_errors_have_its_names(client: Client, room: Room) -> None:
    """rate_limit_exceeded, daily_quota_exceeded with Retry-After, and 403 for another From."""
    body = {"from": "a@shop.example", "to": "b@example.org", "subject": "Hello", "text": "Hello"}
    quota = await client("quota", daily_quota=1)
    answers = [await quota.post("/emails", json=body) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]
    assert answers[1].json["name"] == "daily_quota_exceeded"
    assert int(answers[1].headers["retry-after"]) > 0
    refused = await (await client("from", from_domains=["other.example"])).post("/emails", json=body)
    assert (refused.status, refused.json["name"]) == (403, "validation_error")
    expired = await (await client("old", expires_at=PAST)).post("/emails", json=body)
    assert (expired.status, expired.json["name"]) == (401, "invalid_api_key")
    assert await stored(room) == 1


async def test_room_limits_apply_to_every_client(client: Client, room: Room) -> None:
    """The quota of the room is shared by its keys; a key refused by the room does not lose its own allowance."""
    await service.set_room_limits(room.pool, {"daily_quota": 3}, actor="tests")
    one, two = await client("one", daily_quota=5), await client("two")
    assert [(await send(each)).status for each in (one, two, one, two, one)] == [202, 202, 202, 429, 429]
    assert "The room may send 3 mails per day" in (await send(two)).json["detail"]
    key_id = await room.pool.fetchval("SELECT id FROM api_keys WHERE name = 'one'")
    assert await used(room, "room") == 3
    key_used = await used(room, f"key:{key_id}")
    assert key_used in (2, 3)  # 3: the returned mail is still in this process, for the next second


async def test_closed_room_accepts_nothing(client: Client, room: Room) -> None:
    """API and SQL `send` refuse; the limit is removed by None."""
    browser = await client()
    await service.set_room_limits(room.pool, {"expires_at": PAST}, actor="tests")
    assert (await send(browser)).json["code"] == "room_closed"
    async with room.pool.acquire() as connection:
        with pytest.raises(RoomClosed, match="since 2026-01-01 00:00 UTC"):
            await postroom.send(connection, to="a@example.org", subject="Hello", text="Hello", room=room.name)
        await service.set_room_limits(room.pool, {"expires_at": None}, actor="tests")
        await postroom.send(connection, to="a@example.org", subject="Hello", text="Hello", room=room.name)
    assert await stored(room) == 1
    assert await room.pool.fetchval("SELECT count(*) FROM room_limits") == 0


async def test_removing_no_limits_keeps_the_mark_of_new_ones(room: Room) -> None:
    """SQL `send` reads a mark: a DELETE that finds no row, beside an open INSERT of limits, does not take it away."""
    async with room.pool.acquire() as setting, room.pool.acquire() as connection:
        async with setting.transaction():
            await setting.execute("INSERT INTO room_limits (expires_at) VALUES ($1)", PAST)
            await connection.execute("DELETE FROM room_limits")
        with pytest.raises(RoomClosed):
            await postroom.send(connection, to="a@example.org", subject="Hello", text="Hello", room=room.name)


async def test_sql_send_checks_the_domains_of_the_room(room: Room) -> None:
    """A From outside the domains, or none, is refused by field."""
    await service.set_room_limits(room.pool, {"from_domains": ["shop.example"]}, actor="tests")
    async with room.pool.acquire() as connection:
        for sender in ("a@other.example", None):
            with pytest.raises(FromNotAllowed) as refused:
                await postroom.send(
                    connection, to="a@example.org", sender=sender, subject="x", text="x", room=room.name
                )
            assert [error.field for error in refused.value.errors] == ["from"]
        await postroom.send(
            connection, to="a@example.org", sender="A@Shop.example", subject="x", text="x", room=room.name
        )


@pytest.mark.parametrize("year", [1, 1969, 9999])
async def test_expiry_that_cannot_be_read_back_is_rejected(room: Room, year: int) -> None:
    """The driver stores the last moment of 9999 as infinity, and every later request with the key failed."""
    limits = {"expires_at": datetime.max.replace(year=year, tzinfo=UTC)}
    _key, row = await keys.create_key(room.pool, "shop", scopes=["deliveries:write"], actor="tests")
    with pytest.raises(BadInput, match="expires_at: must be between the years 1970 and 9998"):
        await keys.change_key(room.pool, row.id, limits, actor="tests")
    with pytest.raises(BadInput, match="expires_at"):
        await service.set_room_limits(room.pool, limits, actor="tests")


@pytest.mark.parametrize(
    "statement", ["UPDATE api_keys SET expires_at = $1", "INSERT INTO room_limits (expires_at) VALUES ($1)"]
)
async def test_the_tables_reject_an_expiry_that_cannot_be_read_back(room: Room, statement: str) -> None:
    """SQL is checked as well."""
    await keys.create_key(room.pool, "shop", scopes=["deliveries:write"], actor="tests")
    with pytest.raises(asyncpg.CheckViolationError):
        await room.pool.execute(statement, datetime.max.replace(tzinfo=UTC))


async def test_concurrent_transactions_share_one_allowance(room: Room) -> None:
    """The second waits for the first to commit, and is granted no more than that has left."""
    take = "SELECT granted FROM take_allowance('key:1', NULL, 10, 1, $1)"
    assert await room.pool.fetchval(take, 1) == 1
    async with room.pool.acquire() as first, room.pool.acquire() as second:
        holding = first.transaction()
        await holding.start()
        assert await first.fetchval(take, 6) == 6
        later = asyncio.create_task(second.fetchval(take, 6))
        await until_blocked(room.pool)
        await holding.commit()
        assert await later == 3


async def test_concurrent_requests_take_slices(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load a process takes from the row in few statements, and the quota is met exactly."""
    browser = await client(daily_quota=150)
    taken: list[int] = []

    async def take(*arguments: Any, **values: Any) -> AllowanceAnswer:
        answer = await take_allowance(*arguments, **values)
        taken.append(answer.granted)
        return answer

    monkeypatch.setattr(store, "take_allowance", take)
    statuses = [answer.status for answer in await asyncio.gather(*(send(browser) for _ in range(200)))]
    assert (statuses.count(202), statuses.count(429)) == (150, 50)
    assert sum(taken) == 150
    assert len(taken) <= 40  # 200 mails; slices shrink near the limit


async def test_combiner_returns_what_it_did_not_spend(room: Room) -> None:
    """After `close`, the row has exactly the mails that were accepted."""
    key, row = await keys.create_key(
        room.pool, "shop", scopes=["deliveries:write"], actor="tests", limits={"daily_quota": 1000}
    )
    accepting = AcceptCombiner(room.pool)
    browser = Browser(build_app(room, accepting=accepting), key)
    for _ in range(3):
        await asyncio.gather(*(send(browser) for _ in range(20)))
    await accepting.close()
    assert await used(room, f"key:{row.id}") == 60


async def test_client_raises_the_errors_of_limits(room: Room) -> None:
    """With the field, or with the seconds to wait."""
    limits = {"daily_quota": 1, "from_domains": ["shop.example"]}
    key, _row = await keys.create_key(room.pool, "shop", scopes=["deliveries:write"], actor="tests", limits=limits)
    mine: dict[str, Any] = {"to": "ada@example.org", "subject": "Hello", "text": "Hello"}
    async with served(build_app(room)) as url, postroom.Client(url, key) as client:
        with pytest.raises(postroom.FromNotAllowed) as denied:
            await client.deliveries.send(**mine)
        assert [error.field for error in denied.value.errors] == ["from"]
        await client.deliveries.send(**mine, from_="a@shop.example")
        with pytest.raises(postroom.QuotaExceeded) as exceeded:
            await client.deliveries.send(**mine, from_="a@shop.example")
        assert 0 < (exceeded.value.retry_after_s or 0) <= 86_400


@pytest.mark.parametrize(
    "error,status,name",
    [
        (RateExceeded("The key.", timedelta(seconds=7)), 429, "TooManyRequestsException"),
        (QuotaExceeded("The key.", timedelta(seconds=7)), 429, "LimitExceededException"),
        (FromNotAllowed("Not yours."), 400, "MailFromDomainNotVerifiedException"),
        (RoomClosed(), 400, "SendingPausedException"),
        (KeyExpired("shop", PAST), 403, "ExpiredTokenException"),
    ],
)
def test_ses_errors_have_its_names(error: PostroomError, status: int, name: str) -> None:
    """AWS's libraries raise these names; a wait is in Retry-After."""
    answer = refusal(error)
    assert answer is not None
    assert (answer.status, answer.headers["x-amzn-errortype"]) == (status, name)
    assert answer.headers.get("retry-after") == ("7" if error.retry_after_s else None)
