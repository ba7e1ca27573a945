"""The endpoints of Resend's API."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from postroom.delivery import service
from postroom.delivery.api import traceparent_of
from postroom.delivery.check import CheckedRequest
from postroom.delivery.contents import Contents
from postroom.delivery.errors import DeliveryNotFound
from postroom.delivery.model import Channel, Delivery
from postroom.delivery.service import AcceptCombiner
from postroom.delivery.shapes import request_from
from postroom.dropins.endpoint import OPERATE, READ, WRITE, decode, read_body
from postroom.dropins.resend.answers import (
    BatchError,
    Email,
    Emails,
    Named,
    ResendEmailId,
    SentBatch,
    email_of,
    line_of,
    other_call_refused,
    refusal,
)
from postroom.dropins.resend.service import at_first_time
from postroom.dropins.resend.service import list_emails as list_page
from postroom.dropins.resend.shapes import (
    MOST_EMAILS,
    EmailsQuery,
    ResendEmail,
    ResendUpdate,
    delivery_body,
    is_relative,
    parse_schedule,
)
from postroom.errors import BadInput, FieldError, IdempotencyConflict
from postroom.runtime.endpoint import Answer, Call, Endpoint

_KEY = re.compile(r"[!-~]{1,255}")
_LONGEST_BATCH_KEY = 250  # leaves room for the number of the mail in the 255 characters of a key
_ID = re.compile(r"\d{1,18}")
OTHER_CALLS = frozenset(
    {
        "api-keys",
        "audiences",
        "automations",
        "broadcasts",
        "contact-properties",
        "contacts",
        "domains",
        "emails",
        "events",
        "logs",
        "segments",
        "suppressions",
        "templates",
        "topics",
        "webhooks",
    }
)
"""How paths of Resend's API begin."""

RawEmails = Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MOST_EMAILS)]


async def send_email(call: Call) -> Answer:
    key = _idempotency_key(call)
    email = decode(await read_body(call), ResendEmail)
    request = _request(email, call, key)
    try:
        accepted = await call.tool(AcceptCombiner).accept(request, key_id=call.key_id)
    except IdempotencyConflict:
        if not is_relative(email.scheduled_at):
            raise
        # `in 5 minutes` is another time now. Everything else must be the same for the first mail to stand.
        first = await at_first_time(call.room.pool, request)
        accepted = await call.tool(AcceptCombiner).accept(first, key_id=call.key_id)
    return Answer(ResendEmailId(str(accepted.id)))


async def send_batch(call: Call) -> Answer:
    key = _idempotency_key(call, longest=_LONGEST_BATCH_KEY)
    emails = decode(await read_body(call), RawEmails)
    requests, errors = _requests(emails, call, key)
    is_permissive = call.headers.get("x-batch-validation", "").lower() == "permissive"
    if errors and not is_permissive:
        raise BadInput([FieldError(f"[{error.index}]", error.message) for error in errors])
    accepted = await call.tool(AcceptCombiner).accept_together(requests, key_id=call.key_id, share_key=True)
    sent = [ResendEmailId(str(each.id)) for each in accepted]
    return Answer(SentBatch(sent, errors if is_permissive else None))


async def get_email(call: Call) -> Answer:
    delivery = await _find(call)
    return Answer(email_of(delivery, call.room.settings, now=datetime.now(UTC)))


async def list_emails(call: Call) -> Answer:
    query: EmailsQuery = call.query
    if query.after is not None and query.before is not None:
        raise BadInput.of("before", "cannot be given together with after")
    if not _ID.fullmatch(query.limit) or not 1 <= int(query.limit) <= MOST_EMAILS:
        raise BadInput.of("limit", f"must be a number from 1 to {MOST_EMAILS}")
    found, has_more = await list_page(
        call.room.pool,
        limit=int(query.limit),
        after=_cursor("after", query.after),
        before=_cursor("before", query.before),
    )
    now = datetime.now(UTC)
    contents = await call.tool(Contents).render([email.id for email in found if email.subject is None])
    subjects = {delivery_id: content.subject for delivery_id, content in contents.items()}
    lines = [line_of(replace(email, subject=subjects.get(email.id, email.subject)), now=now) for email in found]
    return Answer(Emails(has_more=has_more, data=lines))


