"""Preview, test mails and lint of a letter before its campaign starts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from postroom.campaigns import store
from postroom.campaigns.errors import CampaignNotFound, CampaignRecipientNotFound
from postroom.campaigns.model import Campaign, CampaignContent
from postroom.campaigns.rendering import person_variables
from postroom.campaigns.trial import lint_letter, render_letter, try_letter
from postroom.db.pool import Pool
from postroom.delivery import service as delivery_service
from postroom.delivery.check import check_batch
from postroom.delivery.model import DeliveryId, DeliveryRequest, Lane
from postroom.errors import BadInput, FieldError
from postroom.events.audit import audited
from postroom.mail.content_lint import LetterWarning
from postroom.mail.render import Rendered
from postroom.post.address import Address, parse_address

MOST_TESTS = 20  # tests are for colleagues; more would be a campaign without its safeguards
TEST_PREFIX = "[Test] "
EXAMPLE = "https://unsubscribe.invalid/example"
"""Replaces every personal link in previews and tests, so that a click in a test does not unsubscribe anyone."""

TRIED_RECIPIENTS = 5  # finds merge fields that the first rows lack, without delaying the start
EXAMPLE_LINKS = {"unsubscribe_url": EXAMPLE, "preferences_url": EXAMPLE}


async def preview(
    pool: Pool, campaign_id: int, *, email: str | None = None, variables: Mapping[str, Any] | None = None
) -> Rendered:
    """Render the letter for one recipient. `BadInput` names what cannot be rendered.

    Without an address, the first recipient is used. Given variables override the recipient's fields.
    """
    async with pool.acquire() as connection:
        campaign = CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
        person = await store.find_recipient(connection, campaign_id=campaign_id, email=email)
    if person is None and email is not None:
        raise CampaignRecipientNotFound
    known = {} if person is None else person_variables(person.email, person.name, person.custom_data)
    return await render_letter(campaign.plan.letter, {**known, **(variables or {}), **EXAMPLE_LINKS})


async def preview_subject(pool: Pool, campaign: Campaign) -> str:
    """The subject for the first recipient; the one of the letter if it cannot be rendered."""
    subject = campaign.plan.letter.subject
    if "{" not in subject:
        return subject
    async with pool.acquire() as connection:
        person = await store.find_recipient(connection, campaign_id=campaign.id, email=None)
    known = {} if person is None else person_variables(person.email, person.name, person.custom_data)
    letter = CampaignContent(subject=subject, text="-")
    try:
        rendered = await render_letter(letter, {**known, **EXAMPLE_LINKS}, has_placeholders=person is None)
    except BadInput:
        return subject
    return rendered.subject


async def preview_draft(
    pool: Pool, content: CampaignContent, *, campaign_id: int | None, email: str | None = None
) -> tuple[Rendered, list[LetterWarning]]:
    """Render content that is not stored, for a recipient of the campaign, and its warnings.

    Without an address, the first recipient is used; without any recipient, each merge field shows its own name.
    """
    fields: dict[str, int] = {}
    people, person = 0, None
    if campaign_id is not None:
        async with pool.acquire() as connection:
            campaign = CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
            person = await store.find_recipient(connection, campaign_id=campaign_id, email=email)
            fields, people = await store.list_fields(connection, campaign_id=campaign_id), campaign.total
    if person is None and email is not None:
        raise CampaignRecipientNotFound
    known = None if person is None else person_variables(person.email, person.name, person.custom_data)
    rendered = await render_letter(content, {**(known or {}), **EXAMPLE_LINKS}, has_placeholders=known is None)
    return rendered, await lint_letter(content, fields=fields if people else None, people=people)


async def try_out(pool: Pool, campaign_id: int) -> CampaignContent:
    """Render the letter for the first recipients within the limits of a trial; returns the letter that passed.

    `BadInput` names the part that exceeds the limits. A recipient without a required field is not an error here.
    """
    async with pool.acquire() as connection:
        campaign = CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
        first, _last = await store.list_recipients(
            connection,
            campaign_id=campaign_id,
            state=None,
            custom_data=None,
            after_zone=None,
            after_id=None,
            page_limit=TRIED_RECIPIENTS,
            bound=TRIED_RECIPIENTS,
        )
    people = [{**person_variables(each.email, each.name, each.custom_data), **EXAMPLE_LINKS} for each in first]
    await try_letter(campaign.plan.letter, people)
    return campaign.plan.letter


async def send_test(  # noqa: PLR0913 - the recipients, the variables and the actor are separate inputs
    pool: Pool,
    campaign_id: int,
    to: Sequence[str],
    *,
    actor: str,
    email: str | None = None,
    variables: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> list[DeliveryId]:
    """Send the letter to these addresses as ordinary mail, marked as a test and not counted."""
    addresses = _parse(to)
    rendered = await preview(pool, campaign_id, email=email, variables=variables)
    async with audited(pool, actor, "campaign.test", f"campaign:{campaign_id}") as (connection, note):
        campaign = CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
        requests = [_request(campaign, rendered, address) for address in addresses]
        accepted = await delivery_service.accept_batch(connection, check_batch(requests), now=now)
        note.after = {"deliveries": [answer.id for answer in accepted]}
    return [answer.id for answer in accepted]


async def lint_campaign(pool: Pool, campaign_id: int) -> list[LetterWarning]:
    """The warnings about a letter, checked against the merge fields of the uploaded recipients."""
    async with pool.acquire() as connection:
        campaign = CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
        fields = await store.list_fields(connection, campaign_id=campaign_id)
    return await lint_letter(campaign.plan.letter, fields=fields if campaign.total else None, people=campaign.total)


def _request(campaign: Campaign, rendered: Rendered, address: Address) -> DeliveryRequest:
    letter = campaign.plan.letter
    return DeliveryRequest(
        to=(address,),
        reply_to=(letter.reply_to,) if letter.reply_to else (),
        sender=letter.sender,
        subject=f"{TEST_PREFIX}{rendered.subject}"[:998],
        text=rendered.text,
        html=rendered.html,
        lane=Lane.TRANSACTIONAL,
        source=f"campaign-test:{campaign.id}",
    )


def _parse(addresses: Sequence[str]) -> list[Address]:
    if not 1 <= len(addresses) <= MOST_TESTS:
        raise BadInput.of("to", f"must be 1 to {MOST_TESTS} addresses")
    parsed, errors = [], []
    for index, written in enumerate(addresses):
        try:
            parsed.append(parse_address(written))
        except ValueError as error:
            errors.append(FieldError(f"to[{index}]", str(error)))
    if errors:
        raise BadInput(errors)
    return parsed
