"""Tokens of links: round trips, forgery and keys."""

import base64
import hmac
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tracking import ADA, KEY

from postroom.post.keyed_hash import SecretKey
from postroom.tracking.model import LinkSubject
from postroom.tracking.tokens import TokenSigner, is_web_address

SIGNER = TokenSigner(KEY, "https://mail.example.com/", room="postroom")
BIGINT = 2**63 - 1

marks = st.builds(
    LinkSubject,
    st.none() | st.integers(0, BIGINT),
    st.integers(0, BIGINT),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
)
urls = st.builds(
    "{}{}".format,
    st.sampled_from(["http://", "https://", "HTTPS://"]),
    st.text(st.characters(exclude_categories=["Cs"])),
)


def token_of(url: str) -> str:
    return urlsplit(url).path.rpartition("/")[2].removesuffix(".gif")


@given(mark=marks)
def test_open_and_unsubscribe_tokens_round_trip(mark: LinkSubject) -> None:
    """A token returns the campaign, delivery and address it was made for."""
    assert SIGNER.read_open(token_of(SIGNER.open_url(mark))) == mark
    assert SIGNER.read_unsubscribe(token_of(SIGNER.unsubscribe_url(mark))) == mark
    assert SIGNER.read_unsubscribe(token_of(SIGNER.preferences_url(mark))) == mark


@given(mark=marks, url=urls)
def test_click_token_returns_its_target(mark: LinkSubject, url: str) -> None:
    """The target URL is read back unchanged."""
    assert SIGNER.read_click(token_of(SIGNER.click_url(mark, url))) == (mark, url)


@given(mark=marks, position=st.integers(0), replacement=st.sampled_from("AZaz09-_"))
def test_changed_character_invalidates_a_token(mark: LinkSubject, position: int, replacement: str) -> None:
    """Every character counts, also the last, which has unused bits."""
    token = token_of(SIGNER.open_url(mark))
    position %= len(token)
    changed = token[:position] + replacement + token[position + 1 :]
    assert (SIGNER.read_open(changed) == mark) == (changed == token)


@pytest.mark.parametrize(
    "token",
    ["", "a", "-", "A" * 21, "A" * 22, "A" * 24, "A" * 9000, "\u00e9" * 40, "A" * 40 + "=", " " * 40, "A/B+" * 10],
)
def test_malformed_tokens_are_rejected(token: str) -> None:
    """Unsigned input is rejected without an exception."""
    assert SIGNER.read_open(token) is None
    assert SIGNER.read_click(token) is None
    assert SIGNER.read_unsubscribe(token) is None


def test_token_is_valid_for_one_purpose() -> None:
    """A pixel token is invalid for unsubscribes and clicks."""
    opening, leaving = token_of(SIGNER.open_url(ADA)), token_of(SIGNER.unsubscribe_url(ADA))
    assert SIGNER.read_unsubscribe(opening) is None
    assert SIGNER.read_open(leaving) is None
    assert SIGNER.read_click(opening) is None


def test_old_keys_still_verify() -> None:
    """After a change of the key, links in sent mail stay valid, and new ones use the new key."""
    renewed = TokenSigner(bytes(32), "https://mail.example.com", room="postroom", old_keys=(SecretKey(KEY),))
    assert renewed.read_open(token_of(SIGNER.open_url(ADA))) == ADA
    assert SIGNER.read_open(token_of(renewed.open_url(ADA))) is None
    assert TokenSigner(bytes(32), "", room="postroom").read_open(token_of(SIGNER.open_url(ADA))) is None


def test_an_old_key_is_valid_for_deliveries_up_to_its_end() -> None:
    """Links in mail from before the change stay valid; the holder of the old key forges no others."""
    for ends, found in (
        ({"postroom": ADA.delivery_id}, ADA),
        ({"postroom": ADA.delivery_id - 1}, None),
        ({"x": 99}, None),
    ):
        renewed = TokenSigner(bytes(32), "", room="postroom", old_keys=(SecretKey(KEY, ends),))
        assert renewed.read_open(token_of(SIGNER.open_url(ADA))) == found
        assert renewed.read_unsubscribe(token_of(SIGNER.unsubscribe_url(ADA))) == found
        clicked = renewed.read_click(token_of(SIGNER.click_url(ADA, "https://example.org/")))
        assert clicked == (found and (found, "https://example.org/"))


def test_link_of_another_room_is_rejected() -> None:
    """Rooms that share a secret key do not accept each other's links."""
    annex = TokenSigner(KEY, "https://mail.example.com", room="annex")
    assert SIGNER.read_unsubscribe(token_of(annex.unsubscribe_url(ADA))) is None
    assert annex.read_unsubscribe(token_of(annex.unsubscribe_url(ADA))) == ADA


def test_signature_is_hmac_sha256() -> None:
    """Sixteen bytes of HMAC-SHA256 with the key of the purpose precede the payload."""
    raw = base64.urlsafe_b64decode(token_of(SIGNER.open_url(ADA)) + "==")
    key = hmac.digest(KEY, b"postroom tracking 1 postroom open", "sha256")
    assert raw[16:] == bytes((8, 41)) + b"Ada@Example.org"
    assert raw[:16] == hmac.digest(key, raw[16:], "sha256")[:16]


def test_links_use_the_public_url() -> None:
    """The paths are the documented ones, and a trailing slash in the setting is ignored."""
    assert SIGNER.open_url(ADA).startswith("https://mail.example.com/track/open/")
    assert SIGNER.open_url(ADA).endswith(".gif")
    assert SIGNER.click_url(ADA, "http://a").startswith("https://mail.example.com/track/click/")
    assert SIGNER.unsubscribe_url(ADA).startswith("https://mail.example.com/unsubscribe/")
    assert SIGNER.preferences_url(ADA).startswith("https://mail.example.com/preferences/")


def test_token_is_short() -> None:
    """A pixel token is four thirds of signature, two small numbers and the address."""
    assert len(token_of(SIGNER.open_url(ADA))) == 44


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "mailto:a@b", "/relative", "//host", "", "http:x"]
)
def test_only_web_targets_are_signed(url: str) -> None:
    """A tracked link leads only to http and https."""
    assert not is_web_address(url)
    with pytest.raises(ValueError, match="http or https"):
        SIGNER.click_url(ADA, url)


def test_negative_ids_are_rejected() -> None:
    """A negative id would be decoded as another number."""
    with pytest.raises(ValueError, match="not be negative"):
        SIGNER.open_url(LinkSubject(None, -1, "a@b"))
