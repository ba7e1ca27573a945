"""Reading in child processes: limits, replacement, and isolation of hostile reports."""

import asyncio
import signal
import sys

import pytest
from tests.support.feedback import DOMAIN, KEY, PATHS, report, rows, sent, suppressed

from postroom.db.pool import Pool
from postroom.feedback.attribution import Incoming
from postroom.feedback.ingest import MOST_KEPT, MOST_KEPT_PER_PEER, ingest
from postroom.feedback.listener import ListenerOptions, bounce_server
from postroom.feedback.reading import ReportReaders
from postroom.feedback.report_rooms import ReportRoom
from postroom.post.report import LARGEST, Report, ReportKind, read_report
from postroom.post.return_path import make_return_path

OPTIONS = ListenerOptions(domain=DOMAIN, port=0)


@pytest.fixture(autouse=True)
def importable_parsers(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    """Make the parsers of this module importable in child processes."""
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))


def never_read(_raw: bytes) -> Report:
    """A parser that never ends and uses no CPU."""
    while True:
        signal.pause()


def read_greedily(raw: bytes) -> Report:
    """A parser that fills the memory."""
    kept = []
    while b"hostile" in raw:
        kept.append(bytearray(16 << 20))
    return read_report(raw)


class Client:
    """One SMTP connection, read line by line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> "Client":
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        await client.answer()
        return client

    async def say(self, text: str | bytes) -> int:
        self._writer.write((text if isinstance(text, bytes) else text.encode()) + b"\r\n")
        await self._writer.drain()
        return await self.answer()

    async def answer(self) -> int:
        return int((await self._reader.readline())[:3] or 0)

    async def offer(self, to: str) -> int:
        await self.say("HELO mx.example.org")
        await self.say("MAIL FROM:<>")
        return await self.say(f"RCPT TO:<{to}>")

    async def send(self, raw: bytes, to: str = f"postmaster@{DOMAIN}") -> int:
        if (code := await self.offer(to)) != 250:
            return code
        await self.say("DATA")
        return await self.say(raw.replace(b"\n", b"\r\n") + b"\r\n.")

    def close(self) -> None:
        self._writer.close()


async def until_busy(readers: ReportReaders, count: int) -> None:
    async with asyncio.timeout(60):
        while readers.busy < count:  # noqa: ASYNC110 - the processes send no signal when they start
            await asyncio.sleep(0)


async def test_child_reads_the_same_report() -> None:
    """A child process returns the report of the parser, and is reused for the second message."""
    readers = ReportReaders(processes=1)
    for name in ("postfix-several", "arf-abuse", "out-of-office", "exim-unrouteable"):
        assert await readers.read(report(name)) == read_report(report(name))
    readers.close()


async def test_hostile_reports_delay_no_other_client(pool: Pool) -> None:
    """While every reader is busy, another client is served and the event loop runs."""
    readers = ReportReaders(parse=never_read)
    async with bounce_server(lambda: [ReportRoom(pool, (KEY,))], OPTIONS, readers=readers) as server:
        hostile = [await Client.connect(server.port) for _ in range(4)]
        waiting = [asyncio.create_task(each.send(b"Subject: hostile\n\n")) for each in hostile]
        await until_busy(readers, 2)
        other = await Client.connect(server.port)
        assert [await other.say("NOOP") for _ in range(100)] == [250] * 100
        assert await other.offer(make_return_path(1, domain=DOMAIN, key=KEY)) == 250
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for client in (*hostile, other):
            client.close()


async def test_hanging_reader_is_replaced(pool: Pool) -> None:
    """Its message is stored as unreadable, and its late result is not used for another message."""
    async with bounce_server(
        lambda: [ReportRoom(pool, (KEY,))], OPTIONS, readers=ReportReaders(parse=never_read, timeout_s=0.01)
    ) as server:
        client = await Client.connect(server.port)
        assert [await client.send(b"Subject: %d\n\n" % number) for number in range(2)] == [250, 250]
        client.close()
    assert await rows(pool, "SELECT reason FROM unread_feedback") == [("unreadable",)] * 2


async def test_memory_of_a_reader_is_limited(pool: Pool) -> None:
    """A parser that fills the memory is killed; another process reads the next report."""
    delivery_id = await sent(pool)
    readers = ReportReaders(processes=1, parse=read_greedily)
    found = await readers.read(b"Subject: hostile\n\n")
    assert (found.kind, found.feedback_type) == (ReportKind.OTHER, "unreadable")
    done = await ingest(
        pool,
        [Incoming(report("postfix-unknown-user", delivery_id=delivery_id), "smtp")],
        paths=PATHS,
        read=readers.read,
    )
    readers.close()
    assert done.recorded == 1
    assert await suppressed(pool) == [("hard_bounce", "all", None)]


async def test_cancelled_reading_does_not_leak_its_result() -> None:
    """The result of a cancelled reading is not used for the next message."""
    readers = ReportReaders(processes=1)
    first = asyncio.create_task(readers.read(report("arf-abuse")))
    await until_busy(readers, 1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert (await readers.read(report("out-of-office"))).kind is ReportKind.AUTO_REPLY
    readers.close()


async def test_large_report_is_truncated(pool: Pool) -> None:
    """The reasons come first; megabytes of returned mail are discarded."""
    delivery_id = await sent(pool)
    raw = report("french-unknown") + b"lorem ipsum dolor sit amet\n" * 150_000
    seen: list[int] = []

    class Watched(ReportReaders):
        async def read(self, raw: bytes) -> object:  # type: ignore[override]
            seen.append(len(raw))
            return await super().read(raw)

    async with bounce_server(lambda: [ReportRoom(pool, (KEY,))], OPTIONS, readers=Watched()) as server:
        client = await Client.connect(server.port)
        assert await client.send(raw, make_return_path(delivery_id, domain=DOMAIN, key=KEY)) == 250
        client.close()
    assert LARGEST - 200 < seen[0] < LARGEST + 200
    assert await suppressed(pool) == [("hard_bounce", "all", None)]


async def test_messages_and_connections_per_peer_are_limited(pool: Pool) -> None:
    """One message too many gets 452, one connection too many 421; a relay on this host has no limit."""
    options = ListenerOptions(domain=DOMAIN, port=0, most_messages=2, most_per_peer=2, unlimited=())
    async with bounce_server(lambda: [ReportRoom(pool, (KEY,))], options) as server:
        client = await Client.connect(server.port)
        assert [await client.send(b"Subject: %d\n\n" % number) for number in range(3)] == [250, 250, 452]
        second = await Client.connect(server.port)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert (await reader.readline()).startswith(b"421")
        writer.close()
        client.close()
        second.close()


@pytest.mark.parametrize(
    "origin, peer, expected",
    [("smtp", "192.0.2.1", MOST_KEPT_PER_PEER), ("smtp", None, MOST_KEPT), ("ingest", None, MOST_KEPT + 10)],
)
async def test_stored_messages_per_hour_are_limited(pool: Pool, origin: str, peer: str | None, expected: int) -> None:
    """The limits apply per peer and in total, not to an operator's files, and reset after an hour."""
    messages = [Incoming(b"Subject: %d\n\nhello" % number, origin, (), peer) for number in range(MOST_KEPT + 10)]
    for start in range(0, len(messages), 100):
        await ingest(pool, messages[start : start + 100], paths=PATHS)
    assert await rows(pool, "SELECT count(*) FROM unread_feedback") == [(expected,)]
    await pool.execute("UPDATE unread_feedback SET received_at = received_at - interval '61 minutes'")
    await ingest(pool, [Incoming(b"Subject: new\n\nhello", origin, (), peer)], paths=PATHS)
    assert await rows(pool, "SELECT count(*) FROM unread_feedback") == [(expected + 1,)]


def test_many_boundaries_are_parsed_fast() -> None:
    """59 boundaries in 1 MB of empty lines took 13 s; parts after the fifth boundary are text now."""
    head = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(59))
    raw = b"Subject: Undeliverable\nFrom: mailer-daemon@x.example\n" + head + b"\n" * 1_000_000
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        assert read_report(raw).kind in ReportKind
    finally:
        sys.setprofile(None)
    assert calls < 3_000_000  # 63 million if every boundary is matched
