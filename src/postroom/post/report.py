"""Parser of reports: delivery status, complaints, automatic replies. Hostile input: nothing here raises.

In this order: a complaint (ARF, RFC 5965, and the older form of Microsoft's programme); a delivery status (RFC 3464,
whether or not it is in a proper RFC 6522 report); an automatic reply (RFC 3834), which is no bounce; and last the
texts of servers that write for people only, see `prose`. Only `Action: failed` is a bounce: delayed, delivered,
relayed and expanded never are.

Parsing proves nothing. `attribution` decides from `evidence` which delivery a report is about and whether to trust
it.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from enum import StrEnum
from itertools import islice

from postroom.post import message_id, prose, return_path
from postroom.post.address import find_address
from postroom.post.meaning import find_code, find_enhanced
from postroom.post.mime_guard import find_boundaries

LARGEST = 256 * 1024
"""Size limit: only the beginning of a larger message is read, where every server puts its reasons."""
MOST_PARTS = 200  # a report has three; bounds hostile ones
MOST_BOUNDARIES = 10
"""Limit of boundaries: the standard parser matches every open boundary against every line."""
MOST_DEPTH = 5  # reports within reports; the parser is recursive
MOST_TRACES = 200  # ids of one report; bounds the query that looks them up
MOST_FAILURES = 1000  # recipients of one report; a server sends one report per message
MOST_TEXTS = 5  # parts that are searched for prose
LONGEST_EVIDENCE = 256 * 1024  # bounds the search for traces of the original mail

_MARK = re.compile(f"{return_path.PATTERN.pattern}|{message_id.PATTERN.pattern}", re.IGNORECASE)
_UNITEXT = re.compile(r"\\x\{([0-9A-Fa-f]{2,6})\}")
_DELAYED, _FAILED = "delayed", "failed"
_FINE = ("delivered", "relayed", "expanded")
_COMPLAINTS = ("abuse", "fraud", "complaint")
_ADDRESSED = ("delivered-to", "x-original-to", "envelope-to", "x-envelope-to", "to", "in-reply-to", "references")
_LARGEST_POINT = 0x10FFFF  # Unicode's last code point


class ReportKind(StrEnum):
    """The kind of a message."""

    BOUNCE = "bounce"
    DELAY = "delay"  # the server is still retrying
    SUCCESS = "success"  # delivered, relayed, expanded
    COMPLAINT = "complaint"
    UNSUBSCRIBE = "unsubscribe"
    AUTO_REPLY = "auto_reply"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Failure:
    """One recipient of a report; None if the report does not name it."""

    address: str | None
    original: str | None = None  # our recipient, if the mail was forwarded
    code: int | None = None
    enhanced: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A parsed message. `evidence` is searched for our return paths and Message-IDs."""

    kind: ReportKind
    identity: str  # the same for the same message, whatever its route
    failures: tuple[Failure, ...] = ()
    evidence: str = ""
    feedback_type: str = ""


def read_report(raw: bytes) -> Report:
    """Parse a message."""
    beginning = raw[:LARGEST]
    try:
        message = BytesParser(policy=compat32).parsebytes(_flattened(beginning))
        parts = list(_parts(message))
        identity = _identity(message, beginning)
        kind, failures, feedback_type = _read(message, parts)
        evidence = _evidence(message, parts, beginning)
    except Exception:  # noqa: BLE001 - the standard parser has bugs that hostile mail triggers
        return Report(ReportKind.OTHER, _digest(beginning), (), _traces(beginning.decode("latin-1")))
    return Report(kind, identity, failures[:MOST_FAILURES], evidence, feedback_type)


def _read(message: Message, parts: Sequence[Message]) -> tuple[ReportKind, tuple[Failure, ...], str]:
    arf = next((part for part in parts if part.get_content_type() == "message/feedback-report"), None)
    if arf is not None:
        return _complaint(arf, parts)
    if (microsoft := _microsoft_complaint(message, parts)) is not None:
        return microsoft
    blocks = [block for part in parts if _is_status(part) for block in _blocks(part)]
    recipients = [block for block in blocks if "final-recipient" in block or "original-recipient" in block]
    texts, enclosed = _human_texts(message), _enclosed_headers(parts)
    if recipients:
        kind, failures = _statuses(recipients, "\n".join(texts), prose.find_originals(enclosed))
        return kind, failures, ""
    headers = {name.lower(): header_text(value) for name, value in reversed(message.items())}
    reading = prose.read(headers, texts, enclosed)
    failures = tuple(Failure(each.address, None, each.code, each.enhanced, each.text) for each in reading.failures)
    return ReportKind(reading.kind), failures, ""


# ── delivery status ───────────────────────────────────────────────────────────────────────────────────────────────


def _is_status(part: Message) -> bool:
    return part.get_content_type() in ("message/delivery-status", "message/global-delivery-status")


