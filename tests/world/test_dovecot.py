"""Bounces that Debian's mail servers write, read by IMAP from Debian's Dovecot."""

import ssl
from dataclasses import replace

import pytest
from tests.support.feedback import DOMAIN, KEY, rows, sent, suppressed
from tests.support.smtp_channels import authority
from tests.support.smtp_server import Letter, envelope
from tests.world.dovecot import Mailbox, dovecot
from tests.world.mail_servers import MAIL_SERVERS, Opening
from tests.world.test_mail_servers import SINK, arrived, relayed

from postroom.db.pool import Pool
from postroom.feedback.imap import ImapOptions, ImapPoller
from postroom.feedback.ingest import Ingested
from postroom.feedback.report_rooms import ReportRoom
from postroom.post.return_path import make_return_path
from postroom.transports.smtp import SmtpTransport

pytestmark = pytest.mark.world
REFUSING = replace(SINK, says={"RCPT ada@example.org": "550 5.1.1 <ada@example.org>: user unknown"})


async def poll(pool: Pool, box: Mailbox, *, tls: bool) -> Ingested:
    context = ssl.create_default_context(cafile=authority().file) if tls else None
    options = replace(ImapOptions.parse(box.url(tls=tls)), tls=context)
    return await ImapPoller(lambda: [ReportRoom(pool, (KEY,))], options, domain=DOMAIN).run_once()


async def bounced(opening: Opening, return_path: str) -> bytes:
    """The report that a server writes about a mail to Ada that the next hop refused."""
    mail = Letter(b"Subject: Hello\r\nFrom: shop@example.org\r\nTo: ada@example.org\r\n\r\nHello, Ada.\r\n")
    async with relayed(opening, REFUSING) as (server, sink):
        transport = SmtpTransport(server.relay("starttls"))
        reply = await transport.send(envelope("ada@example.org", sender=return_path), mail)
        await transport.close()
        assert reply.code == 250, server.log()
        await arrived(sink, [return_path])
    [report] = sink.messages
    return report.content


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_bounces_of_three_servers_are_read_from_dovecot(pool: Pool, tls: bool) -> None:  # noqa: FBT001 - a parameter
    """Each bounce is attributed to its delivery by the return path, and moved; the next pass finds none."""
    async with dovecot() as box:
        deliveries = []
        for name, opening in MAIL_SERVERS.items():
            deliveries.append(await sent(pool))
            report = await bounced(opening, make_return_path(deliveries[-1], domain=DOMAIN, key=KEY))
            box.put(name, report)
        done = await poll(pool, box, tls=tls)
        again = await poll(pool, box, tls=tls)
        assert box.moved() == len(deliveries)
    assert (done.messages, done.recorded, again.messages) == (3, 3, 0)
    found = await rows(pool, "SELECT delivery_id FROM bounces ORDER BY delivery_id")
    assert [delivery for (delivery,) in found] == sorted(deliveries)
    assert await suppressed(pool) == [("hard_bounce", "all", None)]


@pytest.mark.parametrize("name", MAIL_SERVERS)
async def test_bounce_of_each_server_suppresses_the_unknown_recipient(pool: Pool, name: str) -> None:
    """A 550 5.1.1 of the next hop is a permanent failure of the recipient in the report of every server."""
    async with dovecot() as box:
        delivery = await sent(pool)
        box.put(name, await bounced(MAIL_SERVERS[name], make_return_path(delivery, domain=DOMAIN, key=KEY)))
        done = await poll(pool, box, tls=True)
    assert (done.messages, done.recorded) == (1, 1)
    assert await suppressed(pool) == [("hard_bounce", "all", None)]
