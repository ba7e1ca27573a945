"""From a server's behaviour to what is written: the real transport, the real worker, a real server that misbehaves."""

from base64 import b64encode
from dataclasses import dataclass

import pytest
from tests.support.builders import a_mail, a_worker, accepted, attempts_of, outcomes_of, state_of
from tests.support.smtp_channels import CHANNELS, channel_to
from tests.support.smtp_server import DROP, RESET, SILENT, Says, Script, ThenDrop, smtp_server, transport_to

from postroom.db.pool import Pool
from postroom.delivery import service
from postroom.delivery.model import DeliveryState, Lane
from postroom.post.mime import Attachment
from postroom.transports.smtp import SmtpRelay, SmtpTransport
from postroom.transports.smtp.relay import TlsMode

A, B = "a@example.org", "b@example.org"


@dataclass(frozen=True)
class Case:
    """The server's replies, and the expected ledger after one attempt to A and B."""

    name: str
    says: Says
    state: DeliveryState
    attempt: tuple[str, str, int | None]  # outcome, stage, code
    a: str = "pending"
    b: str = "pending"
    extensions: tuple[str, ...] | None = None


CASES = [
    Case("takes it", {}, DeliveryState.SENT, ("sent", "final", 250), "delivered", "delivered"),
    Case("advertises nothing", {}, DeliveryState.SENT, ("sent", "final", 250), "delivered", "delivered", extensions=()),
    Case(
        "refuses one",
        {f"RCPT {B}": "550 5.1.1 who?"},
        DeliveryState.SENT,
        ("sent", "final", 250),
        "delivered",
        "refused",
    ),
    Case("defers one", {f"RCPT {B}": "451 4.3.0 later"}, DeliveryState.QUEUED, ("deferred", "final", 250), "delivered"),
    Case(
        "one mailbox is full",
        {f"RCPT {B}": "552 5.2.2 full"},
        DeliveryState.QUEUED,
        ("deferred", "final", 250),
        "delivered",
    ),
    Case(
        "refuses one and defers the other",
        {f"RCPT {A}": "550 5.1.1 who?", f"RCPT {B}": "451 4.3.0 later"},
        DeliveryState.QUEUED,
        ("deferred", "recipient", 451),
        "refused",
    ),
    Case(
        "refuses both",
        {"RCPT": "550 5.1.1 who?"},
        DeliveryState.FAILED,
        ("failed", "recipient", 550),
        "refused",
        "refused",
    ),
    Case("defers both", {"RCPT": "450 4.2.0 greylisted"}, DeliveryState.QUEUED, ("deferred", "recipient", 450)),
    Case(
        "refuses the sender",
        {"MAIL": "550 5.7.1 no"},
        DeliveryState.FAILED,
        ("failed", "sender", 550),
        "refused",
        "refused",
    ),
    Case("defers the sender", {"MAIL": "451 4.7.1 slowly"}, DeliveryState.QUEUED, ("deferred", "sender", 451)),
    Case(
        "refuses DATA", {"DATA": "554 5.7.1 no"}, DeliveryState.FAILED, ("failed", "content", 554), "refused", "refused"
    ),
    Case("defers DATA", {"DATA": "452 4.3.1 full"}, DeliveryState.QUEUED, ("deferred", "content", 452)),
    Case(
        "refuses the content",
        {".": "554 5.7.1 spam"},
        DeliveryState.FAILED,
        ("failed", "final", 554),
        "refused",
        "refused",
    ),
    Case("defers the content", {".": "451 4.3.0 later"}, DeliveryState.QUEUED, ("deferred", "final", 451)),
    Case("is full, in five hundreds", {".": "552 5.3.1 full"}, DeliveryState.QUEUED, ("deferred", "final", 552)),
    Case("turns us away", {"connect": "554 5.7.1 not you"}, DeliveryState.QUEUED, ("deferred", "connect", 554)),
    Case("is busy", {"connect": "421 4.3.2 busy"}, DeliveryState.QUEUED, ("deferred", "connect", 421)),
    Case("hangs up at once", {"connect": DROP}, DeliveryState.QUEUED, ("deferred", "connect", None)),
    Case("says nothing at all", {"connect": SILENT}, DeliveryState.QUEUED, ("deferred", "connect", None)),
    Case("hangs up at EHLO", {"EHLO": DROP}, DeliveryState.QUEUED, ("deferred", "connect", None)),
    Case("hangs up at MAIL", {"MAIL": DROP}, DeliveryState.QUEUED, ("deferred", "sender", None)),
    Case("hangs up at RCPT", {"RCPT": DROP}, DeliveryState.QUEUED, ("deferred", "recipient", None)),
    Case("is silent at RCPT", {"RCPT": SILENT}, DeliveryState.QUEUED, ("deferred", "recipient", None)),
    Case("hangs up at DATA", {"DATA": DROP}, DeliveryState.QUEUED, ("deferred", "content", None)),
    Case(
        "says 421 and hangs up",
        {"MAIL": ThenDrop("421 4.3.2 closing")},
        DeliveryState.QUEUED,
        ("deferred", "sender", 421),
    ),
    Case(
        "hangs up after the content",
        {".": DROP},
        DeliveryState.QUEUED,
        ("ambiguous", "final", None),
        "ambiguous",
        "ambiguous",
    ),
    Case(
        "is silent after the content",
        {".": SILENT},
        DeliveryState.QUEUED,
        ("ambiguous", "final", None),
        "ambiguous",
        "ambiguous",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_server_behaviour_decides_state_and_outcomes(pool: Pool, case: Case) -> None:
    """State, attempt and each recipient's outcome follow from the server's behaviour."""
    [delivery] = await accepted(pool, a_mail(A, B))
    script = Script(says=case.says) if case.extensions is None else Script(says=case.says, extensions=case.extensions)
    async with smtp_server(script) as server, transport_to(server) as transport:
        await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
    [attempt] = await attempts_of(pool, delivery)
    assert (attempt.outcome, attempt.stage, attempt.code) == case.attempt
    assert await state_of(pool, delivery) is case.state
    assert await outcomes_of(pool, delivery) == {A: case.a, B: case.b}
    assert attempt.remote_host is not None


@pytest.mark.parametrize("act", [DROP, SILENT], ids=["hangs up", "is silent"])
async def test_bulk_mail_without_a_last_word_is_held(pool: Pool, act: object) -> None:
    """Bulk mail that may have arrived is a dead letter for a person to judge."""
    await accepted(pool, a_mail(A, lane=Lane.BULK))
    says: Says = {".": act}  # type: ignore[dict-item]
    async with smtp_server(Script(says=says)) as server, transport_to(server) as transport:
        await a_worker(pool, transport).run_once(Lane.BULK)
    [letter], _ = await service.list_dead_letters(pool)
    assert letter.reason == "ambiguous"


@pytest.mark.parametrize("tls", CHANNELS.values(), ids=CHANNELS.keys())
async def test_mail_that_a_server_took_is_sent_or_held_over_every_channel(pool: Pool, tls: TlsMode) -> None:
    """A server that takes each second mail whole and drops the line: bulk mail is held, and none is sent again."""
    recipients = [f"{number}@example.org" for number in range(6)]
    deliveries = await accepted(pool, *(a_mail(each, lane=Lane.BULK) for each in recipients))
    says: Says = {".": ["250 2.0.0 queued", RESET] * 3}
    async with channel_to(tls, Script(says=says), max_connections=1) as (server, transport):
        for _ in range(3):
            await a_worker(pool, transport).run_once(Lane.BULK)
    assert sorted(message.recipients[0] for message in server.taken) == recipients
    outcomes = [[attempt.outcome for attempt in await attempts_of(pool, delivery)] for delivery in deliveries]
    assert sorted(outcomes) == [["ambiguous"]] * 3 + [["sent"]] * 3


@pytest.mark.parametrize("tls", CHANNELS.values(), ids=CHANNELS.keys())
async def test_mail_with_large_attachments_is_sent_over_every_channel(pool: Pool, tls: TlsMode) -> None:
    """Mail of three megabytes, twice over one connection."""
    attachment = Attachment("a.bin", "application/octet-stream", b64encode(b"0123456789" * 225_000).decode())
    deliveries = await accepted(pool, *(a_mail(each, attachments=(attachment,)) for each in (A, B)))
    async with channel_to(tls, max_connections=1) as (server, transport):
        await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
    assert [await state_of(pool, delivery) for delivery in deliveries] == [DeliveryState.SENT] * 2
    assert all(len(message.content) > 3_000_000 for message in server.messages)


async def test_unreachable_relay_is_a_deferral(pool: Pool) -> None:
    """A relay that is down refuses nothing: everything waits for it."""
    [delivery] = await accepted(pool)
    async with smtp_server() as server:
        port = server.port
    transport = SmtpTransport(SmtpRelay("127.0.0.1", port, tls="none"))
    await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
    await transport.close()
    [attempt] = await attempts_of(pool, delivery)
    assert (attempt.outcome, attempt.stage, attempt.code) == ("deferred", "connect", None)
    assert await state_of(pool, delivery) is DeliveryState.QUEUED


async def test_a_hint_in_the_reply_moves_the_next_attempt(pool: Pool) -> None:
    """A server that asks for ten minutes gets them."""
    [delivery] = await accepted(pool)
    says: Says = {"RCPT": "450 4.2.0 greylisted, try again in 600 seconds"}
    async with smtp_server(Script(says=says)) as server, transport_to(server) as transport:
        await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
    [attempt] = await attempts_of(pool, delivery)
    assert attempt.next_attempt_at is not None
    assert 600 <= (attempt.next_attempt_at - attempt.finished_at).total_seconds() <= 750


async def test_results_of_one_claim_are_separate(pool: Pool) -> None:
    """Refused, deferred and taken mail in one claim: each gets its own end."""
    good, bad, busy = await accepted(
        pool, a_mail("good@example.org"), a_mail("bad@example.org"), a_mail("busy@example.org")
    )
    says: Says = {"RCPT bad@example.org": "550 5.1.1 who?", "RCPT busy@example.org": "451 4.3.0 later"}
    async with smtp_server(Script(says=says)) as server, transport_to(server, max_connections=1) as transport:
        await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
        assert [message.recipients for message in server.messages] == [("good@example.org",)]
    states = [await state_of(pool, delivery) for delivery in (good, bad, busy)]
    assert states == [DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.QUEUED]
