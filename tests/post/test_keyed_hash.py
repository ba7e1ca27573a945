"""The prepared HMAC gives what the standard library gives."""

import hmac

from hypothesis import given
from hypothesis import strategies as st

from postroom.post.keyed_hash import KeyedHash


@given(st.binary(max_size=100), st.binary(max_size=20), st.binary(max_size=200))
def test_digest_is_hmac_sha256(key: bytes, prefix: bytes, text: bytes) -> None:
    """Links and ids of sent mail stay valid, whatever the length of the key."""
    prepared = KeyedHash(key, prefix)
    assert prepared.digest(text) == hmac.digest(key, prefix + text, "sha256")
    assert prepared.digest(text) == prepared.digest(text)
