"""Authentication of a captured message, as a receiver would see it, without DNS.

DKIM signatures are verified with the keys of POSTROOM_DKIM_KEYS. SPF cannot be evaluated, because no host sent the
message; only its alignment is: whether the domain of the envelope's sender fits the domain of the From header, as DMARC
(RFC 7489, section 3.1) requires. Relaxed alignment accepts a subdomain of the other domain. DMARC also accepts two
subdomains of one organizational domain, which only the public suffix list or DNS can tell: such a pair is `unknown`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parseaddr
from enum import StrEnum

from postroom.inbox.reader import ReadMessage
from postroom.post.dkim_check import SignatureCheck, SignatureResult, Verify, check_signatures


class Alignment(StrEnum):
    """Whether a domain fits the domain of the From header, the best result first."""

    ALIGNED = "aligned"
    UNKNOWN = "unknown"  # two subdomains of one parent
    NOT_ALIGNED = "not_aligned"


@dataclass(frozen=True, slots=True)
class AuthenticationReport:
    """The results of one message."""

    from_domain: str
    envelope_domain: str
    spf_alignment: Alignment
    dkim: tuple[SignatureCheck, ...]
    dkim_alignment: Alignment  # of the valid signature that fits best
    dmarc: str  # pass, fail, or unknown
    mode: str  # relaxed or strict


def check_authentication(
    raw: bytes, read: ReadMessage, mail_from: str, *, keys: Mapping[tuple[str, str], Verify], mode: str
) -> AuthenticationReport:
    """The authentication of a message. DMARC passes if a valid DKIM signature is aligned."""
    from_domain = _domain(parseaddr(read.first("from"))[1])
    envelope_domain = _domain(mail_from)
    dkim = check_signatures(raw, keys)
    valid = [_alignment(check.domain, from_domain, mode) for check in dkim if check.result is SignatureResult.PASS]
    best = min(valid, key=list(Alignment).index, default=Alignment.NOT_ALIGNED)
    return AuthenticationReport(
        from_domain=from_domain,
        envelope_domain=envelope_domain,
        spf_alignment=_alignment(envelope_domain, from_domain, mode),
        dkim=tuple(dkim),
        dkim_alignment=best,
        dmarc=_dmarc(best, dkim),
        mode=mode,
    )


def _dmarc(best: Alignment, dkim: list[SignatureCheck]) -> str:
    if best is Alignment.ALIGNED:
        return "pass"
    unsure = best is Alignment.UNKNOWN or any(check.result is SignatureResult.UNKNOWN_KEY for check in dkim)
    return "unknown" if unsure else "fail"


def _domain(address: str) -> str:
    return address.rpartition("@")[2].lower().rstrip(".") if "@" in address else ""


def _alignment(domain: str, from_domain: str, mode: str) -> Alignment:
    if not domain or not from_domain:
        return Alignment.NOT_ALIGNED
    if domain == from_domain:
        return Alignment.ALIGNED
    if mode == "strict":
        return Alignment.NOT_ALIGNED
    if domain.endswith(f".{from_domain}") or from_domain.endswith(f".{domain}"):
        return Alignment.ALIGNED
    shares_parent = domain.split(".")[-2:] == from_domain.split(".")[-2:]
    return Alignment.UNKNOWN if shares_parent else Alignment.NOT_ALIGNED
