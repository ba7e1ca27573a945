"""Commands of suppressions and reports, in a process of their own."""

import mailbox
import socket
from dataclasses import fields
from pathlib import Path

import msgspec
from tests.support.command_line import outcome
from tests.support.feedback import DOMAIN, SECRET, message_id, report, rows, sent, suppressed
from tests.support.feedback_imap import Letterbox, serving

from postroom.db.pool import Pool
from postroom.feedback.model import ReceivedReport, Suppression


def names(model: type) -> set[str]:
    return {field.name for field in fields(model)}


async def run(url: str, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    settings = {"POSTROOM_DATABASE_URL": url, "POSTROOM_SECRET_KEY": SECRET.hex()}
    return await outcome(*arguments, stdin=stdin, settings=settings)


async def test_suppression_lifecycle(pool: Pool, database_url: str) -> None:
    """Add, show, list and remove with a note; the history keeps all of them."""
    code, _, errors = await run(database_url, "suppressions", "add", "Ada@example.org", "--reason", "complaint")
    assert code == 0, errors
    code, output, _ = await run(database_url, "suppressions", "list", "--json")
    [item] = msgspec.json.decode(output)["items"]
    assert (item["email"], set(item)) == ("ada@example.org", names(Suppression))  # as over HTTP
    code, output, _ = await run(database_url, "suppressions", "show", "ADA@example.org")
    assert "complaint" in output
    code, output, _ = await run(database_url, "suppressions", "remove", "ada@example.org", "--note", "they asked")
    assert (code, output) == (0, "lifted complaint (all)\n")
    code, _, errors = await run(database_url, "suppressions", "show", "ada@example.org")
    assert (code, errors) == (1, "postroom: The address is not suppressed.\n")
    code, output, _ = await run(database_url, "suppressions", "history", "ada@example.org", "--json")
    assert [(step["change"], step["note"]) for step in msgspec.json.decode(output)["items"]] == [
        ("lifted", "they asked"),
        ("suppressed", None),
    ]
    assert await rows(pool, "SELECT count(*) FROM audit_log") == [(2,)]


async def test_import_and_export(pool: Pool, database_url: str, tmp_path: Path) -> None:
    """An invalid line is skipped and sets the exit code to 1; the export has the rest."""
    file = tmp_path / "list.csv"
    file.write_text("email,reason\nada@example.org,unsubscribe\nnonsense,\nben@example.org,\n")
    code, output, errors = await run(database_url, "suppressions", "import", str(file))
    assert (code, output) == (1, "2 suppressed, 1 rejected\n")
    assert errors.startswith("line 3: email:")
    code, output, _ = await run(database_url, "suppressions", "export")
    assert code == 0
    assert [line.split(",")[:3] for line in output.splitlines()] == [
        ["email", "reason", "scope"],
        ["ada@example.org", "unsubscribe", "bulk"],
        ["ben@example.org", "manual", "all"],
    ]
    code, output, _ = await run(database_url, "suppressions", "import", "-", "--json", stdin="cleo@example.org\n")
    assert (code, msgspec.json.decode(output)["written"]) == (0, 1)


async def test_reports_from_files(pool: Pool, database_url: str, tmp_path: Path) -> None:
    """Reports are read from a message, an mbox, a Maildir and standard input; a repeated report is ignored."""
    delivery_id = await sent(pool, "ada@example.org")
    one = report("postfix-unknown-user", delivery_id=delivery_id)
    other = report("outlook-junk-report", message=await message_id(pool, delivery_id))
    (tmp_path / "one.eml").write_bytes(one)
    box = mailbox.mbox(tmp_path / "box")
    for raw in (one, other):
        box.add(raw)
    box.close()
    folder = mailbox.Maildir(tmp_path / "maildir")
    folder.add(report("out-of-office"))
    counts = []
    for source in ("one.eml", "box", "maildir"):
        _, output, _ = await run(
            database_url, "feedback", "ingest", str(tmp_path / source), "--domain", DOMAIN, "--json"
        )
        told = msgspec.json.decode(output)
        counts.append((told["messages"], told["recorded"]))
    _, output, _ = await run(database_url, "feedback", "ingest", "-", "--domain", DOMAIN, stdin=one.decode())
    assert counts == [(1, 1), (2, 1), (1, 0)]
    assert output == "read 1: 1 bounce; 0 new, 0 not verified\n"
    assert await suppressed(pool) == [("complaint", "all", None)]
    _, output, _ = await run(database_url, "feedback", "list", "--kind", "complaint", "--json")
    [item] = msgspec.json.decode(output)["items"]
    assert (item["delivery_id"], set(item)) == (delivery_id, names(ReceivedReport))  # as over HTTP


async def test_mailbox_is_polled(pool: Pool, database_url: str) -> None:
    """The URL is read from standard input, so that the password is not in the process list."""
    box = Letterbox()
    delivery_id = await sent(pool)
    box.put(report("postfix-unknown-user", delivery_id=delivery_id))
    async with serving(box) as url:
        code, output, errors = await run(database_url, "feedback", "poll", "-", "--domain", DOMAIN, stdin=url)
    assert (code, output) == (0, "read 1: 1 bounce; 1 new, 0 not verified\n"), errors


async def test_unreachable_mailbox(database_url: str) -> None:
    """The error names the mailbox and never the password."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    url = f"imap://user:not-a-real-one@127.0.0.1:{port}/INBOX"
    code, _, errors = await run(database_url, "feedback", "poll", "-", "--domain", DOMAIN, stdin=url)
    assert code == 1
    assert f"The mailbox at 127.0.0.1:{port} could not be read" in errors
    assert "not-a-real-one" not in errors


async def test_missing_file(database_url: str) -> None:
    """The error is one sentence, and the exit code is 2."""
    code, _, errors = await run(database_url, "feedback", "ingest", "/nowhere/at-all")
    assert code == 2
    assert "/nowhere/at-all does not exist" in errors
