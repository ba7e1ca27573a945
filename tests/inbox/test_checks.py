"""Checks of captured messages: HTML support, links, headers, authentication."""

import base64
from pathlib import Path

import dkim
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from tests.post.test_dkim import keys, pem
from tests.support.http import open_browser

from postroom.db.room import Room
from postroom.inbox.authentication import Alignment, check_authentication
from postroom.inbox.html_check import CLIENTS, FEATURES, Support, check_html
from postroom.inbox.links import is_local, list_links, problems_of
from postroom.inbox.message_lint import lint_message
from postroom.inbox.reader import outline_of, read_message
from postroom.inbox.transport import CaptureTransport
from postroom.post.dkim import Signer, verifier_of
from postroom.post.dkim_check import SignatureResult, check_signatures
from postroom.post.reply import Envelope

MESSAGE = (
    b"From: Shop <shop@news.example.org>\r\nTo: ada@example.net\r\nSubject:  Hello   there\r\n"
    b"Date: Mon, 05 Jan 2026 10:00:00 +0000\r\nMessage-ID: <1@example.org>\r\n\r\nHello,  Ada.\r\n\r\nBye \r\n\r\n"
)


def signed(selector: str, *, domain: str = "example.org", canonicalize: bytes = b"relaxed/relaxed") -> bytes:
    """The message, signed by an implementation that is not ours."""
    header, body = canonicalize.split(b"/")
    key = pem(keys()[selector])
    algorithm = b"rsa-sha256"
    if selector == "ed":
        raw = keys()["ed"].private_bytes(
            serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
        )
        key, algorithm = base64.b64encode(raw), b"ed25519-sha256"
    field: bytes = dkim.sign(
        MESSAGE, selector.encode(), domain.encode(), key, canonicalize=(header, body), signature_algorithm=algorithm
    )
    return field + MESSAGE


def known(domain: str = "example.org") -> dict[tuple[str, str], object]:
    signers = [Signer.from_pem(domain, name, pem(key)) for name, key in keys().items()]
    return {(signer.domain, signer.selector): verifier_of(signer.public_key) for signer in signers}


@pytest.mark.parametrize("selector", ["rsa", "ed"])
@pytest.mark.parametrize(
    "canonicalize", [b"relaxed/relaxed", b"simple/simple", b"relaxed/simple", b"simple/relaxed"], ids=bytes.decode
)
def test_signature_of_another_implementation_is_verified(selector: str, canonicalize: bytes) -> None:
    """Both algorithms, every canonicalization; a changed body or header fails, an unknown key says so."""
    raw = signed(selector, canonicalize=canonicalize)

    def result(message: bytes, keyring: object = None) -> SignatureResult:
        [check] = check_signatures(message, known() if keyring is None else keyring)  # type: ignore[arg-type]
        return check.result

    assert result(raw) is SignatureResult.PASS
    assert result(raw.replace(b"Ada.", b"Eve.")) is SignatureResult.FAIL
    assert result(raw.replace(b"there", b"where")) is SignatureResult.FAIL
    assert result(raw, {}) is SignatureResult.UNKNOWN_KEY
    assert result(b"DKIM-Signature: v=1; a=rsa-sha256\r\n" + MESSAGE) is SignatureResult.NEUTRAL
    assert check_signatures(MESSAGE, {}) == []


@given(st.binary(max_size=200))
def test_any_signature_can_be_checked(junk: bytes) -> None:
    """Hostile signatures give a result."""
    raw = b"DKIM-Signature: a=rsa-sha256; d=x; s=y; h=from; bh=x; b=" + junk + b"\r\n" + MESSAGE
    for found in (check_signatures(raw, {}), check_signatures(b"DKIM-Signature: " + junk + b"\r\n\r\nx", {})):
        assert len(found) == 1


@pytest.mark.parametrize(
    "domain, mail_from, mode, spf, best, dmarc",
    [
        ("news.example.org", "b@news.example.org", "strict", "aligned", "aligned", "pass"),
        ("example.org", "b@example.org", "relaxed", "aligned", "aligned", "pass"),
        ("example.org", "b@example.org", "strict", "not_aligned", "not_aligned", "fail"),
        ("mail.example.org", "b@bounces.example.org", "relaxed", "unknown", "unknown", "unknown"),
        ("other.example", "", "relaxed", "not_aligned", "not_aligned", "fail"),
    ],
)
def test_alignment_follows_the_setting(domain: str, mail_from: str, mode: str, spf: str, best: str, dmarc: str) -> None:
    """Strict needs the same domain, relaxed a parent; two subdomains of one parent cannot be decided without DNS."""
    raw = signed("rsa", domain=domain)
    report = check_authentication(raw, read_message(raw), mail_from, keys=known(domain), mode=mode)  # type: ignore[arg-type]
    assert (report.spf_alignment, report.dkim_alignment, report.dmarc) == (Alignment(spf), Alignment(best), dmarc)


def test_features_without_full_support_are_found() -> None:
    """Elements, style sheets and style attributes are read; those that fewer clients support come first."""
    html = (
        "<style>@media (max-width: 600px) { .a { display: flex } } /* position: fixed */</style>"
        '<p style="border-radius: 3px; color: red">x</p><p style="border-radius:4px">x</p><svg></svg>'
    )
    found = {finding.feature: finding for finding in check_html(html)}
    assert set(found) == {"@media", "display: flex", "border-radius", "<svg>"}
    assert found["border-radius"].count == 2
    assert found["border-radius"].support["Outlook for Windows"] is Support.NO
    assert found["border-radius"].source == "https://www.caniemail.com/features/css-border-radius/"
    assert check_html(html)[0].feature == "<svg>"
    assert check_html("<table bgcolor=red><tr><td style='color: red; padding: 3px'>x</td></tr></table>") == []


