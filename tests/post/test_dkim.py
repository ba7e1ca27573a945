"""DKIM signatures, verified by an implementation that is not ours."""

import base64
from collections.abc import Callable
from functools import cache

import dkim as verifier
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom.post.dkim import Algorithm, Signer, canonical_body, sign_all
from postroom.post.mime import ComposedMessage

BOUNDED = settings(max_examples=60)
PrivateKey = rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
Headers = list[tuple[bytes, bytes]]
HEADERS: Headers = [
    (b"From", b"Ann <a@example.org>"),
    (b"To", b"b@example.net,\r\n c@example.net"),
    (b"Subject", b"Hello   there\r\n  folded\t"),
    (b"Date", b"Mon, 05 Jan 2026 10:00:00 +0000"),
    (b"Message-ID", b"<1@example.org>"),
    (b"X-Unsigned", b"free to change"),
    (b"List-Unsubscribe", b"<https://example.org/u/1>"),
    (b"List-Unsubscribe-Post", b"List-Unsubscribe=One-Click"),
    (b"List-Id", b"<news.example.org>"),
    (b"Feedback-ID", b"a:b:c:postroom"),
    (b"Auto-Submitted", b"auto-generated"),
    (b"Reply-To", b"r@example.org"),
    (b"MIME-Version", b"1.0"),
    (b"Content-Type", b"text/plain; charset=utf-8"),
    (b"Content-Transfer-Encoding", b"7bit"),
]


@cache
def keys() -> dict[str, PrivateKey]:
    return {
        "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "ed": ed25519.Ed25519PrivateKey.generate(),
    }


def pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def short_rsa_key() -> rsa.RSAPrivateKey:
    """A key of 768 bits, which no library makes any more: from the first primes after two chosen numbers."""
    primes = []
    for candidate in ((3 << 382) + 1, (7 << 381) + 1):
        prime = candidate
        while any(pow(base, prime - 1, prime) != 1 for base in (2, 3, 5, 7, 11)):
            prime += 2
        primes.append(prime)
    p, q = primes
    d = pow(65537, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(65537, p * q)
    return rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), public).private_key()


@cache
def signer(selector: str) -> Signer:
    return Signer.from_pem("example.org", selector, pem(keys()[selector]))


def txt_record(name: bytes, timeout: int = 5) -> bytes | None:
    """The TXT record of our selectors."""
    selector = name.decode().split(".")[0]
    public = keys()[selector].public_key()
    if isinstance(public, ed25519.Ed25519PublicKey):
        kind, data = "ed25519", public.public_bytes_raw()
    else:
        kind = "rsa"
        data = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"v=DKIM1; k={kind}; p={base64.b64encode(data).decode()}".encode()


def emit(headers: Headers, body: bytes) -> bytes:
    return b"".join(name + b": " + value + b"\r\n" for name, value in headers) + b"\r\n" + body


def verifies(raw: bytes, index: int = 0) -> bool:
    try:
        return bool(verifier.DKIM(raw).verify(idx=index, dnsfunc=txt_record))
    except verifier.ValidationError:
        return False


def signed(headers: Headers, body: bytes, *selectors: str) -> bytes:
    return sign_all([signer(each) for each in selectors], headers, body, timestamp=1767607200) + emit(headers, body)


SELECTORS = pytest.mark.parametrize("selector", ["rsa", "ed"])


