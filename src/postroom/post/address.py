"""Addresses: one grammar for requests, reports and suppression lists.

An accepted address can be put in an envelope and in a header without further checks: no control characters, the limits
of RFC 5321, the domain in its ASCII form. A list with `ann@bücher.example` therefore stops the mail to
`ann@xn--bcher-kva.example`. The database lowers the case where it compares. Whether the mailbox exists is not checked.
"""

import re
import unicodedata
from collections.abc import Sequence
from email.utils import getaddresses

import idna.uts46data  # noqa: F401 - imported at start: the lazy import blocks the event loop for 39 ms
import msgspec
from email_validator import EmailNotValidError, validate_email

LOCAL_LIMIT = 64  # octets (RFC 5321, 4.5.3.1.1)
EMAIL_LIMIT = 254  # octets: a path of 256 without its angle brackets (RFC 5321, 4.5.3.1.3)
ERASED = "erased:"
"""The beginning of the pseudonym that replaces the address of an erased person; no address begins so."""
DEEPEST_COMMENT = 50
"""Comments within comments of an address header: the standard parser is recursive."""
WRITTEN_LIMIT = 1000  # with its name; longer input is a mistake or an attack

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_TOP_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"(?:{_LABEL}\.)+{_TOP_LABEL}|localhost")
# Nearly every address matches this one expression; email-validator is some forty times slower.
_ORDINARY = re.compile(rf"({_ATOM}(?:\.{_ATOM})*)@({_DOMAIN.pattern})")
_NAMED = re.compile(r'(?:"(?P<quoted>(?:[^"\\]|\\.)*)" *|(?P<plain>[^"<>]*))<(?P<email>[^<>]*)>')
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_FOUND = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){0,8}[A-Za-z0-9-]{1,63}")
_ERASED = re.compile(rf"{ERASED}[0-9a-f]{{64}}")
_COMMENT_MARK = re.compile(r'\\.|[()"]')
_ESCAPED = re.compile(r"\\(.)")


class Address(msgspec.Struct, frozen=True, gc=False):
    """A mailbox and the name shown beside it."""

    email: str
    name: str | None = None


def domain_of(email: str) -> str:
    """The part after the last `@`, in lower case."""
    return email.rpartition("@")[2].lower()


def normalize(email: str) -> str:
    """The form in which addresses are compared here and in SQL: `Ann@Example.org` is `ann@example.org`."""
    return email.lower()


def is_plain_address(value: str) -> bool:
    """True if `parse_address` returns this value unchanged and without a name: short, and in lower case."""
    return len(value) <= LOCAL_LIMIT and value.islower() and _ORDINARY.fullmatch(value) is not None


def parse_address(value: str) -> Address:
    """Read `a@example.org` or `Name <a@example.org>`; ValueError names the problem in a few words."""
    if (ordinary := _ORDINARY.fullmatch(value)) is not None:
        return Address(_join(ordinary[1], ordinary[2]))
    if len(value) > WRITTEN_LIMIT:
        raise ValueError("is too long")
    if _UNPRINTABLE.search(value) is not None:
        raise ValueError("contains a line break or another control character")
    if "<" not in value and ">" not in value:
        return Address(_parse_email(value.strip()))
    named = _NAMED.fullmatch(value.strip())
    if named is None:
        raise ValueError("is not written as Name <address>")
    return Address(_parse_email(named["email"].strip()), _parse_name(named))


def parse_bare(text: str) -> str:
    """Read an address without a name, such as `a@example.org` or `<a@example.org>`; ValueError names the problem.

    The placeholder of an erased address is valid too: suppression lists are exported with it and imported again.
    """
    address = text.strip()
    if _ERASED.fullmatch(address):
        return address
    if address.startswith("<") and address.endswith(">"):
        address = address[1:-1].strip()
    if len(address) > EMAIL_LIMIT:
        raise ValueError("is too long")
    return _parse_email(address)


def fold_local(local: str) -> str:
    """A local part in its stored form: in lower case unless it is ASCII, because a database may lower only ASCII."""
    return local if local.isascii() else unicodedata.normalize("NFC", local.lower())


def as_stored(text: str) -> str:
    """The stored form of an address that is searched; any other text unchanged, such as the URL of a webhook."""
    try:
        return parse_bare(text)
    except ValueError:
        return text


def find_address(text: str | None) -> str | None:
    """The address in a field of a report; None if it has none."""
    if text is None or "@" not in text:
        return None
    try:
        return parse_bare(text)
    except ValueError:
        found = _FOUND.search(text)
        return found[0] if found and len(found[0]) <= EMAIL_LIMIT else None


def split_addresses(values: Sequence[str]) -> list[tuple[str, str]]:
    """Names and addresses in the values of a header such as To; ValueError if comments are nested too deeply."""
    if any(_depth(value) > DEEPEST_COMMENT for value in values):
        raise ValueError("is nested too deeply")
    return getaddresses(list(values))


def _depth(value: str) -> int:
    """The depth of comments: `(a (b))` is 2. A parenthesis in a quoted string opens no comment."""
    depth = deepest = 0
    is_quoted = False
    for found in _COMMENT_MARK.finditer(value):
        if found[0] == '"' and depth == 0:
            is_quoted = not is_quoted
        elif not is_quoted:
            depth = max(depth + {"(": 1, ")": -1}.get(found[0], 0), 0)
            deepest = max(deepest, depth)
    return deepest


def write_address(address: Address) -> str:
    """The string that `parse_address` reads back as this address."""
    if address.name is None:
        return address.email
    name = address.name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{name}" <{address.email}>'


def _parse_name(named: re.Match[str]) -> str | None:
    if named["quoted"] is not None:
        return _ESCAPED.sub(r"\1", named["quoted"]).strip() or None
    name = named["plain"].strip()
    # Several addresses in one string would otherwise pass as one address with a strange name.
    if "," in name or ";" in name:
        raise ValueError("holds more than one address, or a name with a comma that is not in quotes")
    return name or None


def _parse_email(email: str) -> str:
    if (ordinary := _ORDINARY.fullmatch(email)) is not None:
        return _join(ordinary[1], ordinary[2])
    if not email:
        raise ValueError("is empty")
    local, _, domain = email.rpartition("@")
    # email-validator rejects reserved names such as `localhost`; after an unusual local part they are as valid as
    # elsewhere, so a domain that we can check ourselves is restored afterwards.
    is_ordinary = _DOMAIN.fullmatch(domain) is not None
    try:
        checked = validate_email(
            f"{local}@example.org" if is_ordinary else email,
            check_deliverability=False,
            test_environment=True,
        )
    except EmailNotValidError as error:
        raise ValueError(str(error)) from None
    ascii_domain = domain if is_ordinary else checked.ascii_domain
    if "." not in ascii_domain and not is_ordinary:
        raise ValueError("The part after the @-sign should have a period.")
    return _join(fold_local(checked.local_part), ascii_domain)


def _join(local: str, domain: str) -> str:
    """Both parts as one address within the limits of RFC 5321, which count octets."""
    email = f"{local}@{domain.lower()}"
    if len(local.encode()) > LOCAL_LIMIT:
        raise ValueError(f"has more than {LOCAL_LIMIT} octets before the @-sign")
    if len(email.encode()) > EMAIL_LIMIT:
        raise ValueError(f"is longer than {EMAIL_LIMIT} octets")
    return email
