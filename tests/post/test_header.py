"""Header fields against Python's own parser: values are read back unchanged."""

import re
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.utils import getaddresses, unquote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom.post.address import Address
from postroom.post.header import (
    FORBIDDEN_HEADERS,
    RELAY_HEADERS,
    check_header,
    encode_addresses,
    encode_custom,
    encode_filename,
    encode_text,
)

BOUNDED = settings(max_examples=100)
WRITABLE = st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0")
SCRIPTS = st.one_of(
    st.sampled_from(["é", "漢", "🎉", "👩\u200d💻", "שלום", "مرحبا", "a\u0301", "\u202e", "\u2028", "\x85"]),
    st.sampled_from(["a", "bZ", "=", "?", "_", "=?", "?=", "\t", "\x0b", "\x1c", " ", *',;"\\<>()@:.']),
)
TEXT = st.one_of(
    st.text(WRITABLE, max_size=300),
    st.lists(SCRIPTS, max_size=120).map("".join),
    st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=100), max_size=20).map(" ".join),
    st.text(st.sampled_from("ab "), max_size=400),
    st.text(st.sampled_from("🎉é"), min_size=50, max_size=200),
)
ENCODED_WORD = re.compile(r"=\?utf-8\?[qb]\?[!->@-~]*\?=")


def unfold(value: str) -> str:
    return re.sub(r"\r\n(?=[ \t])", "", value)


def read_field(name: str, value: bytes) -> str:
    """The value as the older of Python's parsers hands it out: unfolded, encoded words still encoded."""
    return unfold(message_from_bytes(name.encode() + b": " + value + b"\r\n\r\nbody")[name])


def decoded(value: str) -> str:
    return str(make_header(decode_header(value)))


def assert_lines_fit(name: str, value: bytes, limit: int = 78) -> None:
    lines = (name.encode() + b": " + value).split(b"\r\n")
    assert all(len(line.decode()) <= limit and len(line) <= 998 for line in lines)  # columns, octets
    assert all(line[:1] == b" " and line.strip() for line in lines[1:])
    assert not re.search(rb"[\r\n\0]", b"".join(lines))


class TestText:
    @given(TEXT)
    @example("x" * 2000)
    @example(" leading and trailing ")
    @example("two  spaces " * 20)
    @example("=?utf-8?q?already?=")
    @example("é" * 500)
    @BOUNDED
    def test_round_trips(self, subject: str) -> None:
        """A subject of any characters is read back exactly, and its lines keep to 78 columns."""
        value = encode_text("Subject", subject)
        assert value.isascii()
        assert decoded(read_field("Subject", value)) == subject
        assert_lines_fit("Subject", value)

    @given(TEXT)
    @BOUNDED
    def test_modern_parser_agrees(self, subject: str) -> None:
        """Python's newer parser reads the same subject."""
        raw = b"Subject: " + encode_text("Subject", subject) + b"\r\n\r\n"
        assert message_from_bytes(raw, policy=policy.default)["Subject"] == subject

    @given(st.text(st.sampled_from("aé漢🎉 =?_"), min_size=1, max_size=200))
    @BOUNDED
    def test_encoded_words_are_whole(self, subject: str) -> None:
        """Each encoded word has at most 75 characters and decodes by itself: no character is split."""
        for word in encode_text("Subject", "é" + subject).decode().split():
            assert len(word) <= 75
            assert ENCODED_WORD.fullmatch(word)
            [(data, charset)] = decode_header(word)
            assert charset == "utf-8"
            data.decode("utf-8")

    def test_plain_text_stays_readable(self) -> None:
        """ASCII text is not encoded, and long lines are folded at a space."""
        assert encode_text("Subject", "Your order is on its way") == b"Your order is on its way"
        folded = encode_text("Subject", "word " * 30 + "end")
        assert folded.count(b"\r\n ") == 2
        assert b"=?" not in folded

    def test_picks_the_shorter_encoding(self) -> None:
        """Mostly Latin text stays legible (Q), other scripts take base64 (B)."""
        assert (
            encode_text("Subject", "Grüße an alle lieben Leser") == b"=?utf-8?q?Gr=C3=BC=C3=9Fe_an_alle_lieben_Leser?="
        )
        assert encode_text("Subject", "こんにちは").startswith(b"=?utf-8?b?")

    @pytest.mark.parametrize("bad", ["a\r\nBcc: x@example.org", "a\rb", "a\nb", "a\0b", "\n", "a\ud800"])
    def test_refuses_injection(self, bad: str) -> None:
        """A line break, NUL or half a character is an error that names the field."""
        with pytest.raises(ValueError, match="Subject"):
            encode_text("Subject", bad)


