"""Links in mail: signed, complete in themselves, valid without an end date.

    base64url, unpadded, of  HMAC-SHA256(key of the purpose, payload)[:16] ‖ payload
    payload  =  varint(campaign id + 1, or 0) ‖ varint(delivery id) ‖ address                        open, unsubscribe
             =  varint(campaign id + 1, or 0) ‖ varint(delivery id) ‖ varint(length) ‖ address ‖ URL    click

Each purpose has its own key, derived from the installation's and the room's name: a token made for a pixel opens
nothing else, and a link of one room changes nothing in another that shares its secret key. Reading compares in constant
time and needs no database. After a change of the installation's key the old ones are still accepted for reading,
because mail in people's inboxes cannot be signed again. Pure.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from postroom.tracking.model import LinkSubject

MAC_BYTES = 16
LONGEST = 8192
"""Characters of the longest token that is looked at; servers and mail programs give up on such URLs themselves."""

_TO_URL = bytes.maketrans(b"+/", b"-_")
_SEVEN_BITS, _MORE = 0x7F, 0x80
_SCHEMES = ("http://", "https://")


def is_web_address(url: str) -> bool:
    """True of what a click may lead to: http and https, and nothing a browser would run or open a program for."""
    return url[:8].lower().startswith(_SCHEMES)


class TokenSigner:
    """Makes links under `base_url`, and reads the tokens in them."""

    def __init__(self, secret_key: bytes, base_url: str, *, room: str, old_keys: Sequence[bytes] = ()) -> None:
        keys = (secret_key, *old_keys)
        self._open, self._click, self._unsubscribe = (
            tuple(_Key(key, f"{room} {purpose}") for key in keys) for purpose in ("open", "click", "unsubscribe")
        )
        self._base_url = base_url.rstrip("/")

    def open_url(self, mark: LinkSubject) -> str:
        """Where the pixel of a mail is."""
        return f"{self._base_url}/track/open/{self._open[0].sign(_encode_mark(mark))}.gif"

    def click_url(self, mark: LinkSubject, url: str) -> str:
        """The detour to `url`, which must be http or https."""
        if not is_web_address(url):
            raise ValueError("a tracked link must lead to http or https")
        address = mark.address.encode()
        payload = _encode_ids(mark) + _encode_number(len(address)) + address + url.encode()
        return f"{self._base_url}/track/click/{self._click[0].sign(payload)}"

    def unsubscribe_url(self, mark: LinkSubject) -> str:
        """For the header `List-Unsubscribe` and for the foot of the mail."""
        return f"{self._base_url}/unsubscribe/{self._unsubscribe[0].sign(_encode_mark(mark))}"

    def preferences_url(self, mark: LinkSubject) -> str:
        """What the person gets and does not get; the token is the one for unsubscribing."""
        return f"{self._base_url}/preferences/{self._unsubscribe[0].sign(_encode_mark(mark))}"

    def read_open(self, token: str) -> LinkSubject | None:
        return _decode_mark(_verify(self._open, token))

    def read_click(self, token: str) -> tuple[LinkSubject, str] | None:
        """The mail and the address to go to."""
        return _decode_click(_verify(self._click, token))

    def read_unsubscribe(self, token: str) -> LinkSubject | None:
        return _decode_mark(_verify(self._unsubscribe, token))


class _Key:
    """HMAC-SHA256 with the key worked in beforehand: a mail with five links is signed seven times."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret_key: bytes, purpose: str) -> None:
        key = hmac.digest(secret_key, f"postroom tracking 1 {purpose}".encode(), "sha256").ljust(64, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in key))

    def sign(self, payload: bytes) -> str:
        """The token."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(payload)
        outer.update(inner.digest())
        raw = outer.digest()[:MAC_BYTES] + payload
        return binascii.b2a_base64(raw, newline=False).translate(_TO_URL, b"=").decode()


def _verify(keys: Sequence[_Key], token: str) -> bytes | None:
    """The payload, if one of the keys signed it and it is written as we would write it."""
    if not MAC_BYTES < len(token) <= LONGEST or not token.isascii():
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    payload = raw[MAC_BYTES:]
    for key in keys:
        # Compared as written, not as decoded: the last character may have bits that decoding ignores.
        if hmac.compare_digest(key.sign(payload), token):
            return payload
    return None


def _encode_ids(mark: LinkSubject) -> bytes:
    campaign = 0 if mark.campaign_id is None else mark.campaign_id + 1
    return _encode_number(campaign) + _encode_number(mark.delivery_id)


def _encode_mark(mark: LinkSubject) -> bytes:
    return _encode_ids(mark) + mark.address.encode()


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


def _encode_number(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    if number < 0:
        raise ValueError("ids are not negative")
    digits = bytearray()
    while number > _SEVEN_BITS:
        digits.append(number & _SEVEN_BITS | _MORE)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _decode_number(payload: bytes, position: int) -> tuple[int, int]:
    """The number there, and the position after it. Only signed payloads come here: they hold what we wrote."""
    number = shift = 0
    while True:
        byte = payload[position]
        position += 1
        number |= (byte & _SEVEN_BITS) << shift
        if byte < _MORE:
            return number, position
        shift += 7
