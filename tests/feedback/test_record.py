"""Effects of reports: soft bounces, severity, history, statistics, facts and concurrency."""

import asyncio
from datetime import timedelta

import pytest
from tests.support.builders import NOON, a_mail, accepted, outcomes_of, state_of
from tests.support.feedback import a_bounce, a_complaint, a_report, a_soft_bounce, rows, sent, suppressed

from postroom.db.pool import Pool
from postroom.delivery.model import Lane
from postroom.feedback.model import (
    BounceClass,
    Feedback,
    FeedbackKind,
    NewSuppression,
    RefusedRecipient,
    SuppressionReason,
)
from postroom.feedback.record import bounces_of, record, record_acceptances, record_refusals
from postroom.feedback.service import import_batch, lift, suppress
from postroom.post.reply import Stage

DAY = timedelta(days=1)


async def take(pool: Pool, *feedback: Feedback, after: timedelta = timedelta()) -> int:
    async with pool.acquire() as connection:
        return await record(connection, feedback, now=NOON + after)


async def accept(pool: Pool, *addresses: str, delivery_id: int = 1, after: timedelta = timedelta()) -> int:
    async with pool.acquire() as connection:
        return await record_acceptances(connection, [(delivery_id, address) for address in addresses], now=NOON + after)


async def test_hard_bounce_suppresses_permanently(pool: Pool) -> None:
    """The address is suppressed for all mail, without end, with the diagnostic."""
    assert await take(pool, a_bounce("Ada@Example.org", enhanced="5.1.1", code=550, text="no such user")) == 1
    assert await suppressed(pool) == [("hard_bounce", "all", None)]
    assert await rows(pool, "SELECT code, detail, origin, bounce_count FROM suppressions") == [
        ("5.1.1", "no such user", "smtp", 1)
    ]


async def test_suppression_ignores_the_case_of_the_address(pool: Pool) -> None:
    """A suppressed address is recognised in any case."""
    await take(pool, a_bounce("Ada@Example.org"))
    (delivery_id,) = await accepted(pool, a_mail("aDA@example.ORG"))
    assert list((await outcomes_of(pool, delivery_id)).values()) == ["suppressed"]


async def test_soft_bounces_hold_three_times(pool: Pool) -> None:
    """Each hold lasts 24 h; the fourth soft bounce suppresses permanently."""
    ends = []
    for day in range(4):
        await take(pool, a_soft_bounce(), after=day * DAY)
        ends += [until for _, _, until in await suppressed(pool)]
    assert ends == [NOON + DAY, NOON + 2 * DAY, NOON + 3 * DAY, None]
    assert await rows(pool, "SELECT bounce_count FROM suppressions") == [(4,)]


async def test_reports_during_a_hold_do_not_count(pool: Pool) -> None:
    """Ten mails in flight that bounce together cause one hold."""
    for minute in range(10):
        await take(pool, a_soft_bounce(), after=timedelta(minutes=minute))
    assert await suppressed(pool) == [("soft_bounce", "all", NOON + DAY)]
    assert await rows(pool, "SELECT bounce_count, steps FROM suppressions JOIN soft_bounces USING (address)") == [
        (10, 1)
    ]


async def test_accepted_mail_that_does_not_bounce_for_a_week_resets_the_count(pool: Pool) -> None:
    """Earlier it proves nothing, because a relay may still return the mail; the case of the address does not matter."""
    for day in range(3):
        await take(pool, a_soft_bounce(), a_soft_bounce("ben@example.org"), after=day * DAY)
    await accept(pool, "ADA@example.org", "BEN@example.org", after=4 * DAY)
    await take(pool, a_soft_bounce("ben@example.org"), after=10 * DAY)
    assert await suppressed(pool, "ben@example.org") == [("soft_bounce", "all", None)]
    await take(pool, a_soft_bounce(), after=11 * DAY)
    assert await suppressed(pool) == [("soft_bounce", "all", NOON + 12 * DAY)]
    assert await rows(pool, "SELECT steps FROM soft_bounces WHERE address = 'ada@example.org'") == [(1,)]


