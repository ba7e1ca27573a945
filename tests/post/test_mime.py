"""Whole messages against Python's own parser: structure, encodings, exactness, limits."""

import base64
import re
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage, Message
from email.utils import unquote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom.post import mime
from postroom.post.header import Field
from postroom.post.mime import Attachment

BOUNDED = settings(max_examples=100)
HEADERS: tuple[Field, ...] = ((b"From", b"a@example.org"), (b"Subject", b"Hello"))
LINES = st.sampled_from(
    [
        "",
        ".",
        "..",
        ".hidden",
        "From here",
        "trailing  \t",
        " leading",
        "x" * 998,
        "x" * 999,
        "é" * 499,
        "é" * 500,
        "--boundary",
        "🎉 שלום مرحبا a\u0301",
        "\u2028\x85\x0b\x0c\x1c",
        "tab\there",
        "plain text",
        "=20=",
        "\x1b[0m",
    ]
)
BREAKS = st.sampled_from(["\n", "\r\n", "\r", "\n\n"])
BODY = st.one_of(
    st.lists(st.tuples(LINES, BREAKS), max_size=12).map(lambda rows: "".join(line + end for line, end in rows)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=400),
    st.text(st.sampled_from("ab \n"), max_size=3000),
)
PNG = Attachment("logo.png", "image/png", base64.b64encode(b"\x89PNG" * 40).decode(), "logo")
PDF = Attachment("report.pdf", "application/pdf", base64.b64encode(bytes(range(256)) * 3).decode())


def build(
    text: str | None = None, html: str | None = None, *attachments: Attachment, seed: str = "<1@example.org>"
) -> mime.ComposedMessage:
    return mime.ComposedMessage(headers=HEADERS, seed=seed, text=text, html=html, attachments=attachments)


def canonical(text: str) -> str:
    """Line ends as mail knows them."""
    return re.sub("\r\n|\r|\n", "\r\n", text)


def read(raw: bytes) -> EmailMessage:
    message = message_from_bytes(raw, policy=policy.default)
    assert isinstance(message, EmailMessage)
    assert not [part.defects for part in message.walk() if part.defects]
    return message


def content(part: Message) -> str:
    data = part.get_payload(decode=True)
    assert isinstance(data, bytes)
    return data.decode()


def shape(part: Message) -> object:
    """The tree of content types: a leaf is its type, a multipart is its type with its parts."""
    if not part.is_multipart():
        return part.get_content_type()
    return (part.get_content_subtype(), [shape(each) for each in parts(part)])


def parts(part: Message) -> list[Message]:
    payload = part.get_payload()
    assert isinstance(payload, list)
    return [each for each in payload if isinstance(each, Message)]


def leaves(part: Message) -> Iterator[Message]:
    return (each for each in part.walk() if not each.is_multipart())


def assert_travels(raw: bytes, *, eight_bit: bool) -> None:
    """The wire rules: CRLF only, no long line, no NUL, ASCII unless eight bits were offered."""
    assert raw.endswith(b"\r\n")
    assert not re.search(rb"\r(?!\n)|(?<!\r)\n|\0", raw)
    assert max(map(len, raw.split(b"\r\n"))) <= 998
    assert eight_bit or raw.isascii()


