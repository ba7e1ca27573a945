"""`python -m bench.campaigns`: a list uploaded, fed to the queue, written and sent.

    upload   lines of CSV a second into a campaign, and the peak memory of the process that reads them
    feed     people a second from the list into the queue, with everything that follows from accepting a mail
    write    microseconds for one mail: 5 KB of HTML with five tracked links, its text part, its headers
    send     mails a second from the start of a campaign to the last one in an SMTP sink, DKIM (Ed25519) and all

`send` starts worker processes that feed and deliver (`--processes`), on a relay; with sender accounts in the room
(`prepare_room`) the same measurement goes through them. A fresh PostgreSQL, fsync on.
"""

import argparse
import asyncio
import contextlib
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

import structlog
import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bench.server import Arena, running_server
from bench.sink import start_sink
from bench.workers import python_command, run_workers
from postroom.campaigns import service
from postroom.campaigns.letters import CampaignLetters, LettersOptions
from postroom.campaigns.model import Letter, LineFormat, Plan, Status
from postroom.campaigns.upload import Upload
from postroom.campaigns.worker import Feeder, FeederOptions
from postroom.db.migrate import migrate
from postroom.db.pool import Pool, open_pool
from postroom.delivery import store as delivery_store
from postroom.delivery.model import Address, Lane, Outgoing
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.mail.compose import Composer
from postroom.mail.dkim import Signer
from postroom.tracking.tokens import TokenSigner
from postroom.transports import Content, Envelope
from postroom.transports.smtp import SmtpRelay, SmtpTransport

ROOM = "postroom"
LINES_PER_CHUNK = 1000
LINKS = "".join(
    f'<p>On {n}: <a href="https://shop.example.org/things/{n}?from=spring&amp;city={{{{ city }}}}">look</a></p>'
    for n in range(5)
)
FILLING = "<p>So many words that nobody reads them, and all the same they have to be sent.</p>\n" * 50
HTML = (
    f"<html><body><h1>Hello {{{{ first_name }}}}</h1>{LINKS}{FILLING}"
    '<p><a href="{{ unsubscribe_url }}">Unsubscribe</a></p></body></html>'
)
PLAN = Plan(
    name="Bench",
    letter=Letter(subject="News for {{ first_name }}", html=HTML, sender=Address("news@example.org", "News")),
)
PrepareRoom = Callable[[Pool], Awaitable[None]]
"""Puts into a room what the sending is to go through: sender accounts, limits of destinations."""


async def no_preparation(_pool: Pool) -> None:
    """Through the relay, as fast as it takes it."""


@contextlib.asynccontextmanager
async def room(arena: Arena, name: str) -> AsyncIterator[tuple[str, Pool]]:
    """A migrated database of its own; its URL and a pool."""
    url = await arena.create_database(name)
    await migrate(url, ROOM)
    pool = await open_pool(url, ROOM, size=10)
    try:
        yield url, pool
    finally:
        await pool.close()


async def lines(people: int) -> AsyncIterator[bytes]:
    """A list as a spreadsheet writes it."""
    yield b"email,first_name,last_name,city,time_zone\r\n"
    for start in range(0, people, LINES_PER_CHUNK):
        numbers = range(start, min(start + LINES_PER_CHUNK, people))
        yield b"".join(b"person%d@example%d.org,Ada,Lovelace,London,\r\n" % (n, n % 50) for n in numbers)


async def filled(pool: Pool, people: int) -> int:
    """A campaign with so many people; its id."""
    campaign = await service.create_campaign(pool, PLAN, actor="bench")
    done = await Upload(pool, campaign.id).run(lines(people), LineFormat.CSV, actor="bench")
    assert done.added == people
    return campaign.id


async def measure_upload(arena: Arena, people: int) -> tuple[float, float]:
    """Lines a second, and megabytes by which the process grew."""
    async with room(arena, "upload") as (_url, pool):
        await filled(pool, 10_000)  # what a process needs anyhow
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        await filled(pool, people)
        elapsed = time.perf_counter() - started
    return people / elapsed, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


async def measure_feeding(arena: Arena, people: int) -> float:
    """People a second from the list into the queue, in slices of two thousand."""
    async with room(arena, "feeding") as (_url, pool):
        campaign = await filled(pool, people)
        await service.start_campaign(pool, campaign, actor="bench")
        fed, spent = 0, 0.0
        while fed < people:
            feeder = Feeder(pool, FeederOptions(first_target=fed + 2000, most_target=fed + 2000))
            started = time.perf_counter()
            fed += await feeder.run_once()
            spent += time.perf_counter() - started
    return people / spent


