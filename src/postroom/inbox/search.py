"""The search language of the inbox: words, and words with the field they are searched in.

    from:shop to:ada@example.org subject:"your order" tag:order=42 has:attachment is:unread invoice

All terms must match. Matching ignores case and finds parts of words; a tag is found by its key, its value or both.
"""

import re
from dataclasses import dataclass

_TERM = re.compile(r'(?:(from|to|subject|tag|has|is):)?(?:"([^"]*)"|(\S+))', re.IGNORECASE)
_STATES = {("is", "unread"): False, ("is", "read"): True}
_ATTACHED = {("has", "attachment"), ("has", "attachments")}


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxFilter:
    """A filter of captured messages; the default selects all."""

    recipient: str | None = None  # the whole address of an envelope recipient
    after_id: int | None = None
    senders: tuple[str, ...] = ()
    receivers: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    has_attachment: bool | None = None
    is_read: bool | None = None


def parse_search(query: str | None, *, recipient: str | None = None, after_id: int | None = None) -> InboxFilter:
    """The filter of a search; an unknown field is an ordinary word."""
    found: dict[str, list[str]] = {"from": [], "to": [], "subject": [], "tag": [], "": []}
    has_attachment: bool | None = None
    is_read: bool | None = None
    for field, quoted, word in _TERM.findall(query or ""):
        name, text = field.lower(), quoted or word
        if (name, text.lower()) in _ATTACHED:
            has_attachment = True
        elif (name, text.lower()) in _STATES:
            is_read = _STATES[name, text.lower()]
        elif text:
            found.get(name, found[""]).append(text if name in found else f"{field}:{text}")
    return InboxFilter(
        recipient=recipient,
        after_id=after_id,
        senders=tuple(found["from"]),
        receivers=tuple(found["to"]),
        subjects=tuple(found["subject"]),
        words=tuple(found[""]),
        tags=tuple(found["tag"]),
        has_attachment=has_attachment,
        is_read=is_read,
    )
