"""The overview: each part with its figures, and the rows behind them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from tests.support.builders import BUSY, REFUSED, a_mail, accepted
from tests.support.dashboard import a_full_day, dashboard_app, given_up, open_guest, text_of, tried
from tests.support.senders import an_account

from postroom.dashboard.overview import PARTS
from postroom.db.room import Room
from postroom.delivery.model import Lane
from postroom.runtime.finding import Finding, fail, ok, warn
from postroom.stats.recent import RecentSteps


async def findings() -> Sequence[Finding]:
    return [ok("clock", "fine"), fail("workers", "no worker reports <b>", "start one"), warn("queue", "it is late", "")]


async def test_the_overview_answers_whether_mail_flows(room: Room) -> None:
    """Lanes with what waits, is due and its latency; the last hour by minute; dead letters and workers with links."""
    guest = await open_guest(room)
    dead = await given_up(room.pool)
    await tried(room.pool, *[a_mail()] * 3)
    await tried(room.pool, a_mail(), reply=REFUSED)
    await accepted(room.pool, *[a_mail(lane=Lane.BULK)] * 3)
    await accepted(room.pool, a_mail(lane=Lane.AUTH, send_at=datetime.now(UTC) + timedelta(hours=5)))
    await room.pool.execute("INSERT INTO workers (pid, host) VALUES (4711, 'worker-1')")
    await room.pool.execute(
        "INSERT INTO claims (lane, delivery_ids, worker_id, claimed_at, expires_at)"
        " VALUES ('bulk', '{1,2,3,4,5,6,7}', 1, now(), now() + interval '1 minute')"
    )
    page = await guest.get("/")
    text = text_of(page)
    assert "bulk 3 waiting Due 3 Oldest" in text
    assert "Sending 7" in text
    assert "auth 1 waiting Due 0 Next in 4 h" in text
    assert "sent 3" in text
    assert "failed 1" in text
    assert " ms / " in text
    assert "worker-1 process 4711" in text
    assert page.body.count(b'<rect class="touch"') == 60
    assert f'href="/deliveries/{dead}"'.encode() in page.body
    assert b"style=" not in page.body


async def test_a_day_and_a_week_are_shown_by_the_hour(room: Room) -> None:
    """The same figures as the statistics, in the viewer's zone."""
    guest = await open_guest(room)
    await a_full_day(room.pool)
    sent = await room.pool.fetchval(
        "SELECT sum(amount) FROM read_counts()"
        " WHERE metric = 'sent' AND hour >= date_trunc('hour', now(), 'UTC') - interval '23 hours'"
    )
    day = await guest.get("/?period=day")
    assert f"sent {sent:,}" in text_of(day)
    assert day.body.count(b'<rect class="touch"') == 24
    week = await guest.get("/?period=week")
    assert week.body.count(b'<rect class="touch"') == 168
    assert len(week.body) < 100_000
    assert "Attempts by minute" in text_of(await guest.get("/?period=century"))


async def test_problems_of_the_doctor_lead_to_their_rows(room: Room) -> None:
    """The page shows the last findings at once; the health page runs the checks."""
    guest = await open_guest(room, app=dashboard_app(room, examine=findings))
    assert "The checks run when the page is live" in text_of(await guest.get("/"))
    health = text_of(await guest.get("/health"))
    assert "clock" in health
    page = await guest.get("/")
    assert "workers : no worker reports <b>" in text_of(page)
    assert b'href="/workers">Show' in page.body
    assert "clock" not in text_of(page)


async def test_troubled_senders_and_lagging_publishers_are_named(room: Room) -> None:
    """Accounts that do not send are listed with their reason; healthy ones are only counted."""
    guest = await open_guest(room)
    await an_account(room.pool, "good@shop.example")
    await an_account(
        room.pool, "bad@shop.example", status="paused", status_reason="12 of 90 mails bounced", paused_by="health"
    )
    text = text_of(await guest.get("/"))
    assert "bad@shop.example paused 12 of 90 mails bounced" in text
    assert "good@shop.example" not in text


async def test_parts_outside_the_scopes_of_a_key_are_not_drawn(room: Room) -> None:
    """A key that reads deliveries sees neither senders nor outbox nor problems."""
    guest = await open_guest(room, "deliveries:read", name="reader")
    page = await guest.get("/")
    shown = {name for name in PARTS if f'id="live-{name}"'.encode() in page.body}
    assert shown == {"lanes", "rates", "dead_letters", "workers"}


async def test_recent_steps_are_counted_once_in_any_chunks(room: Room) -> None:
    """Small chunks read backwards to the end of the hour and forwards from the last read, without a gap or a double."""
    now = datetime.now(UTC)
    await tried(room.pool, *[a_mail()] * 7)
    steps = RecentSteps(chunk=5)
    async with room.pool.acquire() as connection:
        for _ in range(4):
            await steps.refresh(connection, now=now)
        await tried(room.pool, a_mail(), reply=BUSY)
        await steps.refresh(connection, now=now)
    assert steps.is_complete
    totals = {name: sum(n for (_at, step), n in steps.counts.items() if step == name) for name in ("accepted", "sent")}
    assert totals == {"accepted": 8, "sent": 7}


async def test_recent_steps_far_behind_begin_with_the_newest(room: Room) -> None:
    """More steps than one chunk since the last read: the counts begin again at the newest."""
    now = datetime.now(UTC)
    await tried(room.pool, a_mail())
    steps = RecentSteps(chunk=4)
    async with room.pool.acquire() as connection:
        await steps.refresh(connection, now=now)
        await tried(room.pool, *[a_mail()] * 10)
        for _ in range(8):
            await steps.refresh(connection, now=now)
    assert sum(count for (_at, step), count in steps.counts.items() if step == "sent") == 11


async def test_lanes_show_what_their_oldest_mail_waits_for(room: Room) -> None:
    """Beside the counts: why the oldest mail of a lane has not left, and for how long."""
    await accepted(room.pool, a_mail(lane=Lane.AUTH))
    guest = await open_guest(room)
    assert "Waits for worker," in text_of(await guest.get("/"))
