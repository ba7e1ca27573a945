"""All checks of a captured message in one report."""

import asyncio
from dataclasses import dataclass

from postroom.errors import SettingInvalid
from postroom.inbox.authentication import AuthenticationReport, check_authentication
from postroom.inbox.html_check import HtmlFinding, check_html
from postroom.inbox.links import MessageLink, list_links
from postroom.inbox.message_lint import lint_message
from postroom.inbox.model import InboxMessage
from postroom.inbox.reader import read_message
from postroom.mail.content_lint import LetterWarning
from postroom.mail.dkim_keys import load_signers
from postroom.post.dkim_check import Verify
from postroom.settings import Settings


@dataclass(frozen=True, slots=True)
class InboxReport:
    """The results of all checks."""

    html: list[HtmlFinding]
    links: list[MessageLink]
    authentication: AuthenticationReport
    warnings: list[LetterWarning]


async def check_message(settings: Settings, message: InboxMessage) -> InboxReport:
    """Check a message in a thread: parsing a large one would delay other requests."""
    return await asyncio.to_thread(_check, settings, message)


def _check(settings: Settings, message: InboxMessage) -> InboxReport:
    read = read_message(message.raw)
    return InboxReport(
        html=check_html(read.html) if read.html is not None else [],
        links=list_links(read.html, read.text),
        authentication=check_authentication(
            message.raw, read, message.entry.mail_from, keys=_keys(settings), mode=settings.inbox_alignment
        ),
        warnings=lint_message(message.raw, read),
    )


def _keys(settings: Settings) -> dict[tuple[str, str], Verify]:
    """The room's keys by domain and selector; empty where this process cannot read their files, as a worker can."""
    try:
        signers = load_signers(settings.dkim_keys).values()
    except SettingInvalid:
        return {}
    return {(signer.domain, signer.selector): signer.verify_digest for group in signers for signer in group}