async def test_accepted_mail_ends_no_hold(pool: Pool) -> None:
    """The hold stays until its end; the next acceptance after it removes the row."""
    await take(pool, a_soft_bounce())
    assert await accept(pool, "ada@example.org", after=timedelta(hours=23)) == 0
    assert await suppressed(pool) == [("soft_bounce", "all", NOON + DAY)]
    assert await accept(pool, "ada@example.org", after=DAY) == 1
    assert await suppressed(pool) == []


async def test_acceptance_of_the_mail_that_bounced_does_not_count(pool: Pool) -> None:
    """A bounce may be recorded before the acceptance of its mail; a week later the count goes on."""
    delivery_id = await sent(pool, "ada@example.org")
    await take(pool, a_soft_bounce(delivery_id=delivery_id))
    await accept(pool, "ada@example.org", delivery_id=delivery_id)
    assert await rows(pool, "SELECT accepted_at FROM soft_bounces") == [(None,)]
    await take(pool, a_soft_bounce(), after=9 * DAY)
    assert await rows(pool, "SELECT steps FROM soft_bounces") == [(2,)]


async def test_mail_that_bounces_later_is_not_a_success(pool: Pool) -> None:
    """A server that accepts every mail and returns it eight days later does not reset the count."""
    for step in range(4):
        handed = 10 * step * DAY
        delivery_id = await sent(pool, "ada@example.org", now=NOON + handed)
        await accept(pool, "ada@example.org", delivery_id=delivery_id, after=handed)
        await take(pool, a_soft_bounce(delivery_id=delivery_id), after=handed + 8 * DAY)
    assert await suppressed(pool) == [("soft_bounce", "all", None)]


async def test_acceptance_does_not_clear_permanent_suppressions(pool: Pool) -> None:
    """Hard bounces, complaints, unsubscribes, manual suppressions and a fourth soft bounce stay."""
    await take(pool, a_bounce("a@example.org"), a_complaint("b@example.org"))
    await suppress(pool, NewSuppression(email="c@example.org"), actor="tests")
    for day in range(4):
        await take(pool, a_soft_bounce("d@example.org"), after=day * DAY)
    addresses = [f"{name}@example.org" for name in "abcd"]
    assert await accept(pool, *addresses, after=9 * DAY) == 0
    assert len(await rows(pool, "SELECT FROM suppressions")) == 4


@pytest.mark.parametrize(
    "feedback, expected",
    [
        (lambda: [a_soft_bounce(), a_bounce(), a_complaint()], "complaint"),
        (lambda: [a_complaint(), a_bounce(), a_soft_bounce()], "complaint"),
        (lambda: [a_bounce(), a_soft_bounce()], "hard_bounce"),
        (lambda: [a_soft_bounce(), a_bounce()], "hard_bounce"),
    ],
)
async def test_severity_only_rises(pool: Pool, feedback: object, expected: str) -> None:
    """Soft < hard < complaint, in any order, together or separately."""
    together = feedback()  # type: ignore[operator]
    for each in together:
        await take(pool, each)
    assert await suppressed(pool) == [(expected, "all", None)]
    await take(pool, *(feedback()))  # type: ignore[operator]
    assert await suppressed(pool) == [(expected, "all", None)]


async def test_several_reports_about_one_address(pool: Pool) -> None:
    """One statement takes them all; the most severe wins and every report is counted."""
    assert await take(pool, a_soft_bounce(), a_bounce(), a_complaint(), a_soft_bounce()) == 4
    assert await rows(pool, "SELECT reason::text, bounce_count FROM suppressions") == [("complaint", 4)]


async def test_manual_suppression_is_not_weakened(pool: Pool) -> None:
    """A soft bounce does not add an end to a permanent manual suppression."""
    await suppress(pool, NewSuppression(email="ada@example.org"), actor="tests")
    await take(pool, a_soft_bounce())
    assert await suppressed(pool) == [("manual", "all", None)]


