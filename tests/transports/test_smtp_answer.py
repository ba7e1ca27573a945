"""Reply lines in, answers out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.transports.smtp.answer import MAX_LINE, MAX_LINES, MAX_TEXT, AnswerReader, SmtpReply, clean_text


def read(data: bytes) -> list[SmtpReply]:
    return AnswerReader().feed(data)


@pytest.mark.parametrize(
    "data, code, enhanced, text",
    [
        (b"250 2.1.0 Sender OK\r\n", 250, "2.1.0", "Sender OK"),
        (b"250 OK\r\n", 250, None, "OK"),
        (b"250\r\n", 250, None, ""),
        (b"250 OK\n", 250, None, "OK"),
        (b"550-5.1.1 No such user\r\n550 5.1.1 here\r\n", 550, "5.1.1", "No such user here"),
        (b"550 4.1.1 class disagrees\r\n", 550, None, "4.1.1 class disagrees"),
        (b"550 version 5.1.1 is old\r\n", 550, None, "version 5.1.1 is old"),
        (b"550 5.1.1\r\n", 550, "5.1.1", ""),
        (b"550 5.1.12345 no\r\n", 550, None, "5.1.12345 no"),
        (b"550 \x1b[31mred\x07\r\n", 550, None, "[31mred"),
        ("550 gr\u00fc\u00dfe \u202egpj\r\n".encode(), 550, None, "gr\u00fc\u00dfe  gpj"),
        (b"550 bad \xff byte\r\n", 550, None, "bad \ufffd byte"),
        (b"HTTP/1.1 400 Bad Request\r\n", None, None, "HTTP/1.1 400 Bad Request"),
        (b"25\r\n", None, None, "25"),
        (b"\r\n", None, None, ""),
        (b"150 too low\r\n", None, None, "150 too low"),
        (b"600 too high\r\n", None, None, "600 too high"),
        (b"250_OK\r\n", None, None, "250_OK"),
    ],
)
def test_a_reply_is_read_for_its_facts(data: bytes, code: int | None, enhanced: str | None, text: str) -> None:
    """Code, status and text are separated; input that is not SMTP has no code."""
    [answer] = read(data)
    assert (answer.code, answer.enhanced, answer.text) == (code, enhanced, text)


def test_nothing_is_read_after_junk() -> None:
    """Once the sides disagree, later lines are not taken for answers."""
    assert [answer.code for answer in read(b"250 a\r\nwhat?\r\n250 b\r\n")] == [250, None]


def test_an_endless_line_is_cut_off() -> None:
    """A server cannot fill our memory with a line that never ends."""
    reader = AnswerReader()
    [answer] = reader.feed(b"250 " + b"x" * MAX_LINE)
    assert answer.code is None
    assert len(answer.text) <= MAX_TEXT
    assert not reader.pending


def test_an_overlong_line_is_not_smtp() -> None:
    """The limit holds for a line that does end."""
    assert [answer.code for answer in read(b"250 " + b"x" * MAX_LINE + b"\r\n")] == [None]


def test_an_endless_reply_is_cut_off() -> None:
    """A server cannot fill our memory with continuation lines."""
    assert [answer.code for answer in read(b"250-x\r\n" * MAX_LINES)] == [None]


def test_text_is_cut_to_its_limit() -> None:
    """Stored text of the other side is truncated."""
    assert clean_text("x" * 5_000) == "x" * MAX_TEXT


@given(st.binary(max_size=200), st.lists(st.integers(min_value=1, max_value=30), min_size=1, max_size=20))
def test_cutting_the_stream_differently_changes_nothing(data: bytes, sizes: list[int]) -> None:
    """Answers do not depend on how the network cut the bytes into pieces."""
    stream = b"220-a\r\n220 b\r\n" + data
    reader, answers, rest = AnswerReader(), list[SmtpReply](), stream
    for size in sizes:
        answers += reader.feed(rest[:size])
        rest = rest[size:]
    answers += reader.feed(rest)
    assert answers == read(stream)