async def measure_writing(arena: Arena, mails: int = 2000) -> float:
    """Microseconds to write one mail, without composing it."""
    async with room(arena, "writing") as (_url, pool):
        campaign = await filled(pool, 100)
        await service.start_campaign(pool, campaign, actor="bench")
        await Feeder(pool).run_once()
        letters = make_letters(pool)
        claimed = await claim(pool)
        await letters.prepare(claimed)
        best = float("inf")
        for _ in range(5):
            started = time.perf_counter()
            for number in range(mails):
                letters.write(claimed[number % len(claimed)])
            best = min(best, (time.perf_counter() - started) / mails)
    return best * 1e6


async def claim(pool: Pool) -> list[Outgoing]:
    """What a worker would have in hand."""
    seen: list[Outgoing] = []

    async def keep(claimed: Sequence[Outgoing]) -> None:
        seen.extend(claimed)

    def refuse(_outgoing: Outgoing) -> tuple[Envelope, Content]:
        raise ValueError("only looking")

    transport = SmtpTransport(SmtpRelay("127.0.0.1", 9, tls="none"))
    await Worker(pool, compose=refuse, route=lambda _channel, _lane: transport, prepare=keep).run_once(Lane.BULK)
    await transport.close()
    return seen


async def measure_sending(
    arena: Arena, people: int, *, processes: int = 2, prepare_room: PrepareRoom = no_preparation
) -> float:
    """Mails a second from the start to the last of them in the sink."""
    async with room(arena, f"sending_{processes}") as (url, pool):
        campaign = await filled(pool, people)
        await prepare_room(pool)
        with start_sink() as sink:
            command = python_command("bench.campaigns", "--work", url, str(sink.port), str(campaign))
            await service.start_campaign(pool, campaign, actor="bench")
            working = asyncio.create_task(run_workers([command] * processes))
            while not sink.counts().messages:  # noqa: ASYNC110 - the sink is another process
                await asyncio.sleep(0.02)
            started = time.perf_counter()
            await working
            elapsed = time.perf_counter() - started
            assert sink.counts().messages == people, sink.counts()
        found = (await service.measure(pool, [await service.get_campaign(pool, campaign)]))[campaign]
        assert found.counts.sent == people, found
    return people / elapsed


async def work(url: str, port: int, campaign: int) -> None:
    """One process: feed and deliver until the campaign is done."""
    pool = await open_pool(url, ROOM, size=8)
    transport = SmtpTransport(SmtpRelay("127.0.0.1", port, tls="none"), max_connections=20)
    letters, composer = make_letters(pool), make_composer()

    def compose(outgoing: Outgoing) -> tuple[Envelope, Content]:
        return composer.compose(letters.write(outgoing), now=datetime.now(UTC))

    worker = Worker(
        pool,
        compose=compose,
        prepare=letters.prepare,
        route=lambda _channel, _lane: transport,
        options=WorkerOptions(lanes=(Lane.BULK,), poll_interval=timedelta(milliseconds=100)),
    )
    feeder = Feeder(pool)
    running = [asyncio.create_task(worker.run()), asyncio.create_task(feeder.run())]
    while (await service.get_campaign(pool, campaign)).status is Status.ACTIVE:
        await asyncio.sleep(0.1)
        async with pool.acquire() as connection:
            await delivery_store.wake_workers(connection, lanes=[Lane.BULK])
    worker.stop()
    feeder.stop()
    await asyncio.gather(*running)
    await transport.close()
    await pool.close()


def make_letters(pool: Pool) -> CampaignLetters:
    signer = TokenSigner(bytes(32), "https://mail.example.org")
    return CampaignLetters(pool, signer, LettersOptions(default_domain="example.org"))


def make_composer() -> Composer:
    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    signer = Signer.from_pem("example.org", "bench", key)
    return Composer(
        default_sender=Address("post@example.org"), message_domain="example.org", signers={"example.org": [signer]}
    )


async def run(options: argparse.Namespace) -> None:
    people = 5_000 if options.quick else options.people
    async with running_server() as arena:
        rate, grown = await measure_upload(arena, people)
        print(f"upload {people:,} lines: {rate:,.0f}/s, process grew by {grown:.0f} MB")
        print(f"feed: {await measure_feeding(arena, min(people, 50_000)):,.0f} people/s")
        print(f"write: {await measure_writing(arena):.0f} µs a mail of {len(HTML):,} characters of HTML")
        sent = min(people, options.sent)
        rate = await measure_sending(arena, sent, processes=options.processes)
        print(f"send {sent:,} mails, {options.processes} processes: {rate:,.0f}/s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.campaigns", description=__doc__)
    parser.add_argument("--people", type=int, default=1_000_000, help="lines to upload (1000000)")
    parser.add_argument("--sent", type=int, default=100_000, help="mails to send (100000)")
    parser.add_argument("--processes", type=int, default=2, help="worker processes (2)")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it run?")
    parser.add_argument("--work", nargs=3, metavar=("URL", "PORT", "CAMPAIGN"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    if options.work:
        url, port, campaign = options.work
        uvloop.run(work(url, int(port), int(campaign)))
    else:
        uvloop.run(run(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
