"""Hostile mail is read in child processes, and no page, check or list of the inbox makes other clients wait."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.http import open_browser

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.inbox import aside as module
from postroom.inbox.aside import ASIDE_BYTES, aside, outline_aside, read_aside
from postroom.inbox.checks import make_report
from postroom.inbox.errors import MessageTooComplex
from postroom.inbox.html_check import check_html
from postroom.inbox.reader import decode_words, read_message
from postroom.inbox.transport import CaptureTransport
from postroom.post.reply import Envelope
from postroom.runtime.bounded import Children, Limits

SIZE = 1_000_000


class Source:
    """A composed message."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def encode(self, *, eight_bit: bool) -> bytes:
        assert eight_bit
        return self.raw


def repeated(text: str) -> str:
    return text * (SIZE // len(text))


HTML = [repeated(text) for text in ("-", "/* ", "background:", "display ", "a{", "a{}", "@media (", "--a ")]
TEXTS = [repeated(text) for text in ("{", "{%", "${a", "{{ ")]
HEADERS = [repeated(text) for text in ("=?a?q? ", "=?a?q?x", "=?", "=?a?q?\x0b")]


@pytest.fixture(scope="module")
def limited() -> Iterator[Children]:
    """A process that ends a call after 10 s of CPU: a second passes, an hour is `Exceeded`."""
    children = Children(processes=1, limits=Limits(memory_bytes=1024 * 1024 * 1024, cpu_s=10))
    yield children
    children.close()


@pytest.mark.parametrize("css", HTML, ids=lambda css: css[:10])
async def test_checks_of_html_are_linear(limited: Children, css: str) -> None:
    """A megabyte of any beginning of a pattern is checked in little time; it took an hour."""
    await limited.call(None, check_html, f"<style>{css}</style><p>x")


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:10])
async def test_warnings_about_placeholders_are_linear(limited: Children, text: str) -> None:
    """A megabyte of opening braces is searched in little time."""
    await limited.call(None, make_report, b"Subject: a\r\n\r\n" + text.encode(), "", keys=[], mode="relaxed")


@pytest.mark.parametrize("value", HEADERS, ids=lambda value: value[:10])
async def test_encoded_words_are_decoded_in_linear_time(limited: Children, value: str) -> None:
    """A megabyte of beginnings of encoded words is read in little time, and no character is lost."""
    assert await limited.call(None, decode_words, value) == value


def test_text_behind_the_last_encoded_word_stays() -> None:
    """A beginning of an encoded word without an end is text."""
    assert decode_words("=?utf-8?q?Zo=C3=AB?= and =?utf-8?q?Zo") == "Zoë and =?utf-8?q?Zo"
    assert decode_words("=?utf-8?q?Zo=C3=AB?= " * 200 + "=?") == "Zoë" * 200 + " =?"


async def test_large_mail_is_read_by_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 4 kB on, mail is read by another process, with the same result."""
    called: list[str] = []
    call = Children.call

    async def counted(self: Children, key: str | None, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        called.append(function.__name__)
        return await call(self, key, function, *given, **named)

    monkeypatch.setattr(Children, "call", counted)
    small, large = b"Subject: a\r\n\r\nx", b"Subject: a\r\n\r\n" + b"x" * ASIDE_BYTES
    assert await read_aside(small) == read_message(small)
    assert await read_aside(large) == read_message(large)
    await outline_aside(large)
    assert called == ["read_message", "outline_of"]


@pytest.fixture
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Children that cannot read any message."""
    children = Children(processes=1, limits=Limits(memory_bytes=1024 * 1024))
    monkeypatch.setattr(module, "_children", children)
    yield
    children.close()


@pytest.mark.usefixtures("_little_memory")
async def test_mail_beyond_the_limits_is_captured_and_named(room: Room, pool: Pool) -> None:
    """A message that cannot be read within the limits is stored; reading it is refused and its raw bytes are served."""
    raw = b"Subject: a\r\n\r\n" + b"x" * ASIDE_BYTES
    with pytest.raises(MessageTooComplex):
        await read_aside(raw)
    reply = await CaptureTransport(pool).send(Envelope(1, "<1@x>", "a@example.org", ("b@example.org",)), Source(raw))
    assert reply.code == 250
    browser = await open_browser(room)
    (entry,) = (await browser.get("/v1/inbox")).json["items"]
    assert entry["subject"] == ""
    assert (await browser.get(f"/v1/inbox/{entry['id']}")).json["code"] == "message_too_complex"
    assert (await browser.get(f"/v1/inbox/{entry['id']}/raw")).body == raw


async def test_other_work_continues_while_hostile_mail_is_read() -> None:
    """The event loop runs while a child reads: a task that never yields for long gets its turns."""
    turns, done = 0, asyncio.Event()

    async def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await aside(SIZE, check_html, f"<style>{HTML[0]}</style>")
    done.set()
    await counting
    assert turns > 1