async def test_unsubscribe_stops_bulk_mail_only(pool: Pool) -> None:
    """Codes and receipts still arrive, and a bounce does not replace the unsubscribe."""
    await take(pool, a_report(FeedbackKind.UNSUBSCRIBE), a_soft_bounce())
    assert await suppressed(pool) == [("soft_bounce", "all", NOON + DAY), ("unsubscribe", "bulk", None)]
    await accept(pool, "ada@example.org", after=DAY)
    ids = await accepted(pool, a_mail(lane=Lane.BULK), a_mail(lane=Lane.AUTH), now=NOON)
    assert [await state_of(pool, each) for each in ids] == ["suppressed", "queued"]


async def test_unsubscribe_replaces_a_manual_bulk_suppression(pool: Pool) -> None:
    """A request of the person outranks an operator's."""
    from postroom.feedback.model import Scope

    manual = NewSuppression(email="ada@example.org", scope=Scope.BULK)
    await suppress(pool, manual, actor="tests")
    await suppress(pool, NewSuppression(email="ada@example.org", reason=SuppressionReason.UNSUBSCRIBE), actor="tests")
    await suppress(pool, manual, actor="tests")
    assert await suppressed(pool) == [("unsubscribe", "bulk", None)]


@pytest.mark.parametrize("classification", [BounceClass.POLICY, BounceClass.MESSAGE, BounceClass.TRANSIENT])
async def test_block_suppresses_no_address(pool: Pool, classification: BounceClass) -> None:
    """A block is stored and has no effect."""
    assert await take(pool, a_bounce(classification=classification)) == 1
    assert await suppressed(pool) == []
    assert await rows(pool, "SELECT class FROM bounces") == [(classification.value,)]


@pytest.mark.parametrize("feedback", [a_bounce, a_soft_bounce, a_complaint])
async def test_unverified_report_suppresses_no_address(pool: Pool, feedback: object) -> None:
    """An unverified report is stored; it is neither counted nor a fact."""
    assert await take(pool, feedback(is_verified=False)) == 1  # type: ignore[operator]
    assert await suppressed(pool) == []
    assert await rows(pool, "SELECT is_verified FROM bounces") == [(False,)]
    assert await rows(pool, "SELECT FROM stat_deltas WHERE metric IN ('bounced', 'complained')") == []
    assert await rows(pool, "SELECT FROM events WHERE type LIKE 'Recipient%'") == []


async def test_known_report_changes_nothing(pool: Pool) -> None:
    """A repeated report, even in one batch, is one row, one count and one step."""
    bounce = a_soft_bounce()
    assert await take(pool, bounce, bounce) == 1
    assert await take(pool, bounce, after=2 * DAY) == 0
    assert await suppressed(pool) == [("soft_bounce", "all", NOON + DAY)]
    assert await rows(pool, "SELECT amount FROM stat_deltas WHERE metric = 'bounced'") == [(1,)]


async def test_report_about_unknown_recipient_suppresses_no_address(pool: Pool) -> None:
    """A complaint without a known recipient is stored and counted, and suppresses no address."""
    delivery_id = await sent(pool, "ada@example.org", "ben@example.org")
    assert await take(pool, a_complaint(None, delivery_id=delivery_id)) == 1
    assert await rows(pool, "SELECT FROM suppressions") == []
    assert await rows(pool, "SELECT metric FROM stat_deltas WHERE metric = 'complained'") == [("complained",)]


async def test_concurrent_soft_bounces_count_once(pool: Pool) -> None:
    """Soft bounces recorded by two connections cause one hold and lose no report; a day later they cause one again."""
    for day in range(2):
        async with pool.acquire() as one, pool.acquire() as two:
            await asyncio.gather(
                *(record(connection, [a_soft_bounce()], now=NOON + day * DAY) for connection in (one, two))
            )
    assert await rows(pool, "SELECT bounce_count, steps FROM suppressions JOIN soft_bounces USING (address)") == [
        (4, 2)
    ]


