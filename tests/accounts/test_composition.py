"""From an INSERT to an active account, through the processes of an installation."""

import asyncio
import re
from dataclasses import replace
from datetime import timedelta
from email import message_from_bytes, policy

import pytest
from structlog.testing import capture_logs
from tests.support.accounts import KEY, account, settle, sign_up
from tests.support.builders import until
from tests.support.http import Browser

from postroom.accounts.worker import make_mailing_collector
from postroom.app import run_worker
from postroom.cli import database_checks
from postroom.db.pool import connect
from postroom.db.room import Room
from postroom.http.asgi import build_app
from postroom.runtime.finding import Severity


@pytest.mark.parametrize(
    "locale, default, subject",
    [(None, "en", "Activate your account"), ("fr-CA", "en", "Activez votre compte"), (None, "fr", "Activez")],
)
async def test_a_row_becomes_a_mail_whose_link_works(
    room: Room, locale: str | None, default: str, subject: str
) -> None:
    """The worker collects, renders and delivers the mail of an inserted row, and its link activates the account."""
    settings = replace(
        room.settings, secret_key=KEY, batch_timeout=timedelta(), default_locale=default, public_url="https://a.example"
    )
    keyed = replace(room, settings=settings)
    stop = asyncio.Event()
    running = asyncio.create_task(run_worker(keyed, stop=stop))
    application = await connect(room.url, "public")
    ada = await application.fetchval(
        "INSERT INTO postroom.accounts (email, login, locale) VALUES ('ada@example.org', 'ada', $1) RETURNING id",
        locale,
    )
    await application.close()
    await until(room.pool, "EXISTS (SELECT FROM inbox_messages)")
    stop.set()
    await asyncio.wait_for(running, 60)

    row = await room.pool.fetchrow("SELECT subject, raw FROM inbox_messages")
    assert row is not None
    assert row["subject"].startswith(subject)
    browser = Browser(build_app(keyed))
    plain = message_from_bytes(row["raw"], policy=policy.default).get_body(("plain",))
    assert plain is not None
    link = re.search(r"https://a\.example(/activate\?token=\S+)", plain.get_content())
    assert link is not None
    assert (await browser.post(link[1])).status == 200
    assert (await account(room.pool, ada))["status"] == "active"


@pytest.mark.parametrize("account_mail, mails", [(True, 1), (False, 0)])
async def test_worker_until_empty_mails_accounts_too(room: Room, *, account_mail: bool, mails: int) -> None:
    """A worker that exits when the queue is empty also collects tokens."""
    await sign_up(room.pool, "ada")
    await settle(room.pool)
    keyed = replace(room, settings=replace(room.settings, secret_key=KEY, account_mail=account_mail))
    await run_worker(keyed, stop=asyncio.Event(), until_empty=True)
    assert await room.pool.fetchval("SELECT count(*) FROM inbox_messages") == mails
    assert (await room.pool.fetchval("SELECT last_seq FROM jobs") == 0) is not account_mail


async def test_account_mail_off_leaves_tokens(room: Room) -> None:
    """With POSTROOM_ACCOUNT_MAIL=off a worker collects no tokens and logs no warning."""
    await sign_up(room.pool, "ada")
    await settle(room.pool)
    settings = replace(room.settings, secret_key=None, account_mail=False, batch_timeout=timedelta())
    stop = asyncio.Event()
    with capture_logs() as said:
        running = asyncio.create_task(run_worker(replace(room, settings=settings), stop=stop))
        await room.pool.execute("SELECT send('{ada@example.org}', p_subject => 'a', p_text => 'b')")
        await until(room.pool, "EXISTS (SELECT FROM inbox_messages)")
        stop.set()
        await asyncio.wait_for(running, 60)
    assert "tokens_uncollected" not in [line["event"] for line in said]
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries WHERE source = 'accounts'") == 0
    assert make_mailing_collector(replace(room, settings=replace(settings, secret_key=KEY)), stop=stop) is None


@pytest.mark.parametrize("unset", ["given_from", "public_url"])
async def test_account_mail_waits_until_its_sender_and_links_are_set(room: Room, unset: str) -> None:
    """With a relay, tokens are left while the From address or the public URL is unset; captured mail needs neither."""
    links = {"given_from": "post@shop.example", "public_url": "https://mail.shop.example"}
    relay = replace(room.settings, transport="smtp", smtp_relay="smtp://127.0.0.1:1?tls=none", secret_key=KEY)
    complete = replace(relay, **links)  # type: ignore[arg-type] # texts
    lacking = replace(complete, given_from=None) if unset == "given_from" else replace(complete, public_url=None)
    for settings, is_collected in [
        (complete, True),
        (lacking, False),
        (replace(lacking, transport="capture"), True),
    ]:
        collector = make_mailing_collector(replace(room, settings=settings), stop=asyncio.Event())
        assert (collector is not None) is is_collected
    await sign_up(room.pool, "ada")
    await settle(room.pool)
    await room.pool.execute("UPDATE tokens SET created_at = created_at - 3600")
    async with room.pool.acquire() as connection:
        found = await database_checks.examine(connection, lacking)
    [row] = [finding for finding in found if finding.check == "tokens"]
    assert (row.verdict, "set POSTROOM_" in row.advice) == (Severity.FAIL, True)
