"""Signed secrets: format, and rejection of everything else."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.accounts.model import Action
from postroom.accounts.signature import PATHS, open_signed, sign, verify

KEYS = st.binary(min_size=32, max_size=32)
SECRETS = st.binary(min_size=32, max_size=32)
ACTIONS = st.sampled_from(Action)


@pytest.mark.parametrize("action, path", [(Action.ACTIVATION, b"/activate"), (Action.PASSWORD_RECOVERY, b"/recover")])
def test_signed_secret_has_the_documented_format(action: Action, path: bytes) -> None:
    """A signed secret is unpadded base64url of secret ‖ HMAC-SHA256(key, path ‖ secret)."""
    key, secret = bytes.fromhex("0123456789abcdef" * 4), bytes(range(32))
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in key.ljust(64, b"\0")) + path + secret).digest()
    digest = hashlib.sha256(bytes(b ^ 0x5C for b in key.ljust(64, b"\0")) + inner).digest()
    assert sign(key, action, secret) == base64.urlsafe_b64encode(secret + digest).decode().rstrip("=")
    assert PATHS[action] == path.decode()


@given(key=KEYS, secret=SECRETS, action=ACTIONS)
def test_signed_secret_round_trip(key: bytes, secret: bytes, action: Action) -> None:
    """A signed secret is 86 characters of base64url and opens to its action and secret."""
    signed = sign(key, action, secret)
    assert len(signed) == 86
    assert set(signed) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert verify(key, action, signed) == secret
    assert open_signed(key, signed) == (action, secret)


@given(key=KEYS, secret=SECRETS, action=ACTIONS, other=ACTIONS)
def test_signature_is_valid_for_its_own_action_only(key: bytes, secret: bytes, action: Action, other: Action) -> None:
    """A secret that is signed for one action is rejected for the other."""
    assert (verify(key, other, sign(key, action, secret)) is None) == (other is not action)


@given(key=KEYS, other=KEYS, secret=SECRETS, action=ACTIONS)
def test_signature_of_another_key_is_rejected(key: bytes, other: bytes, secret: bytes, action: Action) -> None:
    """Only the key that signed a secret verifies it."""
    assert (open_signed(other, sign(key, action, secret)) is None) == (other != key)


@given(key=KEYS, secret=SECRETS, action=ACTIONS, place=st.integers(0, 85), data=st.data())
def test_changed_character_is_rejected(
    key: bytes, secret: bytes, action: Action, place: int, data: st.DataObject
) -> None:
    """No other string is valid, not even one that decodes to the same bytes."""
    signed = sign(key, action, secret)
    character = data.draw(st.characters(exclude_characters=signed[place], codec="utf-8"))
    assert open_signed(key, signed[:place] + character + signed[place + 1 :]) is None


@given(key=KEYS, text=st.text(max_size=200))
def test_garbage_is_rejected(key: bytes, text: str) -> None:
    """Any other text returns None without an exception."""
    assert open_signed(key, text) is None


def test_verification_uses_compare_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification calls hmac.compare_digest for every action, even after a match."""
    asked = []
    honest = hmac.compare_digest

    def compare(one: str, other: str) -> bool:
        asked.append(one)
        return honest(one, other)

    signed = sign(bytes(32), Action.ACTIVATION, bytes(32))
    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert open_signed(bytes(32), signed) is not None
    assert len(asked) == len(Action)
