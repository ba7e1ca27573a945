"""A flow of each capability through both clients, against a room that is served on loopback."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from pathlib import Path

import pytest
from tests.support.clients import EitherClient, open_either
from tests.support.dashboard import captured
from tests.support.http import a_key
from tests.support.served import served

from postroom.campaigns.errors import CampaignNotFound
from postroom.client.api.deliveries import AttachmentBody, DeliveryBody
from postroom.client.api.events import Condition, NewEvent, QueryItem
from postroom.client.upload import PIECE
from postroom.db.room import Room
from postroom.delivery.errors import DeliveryNotFound, WrongState
from postroom.errors import BadInput, IdempotencyConflict, ScopeMissing, Unauthenticated
from postroom.events.errors import AppendConditionFailed
from postroom.http.asgi import build_app

MAIL = {"to": ["ada@example.org"], "subject": "Hello", "text": "Hello, Ada."}
BATCH = [DeliveryBody(to="ada@example.org", subject="Hello", text="Hello.") for _ in range(3)]


@pytest.fixture
async def sealing(room: Room, key: str, kind: str) -> AsyncIterator[EitherClient]:
    """A client of the room with a key for secrets."""
    sealed = replace(room, settings=replace(room.settings, secret_key=bytes(32)))
    async with served(build_app(sealed)) as url, open_either(kind, url, key) as opened:
        yield opened


async def test_a_mail_is_sent_once_per_key(client: EitherClient) -> None:
    """The same key and body give the first delivery again."""
    first = await client(lambda api: api.deliveries.send(**MAIL, idempotency_key="one"))
    again = await client(lambda api: api.deliveries.send(**MAIL, idempotency_key="one"))
    assert (again.id, first.replayed, again.replayed) == (first.id, False, True)


async def test_errors_are_those_of_the_service(client: EitherClient) -> None:
    """A program catches the same errors on either side of HTTP."""
    await client(lambda api: api.deliveries.send(**MAIL, idempotency_key="one"))
    with pytest.raises(IdempotencyConflict):
        await client(lambda api: api.deliveries.send(**{**MAIL, "text": "Other."}, idempotency_key="one"))
    with pytest.raises(DeliveryNotFound):
        await client(lambda api: api.deliveries.get(4711))
    with pytest.raises(BadInput) as caught:
        await client(lambda api: api.deliveries.send(to=["nobody"], subject="Hello", text="Hello."))
    assert caught.value.errors[0].field == "to[0]"
    with pytest.raises(TypeError, match="unexpected keyword argument 'sbject'"):
        await client(lambda api: api.deliveries.send(to="ada@example.org", sbject="Hello"))


async def test_a_key_opens_what_its_scopes_name(room: Room, url: str, kind: str) -> None:
    """An unknown key and a key without the scope are different errors, and the second names the scope."""
    key, _row = await a_key(room, "reader", "deliveries:read")
    async with open_either(kind, url, "pr_wrong") as stranger, open_either(kind, url, key) as reader:
        with pytest.raises(Unauthenticated):
            await stranger(lambda api: api.deliveries.get(1))
        with pytest.raises(ScopeMissing) as missing:
            await reader(lambda api: api.deliveries.send(**MAIL))
    assert missing.value.scope == "deliveries:write"


async def test_deliveries_are_listed_page_by_page_and_operated(client: EitherClient) -> None:
    """A listing iterates over all pages, and operations return the new state."""
    batch = await client(lambda api: api.deliveries.send_batch(deliveries=BATCH))
    ids = [item.id for item in batch.items]
    found = await client(lambda api: api.deliveries.list(limit=2, created_from=datetime.now(UTC) - timedelta(hours=1)))
    assert [summary.id for summary in found] == sorted(ids, reverse=True)
    assert [len(page.items) for page in await client(lambda api: api.deliveries.list(limit=2).pages())] == [2, 1]
    cancelled = await client(lambda api: api.deliveries.cancel(ids[0]))
    assert cancelled.status == "cancelled"
    with pytest.raises(WrongState):
        await client(lambda api: api.deliveries.retry(ids[0]))
    resent = await client(lambda api: api.deliveries.resend(ids[0]))
    delivery = await client(lambda api: api.deliveries.get(resent.id))
    assert (delivery.resend_of, delivery.created_at.tzinfo) == (ids[0], UTC)
    assert await client(lambda api: api.deliveries.list_attempts(resent.id)) == []


async def test_a_delivery_has_every_field(client: EitherClient) -> None:
    """Reserved words, files, times and objects arrive as they were given."""
    file = AttachmentBody(filename="a.txt", content_type="text/plain", content="aGVsbG8=")
    later = datetime.now(UTC) + timedelta(days=1)
    sent = await client(
        lambda api: api.deliveries.send(
            **MAIL, from_="Shop <shop@example.org>", attachments=[file], send_at=later, tags={"order": "7"}
        )
    )
    found = await client(lambda api: api.deliveries.get(sent.id))
    assert (found.from_, found.attachments[0].size, found.tags) == ('"Shop" <shop@example.org>', 5, {"order": "7"})
    assert found.next_attempt_at == later


async def test_events_are_appended_on_a_condition_and_followed(client: EitherClient) -> None:
    """The error names the event that matched; `follow` continues after the last page."""
    order = NewEvent(type="OrderPlaced", data={"total": "19.90"}, tags=["order=1"])
    only_once = Condition(query=[QueryItem(tags=["order=1"])])
    appended = await client(lambda api: api.events.append(events=[order], condition=only_once))
    assert appended.events_count == 1
    with pytest.raises(AppendConditionFailed) as refused:
        await client(lambda api: api.events.append(events=[order], condition=only_once))
    assert (refused.value.position, refused.value.type) == (appended.position, "OrderPlaced")
    await client(lambda api: api.events.append(events=[order, order]))
    found = await client(lambda api: api.events.list(tag="order=1", limit=2))
    assert [event.data for event in found] == [{"total": "19.90"}] * 3
    [page] = await client(lambda api: api.events.list(backwards=True).pages())
    assert page.items[0].position > page.items[-1].position
    commands = await client(lambda api: api.events.list_commands())
    assert len(commands) == 2  # an append has a key, so that it can be repeated


async def test_events_are_followed(client: EitherClient, url: str, key: str) -> None:
    """A follower sees what is appended after the last page."""
    event = NewEvent(type="OrderPlaced", tags=["order=1"])
    await client(lambda api: api.events.append(events=[event]))
    async with open_either("async", url, key) as follower:
        following = follower.client.events.list(type="OrderPlaced").follow(interval_s=0.01)
        first = await anext(following)
        await client(lambda api: api.events.append(events=[event]))
        assert (await anext(following)).position > first.position
        await following.aclose()


async def test_a_campaign_takes_a_file_and_shows_the_progress(client: EitherClient, tmp_path: Path) -> None:
    """Recipients are uploaded in pieces from a path or an open file, in both formats."""
    campaign = await client(
        lambda api: api.campaigns.create(name="autumn", subject="Autumn", html="<p>Hello {{ name }}</p>")
    )
    file = tmp_path / "people.csv"
    file.write_text("email,name\n" + "".join(f"person-{number}@example.org,Ann\n" for number in range(5000)))
    seen: list[tuple[int, int | None]] = []
    done = await client(
        lambda api: api.campaigns.upload_recipients(campaign.id, file, progress=lambda *step: seen.append(step))
    )
    size = file.stat().st_size
    assert (done.added, seen[0], seen[-1]) == (5000, (PIECE, size), (size, size))
    lines = BytesIO(b'{"email": "ada@example.org", "name": "Ada"}\n')
    more = await client(
        lambda api: api.campaigns.upload_recipients(campaign.id, lines, media_type="application/x-ndjson")
    )
    assert more.added == 1
    changed = await client(lambda api: api.campaigns.update(campaign.id, subject="The autumn list"))
    shown = await client(lambda api: api.campaigns.preview(campaign.id, email="ada@example.org"))
    assert (changed.subject, shown.html) == ("The autumn list", "<p>Hello Ada</p>")
    assert await client(lambda api: api.campaigns.list_links(campaign.id)) == []
    assert b"".join(await client(lambda api: api.campaigns.export_links(campaign.id))).startswith(b"url,")
    with pytest.raises(CampaignNotFound):
        await client(lambda api: api.campaigns.upload_recipients(4711, file))


async def test_suppressions_are_imported_and_exported(client: EitherClient) -> None:
    """A download iterates over the bytes of all pages."""
    done = await client(lambda api: api.suppressions.import_(BytesIO(b"email\nann@example.org\nbob@example.org\n")))
    assert (done.imported, done.refused) == (2, 0)
    await client(lambda api: api.suppressions.add(email="cid@example.org", reason="manual"))
    exported = b"".join(await client(lambda api: api.suppressions.export(limit=2))).decode()
    assert [line.partition(",")[0] for line in exported.splitlines()[1:]] == [
        "ann@example.org",
        "bob@example.org",
        "cid@example.org",
    ]
    lifted = await client(lambda api: api.suppressions.lift(email="ann@example.org"))
    assert [each.email for each in lifted.items] == ["ann@example.org"]
    address = await client(lambda api: api.suppressions.get_address("ann@example.org"))
    assert address.items == []


async def test_people_and_accounts(client: EitherClient) -> None:
    """Dates and UUIDs are values of Python; a response without a body returns None."""
    user = await client(
        lambda api: api.users.create(
            first_name="Ada",
            last_name="Lovelace",
            date_of_birth=date(1990, 12, 10),
            timezone="Europe/London",
            email="ada@example.org",
        )
    )
    planned = await client(lambda api: api.users.list_events(user.id))
    assert (user.date_of_birth, planned[0].target_local.tzinfo) == (date(1990, 12, 10), None)
    assert await client(lambda api: api.users.list_occasions(user.id)) == []
    assert await client(lambda api: api.users.delete(user.id)) is None
    account = await client(lambda api: api.accounts.sign_up(email="bob@example.org", login="bob"))
    assert [each.id for each in await client(lambda api: api.accounts.list())] == [account.id]


async def test_operators_and_settings_of_a_room(client: EitherClient) -> None:
    """Keys, mass actions, templates, figures, the audit log, the archive and the health of a room."""
    await client(lambda api: api.deliveries.send(**MAIL))
    preview = await client(lambda api: api.mass_actions.preview(kind="cancel", status="queued"))
    action = await client(lambda api: api.mass_actions.start(kind="cancel", status="queued"))
    assert (preview.changed, action.kind) == (1, "cancel")
    made = await client(lambda api: api.keys.create(name="shop", scopes=["deliveries:write"]))
    assert (await client(lambda api: api.keys.revoke(made.id))).revoked_at is not None
    assert await client(lambda api: api.audit.list(subject=f"key:{made.id}"))
    assert await client(lambda api: api.templates.list())
    assert (await client(lambda api: api.stats.get_summary())).accepted == 1
    assert await client(lambda api: api.dead_letters.list()) == []
    assert await client(lambda api: api.malformed_commands.list(resubmitted=False)) == []
    erasure = await client(lambda api: api.archive.create_erasure(email="ada@example.org"))
    assert (await client(lambda api: api.archive.get_erasure(erasure.id))).status == "done"
    assert (await client(lambda api: api.health.readyz())).status == "ok"
    assert b"postroom_" in await client(lambda api: api.health.metrics())


async def test_the_outbox_and_its_senders(sealing: EitherClient) -> None:
    """Topics, webhooks and sender accounts; a change sends only the fields that it is given."""
    topic = await sealing(lambda api: api.outbox.create_topic(name="orders", types=["OrderPlaced"]))
    hook = await sealing(
        lambda api: api.webhooks.register(url="https://shop.example.org/hooks", topics=[topic.name], description="shop")
    )
    changed = await sealing(lambda api: api.webhooks.change(hook.id, enabled=False))
    assert (changed.description, changed.topics) == ("shop", ["orders"])
    await sealing(lambda api: api.webhooks.delete(hook.id))
    assert (await sealing(lambda api: api.outbox.delete_topic("orders", force=True))).done
    sender = await sealing(
        lambda api: api.senders.create(
            email="office@example.org",
            auth_type="smtp",
            smtp_host="smtp.example.org",
            smtp_port=587,
            smtp_username="office",
            smtp_password="secret",
        )
    )
    assert (await sealing(lambda api: api.senders.pause(sender.id, reason="holiday"))).status == "paused"


async def test_the_inbox_of_a_test(room: Room, client: EitherClient) -> None:
    """A captured message is found, read and deleted; its bytes are bytes."""
    raw = b"Subject: Hello\r\nFrom: shop@example.org\r\nTo: ada@example.org\r\n\r\nHello.\r\n"
    await captured(room.pool, raw)
    message = await client(lambda api: api.inbox.wait_for_message(to="ada@example.org", timeout=0))
    assert (message.from_, message.text) == ("post@example.org", "Hello.\n")
    assert await client(lambda api: api.inbox.get_raw(message.id)) == raw
    assert await client(lambda api: api.inbox.delete_message(message.id)) is None