EMAILS = st.sampled_from(["a@example.org", "long.local.part+with-tag@sub.domain.example.com", "zoë@example.org"])
NAMES = st.one_of(st.none(), TEXT.filter(lambda name: bool(name.strip(" "))))


class TestAddresses:
    @given(st.lists(st.builds(Address, EMAILS, NAMES), min_size=1, max_size=8))
    @example([Address("a@example.org", "Doe, John"), Address("b@example.org", 'The "Boss" \\ <x>')])
    @example([Address("a@example.org", "é" * 100), Address("b@example.org", "x" * 200)])
    @BOUNDED
    def test_round_trips(self, addresses: list[Address]) -> None:
        """Every mailbox and every name of a list is read back exactly and in order."""
        value = encode_addresses("To", addresses)
        text = unfold(value.decode())
        read = [(decoded(name), email) for name, email in getaddresses([text])]
        assert read == [(address.name or "", address.email) for address in addresses]
        assert_lines_fit("To", value)

    @given(
        st.lists(
            st.builds(Address, EMAILS, st.text(st.sampled_from('ab. é🎉,"<>@\\'), max_size=60)),
            min_size=1,
            max_size=5,
        )
    )
    @BOUNDED
    def test_modern_parser_finds_the_mailboxes(self, addresses: list[Address]) -> None:
        """Python's newer parser sees exactly these mailboxes and no defect, whatever the names say."""
        raw = b"To: " + encode_addresses("To", addresses) + b"\r\n\r\n"
        header = message_from_bytes(raw, policy=policy.default.clone(utf8=True))["To"]
        ascii_only = all(address.email.isascii() for address in addresses)
        if ascii_only:
            assert [each.addr_spec for each in header.addresses] == [each.email for each in addresses]
            assert header.defects == ()

    @pytest.mark.parametrize(
        "address, expected",
        [
            (Address("a@example.org"), b"a@example.org"),
            (Address("a@example.org", "  "), b"a@example.org"),
            (Address("a@example.org", "Ann Lee"), b"Ann Lee <a@example.org>"),
            (Address("a@example.org", "J. Lee"), b'"J. Lee" <a@example.org>'),
            (Address("a@example.org", 'A "B"'), b'"A \\"B\\"" <a@example.org>'),
            (Address("a@example.org", "Zoë"), b"=?utf-8?q?Zo=C3=AB?= <a@example.org>"),
            (Address("zoë@example.org"), "zoë@example.org".encode()),
        ],
    )
    def test_forms(self, address: Address, expected: bytes) -> None:
        """Names are written the simplest way that is exact; a local part that is not ASCII stays UTF-8."""
        assert encode_addresses("To", [address]) == expected

    @pytest.mark.parametrize(
        "address",
        [
            Address("a@example.org>, <b@example.org"),
            Address("a@example.org,b@example.org"),
            Address("a@example.org\r\nBcc: b@example.org"),
            Address("a b@example.org"),
            Address("nobody"),
            Address("a@example.org", "Ann\r\nBcc: b@example.org"),
            Address("a@example.org", "Ann\0"),
            Address("a@example.org", "\ud800"),
            Address("\ud800@example.org"),
        ],
    )
    def test_refuses_injection(self, address: Address) -> None:
        """An address or name that could add a line or a recipient is an error naming the field."""
        with pytest.raises(ValueError, match="To"):
            encode_addresses("To", [address])


