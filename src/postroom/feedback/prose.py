"""Reports that were written for people: qmail, Exim, Sendmail, old Exchange, and those in other languages. Pure.

The text is cut where the returned mail begins. Every address in the rest is followed by what is said about it, up to
the next address; those about which a refusal is told have failed. A false find does no harm: an address counts only if
it is one of the delivery's recipients, see `attribution`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from postroom.feedback.address import parse_or_none
from postroom.feedback.classify import find_code, find_enhanced, says_failure

LONGEST_TEXT = 64 * 1024
LONGEST_SEGMENT = 1500
MOST_ADDRESSES = 200

_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z0-9-]{2,63}")
_MACHINE = re.compile(
    r"mailer-daemon|postmaster|mail-?delivery|microsoftexchange|bounce|mail(?:er)?[ ._-]?system|<>", re.IGNORECASE
)
_COPY_BEGINS = re.compile(
    r"^[ \t>]*(?:-{2,}|={2,}|_{5,})?[ \t]*(?:"
    r"below this line is a copy|this is a copy of (?:the|your) message|copy of the (?:original )?message|"
    r"(?:the )?(?:body|headers?|text) of (?:the|your) (?:original )?message|original (?:message|headers)|"
    r"message headers? follows?|your (?:original )?message (?:follows|header)|returned message|"
    r"urspr[uü]ngliche nachricht|message (?:d')?origin(?:al|e)|mensaje original|messaggio originale|mensagem original|"
    r"return-path:|received: from )",
    re.IGNORECASE | re.MULTILINE,
)
_BOUNCE_SUBJECT = re.compile(
    r"undeliver|failure notice|delivery (?:has )?fail|returned mail|mail (?:delivery|could not be|not) ?(?:fail|deliv)|"
    r"delivery status notification|could not be delivered|returning message to sender|non remis|unzustellbar|"
    r"nicht zugestellt|zustellung|non recapitat|mancat[ao] (?:consegna|recapito)|no (?:se )?(?:pudo)? ?entreg|[ée]chec|"
    r"no entregado|n[aã]o (?:foi )?(?:p[oô]de )?(?:ser )?entregue|niet (?:worden )?(?:af|be)gele?verd?|"
    r"не доставлено|недоставлен|nie dostarczono|niedostarczon|退信|无法投递|配信(?:不能|できません)|"
    r"delivery problem|rejected",
    re.IGNORECASE,
)
_DELAYED = re.compile(
    r"(?:delivery|message|mail|nachricht|zustellung)\b.{0,60}\b(?:delayed|has not yet been|not been delivered yet|"
    r"still being (?:tried|retried)|verz[oö]gert)|\bthis is a warning message only|\byou do not need to resend|"
    r"\bwill (?:be retried|continue to (?:try|retry|be attempted)|keep trying|retry)|\bstill trying\b|"
    r"warning: (?:could not send|message).{0,40}(?:delayed|past \d+ hours|hours)|no action is required",
    re.IGNORECASE | re.DOTALL,
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
class Told:
    """What is told about one recipient, or about nobody in particular."""

    address: str | None
    code: int | None
    enhanced: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What kind of message it is (a value of `ReportKind`), and who failed."""

    kind: str
    failures: list[Told] = field(default_factory=list)


def read(headers: Mapping[str, str], text: str) -> Reading:
    """Read a message that no standard describes; `headers` by name in lower case."""
    failed = _addresses(headers.get("x-failed-recipients", ""))
    is_machine = bool(failed) or _is_from_machine(headers)
    if not is_machine and is_auto_reply(headers):
        return Reading("auto_reply")
    said = _before_copy(text[:LONGEST_TEXT])
    is_bounce = bool(failed) or (is_machine and bool(_BOUNCE_SUBJECT.search(headers.get("subject", "")) or said))
    if not is_bounce:
        return Reading("auto_reply" if is_auto_reply(headers) else "other")
    if _DELAYED.search(headers.get("subject", "")) or (not failed and _DELAYED.search(said[:2000])):
        return Reading("delay")
    failures = _told(said, failed or _mentioned(said, headers))
    if failures:
        return Reading("bounce", failures)
    return Reading("auto_reply" if is_auto_reply(headers) else "other")


def is_auto_reply(headers: Mapping[str, str]) -> bool:
    """True for answering machines: those that say so (RFC 3834), and those that only sound like it."""
    submitted = headers.get("auto-submitted", "no").partition(";")[0].strip().lower()
    precedence = headers.get("precedence", "").strip().lower()
    return (
        submitted in ("auto-replied", "auto-notified")
        or precedence in ("auto_reply", "auto-reply")
        or any(name in headers for name in _AWAY_HEADERS)
        or bool(_AWAY_SUBJECT.search(headers.get("subject", "")))
    )


def _is_from_machine(headers: Mapping[str, str]) -> bool:
    if _AWAY_SUBJECT.search(headers.get("subject", "")):
        return False
    sender = headers.get("from", "")
    if _MACHINE.search(sender):
        return True
    is_null = headers.get("return-path", "").strip() == "<>"
    return is_null and bool(_BOUNCE_SUBJECT.search(headers.get("subject", "")))


def _before_copy(text: str) -> str:
    found = _COPY_BEGINS.search(text)
    return text[: found.start()] if found else text


def _addresses(text: str) -> list[str]:
    found = [_ADDRESS.search(piece) for piece in text.split(",")[:MOST_ADDRESSES]]
    return list(dict.fromkeys(each[0] for each in found if each))


def _mentioned(text: str, headers: Mapping[str, str]) -> list[str]:
    """Addresses in the text, but not those the report came from or to."""
    ends = ",".join(headers.get(name, "") for name in ("from", "to", "sender", "reply-to"))
    own = {address.lower() for address in _addresses(ends)}
    found = (match[0].rstrip(".") for match in _ADDRESS.finditer(text))
    others = [each for each in dict.fromkeys(found) if each.lower() not in own and not _MACHINE.search(each)]
    return others[:MOST_ADDRESSES]


def _told(text: str, addresses: Sequence[str]) -> list[Told]:
    """What is said about each; if nothing can be tied to an address, what is said about all."""
    starts = sorted((text.find(address), address) for address in addresses)
    told = []
    for index, (start, address) in enumerate(starts):
        end = starts[index + 1][0] if index + 1 < len(starts) else len(text)
        segment = text[start:end][:LONGEST_SEGMENT] if start >= 0 else ""
        said = _refusal(address, segment)
        if said is not None:
            told.append(said)
    if told:
        return told
    only = addresses[0] if len(addresses) == 1 else None
    whole = _refusal(only, text[:LONGEST_SEGMENT])
    return [whole] if whole is not None else [Told(each, None, None, "") for each in addresses if not text.strip()]


def _refusal(address: str | None, segment: str) -> Told | None:
    enhanced, code = find_enhanced(segment), find_code(segment)
    if enhanced is not None and enhanced.startswith("2."):
        enhanced = None
    words = " ".join(segment.split())
    if enhanced is None and code is None and not says_failure(words):
        return None
    return Told(parse_or_none(address), code, enhanced, words)
