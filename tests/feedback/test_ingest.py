"""Ingest of messages: every fixture, and repeated messages."""

import pytest
from tests.support.builders import NOON
from tests.support.feedback import DOMAIN, KEY, PATHS, message_id, report, rows, sent, suppressed

from postroom.db.pool import Pool
from postroom.feedback.attribution import Incoming, ReturnPaths
from postroom.feedback.ingest import Ingested, ingest
from postroom.post.return_path import make_return_path


async def take(pool: Pool, *raw: bytes, to: str = f"fbl@{DOMAIN}", paths: ReturnPaths = PATHS) -> Ingested:
    return await ingest(pool, [Incoming(each, "smtp", (to,)) for each in raw], paths=paths, now=NOON)


@pytest.mark.parametrize(
    "name",
    ["postfix-unknown-user", "qmail-no-mailbox", "exim-unrouteable", "exchange-ndr", "gmail-no-account", "html-only"],
)
async def test_bounce_to_our_return_path_suppresses(pool: Pool, name: str) -> None:
    """The tag of the return path ties the report to the delivery, from any sender."""
    delivery_id = await sent(pool, "Ada@example.org")
    done = await take(pool, report(name, delivery_id=delivery_id))
    assert (done.recorded, done.unverified, dict(done.kinds)) == (1, 0, {"bounce": 1})
    assert await suppressed(pool) == [("hard_bounce", "all", None)]
    assert await rows(pool, "SELECT delivery_id, address, origin FROM bounces") == [
        (delivery_id, "ada@example.org", "smtp")
    ]


@pytest.mark.parametrize("name", ["exchange-2003", "sendmail-old-style", "outlook-junk-report"])
async def test_message_id_is_sufficient_proof(pool: Pool, name: str) -> None:
    """The Message-ID in a report to another mailbox identifies the delivery."""
    delivery_id = await sent(pool)
    await take(pool, report(name, message=await message_id(pool, delivery_id)), paths=ReturnPaths(None, (KEY,)))
    assert await rows(pool, "SELECT delivery_id, is_verified FROM bounces") == [(delivery_id, True)]
    assert len(await suppressed(pool)) == 1


@pytest.mark.parametrize("name", ["forged-dsn", "forged-arf"])
async def test_forged_report_suppresses_no_address(pool: Pool, name: str) -> None:
    """A report with a real delivery and recipient but without proof is stored as unverified."""
    assert await sent(pool) == 1
    done = await take(pool, report(name))
    assert done.unverified == 1
    assert await suppressed(pool) == []
    assert await rows(pool, "SELECT address, is_verified FROM bounces") == [("ada@example.org", False)]


async def test_tag_of_one_mail_does_not_affect_other_recipients(pool: Pool) -> None:
    """A recipient who knows the return path of their own mail cannot suppress another address."""
    own = await sent(pool, "eve@evil.example", "mallory@evil.example")
    await sent(pool, "ada@example.org")
    await take(pool, report("postfix-unknown-user", delivery_id=own))
    assert await suppressed(pool) == []


@pytest.mark.parametrize(
    "name", ["postfix-delayed", "exim-warning", "postfix-relayed", "out-of-office", "vacation-german", "arf-not-spam"]
)
async def test_messages_that_are_not_bounces_change_nothing(pool: Pool, name: str) -> None:
    """Delays, successes and automatic replies to a valid return path suppress no address."""
    delivery_id = await sent(pool)
    assert (await take(pool, report(name, delivery_id=delivery_id))).recorded == 0
    assert await suppressed(pool) == []


@pytest.mark.parametrize("name", ["gmail-reputation", "exchange-blocked-sender"])
async def test_block_is_visible_and_suppresses_no_address(pool: Pool, name: str) -> None:
    """The delivery shows the block, and the address still gets mail."""
    delivery_id = await sent(pool)
    assert (await take(pool, report(name, delivery_id=delivery_id))).recorded == 1
    assert await rows(pool, "SELECT delivery_id, class FROM bounces") == [(delivery_id, "policy")]
    assert await suppressed(pool) == []