class TestCustom:
    @given(TEXT)
    @example("x" * 3000)
    @example("https://example.org/" + "x" * 500)
    @BOUNDED
    def test_round_trips(self, value: str) -> None:
        """A header of the caller's choice is read back exactly and has no line over 998 octets."""
        encoded = encode_custom("X-Campaign", value)
        assert decoded(read_field("X-Campaign", encoded)) == value
        assert_lines_fit("X-Campaign", encoded, 998)

    def test_long_name_leaves_room(self) -> None:
        """Beside the longest permitted name, text still arrives exactly."""
        name = "X-" + "a" * 74
        assert decoded(read_field(name, encode_custom(name, "é漢🎉" * 50))) == "é漢🎉" * 50

    def test_structured_fields_stay_as_they_are(self) -> None:
        """Addresses in List-Unsubscribe are folded between, never inside, and never encoded."""
        link = "<https://example.org/u/" + "t" * 120 + "?a==?b>"
        encoded = encode_custom("List-Unsubscribe", f"{link}, <mailto:u@example.org>")
        assert encoded == link.encode() + b",\r\n <mailto:u@example.org>"

    @pytest.mark.parametrize(
        "name", [*sorted(FORBIDDEN_HEADERS), "Content-Type", "content-id", "ARC-Seal", "Resent-To", "FROM"]
    )
    def test_refuses_structural_fields(self, name: str) -> None:
        """Fields that follow from the delivery cannot be set."""
        assert check_header(name, "x") is not None
        with pytest.raises(ValueError, match=re.escape(name)):
            encode_custom(name, "x")

    @pytest.mark.parametrize("name", [*sorted(RELAY_HEADERS), "X-SMTPAPI"])
    def test_refuses_fields_that_control_a_relay(self, name: str) -> None:
        """They add recipients outside the ledger; mail that was accepted by release 0.1.0 still leaves."""
        assert "recipients" in (check_header(name, "x") or "")
        assert encode_custom(name, "x") == b"x"

    @pytest.mark.parametrize("name", ["", "X Y", "X:", "X\r\nBcc", "X\0", "Ü", "x" * 77, "X\n"])
    def test_refuses_bad_names(self, name: str) -> None:
        """A header name is printable ASCII without colon or space."""
        assert check_header(name, "x") == "is not a header name"

    @pytest.mark.parametrize(
        "name, value",
        [
            ("X-A", "a\r\nBcc: b@example.org"),
            ("X-A", "a\n"),
            ("X-A", "\0"),
            ("X-A", "\udfff"),
            ("List-Id", "Zoë <list.example.org>"),
            ("List-Unsubscribe", "<https://example.org/" + "x" * 1000 + ">"),
            ("References", " <a@b>"),
            ("Feedback-ID", ""),
            ("Message-ID", "no-brackets@example.org"),
            ("Message-ID", "<two@ats@example.org>"),
            ("Message-ID", "<a b@example.org>"),
            ("Message-ID", "<" + "a" * 300 + "@example.org>"),
        ],
    )
    def test_refuses_bad_values(self, name: str, value: str) -> None:
        """A value that would break its line or its grammar is refused with a reason."""
        assert check_header(name, value)
        with pytest.raises(ValueError, match=name):
            encode_custom(name, value)

    @pytest.mark.parametrize(
        "name, value",
        [
            ("Message-ID", "<a.b@example.org>"),
            ("X-Campaign", "Zoë"),
            ("List-Id", "News <news.example.org>"),
        ],
    )
    def test_allows_the_rest(self, name: str, value: str) -> None:
        """Everything else is the caller's business."""
        assert check_header(name, value) is None


class TestFilename:
    @given(st.one_of(TEXT, st.from_regex(r"[a-z (),;=\"\\.-]{1,80}", fullmatch=True)).filter(bool))
    @example("übergrößenträger " * 20 + ".pdf")
    @example("🎉" * 120)
    @example('"quoted"')
    @example('a"b\\c;d.txt')
    @BOUNDED
    def test_round_trips(self, filename: str) -> None:
        """A file name of any characters is read back by both of Python's parsers, which strip its ends."""
        parameters, _ = encode_filename(filename)
        raw = b"Content-Disposition: attachment" + parameters + b"\r\n\r\n"
        assert message_from_bytes(raw).get_filename() == filename.strip()
        # The newer parser also takes off quotes or angle brackets around a whole name, once too often.
        assert message_from_bytes(raw, policy=policy.default).get_filename() == unquote(filename).strip()
        assert_lines_fit("Content-Disposition", b"attachment" + parameters, 100)

    def test_has_an_ascii_stand_in(self) -> None:
        """Readers without RFC 2231 get a name with the right ending."""
        parameters, fallback = encode_filename("Überblick 2026.pdf")
        assert b"filename*=UTF-8''%C3%9Cberblick%202026.pdf" in parameters
        assert fallback == b';\r\n name="_berblick 2026.pdf"'
        assert encode_filename("plain.pdf") == (b'; filename="plain.pdf"', b"")
        assert encode_filename("") == (b"", b"")

    @pytest.mark.parametrize("bad", ["a\r\nX: y", "a\0", "a\ud800"])
    def test_refuses_injection(self, bad: str) -> None:
        """A file name cannot add a line."""
        with pytest.raises(ValueError, match="filename"):
            encode_filename(bad)