def test_every_feature_of_the_table_is_found() -> None:
    """Each row can match, and names a support for each client."""
    samples = {
        "background-image": "<p style='background: url(x)'>",
        "custom properties": "<style>p { --a: 1 }</style>",
        "@font-face": "<style>@font-face { }</style>",
        "@media": "<style>@media print { }</style>",
        "prefers-color-scheme": "<style>@media (prefers-color-scheme: dark) { }</style>",
        "<style> in <body>": "<body><p>x<style></style>",
        "<link rel=stylesheet>": "<link rel=stylesheet href=x>",
        "SVG image": "<img src=a.svg>",
        "WebP image": "<img src=a.webp>",
        "image as data: URL": "<img src='data:image/png;base64,x'>",
        "linear-gradient()": "<p style='background: linear-gradient(red, blue)'>",
    }
    for feature in FEATURES:
        name = feature.name
        plain = (
            f"{name}></{name.strip('<>')}>"
            if feature.selector
            else f"<p style='{name if ':' in name else name + ': 1'}'>"
        )
        assert name in [finding.feature for finding in check_html(samples.get(name, plain))], name
        assert len(feature.support) == len(CLIENTS)


@pytest.mark.parametrize(
    "url, problem",
    [
        ("https://example.org/a?b=c", None),
        ("mailto:ada@example.org", None),
        ("https://example.org/canone", None),
        ("", "no destination"),
        ("#", "no destination"),
        ("/account", "relative"),
        ("http://example.org", "encrypted"),
        ("https://{{ host }}/", "placeholder"),
        ("https://example.org/undefined", "placeholder"),
        ("https://user:secret@example.org/", "password"),
        ("https://localhost:3000/reset", "private network"),
        ("https://10.0.0.7/", "private network"),
        ("https://8.8.8.8/", "IP address"),
        ("javascript:alert(1)", "scheme"),
        ("https://[::1", "valid"),
        ("https://", "no host"),
    ],
)
def test_form_of_links_is_checked(url: str, problem: str | None) -> None:
    """Each mistake is named; a good link has none."""
    found = list(problems_of(url))
    assert (found == []) if problem is None else any(problem in each for each in found)


def test_links_are_listed_once() -> None:
    """Links and images of the HTML, and those of the text that the HTML lacks."""
    html = '<a href="https://a.example/">x</a><a href="https://a.example/">y</a><img src="https://b.example/i.png">'
    links = list_links(html + '<img src="cid:logo">', "See https://a.example/ and https://c.example/x.")
    assert [(link.url, link.kind, link.count) for link in links] == [
        ("https://a.example/", "link", 3),
        ("https://b.example/i.png", "image", 1),
        ("https://c.example/x", "text", 1),
    ]
    assert is_local("intranet")
    assert not is_local("example.org")


def test_mistakes_of_a_message_are_found() -> None:
    """Missing and repeated headers, leftovers of templates, long lines, a missing text part."""
    raw = (
        b"From: a@example.org\r\nFrom: b@example.org\r\nSubject: Hello {{ name }}\r\nList-Unsubscribe: <https://x>\r\n"
        b"Content-Type: text/html\r\n\r\n<img src=x><script>1</script>" + b"x" * 1200 + b"\r\n"
    )
    codes = [warning.code for warning in lint_message(raw, read_message(raw))]
    assert set(codes) >= {
        *("header_missing", "header_repeated", "one_click_missing", "placeholder", "line_long", "no_text"),
        *("image_without_alt", "active_content"),
    }
    assert lint_message(MESSAGE, read_message(MESSAGE)) == []


@given(st.text(max_size=300))
def test_any_message_can_be_checked(text: str) -> None:
    """No content raises."""
    raw = b"Content-Type: text/html; charset=utf-8\r\n\r\n" + text.encode("utf-8", "replace")
    read = read_message(raw)
    found = (lint_message(raw, read), check_html(text), list_links(text, text))
    assert [type(each) for each in found] == [list, list, list]


async def test_report_is_one_request(room: Room, tmp_path: Path) -> None:
    """`checks` answers with all of them; the signature is verified with the key of the settings."""
    key = tmp_path / "key.pem"
    key.write_bytes(pem(keys()["rsa"]))
    object.__setattr__(room.settings, "dkim_keys", f"example.org:rsa:{key}")
    browser = await open_browser(room, "inbox:read")

    class Signed:
        def encode(self, *, eight_bit: bool) -> bytes:
            assert eight_bit
            return signed("rsa")

    await CaptureTransport(room.pool).send(Envelope(1, "<1@x>", "b@example.org", ("ada@example.org",)), Signed())
    newest = (await browser.get("/v1/inbox/latest")).json["id"]
    report = (await browser.get(f"/v1/inbox/{newest}/checks")).json
    assert (report["authentication"]["dmarc"], report["authentication"]["dkim"][0]["result"]) == ("pass", "pass")
    assert (report["warnings"], report["links"], report["html"]) == ([], [], [])
    assert (await browser.get("/v1/inbox/99/checks")).status == 404


def test_html_too_complex_to_parse_is_a_warning() -> None:
    """A captured message of 130 kB must not occupy a worker or the dashboard for minutes."""
    html = "".join(f"<b a={n}><p>word " for n in range(10_000))
    raw = f"From: a@example.org\r\nContent-Type: text/html\r\n\r\n{html}".encode()
    assert outline_of(raw).content.startswith("word word")
    assert (check_html(html), list_links(html, None)) == ([], [])
    assert "too_complex" in [warning.code for warning in lint_message(raw, read_message(raw))]
