"""Addresses as reports and lists write them, in the one form that suppressions compare.

Deliveries keep an address with its domain in ASCII; the same is done here, so that a list with `ann@bücher.example`
stops the mail to `ann@xn--bcher-kva.example`. Lower case is made by the database, which also makes it when it looks.
"""

import re
import unicodedata

from email_validator import EmailNotValidError, validate_email

LONGEST = 254
_ORDINARY = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.)*[A-Za-z0-9-]{1,63}")
_FOUND = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){0,8}[A-Za-z0-9-]{1,63}")
_ERASED = re.compile(r"erased:[0-9a-f]{64}")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


def parse(text: str) -> str:
    """An address without its name; ValueError says what is wrong.

    What stands for somebody who was erased passes too: lists of this room carry it out and in again.
    """
    address = text.strip()
    if _ERASED.fullmatch(address):
        return address
    if address.startswith("<") and address.endswith(">"):
        address = address[1:-1].strip()
    if _ORDINARY.fullmatch(address) and len(address) <= LONGEST:
        return address
    if len(address) > LONGEST:
        raise ValueError("is too long")
    try:
        checked = validate_email(address, check_deliverability=False, test_environment=True, allow_quoted_local=True)
    except EmailNotValidError as error:
        raise ValueError(str(error)) from None
    return f"{fold_local(checked.local_part)}@{checked.ascii_domain or checked.domain}"


def fold_local(local: str) -> str:
    """A local part as it is stored: in lower case unless it is ASCII, because a database may lower only ASCII."""
    return local if local.isascii() else unicodedata.normalize("NFC", local.lower())


def parse_or_none(text: str | None) -> str | None:
    """For reports, where half an address is as good as none."""
    if text is None or "@" not in text:
        return None
    try:
        return parse(text)
    except ValueError:
        found = _FOUND.search(text)
        return found[0] if found and len(found[0]) <= LONGEST else None


def storable(text: str, longest: int) -> str:
    """Words of strangers, short and without what PostgreSQL's text cannot hold."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text[:longest])