def _statuses(
    blocks: Sequence[Mapping[str, str]], human: str, originals: Sequence[str]
) -> tuple[ReportKind, tuple[Failure, ...]]:
    by_action: dict[str, list[Failure]] = {}
    for block in blocks:
        failure = _failure(block, human if len(blocks) == 1 else "")
        if failure.address is None and failure.original is None:
            failure = replace(failure, address=_with_domain(block.get("final-recipient", ""), originals))
        by_action.setdefault(_action(block), []).append(failure)
    if _FAILED in by_action:
        return ReportKind.BOUNCE, tuple(by_action[_FAILED])
    kind = ReportKind.DELAY if _DELAYED in by_action else ReportKind.SUCCESS
    return kind, ()


def _action(block: Mapping[str, str]) -> str:
    """The action of the block; without one, derived from its status."""
    found = re.search(r"[a-z]+", block.get("action", "").lower())
    word = found[0] if found else ""
    if word in (_DELAYED, _FAILED, *_FINE):
        return word
    return {"5": _FAILED, "2": "delivered"}.get(block.get("status", "").strip()[:1], _DELAYED)


def _failure(block: Mapping[str, str], human: str) -> Failure:
    said = block.get("diagnostic-code", "").partition(";")[2].strip() or block.get("diagnostic-code", "").strip()
    status = find_enhanced(block.get("status", ""))
    spoken = find_enhanced(said)
    if status is None or (spoken is not None and status.endswith(".0.0")):
        status = spoken or status
    text = said or (human[:LONGEST_EVIDENCE] if status is None or status.endswith(".0.0") else "")
    return Failure(
        _recipient(block.get("final-recipient")),
        _recipient(block.get("original-recipient")),
        find_code(said),
        status,
        text,
    )


def _recipient(field: str | None) -> str | None:
    """`rfc822; ann@example.org`, also in the escaped form of RFC 6533."""
    if field is None:
        return None
    _, semicolon, address = field.partition(";")
    text = (address if semicolon else field).strip()
    return find_address(_UNITEXT.sub(_point, text))


def _with_domain(field: str, originals: Sequence[str]) -> str | None:
    """Complete a recipient without domain from the headers of the returned mail."""
    return prose.with_domain(field.rpartition(";")[2].strip().strip("<>"), originals)


def _point(match: re.Match[str]) -> str:
    number = int(match[1], 16)
    return chr(number) if number <= _LARGEST_POINT else ""


def _blocks(part: Message) -> Iterator[dict[str, str]]:
    """The groups of fields in a part; without blank lines, one group per recipient."""
    payload = part.get_payload()
    for each in payload if isinstance(payload, list) else [payload]:
        if isinstance(each, Message):
            yield from _split(each.items())
            rest = each.get_payload()
            if isinstance(rest, str) and rest.strip():
                yield from _blocks_of_text(rest)
        elif isinstance(each, str):
            yield from _blocks_of_text(each)


def _blocks_of_text(text: str) -> Iterator[dict[str, str]]:
    for group in re.split(r"\r?\n[ \t]*\r?\n", text[:LONGEST_EVIDENCE]):
        unfolded = re.sub(r"\r?\n[ \t]+", " ", group)
        lines = [line.partition(":") for line in unfolded.splitlines() if ":" in line]
        yield from _split([(name, value) for name, _, value in lines])


def _split(fields: Sequence[tuple[str, object]]) -> Iterator[dict[str, str]]:
    block: dict[str, str] = {}
    for name, value in fields:
        lowered = name.strip().lower()
        if lowered == "final-recipient" and lowered in block:
            yield block
            block = {}
        block.setdefault(lowered, " ".join(header_text(value).split()))
    yield block


# ── complaints ────────────────────────────────────────────────────────────────────────────────────────────────────


def _complaint(arf: Message, parts: Sequence[Message]) -> tuple[ReportKind, tuple[Failure, ...], str]:
    fields: dict[str, str] = {}
    for block in _blocks(arf):
        fields = {**block, **fields}
    feedback_type = fields.get("feedback-type", "abuse").strip().lower()[:50]
    if feedback_type.startswith("opt-out"):
        kind = ReportKind.UNSUBSCRIBE
    elif feedback_type in _COMPLAINTS:
        kind = ReportKind.COMPLAINT
    else:  # not-spam, auth-failure (RFC 6591), dmarc, virus, other: not a complaint
        return ReportKind.OTHER, (), feedback_type
    named = fields.get("original-rcpt-to") or fields.get("removal-recipient") or _original_recipient(parts)
    return kind, (Failure(_recipient(named), text=feedback_type),), feedback_type