class TestVerification:
    @SELECTORS
    def test_verifies(self, selector: str) -> None:
        """A signature of either algorithm is accepted."""
        assert verifies(signed(HEADERS, b"Hello\r\n", selector))

    def test_both_at_once(self) -> None:
        """Two signatures on one message are each valid by themselves."""
        raw = signed(HEADERS, b"Hello\r\n", "rsa", "ed")
        assert raw.count(b"DKIM-Signature:") == 2
        assert verifies(raw, 0)
        assert verifies(raw, 1)

    @given(
        st.lists(
            st.sampled_from([b"", b" ", b"  ", b"\t", b" \t x", b"word  word ", b".", b"\xc3\xa9", b" a\tb  c\t"]),
            max_size=12,
        ),
        st.sampled_from([b"", b"x", b" x", b"a  b"]),
    )
    @example(lines=[], last=b"")
    @example(lines=[b"", b"", b""], last=b"")
    @example(lines=[b"text", b"", b" ", b""], last=b"")
    @BOUNDED
    def test_any_body(self, lines: list[bytes], last: bytes) -> None:
        """Blanks, empty lines and missing line ends are canonicalised as the verifier does."""
        body = b"".join(line + b"\r\n" for line in lines) + last
        assert verifies(signed(HEADERS, body, "ed"))

    @SELECTORS
    def test_whole_message(self, selector: str) -> None:
        """A message signs exactly the bytes it encodes, with or without eight bits."""
        for eight_bit in (True, False):
            message = ComposedMessage(
                tuple(HEADERS[:12]),
                "<1@example.org>",
                "Zoë  \n\n",
                "<p>Zoë\t</p>\n",
                signers=(signer(selector),),
            )
            raw = message.encode(eight_bit=eight_bit)
            assert raw.startswith(b"DKIM-Signature: ")
            assert verifies(raw)
            assert raw.isascii() is not eight_bit

    @SELECTORS
    def test_relays_may_respace(self, selector: str) -> None:
        """Refolding and trailing blanks on the way do no harm: that is what relaxed means."""
        raw = signed(HEADERS, b"Hello there\r\n", selector)
        touched = raw.replace(b"Hello   there\r\n  folded", b"Hello there folded").replace(
            b"Hello there\r\n", b"Hello  there \r\n"
        )
        assert touched != raw
        assert verifies(touched)


class TestTampering:
    @pytest.mark.parametrize(
        "tamper",
        [
            lambda raw: raw.replace(b"Body", b"Bodx"),
            lambda raw: raw + b"more\r\n",
            lambda raw: raw.replace(b"Hello", b"Hallo"),
            lambda raw: raw.replace(b"Ann <a@", b"Eve <e@"),
            lambda raw: raw.replace(b"One-Click", b"No-Click"),
            lambda raw: raw.replace(b"news.example", b"mews.example"),
            lambda raw: raw.replace(b"t=1767607200", b"t=1767607201"),
            lambda raw: b"Subject: Another\r\n" + raw,
            lambda raw: b"From: eve@example.net\r\n" + raw,
            lambda raw: b"To: eve@example.net\r\n" + raw,
            lambda raw: b"Date: Tue, 06 Jan 2026 10:00:00 +0000\r\n" + raw,
        ],
    )
    @SELECTORS
    def test_breaks_it(self, tamper: Callable[[bytes], bytes], selector: str) -> None:
        """A changed body, a changed signed field or a second From, To, Subject or Date is noticed."""
        raw = signed(HEADERS, b"Body\r\n", selector)
        assert tamper(raw) != raw
        assert not verifies(tamper(raw))

    def test_unsigned_fields_are_free(self) -> None:
        """Fields outside the list may change on the way."""
        assert verifies(signed(HEADERS, b"Body\r\n", "ed").replace(b"free to", b"may"))


