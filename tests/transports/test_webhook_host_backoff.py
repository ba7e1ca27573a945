"""Webhooks to hosts that time out wait and do not delay webhooks to other hosts."""

from datetime import timedelta
from functools import partial

import pytest
from tests.support.builders import NOON, Recording, a_worker, accepted, state_of

from postroom.db.pool import Pool
from postroom.delivery.model import Channel, DeliveryRequest, DeliveryState, Lane
from postroom.delivery.worker import WorkerOptions
from postroom.outbox.webhooks.writer import compose
from postroom.post.address import Address
from postroom.post.reply import Envelope, Reply, Stage
from postroom.transports.webhook.host_backoff import FIRST_PAUSE_S, LONGEST_PAUSE_S, TIMEOUTS, HostBackoff

TIMEOUT = Reply(Stage.CONTENT, text="no answer within 10 s")
REFUSED = Reply(Stage.CONNECT, text="no connection: refused")
ANSWERS = [Reply(Stage.FINAL, 200), Reply(Stage.FINAL, 503), Reply(Stage.RECIPIENT, 550, "410")]
SAME_HOST = ["https://a.example/1", "https://A.example/2", "https://a.example"]
OTHER_HOST = "https://b.example:8443/"
FIRST_PAUSE = timedelta(seconds=FIRST_PAUSE_S)


class Watch:
    """A clock that only the test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def to(url: str) -> DeliveryRequest:
    return DeliveryRequest(to=(Address(url),), text="{}", channel=Channel.WEBHOOK, source="test")


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def hosts(watch: Watch) -> HostBackoff:
    """The breaker of one host is open."""
    hosts = HostBackoff(monotonic=watch)
    for _ in range(TIMEOUTS):
        hosts.ended(SAME_HOST[0], TIMEOUT)
    return hosts


def test_a_host_that_times_out_pauses_and_no_other_does(hosts: HostBackoff) -> None:
    """In any spelling of its name; another host starts."""
    assert [hosts.wait(url) for url in (*SAME_HOST, OTHER_HOST)] == [FIRST_PAUSE] * 3 + [None]


@pytest.mark.parametrize("last", [None, REFUSED, *ANSWERS], ids=str)
def test_few_timeouts_a_refusal_or_an_answer_leave_the_breaker_closed(watch: Watch, last: Reply | None) -> None:
    """A connection that is refused at once holds no place; any answer resets the count."""
    hosts = HostBackoff(monotonic=watch)
    for _ in range(1 if last is None or last is REFUSED else 3):
        for _ in range(TIMEOUTS - 1):
            hosts.ended(SAME_HOST[0], TIMEOUT)
        if last is not None:
            hosts.ended(SAME_HOST[0], last)
    assert [hosts.wait(url) for url in SAME_HOST] == [None] * 3


def test_after_a_pause_one_is_sent_and_a_timeout_makes_the_next_longer(hosts: HostBackoff, watch: Watch) -> None:
    """Twice as long each time, up to a bound; those that were in flight together make one pause."""
    hosts.ended(SAME_HOST[1], TIMEOUT)
    pauses = [FIRST_PAUSE_S * 2**number for number in range(1, 4)] + [LONGEST_PAUSE_S] * 2
    for pause_s in pauses:
        watch.now += LONGEST_PAUSE_S
        pause = timedelta(seconds=pause_s)
        assert [hosts.wait(url) for url in SAME_HOST] == [None, pause, pause]
        hosts.ended(SAME_HOST[0], TIMEOUT)


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_an_answer_ends_the_pause(hosts: HostBackoff, answer: Reply) -> None:
    """Any status closes the breaker."""
    hosts.ended(SAME_HOST[2], answer)
    assert [hosts.wait(url) for url in SAME_HOST] == [None] * 3


def test_a_probe_without_a_result_does_not_block_the_next(hosts: HostBackoff, watch: Watch) -> None:
    """Its claim was lost, for example: after the next pause another is sent."""
    for pause_s in (FIRST_PAUSE_S, FIRST_PAUSE_S * 2):
        watch.now += pause_s
        assert hosts.wait(SAME_HOST[0]) is None
        assert hosts.wait(SAME_HOST[0]) is not None


async def test_a_host_that_times_out_holds_up_no_other(pool: Pool) -> None:
    """Forty posts to it are before five to another: those arrive, and most of the forty have lost no attempt."""

    def answer(envelope: Envelope) -> Reply:
        return TIMEOUT if "silent" in envelope.recipients[0] else ANSWERS[0]

    silent = await accepted(pool, *(to(f"https://silent.example/{n}") for n in range(40)))
    heard = await accepted(pool, *(to(f"https://heard.example/{n}") for n in range(5)))
    transport = Recording(answer)
    worker = a_worker(
        pool,
        transport,
        compose=partial(compose, keys=(), now=NOON),
        options=WorkerOptions(batch=16, chunk=8, until_empty=True),
    )
    await worker.run()
    assert {await state_of(pool, each) for each in heard} == {DeliveryState.SENT}
    tried = [each for each in transport.delivery_ids if each in silent]
    assert TIMEOUTS <= len(tried) < 20
    waiting = await pool.fetch("SELECT id FROM deliveries WHERE attempt_count = 0 AND next_attempt_at > now()")
    assert {row["id"] for row in waiting} == set(silent) - set(tried)


async def test_a_claim_that_is_lost_is_given_back_once(pool: Pool, hosts: HostBackoff) -> None:
    """No webhook is attempted or counted, neither one that waits for its host nor the others; all are due again."""
    ids = await accepted(pool, *(to(f"https://{host}.example/") for host in ("a", "b", "c")))

    async def lose(*_claimed: object) -> None:
        await pool.execute("UPDATE claims SET expires_at = now() - interval '1 hour'")

    transport = Recording()
    worker = a_worker(pool, transport, compose=partial(compose, keys=(), now=NOON), prepare=lose)
    worker._hosts = hosts
    assert await worker.run_once(Lane.TRANSACTIONAL) == 3
    assert (transport.envelopes, worker._ledger.held()) == ([], [])
    rows = await pool.fetch(
        "SELECT attempt_count, next_attempt_at <= now() FROM deliveries WHERE id = ANY($1) ORDER BY id", ids
    )
    assert [tuple(row) for row in rows] == [(0, True)] * 3
