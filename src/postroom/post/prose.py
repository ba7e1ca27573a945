"""Parser of bounces in prose: qmail, Exim, Sendmail, old Exchange, and other languages. Pure.

Read by structure first. A report comes from a mail system (its sender, an empty return path, X-Failed-Recipients), it
says in the subject or the text that a mail was not delivered, and it names the recipient: after that statement, in
X-Failed-Recipients, or by a name without domain that the headers of the returned mail complete. The text is cut where
the returned mail begins. Words about the reason decide the class (`classify`), not whether it is a bounce.

The text about an address is its line and the lines up to the next address. A false find does no
harm: an address counts only if it is one of the delivery's recipients, see `attribution`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from postroom.post.address import find_address
from postroom.post.meaning import find_code, find_enhanced, is_reason

LONGEST_TEXT = 32 * 1024  # a bounce says its reason in the first kilobytes
LONGEST_SEGMENT = 1500  # the sentence about one address; more would mix the reasons of two
LONGEST_BEGINNING = 4000  # words that mark a bounce stand at the beginning
LONGEST_FRAME = 4
"""Brackets, a colon or a bullet around an address that is alone on its line."""
MOST_ADDRESSES = 200  # a list of addresses in a bounce; bounds the time

_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z0-9-]{2,63}")
_LABEL = re.compile(r"(?:smtp|rfc-?822|mailto|to|for|user|e?mail|addr(?:ess)?|recipient)=", re.IGNORECASE)
_SENDER_FOLLOWS = re.compile(
    r"(?:(?<!generated )(?<!expanded )\bfrom|\bsender|\bby|\bcontact|\bwrite to|\breply to)\W{0,8}$", re.IGNORECASE
)
_NULL_SENDER = re.compile(r"<?(?:mailer-daemon(?:@[^<>\s]{1,255})?)?>?", re.IGNORECASE)
_BARE_NAME = re.compile(r"^[ \t>]*<?([A-Za-z0-9][A-Za-z0-9._+-]{1,62}[A-Za-z0-9])>?[ \t]*$", re.MULTILINE)
_MACHINE = re.compile(
    r"mailer-?daemon|postmaster|mail-?delivery|delivery[ ._-]?(?:sub)?system|microsoftexchange|bounce|<>|"
    r"mdaemon|daemon@|"
    r"mail(?:er)?[ ._-]?(?:system|server|router|gateway|administrator|admin|notification|service|transport|"
    r"filter|scan)|"
    r"(?:e-?mail|internet|system|network|smtp|mta)[ ._-]?(?:administrator|admin|gateway|notification|security)|"
    r"inter ?scan|lotus|domino|\bnotes\b|imail|groupwise|mercury|mailenable|kerio|surgemail|communigate|mimecast|"
    r"barracuda|mail ?marshal|mail ?sweeper|exim\b|qmail|sendmail|postfix|undeliver|non-?deliver|returned mail|"
    r"no-?reply",
    re.IGNORECASE,
)
_DAEMON = re.compile(r"mailer-?daemon|postmaster|mail delivery (?:sub)?system", re.IGNORECASE)
_COPY_BEGINS = re.compile(
    r"^[ \t>*]*(?:-{2,}|={2,}|_{2,})?[ \t>*]*(?:"
    r"below this line is a copy|this is a copy of (?:the|your) message|(?:a |here is a )?copy of (?:the|your) |"
    r"(?:the )?(?:body|headers?|text|start|beginning) of (?:the |your )?(?:original |returned )?(?:message|mail)|"
    r"(?:the )?(?:original|undelivered|unsent|returned|attached|rejected) (?:message|mail|"
    r"headers)\W{0,8}(?:follows|below|$)|"
    r"original (?:message|headers)|unsent message|possibly truncated|message headers? follows?|"
    r"the message (?:is|was) |"
    r"your (?:original )?(?:message|mail) (?:follows|header|is attached)|returned message|message (?:text|body|"
    r"contents?) f|"
    r"urspr[uü]ngliche nachricht|message (?:d')?origin(?:al|e)|mensaje original|messaggio originale|"
    r"mensagem original|"
    r"return-path:|received: |message-id:|mime-version:|x-mailer:|dkim-signature:)",
    re.IGNORECASE | re.MULTILINE,
)
_BOUNCE_SUBJECT = re.compile(
    r"undeliver|failure notice|failed mail|delivery (?:has )?(?:fail|error|problem|notif|report)|"
    r"returned (?:mail|to sender|"
    r"e-?mail|mes)|"
    r"mail (?:delivery|could not be|not|system) ?(?:fail|deliv|error|problem)|delivery status notification|"
    r"nondeliver|"
    r"could not be delivered|returning message to sender|not delivered|unable to deliver|non-deliver|delivery fail|"
    r"non remis|unzustellbar|nicht zugestellt|zustellung|non recapitat|mancat[ao] (?:consegna|recapito)|[ée]chec|"
    r"no (?:se )?(?:pudo)? ?entreg|no entregado|n[aã]o (?:foi )?(?:p[oô]de )?(?:ser )?entregue|"
    r"niet (?:worden )?(?:af|be)gele?verd?|не доставлено|недоставлен|nie dostarczono|niedostarczon|"
    r"退信|无法投递|配信(?:不能|できません)|delivery problem|rejected|mail fail|message (?:delivery )?fail|"
    r"user unknown|"
    r"\bndn\b|\bndr\b|permanent (?:\w+ )?(?:fail|error)|(?:mail|message) (?:status|bounce)|bounced",
    re.IGNORECASE,
)
_UNDELIVERED = re.compile(
    r"(?:n[o']t|unable|failed|failure|impossible|cannot|refus\w+) (?:\w+ ){0,3}(?:to |be |been |yet )?(?:\w+ )?"
    r"(?:deliver|sent\b|send\b|reach|transmi|forward|process|complet|receiv|collect|accept|post)|"
    r"did ?n[o']?t (?:reach|receive|get)|deliver\w*\b[^.]{0,60}\b(?:fail|error|unsuccess|abort|not possible|"
    r"impossible)|"
    r"undeliver|non-?deliver|nondeliver|not (?:been )?delivered|return(?:ed|ing) (?:to|mail|message|because|"
    r"your|unread|for)|"
    r"(?:fatal|permanent)\w* (?:\w+ )?(?:error|fail)|\brejected\b|\bbounced?\b|failed (?:recipient|address)|"
    r"following (?:e-?mail )?(?:address|recipient|user)|(?:recipient|address)\w* (?:\w+ )?fail|\bexceeded\b|"
    r"nicht (?:\w+ ){0,2}zu(?:ge)?stell|unzustellbar|pas (?:pu )?[eê]?t?r?e? ?(?:\w+ )?(?:d[eé]livr|remis|"
    r"distribu|achemin)|"
    r"no (?:se )?(?:ha )?(?:podido|pudo) (?:\w+ )?entreg|non [eè] (?:stat[oa] )?(?:\w+ )?(?:possibile|consegnat|"
    r"recapitat)|"
    r"n[aã]o (?:foi |p[oô]de )(?:\w+ ){0,2}entreg|niet (?:\w+ )?(?:bezorg|afgelever)|не (?:\w+ ){0,3}достав|"
    r"届けられ|配信でき|送信でき|配達でき|无法(?:投递|送达|发送)|未能送达|退回",
    re.IGNORECASE,
)
_DELAYED = re.compile(
    r"(?:delivery|message|mail|nachricht|zustellung)\b.{0,60}\b(?:delayed|has not yet been|not been delivered yet|"
    r"still being (?:tried|retried)|verz[oö]gert)|\bthis is a warning message only|\byou do not need to resend|"
    r"\bwill (?:be retried|continue to (?:try|retry|be attempted)|keep trying|retry)|\bstill trying\b|"
    r"warning: (?:could not send|message).{0,40}(?:delayed|past \d+ hours|hours)|no action is required|"
    r"\b(?:delivery|attempts?) (?:\w+ ){0,3}(?:will|to) (?:\w+ )?continue|\bnot yet (?:been )?(?:delivered|able)|"
    r"\bstill in (?:the|our) (?:mail )?queue|\bdelivery (?:temporarily )?(?:suspended|deferred)",
    re.IGNORECASE | re.DOTALL,
)
_ORIGINAL = re.compile(
    r"^[ \t>]*(?:to|cc|x-original-to|envelope-to|x-rcpt-to)[ \t]*:(.{1,500})$", re.IGNORECASE | re.MULTILINE
)
_AWAY_SUBJECT = re.compile(
    r"out of (?:the )?office|automatic reply|auto(?:matic)?[ -]?(?:reply|response|responder|antwort)|\baway from\b|"
    r"on (?:vacation|holiday|leave)|vacation|abwesen|automatische antwort|r[ée]ponse automatique|absen(?:ce|te|t)\b|"
    r"respuesta autom[aá]tica|fuera de (?:la )?oficina|risposta automatica|fuori (?:sede|ufficio)|"
    r"resposta autom[aá]tica|afwezig|automatisch antwoord|автоответ|自动回复|自動返信|autosvar|fr[aå]nvaro|"
    r"ticket received|we (?:have )?received your",
    re.IGNORECASE,
)
_AWAY_HEADERS = ("x-autoreply", "x-autorespond", "x-autoresponder", "x-mail-autoreply", "x-auto-reply-from")


@dataclass(frozen=True, slots=True)
class RecipientNote:
    """The text about one recipient, or about no particular one."""

    address: str | None
    code: int | None
    enhanced: str | None
    text: str


@dataclass(frozen=True, slots=True)
class ProseReport:
    """The kind of a message (a value of `ReportKind`), and the failed recipients."""

    kind: str
    failures: list[RecipientNote] = field(default_factory=list)


def read(headers: Mapping[str, str], texts: Sequence[str], enclosed: str) -> ProseReport:
    """Parse a message that no standard describes.

    `headers` are by name in lower case, `texts` are its parts for people, `enclosed` the headers of the returned
    mail.
    """
    pieces = [_split_copy(text[:LONGEST_TEXT].replace("\r\n", "\n")) for text in texts]
    said = "\n".join(before for before, _ in pieces)[:LONGEST_TEXT]
    failed = _addresses(headers.get("x-failed-recipients", ""))
    silent = ProseReport("auto_reply" if is_auto_reply(headers) else "other")
    if not failed and not _is_bounce(headers, said):
        return ProseReport("delay") if _is_delay(headers) else silent
    if _DELAYED.search(headers.get("subject", "")) or (not failed and _DELAYED.search(said[:2000])):
        return ProseReport("delay")
    originals = find_originals("\n".join([enclosed, *(after for _, after in pieces)]))
    addresses = failed or _mentioned(said, headers) or _completed(said, headers, originals)
    failures = _notes_by_address(said, addresses)
    return ProseReport("bounce", failures) if failures else silent


def is_auto_reply(headers: Mapping[str, str]) -> bool:
    """True for automatic replies: those declared (RFC 3834), and those recognised by their text."""
    submitted = headers.get("auto-submitted", "no").partition(";")[0].strip().lower()
    precedence = headers.get("precedence", "").strip().lower()
    return (
        submitted in ("auto-replied", "auto-notified")
        or precedence in ("auto_reply", "auto-reply")
        or any(name in headers for name in _AWAY_HEADERS)
        or bool(_AWAY_SUBJECT.search(headers.get("subject", "")))
    )


def find_originals(copy: str) -> list[str]:
    """The recipients of the returned mail, by its headers."""
    return _addresses(",".join(found[1] for found in _ORIGINAL.finditer(copy[:LONGEST_TEXT])))


def with_domain(name: str, others: Sequence[str]) -> str | None:
    """The address of a list that has this local part."""
    return next((each for each in others if each.rpartition("@")[0].lower() == name.lower()), None)


def _is_bounce(headers: Mapping[str, str], said: str) -> bool:
    """True if a mail system reports a failure, or any other sender does in both subject and text."""
    subject, beginning = headers.get("subject", ""), said[:LONGEST_BEGINNING]
    if _AWAY_SUBJECT.search(subject):
        return False
    in_subject, in_text = bool(_BOUNCE_SUBJECT.search(subject)), bool(_UNDELIVERED.search(beginning))
    is_null = bool(_NULL_SENDER.fullmatch(headers.get("return-path", "-").strip()))
    is_report = headers.get("content-type", "").lower().startswith("multipart/report")
    if is_null or is_report or _MACHINE.search(headers.get("from", "")):
        return in_subject or (in_text and not is_auto_reply(headers)) or _is_refusal(beginning)
    return in_subject and in_text and not is_auto_reply(headers)


def _is_delay(headers: Mapping[str, str]) -> bool:
    """True for a delay notice of a mail system that declares it an automatic reply."""
    return bool(_DAEMON.search(headers.get("from", "")) and _DELAYED.search(headers.get("subject", "")))


def _split_copy(text: str) -> tuple[str, str]:
    """Split the text of the mail system from the returned mail."""
    found = _COPY_BEGINS.search(text)
    return (text[: found.start()], text[found.start() :]) if found else (text, "")


def _addresses(text: str) -> list[str]:
    found = [_ADDRESS.search(piece) for piece in text.split(",")[:MOST_ADDRESSES]]
    return list(dict.fromkeys(_cleaned(each[0]) for each in found if each))


def _cleaned(address: str) -> str:
    """An address without attached quotes and labels: `'ann@example.org`, `SMTP=ann@example.org`."""
    bare = address.lstrip("'`/=.*|-").rstrip(".'-")
    label = _LABEL.match(bare)
    return bare[label.end() :] if label else bare


def _mentioned(said: str, headers: Mapping[str, str]) -> list[str]:
    """Addresses after the statement of failure, or else anywhere; without addresses of senders."""
    own = {each.lower() for name in ("from", "to", "sender", "reply-to") for each in _addresses(headers.get(name, ""))}
    statement = _UNDELIVERED.search(said)
    begin = said.rfind("\n", 0, statement.start()) + 1 if statement else 0
    for text in (said[begin:], said):
        found = [
            _cleaned(match[0])
            for match in _ADDRESS.finditer(text)
            if not _SENDER_FOLLOWS.search(text[max(match.start() - 30, 0) : match.start()])
        ]
        others = [each for each in dict.fromkeys(found) if each.lower() not in own and not _MACHINE.search(each)]
        if others:
            return others[:MOST_ADDRESSES]
    return []


def _completed(said: str, headers: Mapping[str, str], originals: Sequence[str]) -> list[str]:
    """Recipients named without domain, or the only one of the returned mail if the text names none."""
    words = {word.lower() for word in re.findall(r"[A-Za-z0-9._+-]{2,64}", said[:LONGEST_TEXT])}
    named = [each for each in originals if each.rpartition("@")[0].lower() in words]
    if named or len(originals) == 1:
        return named or list(originals)
    domain = next(iter(_addresses(headers.get("from", ""))), "").rpartition("@")[2]
    statement = _UNDELIVERED.search(said)
    if not domain or statement is None:
        return []
    return [f"{name}@{domain}" for name in _BARE_NAME.findall(said[statement.end() :])[:MOST_ADDRESSES]]


def _notes_by_address(text: str, addresses: Sequence[str]) -> list[RecipientNote]:
    """The text about each address. If some have a reason beside them, those without one are not failures."""
    spoken = {address: _segment(text, address, addresses) for address in addresses}
    reasons = [address for address in addresses if _is_refusal(spoken[address])]
    if reasons:
        meant = [each for each in addresses if each in reasons or _is_named(spoken[each].partition("\n")[0], each)]
        return [_refusal(address, spoken[address]) for address in meant]
    whole = text[:LONGEST_SEGMENT]
    if not addresses:
        return [_refusal(None, whole)] if _is_refusal(whole) or _UNDELIVERED.search(whole) else []
    return [_refusal(address, whole) for address in addresses]


def _segment(text: str, address: str, addresses: Sequence[str]) -> str:
    """The line of an address and the text up to the line of the next one."""
    at = text.find(address)
    if at < 0:
        return ""
    begin = text.rfind("\n", 0, at) + 1
    after = text[at + len(address) : at + LONGEST_SEGMENT]
    others = [after.find(other) for other in addresses if other != address]
    end = min((found for found in others if found >= 0), default=len(after))
    return text[begin:at] + address + after[: max(after.rfind("\n", 0, end), 0) if end < len(after) else end]


def _is_named(line: str, address: str) -> bool:
    """True if a line says that this address failed, or contains only the address."""
    return bool(_UNDELIVERED.search(line)) or len(line.strip()) <= len(address) + LONGEST_FRAME


def _is_refusal(segment: str) -> bool:
    enhanced = find_enhanced(segment)
    is_code = enhanced is not None and not enhanced.startswith("2.")
    return is_code or find_code(segment) is not None or is_reason(" ".join(segment.split()))


def _refusal(address: str | None, segment: str) -> RecipientNote:
    enhanced = find_enhanced(segment)
    if enhanced is not None and enhanced.startswith("2."):
        enhanced = None
    return RecipientNote(find_address(address), find_code(segment), enhanced, " ".join(segment.split()))