class TestField:
    def test_names_what_it_covers(self) -> None:
        """h= lists every present field of the list, and the over-signed ones once more."""
        raw = signer("ed").sign(HEADERS, b"x\r\n", timestamp=5)
        names = b" ".join(b"".join(raw.partition(b" h=")[2].partition(b";")[0].split()).split(b":"))
        assert names == (
            b"from from to to cc subject subject date date message-id mime-version mime-version "
            b"content-type content-type content-transfer-encoding content-transfer-encoding reply-to reply-to "
            b"list-unsubscribe list-unsubscribe list-unsubscribe-post list-unsubscribe-post list-id feedback-id "
            b"auto-submitted"
        )

    def test_absent_fields_are_oversigned_only(self) -> None:
        """A message without To or Reply-To cannot be given one later, nor another type."""
        raw = signed([HEADERS[0], HEADERS[2]], b"x\r\n", "ed")
        assert b"h=from:from:to:\r\n  cc:subject:subject:\r\n  date:mime-version:" in raw
        assert verifies(raw)
        for added in (b"To: eve@example.net", b"Reply-To: eve@example.net", b"Content-Type: text/html"):
            assert not verifies(added + b"\r\n" + raw)

    @SELECTORS
    def test_lines_fit(self, selector: str) -> None:
        """The field is folded at 78 columns and ends its line."""
        field = signer(selector).sign(HEADERS, b"x\r\n", timestamp=1767607200)
        assert field.endswith(b"\r\n")
        assert max(map(len, field.split(b"\r\n"))) <= 78

    def test_repeated_fields_are_taken_from_the_bottom(self) -> None:
        """Two fields of one name are both covered, in the order verifiers look for them."""
        headers = [(b"Cc", b"one@example.net"), *HEADERS, (b"Cc", b"two@example.net")]
        raw = signed(headers, b"x\r\n", "ed")
        assert b"to:to:cc:cc:cc:" in b"".join(raw.split())
        assert verifies(raw)


@pytest.mark.parametrize(
    "body, expected",
    [
        (b"", b""),
        (b"\r\n", b""),
        (b"\r\n\r\n", b""),
        (b" \r\n", b""),
        (b" C \r\nD \t E\r\n\r\n\r\n", b" C\r\nD E\r\n"),
        (b"x", b"x\r\n"),
        (b"x \t ", b"x\r\n"),
        (b"a" + b" " * 1000 + b"b\r\n", b"a b\r\n"),
    ],
)
def test_canonical_body(body: bytes, expected: bytes) -> None:
    """The relaxed rules, with the example of RFC 6376 3.4.5 among them."""
    assert canonical_body(body) == expected


class TestKeys:
    def test_algorithm_follows_the_key(self) -> None:
        """The key says which algorithm it signs with; names are kept in lower case."""
        assert signer("rsa").algorithm is Algorithm.RSA_SHA256
        loaded = Signer.from_pem("Example.ORG.", "Sel._x1", pem(keys()["ed"]))
        assert (loaded.domain, loaded.selector, loaded.algorithm) == (
            "example.org",
            "sel._x1",
            "ed25519-sha256",
        )

    def test_repr_holds_no_key(self) -> None:
        """A signer can be logged without showing its key."""
        shown = repr(signer("ed"))
        assert shown.startswith("Signer(domain='example.org', selector='ed', algorithm=<Algorithm.ED25519")
        assert "sign_digest" not in shown

    @pytest.mark.parametrize(
        "domain, selector",
        [("", "s"), ("exa mple.org", "s"), ("a;b", "s"), ("example.org", "s\r\n"), ("bücher.example", "s")],
    )
    def test_refuses_bad_names(self, domain: str, selector: str) -> None:
        """Domain and selector go into the field as they are, so they must be host names."""
        with pytest.raises(ValueError, match="is not a domain name"):
            Signer.from_pem(domain, selector, pem(keys()["ed"]))

    def test_refuses_short_rsa_keys(self) -> None:
        """RFC 8301 lets receivers ignore RSA keys under 1024 bits, so we do not sign with them."""
        with pytest.raises(ValueError, match="768 bits"):
            Signer.from_pem("example.org", "s", pem(short_rsa_key()))

    def test_refuses_other_keys(self) -> None:
        """Only RSA and Ed25519 are DKIM keys."""
        with pytest.raises(ValueError, match="neither RSA nor Ed25519"):
            Signer.from_pem("example.org", "s", pem(ec.generate_private_key(ec.SECP256R1())))

    def test_refuses_what_is_not_a_key(self) -> None:
        """Nonsense and encrypted keys are refused without quoting them."""
        locked = keys()["ed"].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"made up"),
        )
        for bad in (b"", b"nonsense", locked):
            with pytest.raises(ValueError, match="not an unencrypted private key") as caught:
                Signer.from_pem("example.org", "s", bad)
            assert "nonsense" not in str(caught.value)