async def test_concurrent_batches_do_not_deadlock(pool: Pool) -> None:
    """Batches with the same addresses in opposite orders are all recorded."""
    people = [f"p{number}@example.org" for number in range(40)]

    async def one(order: list[str], make: object) -> None:
        async with pool.acquire() as connection, connection.transaction():
            await record(connection, [make(each) for each in order], now=NOON)  # type: ignore[operator]
            await record_acceptances(connection, [(1, address) for address in order], now=NOON + DAY)

    for _ in range(5):
        await asyncio.gather(
            *(one(people[::step], make) for step in (1, -1) for make in (a_soft_bounce, a_bounce, a_complaint))
        )
    assert await rows(pool, "SELECT DISTINCT reason::text FROM suppressions") == [("complaint",)]


async def test_statistics_have_campaign_sender_domain_and_template(pool: Pool) -> None:
    """Reports are counted in their transaction; a rejection in the session is not returned, a block is not bounced."""
    ids = [await sent(pool, to) for to in ("a@One.example", "b@one.example", "c@two.example")]
    async with pool.acquire() as connection:
        await connection.execute("UPDATE deliveries SET campaign_id = 5, sender_account_id = 6, template_id = 'news'")
        await connection.execute("DELETE FROM stat_deltas")
    await take(
        pool,
        a_bounce("a@One.example", delivery_id=ids[0]),
        a_soft_bounce("b@one.example", delivery_id=ids[1]),
        a_complaint("c@two.example", delivery_id=ids[2]),
        a_bounce("d@three.example", origin="session"),
        a_bounce("e@three.example", origin="session", classification=BounceClass.POLICY),
    )
    counted = await rows(
        pool,
        "SELECT hour, campaign_id, sender_account_id, domain, template_id, metric, amount FROM stat_deltas"
        " ORDER BY metric, domain",
    )
    assert counted == [
        (NOON, 5, 6, "one.example", "news", "bounced", 2),
        (NOON, None, None, "three.example", None, "bounced", 1),
        (NOON, 5, 6, "two.example", "news", "complained", 1),
        (NOON, 5, 6, "one.example", "news", "returned", 2),
    ]
    assert await rows(
        pool, "SELECT campaign_id, sender_account_id FROM suppressions WHERE address = 'a@one.example'"
    ) == [(5, 6)]


async def test_facts_contain_no_address(pool: Pool) -> None:
    """A bounce is a fact of its delivery, a suppression a fact of its own; neither contains an address."""
    delivery_id = await sent(pool)
    await take(pool, a_bounce(delivery_id=delivery_id, enhanced="5.1.1"), a_complaint("ben@example.org"))
    facts = await rows(
        pool, "SELECT type, tags[1], data::text FROM events WHERE type NOT LIKE 'Delivery%' ORDER BY type"
    )
    assert [fact[0] for fact in facts] == [
        "RecipientBounced",
        "RecipientComplained",
        "RecipientSuppressed",
        "RecipientSuppressed",
    ]
    assert facts[0][1] == f"postroom.delivery={delivery_id}"
    assert not any("@" in fact[2] for fact in facts)


async def test_disabled_facts_are_not_recorded(pool: Pool) -> None:
    """The table of recorded facts also applies to feedback."""
    async with pool.acquire() as connection:
        await connection.execute("DELETE FROM recorded_facts")
    await take(pool, a_bounce())
    await lift(pool, "ada@example.org", actor="tests")
    assert await rows(pool, "SELECT FROM events") == []


