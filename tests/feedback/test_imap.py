"""Reading of a bounce mailbox: each report once, and none lost with a connection."""

import imaplib

import pytest
from structlog.testing import capture_logs
from tests.support.feedback import DOMAIN, KEY, report, rows, sent, suppressed
from tests.support.feedback_imap import Letterbox, serving
from tests.support.loops import logged, looping

from postroom.db.pool import Pool
from postroom.feedback.imap import AT_ONCE, ImapOptions, ImapPoller
from postroom.feedback.ingest import Ingested
from postroom.feedback.report_rooms import ReportRoom, ReportRooms


async def poll(pool: Pool, url: str) -> Ingested:
    return await ImapPoller(one_room(pool), ImapOptions.parse(url), domain=DOMAIN).run_once()


def one_room(pool: Pool) -> ReportRooms:
    return lambda: [ReportRoom(pool, (KEY,))]


async def test_reports_are_read_and_marked(pool: Pool) -> None:
    """All unseen messages are recorded and marked as seen; the next pass finds none."""
    box = Letterbox()
    delivery_id = await sent(pool)
    box.put(report("postfix-unknown-user", delivery_id=delivery_id), report("out-of-office"), report("person-writes"))
    async with serving(box) as url:
        done = await poll(pool, url)
        assert (done.messages, done.recorded) == (3, 1)
        assert (await poll(pool, url)).messages == 0
    assert await suppressed(pool) == [("hard_bounce", "all", None)]
    assert box.seen == set(box.folders["INBOX"])


@pytest.mark.parametrize("capabilities", ["IMAP4rev1 UIDPLUS MOVE", "IMAP4rev1 UIDPLUS"])
async def test_reports_are_moved(pool: Pool, capabilities: str) -> None:
    """Messages are moved by MOVE, or by COPY and UID EXPUNGE on servers without MOVE."""
    box = Letterbox(capabilities=capabilities)
    box.put(report("person-writes"))
    async with serving(box) as url:
        await poll(pool, f"{url}?move=Done")
    assert (len(box.folders["INBOX"]), len(box.folders["Done"])) == (0, 1)


@pytest.mark.parametrize("command", ["LOGIN", "UID SEARCH", "UID FETCH", "UID STORE"])
async def test_lost_connection_loses_no_report(pool: Pool, command: str) -> None:
    """After a lost connection the next pass reads the rest, and a report that was already recorded counts once."""
    box = Letterbox(drop_at=command)
    delivery_id = await sent(pool)
    box.put(report("postfix-unknown-user", delivery_id=delivery_id))
    async with serving(box) as url:
        with pytest.raises((imaplib.IMAP4.error, OSError)):
            await poll(pool, url)
        await poll(pool, url)
    assert await rows(pool, "SELECT delivery_id FROM bounces") == [(delivery_id,)]
    assert box.seen == set(box.folders["INBOX"])


async def test_large_mailbox_is_read_in_batches(pool: Pool) -> None:
    """Each batch is marked before the next is fetched."""
    box = Letterbox()
    box.put(*(report("person-writes").replace(b"person-writes@", b"%d@" % number) for number in range(AT_ONCE * 2 + 1)))
    async with serving(box) as url:
        assert (await poll(pool, url)).messages == AT_ONCE * 2 + 1
    assert box.commands.count("UID FETCH") == 3


async def test_wrong_password_is_an_error(pool: Pool) -> None:
    """The error is raised, and the loop retries later."""
    box = Letterbox()
    async with serving(box) as url:
        with pytest.raises(imaplib.IMAP4.error):
            await poll(pool, url.replace("sesame", "barley"))


async def test_loop_survives_errors_and_stops(pool: Pool) -> None:
    """A wrong password does not end the loop; a stop does."""
    async with serving(Letterbox()) as url:
        options = ImapOptions.parse(url.replace("sesame", "barley"))
        with capture_logs() as logs:
            async with looping(ImapPoller(one_room(pool), options, domain=DOMAIN).loop()):
                await logged("loop_interrupted", logs)
    assert "loop_interrupted" in {entry["event"] for entry in logs}


@pytest.mark.parametrize(
    "url", ["https://u:p@h/", "imaps://host/INBOX", "imap://u:p@mail.example.org/INBOX", "imaps://", "nonsense"]
)
def test_invalid_mailbox_urls(url: str) -> None:
    """The error does not contain the password; unencrypted IMAP is allowed on loopback only."""
    with pytest.raises(ValueError, match="must be imaps") as caught:
        ImapOptions.parse(url)
    assert ":p@" not in str(caught.value)


def test_mailbox_url_is_parsed() -> None:
    """Escapes, folder and target folder are parsed."""
    options = ImapOptions.parse("imaps://ada%40example.org:p%2Fw@imap.example.org/Bounces%20in?move=Done")
    assert (options.user, options.password, options.folder) == ("ada@example.org", "p/w", "Bounces in")
    assert (options.port, options.move_to, options.encrypted) == (993, "Done", True)
    assert "p/w" not in repr(options)
