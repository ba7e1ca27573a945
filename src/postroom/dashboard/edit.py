"""Forms that send mail: a new one, or a delivery that has ended with its addresses and content to edit.

The edited mail is a new delivery; the original is unchanged, as after a resend. Mail of a campaign, whose content is
the campaign's, one-time codes and webhooks are not edited.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from http import HTTPStatus
from typing import Any

import msgspec

from postroom.dashboard.listing import FormField
from postroom.dashboard.page import PageRequest, form_pages
from postroom.dashboard.views import indented
from postroom.delivery import service
from postroom.delivery.check import check_request
from postroom.delivery.model import ENDED, Channel, Delivery, DeliveryRequest, Lane, Recipient, RecipientKind
from postroom.delivery.send import parse_addresses
from postroom.delivery.service import AcceptCombiner
from postroom.errors import BadInput, FieldError
from postroom.events.audit import record_audit
from postroom.mail.library import list_templates
from postroom.post.address import Address, write_address
from postroom.runtime.endpoint import Answer, ProtocolError

WRITE = "deliveries:write"

_LISTS = {
    RecipientKind.TO: "To",
    RecipientKind.CC: "Cc",
    RecipientKind.BCC: "Bcc",
    RecipientKind.REPLY_TO: "Reply to",
}
_ASKED = {"subject", "text", "html", "variables", "locale", "headers", "idempotency_key"}
_ENDED_WITH_IT = {"expires_at", "traceparent"}  # the time may have passed; the trace belongs to the first request
_KEPT = {each.name for each in fields(DeliveryRequest)} & {each.name for each in fields(Delivery)}
_KEPT -= _ASKED | _ENDED_WITH_IT
"""Fields that the edited mail has from the original."""


def is_editable(delivery: Delivery) -> bool:
    is_ours = delivery.campaign_id is not None or delivery.lane is Lane.AUTH or delivery.channel is not Channel.EMAIL
    return delivery.state in ENDED and delivery.has_body and not is_ours


async def send_page(request: PageRequest) -> Answer:
    """Accept the changed mail. The key of the form makes a second click find the first delivery."""
    delivery = await _editable(request)
    wanted = check_request(_changed(delivery, request.form))
    accepted = await request.call.tool(AcceptCombiner).accept(wanted, key_id=None)
    await record_audit(
        request.pool, request.actor, "delivery.edit", f"delivery:{delivery.id}", after={"delivery_id": accepted.id}
    )
    return request.done(f"/deliveries/{accepted.id}", "This is a new delivery with your changes.")


async def _editable(request: PageRequest) -> Delivery:
    delivery = await service.get_delivery(request.pool, request.id("delivery_id"))
    if not is_editable(delivery):
        raise ProtocolError(
            HTTPStatus.CONFLICT,
            f"Delivery {delivery.id} cannot be edited: it has not ended, has no content, or is a one-time code, a"
            " webhook or mail of a campaign.",
        )
    return delivery


async def ask_page(request: PageRequest) -> Answer:
    delivery = await _editable(request)
    return request.form_page(
        f"Edit and send delivery {delivery.id}",
        [
            FormField("key", "Key", "hidden", secrets.token_urlsafe(12)),
            *_addresses(delivery.recipients),
            *_content(delivery),
        ],
        button="Send it",
        lead="It becomes a new delivery. This one stays as it is. Headers, attachments, tags and limits are copied.",
        back=f"/deliveries/{delivery.id}",
    )


def _addresses(recipients: Sequence[Recipient]) -> Iterator[FormField]:
    for kind, label in _LISTS.items():
        chosen = [each for each in recipients if each.kind is kind]
        written = "\n".join(write_address(Address(each.address, each.name)) for each in chosen)
        yield FormField(
            kind.value,
            label,
            "lines",
            written,
            hint="One address per line",
            is_required=kind is RecipientKind.TO,
            is_rare=kind is not RecipientKind.TO,
        )


def _content(delivery: Delivery) -> Iterator[FormField]:
    if delivery.template_id is None:
        yield FormField("subject", "Subject", value=delivery.subject or "", is_required=True)
        yield FormField("text", "Text", "area", delivery.text or "")
        yield FormField("html", "HTML", "area", delivery.html or "")
    else:
        hint = f"A JSON object for the template {delivery.template_id}"
        yield FormField("variables", "Variables", "area", indented(delivery.variables), hint=hint)
        yield FormField("locale", "Locale", value=delivery.locale or "")


def _changed(delivery: Delivery, form: Mapping[str, str]) -> DeliveryRequest:
    """The request with the values of the form. Raises `BadInput` that names each invalid field."""
    given = {name: value.replace("\r\n", "\n") for name, value in form.items()}
    return DeliveryRequest(
        **{name: getattr(delivery, name) for name in _KEPT},
        **_read_addresses(given),
        **_read_content(given, is_template=delivery.template_id is not None),
        template=delivery.template_id,
        headers={name: value for name, value in delivery.headers.items() if name.lower() != "message-id"},
        idempotency_key=f"edit/{delivery.id}/{given.get('key', '')}",
    )


def _read_addresses(given: Mapping[str, str]) -> dict[str, Any]:
    errors: list[FieldError] = []
    lists = {
        kind.value: parse_addresses(kind.value, filter(str.strip, given.get(kind.value, "").split("\n")), errors)
        for kind in _LISTS
    }
    if errors:
        raise BadInput(errors)
    return lists


def _read_content(given: Mapping[str, str], *, is_template: bool) -> dict[str, Any]:
    if not is_template:
        return {name: given.get(name) or None for name in ("subject", "text", "html")}
    try:
        variables = msgspec.json.decode(given.get("variables") or "{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise BadInput.of("variables", f"must be a JSON object: {error}") from None
    return {"variables": variables, "locale": given.get("locale") or None}


# ── a new mail ─────────────────────────────────────────────────────────────────────────────────────────────────────

SOURCE = "postroom"
"""The source of mail that a person sends here: the name of no key, so that no application's keys collide with it."""


