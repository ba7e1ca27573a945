"""The source of a delivery: the message composed again, for mail that was not captured too."""

import asyncio
import base64
import html
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.builders import a_mail, accepted
from tests.support.campaigns import a_running_campaign
from tests.support.dashboard import Guest, open_guest, text_of
from tests.support.senders import Ways, a_desk, a_sending_worker, an_account
from tests.support.templates import published

from postroom.app import make_composer, run_worker
from postroom.campaigns.worker import Feeder
from postroom.db.room import Room
from postroom.delivery.model import Lane
from postroom.mail.compose import MailWriter
from postroom.post.address import Address
from postroom.post.mime import Attachment
from postroom.senders.service import delete_sender


async def source_of(guest: Guest, delivery_id: int) -> str:
    page = (await guest.get(f"/deliveries/{delivery_id}/source")).body.decode()
    return html.unescape(page.partition('<pre class="tall" tabindex="0">')[2].partition("</pre>")[0])


async def test_the_source_is_the_message_that_left(room: Room, tmp_path: Path) -> None:
    """Composed again from the stored content, it has the bytes of the captured message."""
    guest = await open_guest(room)
    await published(room.pool, tmp_path, {"note/en/subject": "Hello", "note/en/html": "<p>Hello</p>"})
    attached = (Attachment("a.txt", "text/plain", base64.b64encode(b"attached").decode()),)
    ids = await accepted(
        room.pool,
        a_mail("ada@example.org", subject="Grüße", html="<p>Hello</p>", attachments=attached),
        replace(a_mail(), subject=None, text=None, html=None, template="note", variables={}),
        a_mail(lane=Lane.AUTH, subject="Your code"),
    )
    await run_worker(room, stop=asyncio.Event(), until_empty=True)
    for delivery_id in ids[:2]:
        source = await source_of(guest, delivery_id)
        raw = await room.pool.fetchval("SELECT raw FROM inbox_messages WHERE delivery_id = $1", delivery_id)
        assert source.splitlines() == raw.decode().splitlines()
        assert (
            f'href="/deliveries/{delivery_id}/source"' in (await guest.get(f"/deliveries/{delivery_id}")).body.decode()
        )
    assert (await guest.get(f"/deliveries/{ids[2]}/source")).status == 404


@pytest.mark.parametrize("sender", [None, Address("ada@elsewhere.example", "Ada"), Address("ada@example.org")])
async def test_the_source_has_the_identity_of_the_sender_account(room: Room, sender: Address | None) -> None:
    """From and Reply-To are those with which the mail left; after the account was deleted, those asked for."""
    guest = await open_guest(room)
    account = await an_account(room.pool, "box@example.org", display_name="Box")
    [delivery_id] = await accepted(room.pool, a_mail(sender=sender))
    ways = Ways()
    desk = a_desk(room.pool, ways)
    composer = make_composer(room.settings)
    compose = MailWriter(composer, accounts=desk).write
    await a_sending_worker(room.pool, desk, compose=compose).run_once(Lane.TRANSACTIONAL)
    [sent] = ways.by_email["box@example.org"].contents
    assert (await source_of(guest, delivery_id)).splitlines() == sent.decode().splitlines()
    await delete_sender(room.pool, account, actor="tests")
    assert "Box" not in await source_of(guest, delivery_id)


async def test_the_source_of_campaign_mail_has_its_sender(room: Room) -> None:
    """From and subject are those of the campaign."""
    guest = await open_guest(room)
    await a_running_campaign(room.pool, ["ada@example.org"], subject="News", sender=Address("news@example.org", "Acme"))
    await Feeder(room.pool).run_once()
    source = text_of(await guest.get("/deliveries/1/source"))
    assert "From: Acme <news@example.org>" in source
    assert "Subject: News" in source
