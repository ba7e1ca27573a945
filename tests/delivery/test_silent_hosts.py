"""Receivers that do not answer hold up neither the webhooks of others nor, for long, their own."""

from datetime import timedelta
from functools import partial

import pytest
from tests.support.builders import NOON, Recording, a_mail, a_worker, accepted, claimed, state_of

from postroom.db.pool import Pool
from postroom.delivery.model import Channel, DeliveryRequest, Lane, Outgoing, State
from postroom.delivery.silent_hosts import FIRST_REST_S, LONGEST_REST_S, SILENCES, SilentHosts
from postroom.delivery.worker import WorkerOptions
from postroom.post.address import Address
from postroom.post.reply import Envelope, Reply, Stage
from postroom.transports.webhook.compose import WebhookComposer

SILENCE = Reply(Stage.CONTENT, text="no answer within 10 s")
REFUSED = Reply(Stage.CONNECT, text="no connection: refused")
ANSWERS = [Reply(Stage.FINAL, 200), Reply(Stage.FINAL, 503), Reply(Stage.RECIPIENT, 550, "410")]


class Watch:
    """A clock that stands until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def to(url: str) -> DeliveryRequest:
    return DeliveryRequest(to=(Address(url),), text="{}", channel=Channel.WEBHOOK, source="test")


@pytest.fixture
async def posts(pool: Pool) -> list[Outgoing]:
    """Three webhooks to one host, one to another, and a mail."""
    urls = ["https://a.example/1", "https://A.example/2", "https://a.example", "https://b.example:8443/"]
    await accepted(pool, *map(to, urls), a_mail())
    found = await claimed(pool)
    return sorted(found, key=lambda outgoing: outgoing.id)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def hosts(watch: Watch, posts: list[Outgoing]) -> SilentHosts:
    """The first host has not answered so many times that it rests."""
    hosts = SilentHosts(monotonic=watch)
    for _ in range(SILENCES):
        hosts.ended(posts[0], SILENCE)
    return hosts


def test_a_host_rests_after_some_silences_and_nobody_else_does(hosts: SilentHosts, posts: list[Outgoing]) -> None:
    """In any spelling of its name; another host and mail start."""
    ready, waiting = hosts.sift(posts)
    assert ready == posts[3:]
    assert waiting == {timedelta(seconds=FIRST_REST_S): [each.id for each in posts[:3]]}


@pytest.mark.parametrize("last", [None, REFUSED, *ANSWERS], ids=str)
def test_few_silences_a_refusal_or_an_answer_are_no_reason_to_rest(
    watch: Watch, posts: list[Outgoing], last: Reply | None
) -> None:
    """A connection that is refused at once takes nobody's place; an answer, whatever it says, ends the silence."""
    hosts = SilentHosts(monotonic=watch)
    for _ in range(3):
        for _ in range(SILENCES - 1):
            hosts.ended(posts[0], SILENCE)
        if last is None or last is REFUSED:
            break
        hosts.ended(posts[0], last)
    hosts.ended(posts[0], last)
    assert hosts.sift(posts) == (posts, {})


def test_after_a_rest_one_is_sent_and_silence_makes_the_next_longer(
    hosts: SilentHosts, watch: Watch, posts: list[Outgoing]
) -> None:
    """Twice as long each time, up to a bound; those who were in flight together make one rest."""
    hosts.ended(posts[1], SILENCE)
    rests = [FIRST_REST_S * 2**number for number in range(1, 4)] + [LONGEST_REST_S] * 2
    for rest_s in rests:
        watch.now += LONGEST_REST_S
        ready, waiting = hosts.sift(posts[:3])
        assert (ready, list(waiting)) == (posts[:1], [timedelta(seconds=rest_s)])
        hosts.ended(posts[0], SILENCE)


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_an_answer_ends_the_rest(hosts: SilentHosts, posts: list[Outgoing], answer: Reply) -> None:
    """Whatever it says."""
    hosts.ended(posts[2], answer)
    assert hosts.sift(posts) == (posts, {})


def test_one_that_never_came_back_is_not_waited_for(hosts: SilentHosts, watch: Watch, posts: list[Outgoing]) -> None:
    """Its claim was lost, say: after the next rest another is sent."""
    for rest_s in (FIRST_REST_S, FIRST_REST_S * 2):
        watch.now += rest_s
        assert hosts.sift(posts[:3])[0] == posts[:1]


async def test_a_silent_host_holds_up_nobody(pool: Pool) -> None:
    """Forty posts to it are before five to another: those arrive, and most of the forty have lost no attempt."""

    def answer(envelope: Envelope) -> Reply:
        return SILENCE if "silent" in envelope.recipients[0] else ANSWERS[0]

    silent = await accepted(pool, *(to(f"https://silent.example/{n}") for n in range(40)))
    heard = await accepted(pool, *(to(f"https://heard.example/{n}") for n in range(5)))
    transport = Recording(answer)
    worker = a_worker(
        pool,
        transport,
        compose=partial(WebhookComposer().compose, now=NOON),
        options=WorkerOptions(batch=16, chunk=8, until_empty=True),
    )
    await worker.run()
    assert {await state_of(pool, each) for each in heard} == {State.SENT}
    tried = [each for each in transport.delivery_ids if each in silent]
    assert SILENCES <= len(tried) < 20
    waiting = await pool.fetch("SELECT id FROM deliveries WHERE attempt_count = 0 AND next_attempt_at > now()")
    assert {row["id"] for row in waiting} == set(silent) - set(tried)


async def test_a_claim_that_is_lost_is_given_back_once(pool: Pool, hosts: SilentHosts) -> None:
    """Who waits for a silent host went back before the lease turned out to be over; nobody is counted twice."""
    ids = await accepted(pool, *(to(f"https://{host}.example/") for host in ("a", "b", "c")))

    async def lose(_claimed: object) -> None:
        await pool.execute("UPDATE claims SET expires_at = now() - interval '1 hour'")

    transport = Recording()
    worker = a_worker(pool, transport, compose=partial(WebhookComposer().compose, now=NOON), prepare=lose)
    worker._silent = hosts
    assert await worker.run_once(Lane.TRANSACTIONAL) == 3
    assert (transport.envelopes, worker._ledger.held()) == ([], [])
    rows = await pool.fetch(
        "SELECT attempt_count, next_attempt_at <= now() FROM deliveries WHERE id = ANY($1) ORDER BY id", ids
    )
    assert [tuple(row) for row in rows] == [(0, False), (0, True), (0, True)]
