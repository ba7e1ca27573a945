"""Signed, self-contained links in mail, without an expiry.

    base64url, unpadded, of  HMAC-SHA256(key of the purpose, payload)[:16] ‖ payload
    payload  =  varint(campaign id + 1, or 0) ‖ varint(delivery id) ‖ address                        open, unsubscribe
             =  varint(campaign id + 1, or 0) ‖ varint(delivery id) ‖ varint(length) ‖ address ‖ URL    click

Each purpose has its own key, derived from the key of the installation and the name of the room: a pixel token is
invalid for other purposes, and a link of one room is invalid in another room with the same secret key. Verification
runs in constant time without a database. After a change of the installation's key, old keys still verify tokens of
the deliveries that they signed, because sent mail cannot be signed again. Pure.
"""

import base64
import binascii
import hmac
from collections.abc import Callable, Sequence
from functools import lru_cache

from postroom.post.keyed_hash import KeyedHash, RoomKey, SecretKey
from postroom.tracking.model import LinkSubject

MAC_BYTES = 16  # 128 bits cannot be guessed, and links stay short
LONGEST = 8192
"""Maximum characters of a token; servers and mail clients reject longer URLs anyway."""

_TO_URL = bytes.maketrans(b"+/", b"-_")
_SEVEN_BITS, _MORE = 0x7F, 0x80  # LEB128: seven bits a byte, and a flag for more
_SCHEMES = ("http://", "https://")


def is_web_address(url: str) -> bool:
    """True for a valid target of a click: http or https, and no scheme that runs code or opens a program."""
    return url.startswith(_SCHEMES) or url[:8].lower().startswith(_SCHEMES)


class TokenSigner:
    """Creates links under `base_url`, and reads their tokens."""

    def __init__(self, secret_key: bytes, base_url: str, *, room: str, old_keys: Sequence[SecretKey] = ()) -> None:
        keys = [RoomKey(each.key, each.last_id(room)) for each in (SecretKey(secret_key), *old_keys)]
        self._open, self._click, self._unsubscribe = (
            tuple(_Key(key, f"{room} {purpose}") for key in keys) for purpose in ("open", "click", "unsubscribe")
        )
        self._base_url = base_url.rstrip("/")

    def open_url(self, mark: LinkSubject) -> str:
        """The URL of a mail's pixel."""
        return f"{self._base_url}/track/open/{self._open[0].sign(_encode_mark(mark))}.gif"

    def click_url(self, mark: LinkSubject, url: str) -> str:
        """The tracked URL of `url`, which must be http or https."""
        return self.click_urls(mark)(url)

    def click_urls(self, mark: LinkSubject) -> Callable[[str], str]:
        """`click_url` for the links of one mail."""
        start, sign, encoded = f"{self._base_url}/track/click/", self._click[0].sign, _encode_click(mark)

        def click_url(url: str) -> str:
            if not is_web_address(url):
                raise ValueError("a tracked link must be http or https")
            return start + sign(encoded + url.encode())

        return click_url

    def unsubscribe_url(self, mark: LinkSubject) -> str:
        """The URL of the header `List-Unsubscribe` and of the unsubscribe link in the mail."""
        return f"{self._base_url}/unsubscribe/{self._unsubscribe[0].sign(_encode_mark(mark))}"

    def preferences_url(self, mark: LinkSubject) -> str:
        """The URL of the preferences page; it has the token of the unsubscribe link."""
        return f"{self._base_url}/preferences/{self._unsubscribe[0].sign(_encode_mark(mark))}"

    def read_open(self, token: str) -> LinkSubject | None:
        return _decode_mark(_verify(self._open, token))

    def read_click(self, token: str) -> tuple[LinkSubject, str] | None:
        """The mail and the target URL of a click token."""
        return _decode_click(_verify(self._click, token))

    def read_unsubscribe(self, token: str) -> LinkSubject | None:
        return _decode_mark(_verify(self._unsubscribe, token))


class _Key:
    """The key of one purpose."""

    __slots__ = ("_digest", "last_id")

    def __init__(self, secret: RoomKey, purpose: str) -> None:
        key = hmac.digest(secret.key, f"postroom tracking 1 {purpose}".encode(), "sha256")
        self._digest = KeyedHash(key).digest
        self.last_id = secret.last_id

    def sign(self, payload: bytes) -> str:
        raw = self._digest(payload)[:MAC_BYTES] + payload
        return binascii.b2a_base64(raw, newline=False).translate(_TO_URL, b"=").decode()


def _verify(keys: Sequence[_Key], token: str) -> bytes | None:
    """The payload, if one of the keys signed it before its end, and its encoding is canonical."""
    if not MAC_BYTES < len(token) <= LONGEST or not token.isascii():
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    payload = raw[MAC_BYTES:]
    for key in keys:
        # Compare the encoded text: the last character may have bits that decoding ignores.
        if hmac.compare_digest(key.sign(payload), token) and _delivery_of(payload) <= key.last_id:
            return payload
    return None


@lru_cache(maxsize=64)  # all links of one mail share it
def _encode_ids(mark: LinkSubject) -> bytes:
    campaign = 0 if mark.campaign_id is None else mark.campaign_id + 1
    return _encode_number(campaign) + _encode_number(mark.delivery_id)


def _encode_mark(mark: LinkSubject) -> bytes:
    return _encode_ids(mark) + mark.address.encode()


def _encode_click(mark: LinkSubject) -> bytes:
    address = mark.address.encode()
    return _encode_ids(mark) + _encode_number(len(address)) + address


def _decode_mark(payload: bytes | None) -> LinkSubject | None:
    if payload is None:
        return None
    campaign, position = _decode_number(payload, 0)
    delivery, position = _decode_number(payload, position)
    return LinkSubject(campaign - 1 if campaign else None, delivery, payload[position:].decode())


def _decode_click(payload: bytes | None) -> tuple[LinkSubject, str] | None:
    if payload is None:
        return None
    campaign, position = _decode_number(payload, 0)
    delivery, position = _decode_number(payload, position)
    length, position = _decode_number(payload, position)
    end = position + length
    url = payload[end:].decode()
    if not is_web_address(url):
        return None
    return LinkSubject(campaign - 1 if campaign else None, delivery, payload[position:end].decode()), url


def _delivery_of(payload: bytes) -> int:
    _campaign, position = _decode_number(payload, 0)
    return _decode_number(payload, position)[0]


def _encode_number(number: int) -> bytes:
    """Encode a number in groups of seven bits, the lowest first; the eighth bit means that more follow."""
    if number < 0:
        raise ValueError("ids must not be negative")
    digits = bytearray()
    while number > _SEVEN_BITS:
        digits.append(number & _SEVEN_BITS | _MORE)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _decode_number(payload: bytes, position: int) -> tuple[int, int]:
    """The number at a position, and the position after it. The payload is signed, so it is well-formed."""
    number = shift = 0
    while True:
        byte = payload[position]
        position += 1
        number |= (byte & _SEVEN_BITS) << shift
        if byte < _MORE:
            return number, position
        shift += 7
