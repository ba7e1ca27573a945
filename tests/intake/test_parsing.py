"""Submitted mail is read beside the event loop, in child processes."""

import asyncio
import os
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest

from postroom.delivery.check import CheckedRequest
from postroom.delivery.model import DeliveryRequest
from postroom.errors import BadInput
from postroom.intake import parsing as aside
from postroom.intake.parsing import ASIDE_BYTES, RequestCopies, read_aside
from postroom.intake.smtp.submission import SubmittedEnvelope, read_copies, read_submission
from postroom.post.address import Address
from postroom.runtime.bounded import Children, Limits

ADA = "ada@example.com"


@pytest.fixture(autouse=True)
def children(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Iterator[Children]:
    """Processes of this test, which find the functions of this module."""
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
    children = Children(processes=2, timeout_s=60, limits=aside.LIMITS)
    monkeypatch.setattr(aside, "_children", children)
    yield children
    children.close()


def who_reads() -> RequestCopies:
    return RequestCopies(CheckedRequest(DeliveryRequest(subject=str(os.getpid()))), [])


def fill_the_memory() -> RequestCopies:
    return RequestCopies(CheckedRequest(DeliveryRequest(text="x" * Limits().memory_bytes * 4)), [])


def wait_for_line(path: str) -> RequestCopies:
    """Wait until a test writes into the pipe."""
    return RequestCopies(CheckedRequest(DeliveryRequest(subject=Path(path).read_text())), [])


async def test_a_large_message_is_read_in_another_process() -> None:
    """A thread would hold the interpreter lock; a small message is not worth a process."""
    [large] = await read_aside(ASIDE_BYTES, "shop", who_reads)
    [small] = await read_aside(ASIDE_BYTES - 1, "shop", who_reads)
    assert small.subject == str(os.getpid())
    assert large.subject != small.subject


async def test_a_child_reads_what_this_process_reads() -> None:
    """Headers, files, and blind copies that each get a delivery of their own."""
    mail = EmailMessage()
    mail["From"], mail["Subject"], mail["Message-ID"] = "Zoë <zoe@example.com>", "Grüße", "<1@example.com>"
    mail.set_content("Hello 🦊\n" * 1000)
    mail.add_attachment(os.urandom(10_000), "application", "pdf", filename="ü.pdf")
    envelope = SubmittedEnvelope("zoe@example.com", (ADA, "bob@example.com", "eve@example.com"))
    raw = mail.as_bytes()
    found = await read_aside(len(raw), "shop", read_copies, raw, envelope, source="shop")
    assert found == read_submission(raw, envelope, source="shop")
    assert [request.to for request in found] == [(Address(each),) for each in envelope.recipients]


async def test_a_refusal_of_the_child_reaches_the_caller() -> None:
    """The same `BadInput` as in this process."""
    raw = b"Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\n\r\n" + b"x" * ASIDE_BYTES
    with pytest.raises(BadInput, match="message: is signed or encrypted"):
        await read_aside(len(raw), "shop", read_copies, raw, SubmittedEnvelope("a@example.com", (ADA,)), source="shop")


async def test_a_message_that_exceeds_the_limits_is_refused() -> None:
    """The child ends; the next message is read by another."""
    with pytest.raises(BadInput, match="message: is too complex"):
        await read_aside(ASIDE_BYTES, "shop", fill_the_memory)
    assert await read_aside(ASIDE_BYTES, "shop", who_reads)


async def test_the_largest_message_is_read() -> None:
    """35 MB on the wire are within the limits of a child."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "zoe@example.com", ADA, "Large"
    mail.set_content("See the file.")
    mail.add_attachment(os.urandom(25 * 1024 * 1024), "application", "octet-stream", filename="a.bin")
    raw = mail.as_bytes()
    envelope = SubmittedEnvelope("zoe@example.com", (ADA,))
    [found] = await read_aside(len(raw), "shop", read_copies, raw, envelope, source="shop")
    assert len(found.attachments[0].content) == 4 * -(-25 * 1024 * 1024 // 3)


async def test_one_key_does_not_occupy_all_processes(tmp_path: Path) -> None:
    """While messages of one key wait for their process, a message of another key is read."""
    pipes = [str(tmp_path / f"pipe-{number}") for number in range(4)]
    for pipe in pipes:
        os.mkfifo(pipe)
    slow = [asyncio.create_task(read_aside(ASIDE_BYTES, "hostile", wait_for_line, pipe)) for pipe in pipes]
    assert await read_aside(ASIDE_BYTES, "shop", who_reads)
    assert not any(task.done() for task in slow)
    for pipe in pipes:
        await asyncio.to_thread(Path(pipe).write_text, "go\n")
    assert await asyncio.gather(*slow)
