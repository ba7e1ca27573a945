"""From messages to rows: every file of the folder on its way through, and the same message twice."""

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
async def test_a_bounce_to_our_return_path_suppresses(pool: Pool, name: str) -> None:
    """Whoever wrote the report, the tag ties it to the delivery."""
    delivery_id = await sent(pool, "Ada@example.org")
    done = await take(pool, report(name, delivery_id=delivery_id))
    assert (done.recorded, done.unverified, dict(done.kinds)) == (1, 0, {"bounce": 1})
    assert await suppressed(pool) == [("hard_bounce", "all", None)]
    assert await rows(pool, "SELECT delivery_id, address, origin FROM bounces") == [
        (delivery_id, "ada@example.org", "smtp")
    ]


@pytest.mark.parametrize("name", ["exchange-2003", "sendmail-old-style", "outlook-junk-report"])
async def test_our_message_id_is_proof_enough(pool: Pool, name: str) -> None:
    """Mailboxes without return paths of ours: the Message-ID in the report names the delivery."""
    delivery_id = await sent(pool)
    await take(pool, report(name, message=await message_id(pool, delivery_id)), paths=ReturnPaths(None, (KEY,)))
    assert await rows(pool, "SELECT delivery_id, is_verified FROM bounces") == [(delivery_id, True)]
    assert len(await suppressed(pool)) == 1


@pytest.mark.parametrize("name", ["forged-dsn", "forged-arf"])
async def test_a_forged_report_suppresses_nobody(pool: Pool, name: str) -> None:
    """It names a delivery that exists and its true recipient, and lacks the proof: kept as unverified."""
    assert await sent(pool) == 1
    done = await take(pool, report(name))
    assert done.unverified == 1
    assert await suppressed(pool) == []
    assert await rows(pool, "SELECT address, is_verified FROM bounces") == [("ada@example.org", False)]


async def test_a_tag_of_one_s_own_mail_harms_nobody_else(pool: Pool) -> None:
    """Eve knows the return path of her own mail; a bounce of Ada in its name does nothing to Ada."""
    own = await sent(pool, "eve@evil.example", "mallory@evil.example")
    await sent(pool, "ada@example.org")
    await take(pool, report("postfix-unknown-user", delivery_id=own))
    assert await suppressed(pool) == []


@pytest.mark.parametrize(
    "name", ["postfix-delayed", "exim-warning", "postfix-relayed", "out-of-office", "vacation-german", "arf-not-spam"]
)
async def test_what_is_no_bounce_changes_nothing(pool: Pool, name: str) -> None:
    """Delays, successes and answering machines, to a good return path all the same."""
    delivery_id = await sent(pool)
    assert (await take(pool, report(name, delivery_id=delivery_id))).recorded == 0
    assert await suppressed(pool) == []


@pytest.mark.parametrize("name", ["gmail-reputation", "exchange-blocked-sender"])
async def test_a_block_on_us_is_visible_and_suppresses_nobody(pool: Pool, name: str) -> None:
    """The delivery shows it; the person keeps getting mail."""
    delivery_id = await sent(pool)
    assert (await take(pool, report(name, delivery_id=delivery_id))).recorded == 1
    assert await rows(pool, "SELECT delivery_id, class FROM bounces") == [(delivery_id, "policy")]
    assert await suppressed(pool) == []


async def test_several_recipients_of_one_report(pool: Pool) -> None:
    """Each by its own words: hard, soft, and the delayed and relayed not at all."""
    delivery_id = await sent(pool, *(f"{name}@example.org" for name in ("ada", "ben", "cleo", "dora")))
    await take(pool, report("postfix-several", delivery_id=delivery_id))
    assert await rows(pool, "SELECT address, reason::text FROM suppressions ORDER BY address") == [
        ("ada@example.org", "hard_bounce"),
        ("ben@example.org", "soft_bounce"),
    ]


async def test_a_complaint_suppresses_for_good(pool: Pool) -> None:
    """Also from a provider that hides who it was, if the complaint comes to the return path of the mail."""
    delivery_id = await sent(pool)
    path = make_return_path(delivery_id, domain=DOMAIN, key=KEY)
    for name, to in (("arf-abuse", "fbl@example.org"), ("arf-redacted", path)):
        await take(pool, report(name, delivery_id=delivery_id), to=to)
    assert await suppressed(pool) == [("complaint", "all", None)]
    assert await rows(pool, "SELECT kind, address FROM bounces") == [("complaint", "ada@example.org")] * 2


async def test_an_opt_out_stops_bulk_mail(pool: Pool) -> None:
    """The obsolete kind of feedback report is what it says."""
    delivery_id = await sent(pool)
    await take(pool, report("arf-opt-out", message=await message_id(pool, delivery_id)))
    assert await suppressed(pool) == [("unsubscribe", "bulk", None)]


async def test_the_same_message_twice_is_one(pool: Pool) -> None:
    """By whichever way it comes, in one batch or later."""
    delivery_id = await sent(pool)
    raw = report("postfix-unknown-user", delivery_id=delivery_id)
    assert (await take(pool, raw, raw)).recorded == 1
    assert (await take(pool, raw)).recorded == 0


async def test_a_person_s_letter_is_kept_for_people(pool: Pool) -> None:
    """What is no report is kept, once, with its beginning."""
    raw = report("person-writes") + b"x" * 100_000
    await take(pool, raw)
    await take(pool, raw)
    kept = await rows(pool, "SELECT origin, reason, raw FROM unread_feedback")
    assert [(origin, reason) for origin, reason, _ in kept] == [("smtp", "no_report")]
    assert kept[0][2] == raw[: 64 * 1024]


async def test_unstorable_words_are_stored_without_what_cannot_be(pool: Pool) -> None:
    """A NUL in a diagnostic does not refuse the report."""
    delivery_id = await sent(pool)
    raw = report("qmail-no-mailbox", delivery_id=delivery_id).replace(b"Sorry, no", b"Sorry,\x00\xed\xa0\x80 no")
    assert (await take(pool, raw)).recorded == 1


async def test_a_webhook_s_delivery_is_nobody_s_mail(pool: Pool) -> None:
    """A tag of a delivery that is no mail proves nothing about a person."""
    async with pool.acquire() as connection:
        await connection.execute(
            "INSERT INTO deliveries (id, state, channel, ladder, source, next_attempt_at) "
            "VALUES (77, 'queued', 'webhook', 'webhook', 'tests', now())"
        )
    await take(pool, report("postfix-unknown-user", delivery_id=77))
    assert await suppressed(pool) == []


async def test_a_tag_is_read_in_any_case(pool: Pool) -> None:
    """Some servers write addresses in capitals."""
    delivery_id = await sent(pool)
    path = make_return_path(delivery_id, domain=DOMAIN, key=KEY)
    raw = report("postfix-unknown-user", delivery_id=delivery_id).replace(path.encode(), path.upper().encode())
    await take(pool, raw)
    assert await suppressed(pool) == [("hard_bounce", "all", None)]