async def test_history_keeps_every_step(pool: Pool) -> None:
    """The history has the suppression, the hold, the rise and the lift with actor and reason."""
    await take(pool, a_soft_bounce())
    await take(pool, a_soft_bounce(), after=DAY)
    await take(pool, a_bounce(), after=2 * DAY)
    await lift(pool, "ADA@example.org", actor="key:ops", note="they asked by telephone")
    await take(pool, a_soft_bounce(), after=3 * DAY)
    await accept(pool, "ada@example.org", after=4 * DAY)
    told = await rows(pool, "SELECT change, reason::text, actor, note FROM suppression_changes ORDER BY id")
    assert told == [
        ("suppressed", "soft_bounce", None, None),
        ("held", "soft_bounce", None, None),
        ("raised", "hard_bounce", None, None),
        ("lifted", "hard_bounce", "key:ops", "they asked by telephone"),
        ("suppressed", "soft_bounce", None, None),
        ("cleared", "soft_bounce", None, None),
    ]


async def test_lift_resets_the_soft_bounces(pool: Pool) -> None:
    """A lifted address gets three holds again."""
    for day in range(4):
        await take(pool, a_soft_bounce(), after=day * DAY)
    await lift(pool, "ada@example.org", actor="tests")
    await take(pool, a_soft_bounce(), after=5 * DAY)
    assert await suppressed(pool) == [("soft_bounce", "all", NOON + 6 * DAY)]


async def test_import_writes_history_but_no_facts(pool: Pool) -> None:
    """Ten thousand lines are ten thousand history rows and no event."""
    batch = [NewSuppression(email=f"p{number}@example.org", origin="import") for number in range(10_000)]
    assert await import_batch(pool, batch, actor="tests") == 10_000
    assert await rows(pool, "SELECT count(*) FROM suppression_changes") == [(10_000,)]
    assert await rows(pool, "SELECT FROM events") == []


def refusal(address: str = "ada@example.org", **fields: object) -> RefusedRecipient:
    given = {"delivery_id": 1, "attempt_no": 1, "code": 550, "enhanced": "5.1.1", "text": "no such user"}
    return RefusedRecipient(address=address, **{**given, **fields})  # type: ignore[arg-type]


async def test_results_of_an_attempt_are_recorded(pool: Pool) -> None:
    """Rejections suppress by their class and acceptances are recorded, in the ledger's transaction."""
    await take(pool, a_soft_bounce("ben@example.org"), after=-DAY)
    async with pool.acquire() as connection, connection.transaction():
        refusals = [
            refusal(),
            refusal("cleo@example.org", enhanced="5.7.1", text="blocked"),
            refusal("d@example.org", code=552, enhanced="5.2.2"),
        ]
        assert await record_refusals(connection, refusals, accepted=[(1, "Ben@example.org")], now=NOON) == 3
        assert await record_refusals(connection, refusals, now=NOON) == 0
    found = await rows(pool, "SELECT address, reason::text, origin FROM suppressions ORDER BY address")
    assert found == [("ada@example.org", "hard_bounce", "session"), ("d@example.org", "soft_bounce", "session")]


async def test_rollback_of_an_attempt_undoes_its_suppressions(pool: Pool) -> None:
    """An attempt that was not committed suppresses no address."""
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await record_refusals(connection, [refusal()], now=NOON)
        await transaction.rollback()
    assert await suppressed(pool) == []


async def test_nothing_to_record_runs_no_statement(pool: Pool) -> None:
    """Without rejections and successes no statement is run."""
    async with pool.acquire() as connection:
        assert await record_refusals(connection, [], now=NOON) == 0
        assert await record(connection, []) == 0


def test_rejection_of_the_content_is_not_about_the_mailbox() -> None:
    """A bare 550 after DATA suppresses no address."""
    (bounce,) = bounces_of([refusal(enhanced=None, text="", stage=Stage.FINAL)])
    assert bounce.classification is BounceClass.POLICY


def test_rejection_key_is_unique_per_attempt() -> None:
    """One attempt rejects an address once; the next attempt has another key."""
    one, same, next_attempt = bounces_of([refusal(), refusal("ADA@example.org"), refusal(attempt_no=2)])
    assert one.report_id == same.report_id != next_attempt.report_id