class TestShapes:
    @pytest.mark.parametrize(
        "message, expected",
        [
            (build(), "text/plain"),
            (build("t"), "text/plain"),
            (build(None, "h"), "text/html"),
            (build("t", "h"), ("alternative", ["text/plain", "text/html"])),
            (build("t", None, PDF), ("mixed", ["text/plain", "application/pdf"])),
            (build(None, None, PDF), ("mixed", ["application/pdf"])),
            (build("t", None, PNG), ("mixed", ["text/plain", "image/png"])),
            (build(None, "h", PNG), ("related", ["text/html", "image/png"])),
            (build("t", "h", PNG), ("alternative", ["text/plain", ("related", ["text/html", "image/png"])])),
            (
                build("t", "h", PDF, PNG),
                (
                    "mixed",
                    [
                        ("alternative", ["text/plain", ("related", ["text/html", "image/png"])]),
                        "application/pdf",
                    ],
                ),
            ),
        ],
    )
    def test_fits_the_content(self, message: mime.ComposedMessage, expected: object) -> None:
        """The structure is the smallest that holds what the delivery carries."""
        raw = message.encode(eight_bit=False)
        assert shape(read(raw)) == expected
        assert_travels(raw, eight_bit=False)

    def test_headers_come_first_and_once(self) -> None:
        """The given headers lead; MIME-Version and Content-Type are added once."""
        raw = build("t", "h").encode(eight_bit=False)
        assert raw.startswith(b"From: a@example.org\r\nSubject: Hello\r\nMIME-Version: 1.0\r\nContent-Type: ")
        assert read(raw).keys() == ["From", "Subject", "MIME-Version", "Content-Type"]

    def test_inline_image_is_found_by_its_id(self) -> None:
        """An image shown inside the HTML is inline and carries the id the HTML refers to."""
        image = list(leaves(read(build("t", "h", PNG).encode(eight_bit=False))))[-1]
        assert image["Content-ID"] == "<logo>"
        assert image.get_content_disposition() == "inline"
        assert image.get_filename() == "logo.png"


class TestBodies:
    @given(BODY, BODY, st.booleans())
    @example(text="x" * 5000, html="", eight_bit=True)
    @example(text="a\rb\nc\r\nd", html="\0", eight_bit=True)
    @BOUNDED
    def test_alternatives_round_trip(self, text: str, html: str, eight_bit: bool) -> None:  # noqa: FBT001
        """Text and HTML of any characters are read back exactly, line ends as CRLF."""
        raw = build(text, html).encode(eight_bit=eight_bit)
        assert_travels(raw, eight_bit=eight_bit)
        for message in (read(raw), message_from_bytes(raw)):
            assert [content(part) for part in leaves(message)] == [canonical(text), canonical(html)]

    @given(BODY, st.booleans())
    @example(text="no line end", eight_bit=False)
    @BOUNDED
    def test_single_part_round_trips(self, text: str, eight_bit: bool) -> None:  # noqa: FBT001
        """A message that is only text gains at most the end of its last line."""
        raw = build(text).encode(eight_bit=eight_bit)
        assert_travels(raw, eight_bit=eight_bit)
        read_back, expected = content(read(raw)), canonical(text)
        assert read_back in (expected, expected + "\r\n")
        assert read_back == expected or not expected.endswith("\r\n")

    @pytest.mark.parametrize(
        "text, eight_bit, encoding",
        [
            ("plain", False, "7bit"),
            ("plain", True, "7bit"),
            ("x" * 998, True, "7bit"),
            ("x" * 998 + "\n" + "y" * 998, True, "7bit"),
            ("x" * 999, True, "base64"),
            ("ok\n" * 500 + "x" * 999 + "\nok", True, "base64"),
            ("é", True, "8bit"),
            ("é", False, "base64"),
            ("é" * 499, True, "8bit"),
            ("é" * 500, True, "base64"),
            ("nul\0", True, "base64"),
            ("lone\rreturn", True, "7bit"),
        ],
    )
    def test_encoding_follows_content(self, text: str, eight_bit: bool, encoding: str) -> None:  # noqa: FBT001
        """7bit if it can be, 8bit if it may be, base64 otherwise."""
        assert read(build(text).encode(eight_bit=eight_bit))["Content-Transfer-Encoding"] == encoding

    def test_containers_admit_eight_bits(self) -> None:
        """Every multipart around an 8bit part says 8bit too, as RFC 2045 6.4 asks."""
        message = read(build("é", "h", PDF).encode(eight_bit=True))
        assert [part["Content-Transfer-Encoding"] for part in message.walk()] == [
            "8bit", "8bit", "8bit", "7bit", "base64",
        ]  # fmt: skip

    @pytest.mark.parametrize("message", [build("\ud800"), build("t", "x\udfff")])
    def test_refuses_half_characters(self, message: mime.ComposedMessage) -> None:
        """A lone surrogate is an error that names the part."""
        with pytest.raises(ValueError, match=r"(plain|html) part"):
            message.encode(eight_bit=True)


