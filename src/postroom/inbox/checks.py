"""All checks of a captured message in one report."""

from dataclasses import dataclass

from postroom.errors import SettingInvalid
from postroom.inbox.aside import aside
from postroom.inbox.authentication import AuthenticationReport, check_authentication
from postroom.inbox.html_check import HtmlFinding, check_html
from postroom.inbox.links import MessageLink, list_links
from postroom.inbox.message_lint import lint_message
from postroom.inbox.model import InboxMessage
from postroom.inbox.reader import read_message
from postroom.mail.content_lint import LetterWarning
from postroom.mail.dkim_keys import load_signers
from postroom.post.dkim import verifier_of
from postroom.settings import Settings


@dataclass(frozen=True, slots=True)
class InboxReport:
    """The results of all checks."""

    html: list[HtmlFinding]
    links: list[MessageLink]
    authentication: AuthenticationReport
    warnings: list[LetterWarning]


async def check_message(settings: Settings, message: InboxMessage) -> InboxReport:
    """Check a message in a child process. Raises `MessageTooComplex`."""
    return await aside(
        len(message.raw),
        make_report,
        message.raw,
        message.entry.mail_from,
        keys=_public_keys(settings),
        mode=settings.inbox_alignment,
    )


def make_report(raw: bytes, mail_from: str, *, keys: list[tuple[str, str, bytes]], mode: str) -> InboxReport:
    """The report of a message; `keys` are domain, selector and public key of the room's DKIM keys."""
    read = read_message(raw)
    verifiers = {(domain, selector): verifier_of(key) for domain, selector, key in keys}
    return InboxReport(
        html=check_html(read.html) if read.html is not None else [],
        links=list_links(read.html, read.text),
        authentication=check_authentication(raw, read, mail_from, keys=verifiers, mode=mode),
        warnings=lint_message(raw, read),
    )


def _public_keys(settings: Settings) -> list[tuple[str, str, bytes]]:
    """The room's DKIM keys; none where this process cannot read their files, as a worker can."""
    try:
        signers = load_signers(settings.dkim_keys).values()
    except SettingInvalid:
        return []
    return [(signer.domain, signer.selector, signer.public_key) for group in signers for signer in group]
