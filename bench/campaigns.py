"""`python -m bench.campaigns`: a list uploaded, fed to the queue, written and sent.

    upload   lines of CSV a second into a campaign, and the peak memory of the process that reads them
    feed     people a second from the list into the queue, with everything that follows from accepting a mail
    write    microseconds for one mail: 5 KB of HTML with five tracked links, its text part, its headers
    send     mails a second from the start of a campaign to the last one in an SMTP sink: through ten sender accounts
             and through a relay, with tracking, unsubscribe headers, a DKIM signature and the whole ledger

`send` starts worker processes of the product (`--processes`), everything they usually do included. Ed25519 signs unless
`--rsa` is given. A fresh PostgreSQL, fsync on.
"""

import argparse
import asyncio
import contextlib
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Sequence

import structlog
import uvloop
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bench.server import Arena, running_server
from bench.sink import start_sink
from bench.workers import Drained, drain, python_command
from postroom.app import run_worker
from postroom.campaigns import service
from postroom.campaigns.model import CampaignContent, CampaignRequest, CampaignStatus, LineFormat
from postroom.campaigns.rendering import CampaignRendering, RenderingOptions
from postroom.campaigns.upload import Upload
from postroom.campaigns.worker import Feeder, FeederOptions
from postroom.cli.lifetime import Lifetime
from postroom.db.migrate import migrate
from postroom.db.pool import Pool, open_pool
from postroom.db.room import open_room
from postroom.delivery.model import Channel, Lane, Outgoing
from postroom.delivery.worker import Worker
from postroom.post.address import Address
from postroom.post.reply import Content, Envelope
from postroom.senders.check import SenderRequest
from postroom.senders.factory import ProviderAddresses
from postroom.senders.model import AuthType
from postroom.senders.seal import LocalSealer
from postroom.senders.service import Tools, create_sender
from postroom.settings import Settings
from postroom.tracking.tokens import TokenSigner
from postroom.transports.smtp import SmtpRelay, SmtpTransport

ROOM = "postroom"
LINES_PER_CHUNK = 1000
LINKS = "".join(
    f'<p>On {n}: <a href="https://shop.example.org/things/{n}?from=spring&amp;city={{{{ city }}}}">look</a></p>'
    for n in range(5)
)
FILLING = "<p>A paragraph that gives the message a realistic length of about four kilobytes.</p>\n" * 50
HTML = (
    f"<html><body><h1>Hello {{{{ first_name }}}}</h1>{LINKS}{FILLING}"
    '<p><a href="{{ unsubscribe_url }}">Unsubscribe</a></p></body></html>'
)
PLAN = CampaignRequest(
    name="Bench",
    letter=CampaignContent(subject="News for {{ first_name }}", html=HTML, sender=Address("news@example.org", "News")),
)
ACCOUNTS = 10
KEY = bytes(32)


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
        await letters.prepare(claimed, [])
        best = float("inf")
        for _ in range(5):
            started = time.perf_counter()
            for number in range(mails):
                letters.write(claimed[number % len(claimed)])
            best = min(best, (time.perf_counter() - started) / mails)
    return best * 1e6


async def claim(pool: Pool) -> list[Outgoing]:
    """The deliveries that a worker would have claimed."""
    seen: list[Outgoing] = []

    class Keeper:
        """Keeps the deliveries, with their recipients and variables, and writes nothing."""

        async def prepare(self, claim: Sequence[Outgoing], _open_claims: Collection[int]) -> None:
            pass

        def write(self, outgoing: Outgoing) -> tuple[Envelope, Content]:
            seen.append(outgoing)
            raise ValueError("only looking")

    transport = SmtpTransport(SmtpRelay("127.0.0.1", 9, tls="none"))
    routes = {Channel.EMAIL: {Lane.BULK: transport}}
    await Worker(pool, writers={Channel.EMAIL: Keeper()}, routes=routes).run_once(Lane.BULK)
    await transport.close()
    return seen