class TestBoundaries:
    def test_same_message_same_bytes(self) -> None:
        """A second attempt sends the very same bytes; another delivery has other boundaries."""
        first = build("t", "h", PDF, PNG).encode(eight_bit=False)
        assert build("t", "h", PDF, PNG).encode(eight_bit=False) == first
        assert build("t", "h", PDF, PNG, seed="<2@example.org>").encode(eight_bit=False) != first

    def test_never_inside_a_part(self) -> None:
        """A text that quotes the boundary it would get, even twice over, gets another one."""
        text = "t"
        for _ in range(3):
            boundary = str(read(build(text, "h").encode(eight_bit=False)).get_boundary())
            text += f"\n--{boundary}--\n{boundary}"
            message = read(build(text, "h").encode(eight_bit=False))
            assert content(parts(message)[0]) == canonical(text)
            assert message.get_boundary() != boundary


class TestAttachments:
    @given(
        st.binary(max_size=1000),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=60),
    )
    @example(b"", "empty.bin")
    @example(b"x" * 57, "one full line.bin")
    @example(b"x" * 114, "zwei Zeilen größer.bin")
    @BOUNDED
    def test_round_trip(self, data: bytes, filename: str) -> None:
        """A file arrives octet for octet under its own name."""
        attachment = Attachment(filename, "application/octet-stream", base64.b64encode(data).decode())
        raw = build("t", None, attachment).encode(eight_bit=False)
        assert_travels(raw, eight_bit=False)
        file = list(leaves(read(raw)))[1]
        assert file.get_payload(decode=True) == data
        assert file.get_filename() == (unquote(filename).strip() if filename else None)
        assert file.get_content_disposition() == "attachment"

    def test_base64_is_wrapped_at_76_columns(self) -> None:
        """Base64 leaves in lines of 76 however it came."""
        came = base64.encodebytes(bytes(500)).decode().replace("\n", "\r\n\t ")
        raw = build("t", None, Attachment("f", "a/b", came)).encode(eight_bit=False)
        [lines] = re.findall(rb"base64\r\n\r\n((?:[A-Za-z0-9+/=]+\r\n)+)", raw)
        assert {len(line) for line in lines.split()[:-1]} == {76}
        assert base64.b64decode(lines) == bytes(500)

    def test_type_keeps_its_parameters(self) -> None:
        """Parameters of the content type are passed on, and a name given there is not doubled."""
        attachment = Attachment("é.csv", 'text/csv; charset=latin-1;name="e.csv"', "AAAA")
        file = list(leaves(read(build("t", None, attachment).encode(eight_bit=False))))[1]
        assert file.get_content_type() == "text/csv"
        assert file.get_params() == [("text/csv", ""), ("charset", "latin-1"), ("name", "e.csv")]

    @pytest.mark.parametrize("inner", [b"Subject: inner\r\n\r\nbody\r\n", "Subject: é\n\nbody".encode()])
    def test_a_message_stays_a_message(self, inner: bytes) -> None:
        """A forwarded message keeps its type, in 7bit or 8bit as RFC 2046 demands."""
        attachment = Attachment("inner.eml", "message/rfc822", base64.b64encode(inner).decode())
        raw = build("t", None, attachment).encode(eight_bit=True)
        assert b"Content-Type: message/rfc822" in raw
        assert inner.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") in raw
        file = read(raw).get_payload(1)
        assert isinstance(file, Message)
        assert file.get_content_type() == "message/rfc822"
        assert file["Content-Transfer-Encoding"] == ("7bit" if inner.isascii() else "8bit")

    def test_a_message_that_holds_our_boundary_stays_inside_its_part(self) -> None:
        """The boundary is chosen so that it does not occur in a message either."""
        plain = build("t", None, Attachment("a.bin", "a/b", "AAAA"))
        own = re.findall(rb'boundary="([^"]+)"', plain.encode(eight_bit=False))[0]
        inner = b"Subject: x\r\n\r\n--%b\r\n\r\nforged\r\n--%b--\r\n" % (own, own)
        forwarding = build("t", None, Attachment("a.eml", "message/rfc822", base64.b64encode(inner).decode()))
        assert len(read(forwarding.encode(eight_bit=False)).get_payload()) == 2

    @pytest.mark.parametrize("inner", ["é".encode(), b"\0", b"a\rb", b"x" * 999])
    def test_a_message_that_needs_base64_is_a_file(self, inner: bytes) -> None:
        """Without 8BITMIME, or with octets that no mail may have, the message arrives whole as a plain file."""
        attachment = Attachment("a.eml", "message/rfc822", base64.b64encode(inner).decode())
        message = read(build("t", None, attachment).encode(eight_bit=False))
        assert shape(message) == ("mixed", ["text/plain", "application/octet-stream"])
        assert list(leaves(message))[1].get_payload(decode=True) == inner

    @pytest.mark.parametrize("content_type", ["multipart/mixed", "Message/Partial"])
    def test_messages_travel_as_files(self, content_type: str) -> None:
        """Types that may not be base64 (RFC 2046) are declared as plain files."""
        data = base64.b64encode(b"Subject: inner\r\n\r\nbody").decode()
        message = read(build("t", None, Attachment("inner.eml", content_type, data)).encode(eight_bit=False))
        assert shape(message) == ("mixed", ["text/plain", "application/octet-stream"])

    @pytest.mark.parametrize(
        "encoded", ["A", "AAA", "A===", "AA=A", "====", "A-_A", "AA\0A", "AAAA\r\n--x", "Zoë=", "\ud800AAA"]
    )
    def test_refuses_what_is_not_base64(self, encoded: str) -> None:
        """Content that is not base64 could forge parts; it is an error naming the file."""
        with pytest.raises(ValueError, match=r"'f\.bin' is not base64"):
            build("t", None, Attachment("f.bin", "a/b", encoded)).encode(eight_bit=False)

    @pytest.mark.parametrize(
        "content_type",
        ["", "pdf", "a/b\r\nX: y", "a/b; c", "a b/c", "a/b;", 'a/b; n="x\r\n"', "é/b", "a/b\n"],
    )
    def test_refuses_bad_types(self, content_type: str) -> None:
        """A content type cannot add a line or be nonsense."""
        with pytest.raises(ValueError, match="content type"):
            build("t", None, Attachment("f", content_type, "AAAA")).encode(eight_bit=False)

    @pytest.mark.parametrize("content_id", ["", "a b", "a\r\nX: y", "<<a>>", "é", "a\0"])
    def test_refuses_bad_content_ids(self, content_id: str) -> None:
        """A content id cannot add a line or leave its brackets."""
        with pytest.raises(ValueError, match="content id"):
            build("t", "h", Attachment("f", "a/b", "AAAA", content_id)).encode(eight_bit=False)

    def test_refuses_filenames_with_line_breaks(self) -> None:
        """A file name cannot add a header."""
        with pytest.raises(ValueError, match="filename"):
            build("t", None, Attachment("a\r\nX: y", "a/b", "AAAA")).encode(eight_bit=False)


def test_knows_when_smtputf8_is_needed() -> None:
    """Only a header with an address that is not ASCII asks for an RFC 6531 server."""
    assert not build("é").needs_smtputf8
    assert mime.ComposedMessage(((b"To", "zoë@example.org".encode()),), "s", "t", None).needs_smtputf8