def _microsoft_complaint(
    message: Message, parts: Sequence[Message]
) -> tuple[ReportKind, tuple[Failure, ...], str] | None:
    """The junk mail report of Outlook.com: the mail itself, with a note of who complained."""
    for part in parts:
        named = part.get("X-HmXmrOriginalRecipient")
        if named is not None and part is not message:
            return ReportKind.COMPLAINT, (Failure(find_address(header_text(named)), text="abuse"),), "abuse"
    return None


def _original_recipient(parts: Sequence[Message]) -> str | None:
    """The only recipient of the mail that a complaint encloses."""
    for part in parts[1:]:
        enclosed = header_text(part.get("To", ""))
        if enclosed and enclosed.count("@") == 1:
            return enclosed
    return None


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _flattened(raw: bytes) -> bytes:
    """Limit the boundaries of a message: parts after the fifth boundary are read as text."""
    found = find_boundaries(raw, most=MOST_BOUNDARIES)
    if len(found) <= MOST_BOUNDARIES:
        return raw
    last = found[MOST_DEPTH - 1]
    return raw[:last] + re.sub(rb"(?i)\bcontent-type\s{0,20}:", b"X-Was-Type:", raw[last:])


def _parts(message: Message, *, into_enclosed: bool = True) -> Iterator[Message]:
    waiting, count = [(message, 0)], 0
    while waiting and count < MOST_PARTS:
        part, depth = waiting.pop(0)
        count += 1
        yield part
        payload, kind = part.get_payload(), part.get_content_type()
        is_leaf = (
            _is_status(part) or kind == "message/feedback-report" or (kind == "message/rfc822" and not into_enclosed)
        )
        if isinstance(payload, list) and not is_leaf and depth < MOST_DEPTH:
            waiting.extend((each, depth + 1) for each in payload if isinstance(each, Message))


def _human_texts(message: Message) -> list[str]:
    """The parts for people: plain text, or else HTML without its tags; not the returned mail."""
    parts = [part for part in _parts(message, into_enclosed=False) if not part.is_multipart()]
    for wanted in ("text/plain", "text/html"):
        found = [_decoded(part) for part in parts if part.get_content_type() == wanted]
        texts = [_without_tags(text) if wanted == "text/html" else text for text in found if text.strip()]
        if texts:
            return texts[:MOST_TEXTS]
    return []


def _enclosed_headers(parts: Sequence[Message]) -> str:
    """The headers of the mail that a report returns."""
    pieces = [_decoded(part) for part in parts if part.get_content_type() == "text/rfc822-headers"]
    returned = [part for part in parts[1:] if part.get("Message-ID") or part.get("Received")]
    pieces += [f"{name}: {header_text(part.get(name))}" for part in returned for name in ("To", "Cc") if part.get(name)]
    return "\n".join(pieces)[:LONGEST_EVIDENCE]


def _decoded(part: Message) -> str:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    charset = part.get_content_charset("utf-8")
    try:
        return payload[:LONGEST_EVIDENCE].decode(charset, "replace")
    except (LookupError, ValueError):
        return payload[:LONGEST_EVIDENCE].decode("latin-1")


def _without_tags(html: str) -> str:
    text = re.sub(r"(?i)<(?:br|/p|/div|/tr|/h\d)\b[^>]{0,500}>", "\n", html)
    text = re.sub(r"<(?!([^<>\s]{1,64}@))[^<>]{0,2000}>", " ", text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", " ").replace("&amp;", "&")


def _evidence(message: Message, parts: Sequence[Message], raw: bytes) -> str:
    """Traces of ours in the recipients, the headers of enclosed mail, the texts, and then the raw message."""
    pieces = [header_text(value) for name in _ADDRESSED for value in message.get_all(name, [])]
    for part in parts[1:]:
        pieces += [header_text(part.get(name, "")) for name in ("Message-ID", "Return-Path", "X-Original-Message-ID")]
    pieces += [_decoded(part) for part in parts if not part.is_multipart()][:20]
    pieces.append(raw[:LONGEST_EVIDENCE].decode("latin-1"))
    return _traces("\n".join(pieces)[: 2 * LONGEST_EVIDENCE])


def _traces(text: str) -> str:
    """Candidates of our return paths and Message-IDs, each once; the caller must verify them."""
    found = islice(_MARK.finditer(text), MOST_TRACES * 10)
    return "\n".join(list(dict.fromkeys(each[0] for each in found))[:MOST_TRACES])


def header_text(value: object) -> str:
    """A header's value with its encoded words decoded as far as possible."""
    text = str(value)
    if "=?" not in text:
        return text
    try:
        return "".join(
            piece if isinstance(piece, str) else piece.decode(charset or "latin-1", "replace")
            for piece, charset in decode_header(text)
        )
    except (ValueError, LookupError):
        return text


def _identity(message: Message, raw: bytes) -> str:
    given = str(message.get("Message-ID", "")).strip()
    return given[:500] if given else _digest(raw)


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
