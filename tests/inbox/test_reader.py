"""Reading captured MIME: any bytes can be shown, and none raise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.inbox.reader import decode_words, first_values, outline_of, read_message


@pytest.mark.parametrize(
    "raw,subject",
    [
        (b"Subject: Hello\r\n\r\nbody", "Hello"),
        (b"Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n\r\n", "Grüße"),
        (b"Subject: =?utf-8?b?8J+OiQ==?=\r\n =?utf-8?q?_party?=\r\n\r\n", "🎉 party"),
        (b"Subject: one\r\n two\r\n\r\n", "one two"),
        (b"Subject: caf\xc3\xa9\r\n\r\n", "café"),
        (b"Subject: caf\xc3\xa9 =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n\r\n", "café Grüße"),
        (b"Subject: =?no-such-charset?q?caf=C3=A9?=\r\n\r\n", "café"),
        (b"Subject: =?utf-8?b?!!!?=\r\n\r\n", None),
        (b"From: a@example.org\r\n\r\n", ""),
        (b"", ""),
    ],
)
def test_subjects_are_decoded(raw: bytes, subject: str | None) -> None:
    """Encoded words, folds and raw UTF-8 become text; broken ones stay readable."""
    found = outline_of(raw).subject
    assert found.isprintable()
    assert subject is None or found == subject


def test_the_first_texts_are_the_body_and_the_rest_is_attached() -> None:
    """A second text part, and one marked as attachment, are attachments."""
    raw = (
        b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n'
        b"--b\r\nContent-Type: text/plain\r\n\r\nfirst\r\n"
        b"--b\r\nContent-Type: text/plain\r\n\r\nsecond\r\n"
        b"--b\r\nContent-Type: text/html\r\n"
        b"Content-Disposition: attachment; filename*=utf-8''%C3%A9.html\r\n\r\n<p>\r\n"
        b"--b--\r\n"
    )
    read = read_message(raw)
    assert read.text is not None
    assert read.text.strip() == "first"
    assert read.html is None
    assert [file.filename for file in read.attachments] == [None, "é.html"]


def test_captured_webhook_is_read_as_text() -> None:
    """A JSON message is shown as text; a JSON part of a mail is an attachment."""
    read = read_message('Subject: Webhook\r\nContent-Type: application/json\r\n\r\n{"to":"Zoë"}'.encode())
    assert (read.text, read.attachments) == ('{"to":"Zoë"}', ())
    inside = (
        b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\nContent-Type: application/json\r\n\r\n{}\r\n--b--'
    )
    assert [file.content_type for file in read_message(inside).attachments] == ["application/json"]


def test_text_with_an_unknown_charset_is_shown() -> None:
    """An unknown charset does not hide the text."""
    read = read_message(b"Content-Type: text/plain; charset=klingon\r\n\r\nHello")
    assert read.text == "Hello"


def test_the_first_of_a_repeated_header_is_shown() -> None:
    """Headers keep their order; by name, the first value is used."""
    read = read_message(b"Received: one\r\nReceived: two\r\nX-A: b\r\n\r\n")
    assert read.headers == (("Received", "one"), ("Received", "two"), ("X-A", "b"))
    assert first_values(read.headers) == {"Received": "one", "X-A": "b"}


@given(raw=st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_reader_accepts_any_bytes(raw: bytes) -> None:
    """The result can be encoded as JSON and stored."""
    read = read_message(b"Subject: " + raw + b"\r\nContent-Type: text/plain\r\n\r\n" + raw)
    texts = [
        outline_of(b"Subject: " + raw).subject,
        read.text or "",
        *(value for header in read.headers for value in header),
    ]
    for text in texts:
        text.encode()
        assert "\x00" not in text


@given(st.text(max_size=100))
def test_any_header_value_can_be_decoded(value: str) -> None:
    """Decoding never raises and never leaves a surrogate."""
    for words in (f"=?utf-8?q?{value}?=", value):
        decoded = decode_words(words)
        assert decoded.encode().decode() == decoded