async def test_report_about_several_recipients(pool: Pool) -> None:
    """Each recipient is classified separately: hard, soft, delayed and relayed."""
    delivery_id = await sent(pool, *(f"{name}@example.org" for name in ("ada", "ben", "cleo", "dora")))
    await take(pool, report("postfix-several", delivery_id=delivery_id))
    assert await rows(pool, "SELECT address, class FROM bounces ORDER BY address") == [
        ("ada@example.org", "recipient_hard"),
        ("ben@example.org", "recipient_soft"),
    ]


async def test_complaint_suppresses_permanently(pool: Pool) -> None:
    """A complaint without an address counts if it arrives at the return path of the mail."""
    delivery_id = await sent(pool)
    path = make_return_path(delivery_id, domain=DOMAIN, key=KEY)
    for name, to in (("arf-abuse", "fbl@example.org"), ("arf-redacted", path)):
        await take(pool, report(name, delivery_id=delivery_id), to=to)
    assert await suppressed(pool) == [("complaint", "all", None)]
    assert await rows(pool, "SELECT kind, address FROM bounces") == [("complaint", "ada@example.org")] * 2


async def test_opt_out_report_stops_bulk_mail(pool: Pool) -> None:
    """The obsolete opt-out type of feedback report is an unsubscribe."""
    delivery_id = await sent(pool)
    await take(pool, report("arf-opt-out", message=await message_id(pool, delivery_id)))
    assert await suppressed(pool) == [("unsubscribe", "bulk", None)]


async def test_repeated_message_is_recorded_once(pool: Pool) -> None:
    """A message is recorded once from any source, in one batch or later."""
    delivery_id = await sent(pool)
    raw = report("postfix-unknown-user", delivery_id=delivery_id)
    assert (await take(pool, raw, raw)).recorded == 1
    assert (await take(pool, raw)).recorded == 0


async def test_message_that_is_not_a_report_is_stored(pool: Pool) -> None:
    """The beginning of the message is stored once."""
    raw = report("person-writes") + b"x" * 100_000
    await take(pool, raw)
    await take(pool, raw)
    kept = await rows(pool, "SELECT origin, reason, raw FROM unread_feedback")
    assert [(origin, reason) for origin, reason, _ in kept] == [("smtp", "no_report")]
    assert kept[0][2] == raw[: 64 * 1024]


async def test_nul_characters_are_removed(pool: Pool) -> None:
    """A NUL in a diagnostic does not reject the report."""
    delivery_id = await sent(pool)
    raw = report("qmail-no-mailbox", delivery_id=delivery_id).replace(b"Sorry, no", b"Sorry,\x00\xed\xa0\x80 no")
    assert (await take(pool, raw)).recorded == 1


async def test_webhook_delivery_is_not_mail(pool: Pool) -> None:
    """A tag of a webhook delivery proves nothing about an address."""
    async with pool.acquire() as connection:
        await connection.execute(
            "INSERT INTO deliveries (id, state, channel, ladder, source, recipient_email, next_attempt_at)"
            " VALUES (77, 'queued', 'webhook', 'webhook', 'tests', 'https://shop.example.org/hook', now())"
        )
    await take(pool, report("postfix-unknown-user", delivery_id=77))
    assert await suppressed(pool) == []


async def test_tag_is_read_in_any_case(pool: Pool) -> None:
    """Some servers write addresses in capitals."""
    delivery_id = await sent(pool)
    path = make_return_path(delivery_id, domain=DOMAIN, key=KEY)
    raw = report("postfix-unknown-user", delivery_id=delivery_id).replace(path.encode(), path.upper().encode())
    await take(pool, raw)
    assert await suppressed(pool) == [("hard_bounce", "all", None)]
