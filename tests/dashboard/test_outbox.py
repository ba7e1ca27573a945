"""The outbox, its topics and mail rules: lists, the plot of the lag, actions with their effect, and the audit log."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.dashboard import Guest, open_guest, text_of
from tests.support.outbox import append

from postroom.db.room import Room
from postroom.events import EventStore
from postroom.outbox import service, topics
from postroom.outbox.model import PublisherStatus, Subscription, Topic

PAIR = Subscription("orders", "log")
PATH = "/outbox/orders/log"


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


async def a_topic(room: Room, publisher: str = "log") -> list[int]:
    """A topic with one publisher that has published nothing of three events; returns their positions."""
    await topics.create_topic(
        room.pool, Topic(name="orders", types=("Placed",)), publishers=[publisher], from_now=False, actor="tests"
    )
    store = EventStore(room.pool)
    positions = await append(store, 3, "Placed")
    await append(store, 1, "Other")
    return positions


async def actions_of(room: Room) -> list[str]:
    rows = await room.pool.fetch(
        "SELECT action FROM audit_log WHERE action LIKE 'outbox.%' AND actor <> 'tests' ORDER BY id"
    )
    return [row["action"] for row in rows]


async def status_of(room: Room) -> tuple[PublisherStatus, int]:
    line = await service.get_progress(room.pool, PAIR)
    return line.status, line.last_position


async def test_the_list_shows_lag_leader_and_errors(room: Room, guest: Guest) -> None:
    """The plot shows the publishers with the largest lag; without records it says so."""
    assert "No publisher is subscribed to a topic." in text_of(await guest.get("/outbox"))
    await a_topic(room)
    minute = datetime.now(UTC).replace(second=0, microsecond=0)
    assert "No lag is recorded in this period." in text_of(await guest.get("/outbox"))
    for ago in range(70):
        await room.pool.execute(
            "INSERT INTO outbox_lag VALUES ($1, 'orders', 'log', 1, $2)", minute - timedelta(minutes=ago), 100 + ago
        )
    await room.pool.execute(
        "UPDATE outbox_topic_progress SET last_error = 'no route to host', error_count = 2, failed_position = 1,"
        " leader_instance = 'web-1:77:ab', leader_since = now(), leader_heartbeat = now()"
    )
    page = await guest.get("/outbox")
    assert "log orders active 3" in text_of(page)
    assert "no route to host" in text_of(page)
    assert "web-1:77:ab" in text_of(page)
    assert page.body.count(b'<rect class="touch"') == 60
    assert "orders/log 159" in text_of(page)
    day = await guest.get("/outbox?period=day")
    assert day.body.count(b'<rect class="touch"') == 96
    one = text_of(await guest.get(PATH))
    for words in (
        "log of orders",
        "Last error at position 1: no route to host",
        "Errors in a row 2",
        "Next event Placed",
    ):
        assert words in one


async def test_a_publisher_is_paused_resumed_and_skips(room: Room, guest: Guest) -> None:
    """Each button says what is lost; an event that is not the next one is not skipped."""
    first, second, _third = await a_topic(room)
    page = text_of(await guest.get(PATH))
    assert "Nothing is lost: events wait" in page
    assert (
        f"Placed at position {first} is not published by log in the topic orders: its subscribers never get it" in page
    )
    done = await guest.submit(PATH, f"{PATH}/pause")
    assert "The publisher is paused." in text_of(await guest.get(done.headers["location"]))
    assert (await status_of(room))[0] is PublisherStatus.PAUSED
    await guest.submit(PATH, f"{PATH}/resume")
    done = await guest.submit(PATH, f"{PATH}/skip", position=str(first))
    assert f"Placed at position {first} was skipped." in text_of(await guest.get(done.headers["location"]))
    again = await guest.submit(PATH, f"{PATH}/skip", position=str(first))
    assert (again.status, f"the next one is at position {second}" in text_of(again)) == (409, True)
    for wrong in ("", "x", "1" * 30):
        assert (await guest.submit(PATH, f"{PATH}/skip", position=wrong)).status == 400
    assert await status_of(room) == (PublisherStatus.ACTIVE, first)
    assert await actions_of(room) == ["outbox.pause", "outbox.resume", "outbox.skip"]


async def test_a_reset_shows_its_effect_first(room: Room, guest: Guest) -> None:
    """Forward loses events, back repeats them, and only the second step changes anything."""
    _first, second, third = await a_topic(room)
    forward = text_of(await guest.get(f"{PATH}/reset?position={third}"))
    assert "3 events are lost for this publisher" in forward
    assert (await status_of(room))[1] == 0
    done = await guest.submit(f"{PATH}/reset?position={third}", f"{PATH}/reset", position=str(third))
    assert f"It continues after position {third}." in text_of(await guest.get(done.headers["location"]))
    back = text_of(await guest.get(f"{PATH}/reset?position={second}"))
    assert "1 event is published again" in back
    assert "nothing is repeated and nothing is lost" in text_of(await guest.get(f"{PATH}/reset?position={third}"))
    since = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
    ask = f"{PATH}/reset?since={since}"
    assert "3 events are published again" in text_of(await guest.get(ask))
    await guest.submit(ask, f"{PATH}/reset", since=f"{since}:00+00:00")
    assert (await status_of(room))[1] < third
    for wrong in (
        "position=x",
        "position=999999999",
        "since=2999-01-01T00:00",
        "since=soon",
        "position=1&since=" + since,
    ):
        assert (wrong, (await guest.get(f"{PATH}/reset?{wrong}")).status) == (wrong, 400)
    for fields in ({}, {"since": "soon"}, {"since": "2026-01-01T00:00"}, {"position": "x"}):
        assert (fields, (await guest.submit(PATH, f"{PATH}/reset", **fields)).status) == (fields, 400)
    assert await actions_of(room) == ["outbox.reset", "outbox.reset"]


async def test_a_view_is_not_reset(room: Room, guest: Guest) -> None:
    """A view would apply events twice: its page has no such button, and a forged form is refused."""
    await a_topic(room, "view:orders")
    path = "/outbox/orders/view:orders"
    assert "Reset…" not in text_of(await guest.get(path))
    assert (await guest.submit(path, f"{path}/reset", position="0")).status == 400
    assert "maintains a view" in text_of(await guest.get(f"{path}/reset?position=0"))


async def test_topics_are_created_changed_and_deleted(room: Room, guest: Guest) -> None:
    """A form for the conditions; the last condition is removed only on purpose; publishers come and go."""
    new = "/outbox/topics/new"
    given = {"types": "Placed\r\nShipped\r\n", "exact_tags": "region=north", "publishers": "log webhook"}
    done = await guest.submit(new, new, name="orders", **given)
    assert "The topic is created." in text_of(await guest.get(done.headers["location"]))
    listing = text_of(await guest.get("/outbox/topics"))
    assert "orders events of type Placed or Shipped, with region=north log webhook" in listing
    assert (await guest.submit(new, new, name="orders")).status == 409
    assert (await guest.submit(new, new, name="ORDERS")).status == 400
    topic = "/outbox/topics/orders"
    assert b">Placed\nShipped</textarea>" in (await guest.get(topic)).body
    assert (await guest.submit(topic, topic, types="")).status == 400
    await guest.submit(topic, topic, types="", everything="on")
    assert (await topics.get_topic(room.pool, "orders")).about == "every event"
    await guest.submit(topic, f"{topic}/publishers", publisher="redis", start="beginning")
    assert (await guest.submit(topic, f"{topic}/publishers", publisher="NO")).status == 400
    await guest.submit(topic, "/outbox/orders/redis/remove")
    assert (await topics.get_topic(room.pool, "orders")).publishers == ("log", "webhook")
    await guest.submit(topic, f"{topic}/delete")
    assert (await guest.get(topic)).status == 404
    assert await actions_of(room) == [
        "outbox.topic.create", "outbox.topic.save", "outbox.publisher.add", "outbox.publisher.remove",
        "outbox.topic.delete",
    ]  # fmt: skip


async def test_mail_rules_are_created_and_deleted(room: Room, guest: Guest) -> None:
    await a_topic(room, "intake")
    new = "/outbox/rules/new"
    rule = {"topic": "orders", "event_type": "Placed", "template": "welcome", "recipient_path": "customer.email"}
    await guest.submit(new, new, **rule)
    assert "Placed welcome customer.email" in text_of(await guest.get("/outbox/rules"))
    for wrong in ({"recipient_path": "a b"}, {"lane": "slow"}, {"template": "none"}):
        assert (wrong, (await guest.submit(new, new, **{**rule, **wrong})).status) == (wrong, 400)
    rule_id = await room.pool.fetchval("SELECT id FROM outbox_mail_rules")
    await guest.submit(new, f"/outbox/rules/{rule_id}/delete")
    assert "There is no rule." in text_of(await guest.get("/outbox/rules"))
    assert await actions_of(room) == ["outbox.rule.add", "outbox.rule.delete"]


async def test_the_outbox_needs_its_scopes(room: Room) -> None:
    """A reader sees no button and cannot act by a forged form; without the scope there is no page."""
    await a_topic(room)
    reader = await open_guest(room, "deliveries:read", "outbox:read", name="reader")
    for path in ("/outbox", PATH, "/outbox/topics", "/outbox/rules"):
        page = await reader.get(path)
        assert (path, page.status, page.body.count(b"<form"), b"New " in page.body) == (path, 200, 2, False)
    token = {"token": await reader.token("/")}
    posts = [f"{PATH}/{verb}" for verb in ("pause", "resume", "skip", "reset", "remove")]
    posts += ["/outbox/topics/new", "/outbox/topics/orders", "/outbox/topics/orders/delete", "/outbox/rules/new"]
    for path in posts:
        assert (path, (await reader.post(path, token)).status) == (path, 403)
    other = await open_guest(room, "deliveries:read", name="other")
    for path in ("/outbox", PATH, "/outbox/live", "/outbox/topics", "/outbox/rules"):
        assert (path, (await other.get(path)).status) == (path, 403)
    operator = await open_guest(room, name="all")
    for path in posts:
        assert (path, (await operator.post(path, {"token": "forged"})).status) == (path, 403)
    for path in ("/outbox/orders/none", "/outbox/none/log"):
        assert (path, (await operator.get(path)).status) == (path, 404)