async def new_page(request: PageRequest) -> Answer:
    templates = await list_templates(request.pool) if request.may("templates:read") else []
    return request.form_page(
        "New mail",
        (
            FormField("key", "Key", "hidden", secrets.token_urlsafe(12)),
            *_addresses(()),
            FormField("subject", "Subject"),
            FormField("text", "Text", "area"),
            FormField("html", "HTML", "area"),
            FormField(
                "template",
                "Template",
                hint="Instead of subject, text and HTML",
                suggestions="templates",
                is_rare=True,
            ),
            FormField("variables", "Variables", "lines", hint="A JSON object for the template", is_rare=True),
            FormField("locale", "Locale", hint="Language of the template, such as fr", is_rare=True),
            FormField("lane", "Lane", options=(Lane.TRANSACTIONAL.value, Lane.BULK.value), is_rare=True),
        ),
        button="Send it",
        lead="One mail, accepted as if an application had sent it. The audit log names you.",
        back="/deliveries",
        suggestions={"templates": [template.id for template in templates]},
    )


async def create_page(request: PageRequest) -> Answer:
    """Accept the mail. The key of the form makes a second click find the first delivery."""
    wanted = check_request(_written(request.form))
    accepted = await request.call.tool(AcceptCombiner).accept(wanted, key_id=None)
    await record_audit(request.pool, request.actor, "delivery.send", f"delivery:{accepted.id}")
    return request.done(f"/deliveries/{accepted.id}", "The mail is accepted.")


def _written(form: Mapping[str, str]) -> DeliveryRequest:
    given = {name: value.replace("\r\n", "\n").strip() for name, value in form.items()}
    template = given.get("template") or None
    if given.get("lane") not in (Lane.TRANSACTIONAL, Lane.BULK):
        raise BadInput.of("lane", "must be transactional or bulk")
    return DeliveryRequest(
        **_read_addresses(given),
        **_read_content(given, is_template=template is not None),
        template=template,
        lane=Lane(given["lane"]),
        source=SOURCE,
        idempotency_key=f"new/{given.get('key', '')}",
    )


PAGES = (
    *form_pages("/deliveries/new", new_page, create_page, scope=WRITE),
    *form_pages("/deliveries/{delivery_id:int}/edit", ask_page, send_page, scope=WRITE),
)
