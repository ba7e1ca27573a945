"""Which headers a caller may set, and what may stand in them.

Checked when a request is accepted, and once more when the message is composed.
"""

import re

FORBIDDEN_HEADERS = frozenset(
    {
        "authentication-results",
        "bcc",
        "cc",
        "date",
        "delivered-to",
        "dkim-signature",
        "domainkey-signature",
        "errors-to",
        "from",
        "mime-version",
        "received",
        "received-spf",
        "reply-to",
        "return-path",
        "sender",
        "subject",
        "to",
    }
)
"""Fields a caller may not set by hand, in lower case: they follow from the delivery itself."""

RESERVED_PREFIX = "postroom-"
"""What Postroom tells itself about a delivery; never leaves."""

FORBIDDEN_PREFIXES = ("arc-", "content-", "resent-", RESERVED_PREFIX)

_STRUCTURED = frozenset(
    {
        "auto-submitted",
        "cfbl-address",
        "cfbl-feedback-id",
        "feedback-id",
        "importance",
        "in-reply-to",
        "message-id",
        "precedence",
        "priority",
        "references",
        "x-priority",
    }
)
_TOKEN = r"[A-Za-z0-9!#$&^_.+-]{1,127}"  # noqa: S105 - a token of RFC 2045, not a secret
MEDIA_TYPE = re.compile(rf'{_TOKEN}/{_TOKEN}(?:; ?{_TOKEN}=(?:{_TOKEN}|"[ !#-:<-\[\]-~]{{0,200}}")){{0,10}}')
"""What an attachment may say it is: a type, and parameters such as `method=REQUEST` or `charset="utf-8"`."""

LINE_LIMIT = 998
NAME_LIMIT = 76
_LONGEST_WORD = LINE_LIMIT - NAME_LIMIT - 2
_LONGEST_ID = 250
_PRINTABLE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_HEADER_NAME = re.compile(r"[!-9;-~]+")
_MESSAGE_ID = re.compile(r"<[!-;=?A-~]+@[!-;=?A-~]+>")
_BREAKS = re.compile("[\r\n\0]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def check_header(name: str, value: str) -> str | None:
    """Why a caller may not set this header, in a few words; None if he may."""
    lowered = name.lower()
    if _HEADER_NAME.fullmatch(name) is None or len(name) > NAME_LIMIT:
        return "is not a header name"
    if lowered in FORBIDDEN_HEADERS or lowered.startswith(FORBIDDEN_PREFIXES):
        return "is set by Postroom and cannot be given"
    return check_text(value) or (_check_structured(lowered, value) if is_structured(lowered) else None)


def check_text(value: str) -> str | None:
    """Why this text can stand in no header at all; None if it can."""
    if _BREAKS.search(value) is not None:
        return "contains a line break or a NUL"
    if _SURROGATES.search(value) is not None:
        return "contains half a character (a lone surrogate)"
    return None


def is_structured(lowered: str) -> bool:
    """True for fields in which encoded words have no meaning."""
    return lowered in _STRUCTURED or lowered.startswith("list-")


def _check_structured(lowered: str, value: str) -> str | None:
    if _PRINTABLE.fullmatch(value) is None:
        return "must be printable ASCII without spaces at its ends"
    if lowered == "message-id" and (_MESSAGE_ID.fullmatch(value) is None or len(value) > _LONGEST_ID):
        return "must look like <unique@domain>"
    if max(map(len, value.split())) > _LONGEST_WORD:
        return "has a word too long for a line"
    return None