async def measure_sending(
    arena: Arena, people: int, *, accounts: int, processes: int = 2, rsa_key: bool = False
) -> Drained:
    """The time and cost from the start of a campaign to its end, all mails in the sink."""
    async with room(arena, f"sending_{time.monotonic_ns()}") as (url, pool):
        campaign = await filled(pool, people)

        async def start(_people: int) -> None:
            await service.start_campaign(pool, campaign, actor="bench")

        with start_sink() as sink, tempfile.NamedTemporaryFile(suffix=".pem") as key:
            key.write(signing_key(rsa_key=rsa_key))
            key.flush()
            for number in range(accounts):
                await add_account(pool, number, sink.port)
            command = python_command("bench.campaigns", "--work", url, str(sink.port), str(campaign), key.name)
            drained = await drain(arena.meter, [command] * processes, start, people)
            assert sink.counts().messages == people, sink.counts()
        found = (await service.measure(pool, [await service.get_campaign(pool, campaign)]))[campaign]
        assert found.counts.sent == people, found
    return drained


async def add_account(pool: Pool, number: int, port: int) -> None:
    request = SenderRequest(
        email=f"news{number}@example.org",
        auth_type=AuthType.SMTP,
        smtp_host="127.0.0.1",
        smtp_port=port,
        smtp_use_tls=False,
        daily_limit=10_000_000,
        batch_size=50,
        send_delay_ms=0,
    )
    tools = Tools(LocalSealer.from_keys(KEY), ProviderAddresses(), allow_private=True)
    await create_sender(pool, tools, request, actor="bench")


def signing_key(*, rsa_key: bool) -> bytes:
    key = rsa.generate_private_key(65537, 2048) if rsa_key else Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


async def work(url: str, port: int, campaign: int, key: str) -> None:
    """One process of the product, until the campaign is done."""
    settings = Settings(
        database_url=url,
        transport="smtp",
        smtp_relay=f"smtp://127.0.0.1:{port}?tls=none",
        secret_key=KEY,
        senders_allow_private=True,
        public_url="https://mail.example.org",
        given_from="News <news@example.org>",
        given_message_domain="example.org",
        dkim_keys=f"example.org:bench:{key}",
    )
    life = Lifetime(settings.shutdown_grace)
    async with open_room(settings) as opened:
        life.running()  # collects garbage as seldom as `postroom work`
        working = asyncio.create_task(run_worker(opened, stop=life.stop))
        while (await service.get_campaign(opened.pool, campaign)).status is CampaignStatus.ACTIVE:  # noqa: ASYNC110 - in the database
            await asyncio.sleep(0.1)
        life.stop.set()
        await working


def make_letters(pool: Pool) -> CampaignRendering:
    signer = TokenSigner(bytes(32), "https://mail.example.org", room="postroom")
    return CampaignRendering(pool, signer, RenderingOptions(default_domain="example.org"))


async def run(options: argparse.Namespace) -> None:
    people = 5_000 if options.quick else options.people
    async with running_server() as arena:
        rate, grown = await measure_upload(arena, people)
        print(f"upload {people:,} lines: {rate:,.0f}/s, process grew by {grown:.0f} MB")
        print(f"feed: {await measure_feeding(arena, min(people, 50_000)):,.0f} people/s")
        print(f"write: {await measure_writing(arena):.0f} µs a mail of {len(HTML):,} characters of HTML")
        sent, signed = min(people, options.sent), "RSA-2048" if options.rsa else "Ed25519"
        for accounts in (ACCOUNTS, 0):
            drained = await measure_sending(
                arena, sent, accounts=accounts, processes=options.processes, rsa_key=options.rsa
            )
            rate = drained.readings("campaign")["campaign"]
            way = f"{accounts} accounts" if accounts else "a relay"
            print(f"send {sent:,} mails through {way}, {signed}, {options.processes} processes: {rate:,.0f}/s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.campaigns", description=__doc__)
    parser.add_argument("--people", type=int, default=1_000_000, help="lines to upload (1000000)")
    parser.add_argument("--sent", type=int, default=100_000, help="mails to send (100000)")
    parser.add_argument("--processes", type=int, default=2, help="worker processes (2)")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it run?")
    parser.add_argument("--rsa", action="store_true", help="sign with RSA-2048 instead of Ed25519")
    parser.add_argument("--work", nargs=4, metavar=("URL", "PORT", "CAMPAIGN", "KEY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    if options.work:
        url, port, campaign, key = options.work
        uvloop.run(work(url, int(port), int(campaign), key))
    else:
        uvloop.run(run(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