async def update_email(call: Call) -> Answer:
    delivery = await _find(call)
    update = decode(await read_body(call), ResendUpdate)
    moment = parse_schedule(update.scheduled_at)
    await service.reschedule(call.room.pool, delivery.id, send_at=moment, actor=call.actor)
    return Answer(Named(str(delivery.id)))


async def cancel_email(call: Call) -> Answer:
    delivery = await _find(call)
    await service.cancel(call.room.pool, delivery.id, actor=call.actor)
    return Answer(Named(str(delivery.id)))


def claims(call: Call) -> bool:
    """True for a call of Resend's API by its client: pages of the dashboard have some of its paths, but take no key."""
    is_client = call.headers.get("user-agent", "").lower().startswith("resend-")
    has_key = call.headers.get("authorization", "").lower().startswith("bearer ")
    return is_client or (has_key and _is_other_call(call))


def refuse_unknown(call: Call, _error: Exception, _problem: Answer) -> Answer | None:
    """The answer to a call of Resend's API that Postroom does not have; None for any other path."""
    return other_call_refused() if claims(call) or _is_other_call(call) else None


def _is_other_call(call: Call) -> bool:
    return (call.asgi["path"] + "/").split("/")[1] in OTHER_CALLS


def _refuse(call: Call, error: Exception, _problem: Answer) -> Answer | None:
    return refusal(error, without_key="authorization" not in call.headers)


def _requests(
    emails: Sequence[msgspec.Raw], call: Call, key: str | None
) -> tuple[list[CheckedRequest], list[BatchError]]:
    """The request of each mail that is right, and what is wrong with the others."""
    requests: list[CheckedRequest] = []
    errors: list[BatchError] = []
    for index, raw in enumerate(emails):
        try:
            email = decode(bytes(raw), ResendEmail)
            requests.append(_request(email, call, None if key is None else f"{key}/{index}"))
        except BadInput as bad:
            errors.append(BatchError(index, bad.message))
    return requests, errors


def _request(email: ResendEmail, call: Call, key: str | None) -> CheckedRequest:
    body = delivery_body(email)
    return request_from(body, source=call.source, idempotency_key=key, traceparent=traceparent_of(call))


def _idempotency_key(call: Call, *, longest: int = 255) -> str | None:
    key = call.headers.get("idempotency-key")
    if key is not None and (len(key) > longest or not _KEY.fullmatch(key)):
        raise BadInput.of("Idempotency-Key", f"must be 1 to {longest} visible ASCII characters")
    return key


def _cursor(field: str, written: str | None) -> int | None:
    if written is not None and not (written.isascii() and _ID.fullmatch(written)):
        raise BadInput.of(field, "must be the id of a mail")
    return None if written is None else int(written)


async def _find(call: Call) -> Delivery:
    """The mail named by the path; the id of a webhook delivery is not found."""
    written: str = call.path["email_id"]
    if not (written.isascii() and _ID.fullmatch(written)):
        raise DeliveryNotFound
    delivery = await call.tool(Contents).fill(await service.get_delivery(call.room.pool, int(written)))
    if delivery.channel is not Channel.EMAIL:
        raise DeliveryNotFound
    return delivery


ENDPOINTS = tuple(
    Endpoint(
        method=method,
        path=path,
        handler=handler,
        summary=f"{summary} As clients of Resend do.",
        scope=scope,
        tag="resend",
        answers={200: answer},
        query=EmailsQuery if answer is Emails else None,
        stream=method != "GET",
        refuse=_refuse,
        problems=(401, 403, 404, 409, 422),
    )
    for method, path, scope, handler, summary, answer in (
        ("POST", "/emails", WRITE, send_email, "Accept a mail.", ResendEmailId),
        ("GET", "/emails", READ, list_emails, "List mails.", Emails),
        ("POST", "/emails/batch", WRITE, send_batch, "Accept up to 100.", SentBatch),
        ("GET", "/emails/{email_id}", READ, get_email, "Show a mail.", Email),
        ("PATCH", "/emails/{email_id}", OPERATE, update_email, "Reschedule a mail.", Named),
        ("POST", "/emails/{email_id}/cancel", OPERATE, cancel_email, "Cancel a mail.", Named),
    )
)
