"""Render campaign mail for workers.

Once per claim, the missing letters are loaded; then each mail is a pure function of its letter, its recipient's fields
and the signer of links.

Every mail has an unsubscribe link: `{{ unsubscribe_url }}` in the letter itself, and the same link in the header
`List-Unsubscribe`, which the composer writes with `List-Unsubscribe-Post` for one click (RFC 8058). Opens and clicks
are tracked if the campaign enables it. A merge field can become neither a header nor, in HTML, markup.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from msgspec.structs import replace

from postroom.campaigns import store
from postroom.campaigns.model import CampaignContent
from postroom.campaigns.template import PreparedTemplate, ready
from postroom.db.pool import Pool
from postroom.delivery.model import ClaimId, Outgoing, Recipient, RecipientKind, RecipientOutcome
from postroom.errors import BadInput
from postroom.mail.render import RenderError
from postroom.post.address import domain_of
from postroom.runtime.claim_cache import ClaimCache
from postroom.tracking.links import weave
from postroom.tracking.model import LinkSubject
from postroom.tracking.tokens import TokenSigner

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderingOptions:
    """Values of the installation that a template does not contain."""

    default_domain: str  # the installation's sender, for letters without a sender
    feedback_sender: str = "postroom"  # the last part of Feedback-ID, by which mailbox providers group our mail
    cached: int = 256  # prepared templates; few campaigns are active at a time


@dataclass(frozen=True, slots=True)
class _Ready:
    """A parsed letter with the headers that are the same for every recipient."""

    letter: PreparedTemplate
    headers: Mapping[str, str]
    reply_to: tuple[Recipient, ...]
    has_preferences: bool


class CampaignRendering:
    """The letters of campaigns, loaded on first use. A started campaign never changes, so the cache never expires."""

    def __init__(self, pool: Pool, signer: TokenSigner | None, options: RenderingOptions) -> None:
        self._pool, self._signer, self._options = pool, signer, options
        self._letters: ClaimCache[_Ready | str] = ClaimCache(options.cached)

    async def prepare(self, claim: Sequence[Outgoing], open_claims: Collection[ClaimId]) -> None:
        """Load the letters of these deliveries of one claim, except the ones in memory."""
        wanted = {each.campaign_id for each in claim if each.campaign_id is not None}
        self._letters.hold(claim[0].claim_id, wanted, open_claims)
        known = self._letters.take(wanted)
        if missing := sorted(wanted - known.keys()):
            found = await store.list_letters(self._pool, campaign_ids=missing)
            known |= {campaign_id: self._ready(campaign_id, found.get(campaign_id)) for campaign_id in missing}
        self._letters.add(known)

    def write(self, outgoing: Outgoing) -> Outgoing:
        """The delivery with rendered content; unchanged without a campaign. ValueError: it can never be rendered."""
        if outgoing.campaign_id is None:
            return outgoing
        known = self._letters.get(outgoing.campaign_id)
        if known is None:  # not a ValueError: loading may have failed, and the next attempt may succeed
            raise LookupError(f"the letter of campaign {outgoing.campaign_id} was not loaded")
        if isinstance(known, str):
            raise ValueError(known)  # noqa: TRY004 - the worker treats ValueError as a permanent failure
        if self._signer is None:
            raise ValueError("POSTROOM_SECRET_KEY is not set: no unsubscribe link can be signed")
        return _write(outgoing, known, self._signer)

    def _ready(self, campaign_id: int, letter: CampaignContent | None) -> _Ready | str:
        if letter is None:
            return "its campaign was deleted"
        try:
            parsed = ready(letter, tracked=letter.is_tracked)
        except BadInput as error:  # stored by plain SQL, or parsed by an older version
            return f"its campaign's letter cannot be used: {error.message}"
        except Exception as error:  # noqa: BLE001 - one campaign must not stop the mail of the others in this claim
            _log.exception("letter_unreadable", campaign_id=campaign_id)
            return f"its campaign's letter cannot be used: parsing it raised {type(error).__name__}"
        domain = domain_of(letter.sender.email) if letter.sender else self._options.default_domain
        headers = {
            "List-Id": f"<campaigns.{domain}>",
            "Feedback-ID": f"{campaign_id}:{domain}:campaign:{self._options.feedback_sender}",
            "Precedence": "bulk",
        }
        has_preferences = any("preferences_url" in (body or "") for body in (letter.subject, letter.html, letter.text))
        return _Ready(parsed, headers, _reply_to(letter), has_preferences)


def _write(outgoing: Outgoing, known: _Ready, signer: TokenSigner) -> Outgoing:
    to = next(each for each in outgoing.recipients if each.kind is RecipientKind.TO)
    mark = LinkSubject(outgoing.campaign_id, outgoing.id, to.address)
    unsubscribe = signer.unsubscribe_url(mark)
    variables = person_variables(to.address, to.name, outgoing.variables)
    variables["unsubscribe_url"] = unsubscribe
    if known.has_preferences:
        variables["preferences_url"] = signer.preferences_url(mark)
    rendered = known.letter.render(variables)
    if isinstance(rendered, RenderError):
        raise ValueError(f"{rendered.part}: {rendered.message}")  # noqa: TRY004 - the worker treats ValueError as a permanent failure
    letter, html = known.letter.letter, rendered.html
    if html is not None and letter.is_tracked:
        html = weave(html, click=signer.click_urls(mark), pixel=signer.open_url(mark))
    return replace(
        outgoing,
        sender=letter.sender,
        recipients=(*outgoing.recipients, *known.reply_to),
        subject=rendered.subject,
        text=rendered.text,
        html=html,
        is_canonical=rendered.is_canonical,  # tracked links change no spaces
        headers={**outgoing.headers, **known.headers},
        unsubscribe_url=unsubscribe,
    )


def person_variables(email: str, name: str | None, custom_data: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a recipient: the merge fields, `email`, and `name` if it is set."""
    named = {} if name is None else {"name": name}
    return {**custom_data, **named, "email": email}


def _reply_to(letter: CampaignContent) -> tuple[Recipient, ...]:
    if letter.reply_to is None:
        return ()
    address = letter.reply_to
    return (Recipient(RecipientKind.REPLY_TO, 0, address.email, address.name, RecipientOutcome.PENDING),)
