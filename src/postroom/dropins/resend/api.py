"""The endpoints of Resend's API."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import msgspec

from postroom.delivery import service
from postroom.delivery.api import traceparent_of
from postroom.delivery.check import CheckedRequest
from postroom.delivery.combiner import AcceptCombiner
from postroom.delivery.errors import DeliveryNotFound
from postroom.delivery.model import Channel, Delivery
from postroom.delivery.shapes import request_from
from postroom.dropins.endpoint import OPERATE, READ, WRITE, Authenticate, Caller, decode, read_body
from postroom.dropins.resend.answers import (
    BatchError,
    Email,
    Emails,
    Named,
    Sent,
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
from postroom.runtime.endpoint import Answer, Call, Endpoint, Handler

_KEY = re.compile(r"[!-~]{1,255}")
_LONGEST_BATCH_KEY = 250
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
        "templates",
        "topics",
        "webhooks",
    }
)
"""How paths of Resend's API begin."""

RawEmails = Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MOST_EMAILS)]


def endpoints(accepting: AcceptCombiner, authenticate: Authenticate) -> list[Endpoint]:
    """The endpoints; acceptance goes through the combiner, keys are looked up by `authenticate`."""
    shared: dict[str, Any] = {"scope": None, "tag": "resend", "problems": (401, 403, 404, 409, 422)}
    listed = [
        ("POST", "/emails", partial(send_email, accepting, authenticate), "Accept a mail.", Sent),
        ("GET", "/emails", partial(list_emails, authenticate), "List mails.", Emails),
        ("POST", "/emails/batch", partial(send_batch, accepting, authenticate), "Accept up to 100.", SentBatch),
        ("GET", "/emails/{email_id}", partial(get_email, authenticate), "Show a mail.", Email),
        ("PATCH", "/emails/{email_id}", partial(update_email, authenticate), "Reschedule a mail.", Named),
        ("POST", "/emails/{email_id}/cancel", partial(cancel_email, authenticate), "Cancel a mail.", Named),
    ]
    return [
        Endpoint(
            method=method,
            path=path,
            handler=_in_its_words(handler.func.__name__, handler),
            summary=f"{summary} As clients of Resend do.",
            answers={200: answer},
            query=EmailsQuery if answer is Emails else None,
            stream=method != "GET",
            refuse=refusal,
            **shared,
        )
        for method, path, handler, summary, answer in listed
    ]


async def send_email(accepting: AcceptCombiner, authenticate: Authenticate, call: Call) -> Answer:
    caller = await authenticate(call.headers.get("authorization"), WRITE)
    key = _idempotency_key(call)
    email = decode(await read_body(call), ResendEmail)
    request = _request(email, call, caller, key)
    try:
        accepted = await accepting.accept(request)
    except IdempotencyConflict:
        if not is_relative(email.scheduled_at):
            raise
        # `in 5 minutes` is another time now. Everything else must be the same for the first mail to stand.
        accepted = await accepting.accept(await at_first_time(call.room.pool, request))
    return Answer(Sent(str(accepted.id)))


async def send_batch(accepting: AcceptCombiner, authenticate: Authenticate, call: Call) -> Answer:
    caller = await authenticate(call.headers.get("authorization"), WRITE)
    key = _idempotency_key(call, longest=_LONGEST_BATCH_KEY)
    emails = decode(await read_body(call), RawEmails)
    requests, errors = _requests(emails, call, caller, key)
    is_permissive = call.headers.get("x-batch-validation", "").lower() == "permissive"
    if errors and not is_permissive:
        raise BadInput([FieldError(f"[{error.index}]", error.message) for error in errors])
    accepted = await accepting.accept_together(requests, share_key=True)
    sent = [Sent(str(each.id)) for each in accepted]
    return Answer(SentBatch(sent, errors if is_permissive else None))


async def get_email(authenticate: Authenticate, call: Call) -> Answer:
    await authenticate(call.headers.get("authorization"), READ)
    delivery = await _find(call)
    return Answer(email_of(delivery, call.room.settings, now=datetime.now(UTC)))


async def list_emails(authenticate: Authenticate, call: Call) -> Answer:
    await authenticate(call.headers.get("authorization"), READ)
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
    return Answer(Emails(has_more=has_more, data=[line_of(email, now=now) for email in found]))


async def update_email(authenticate: Authenticate, call: Call) -> Answer:
    caller = await authenticate(call.headers.get("authorization"), OPERATE)
    delivery = await _find(call)
    update = decode(await read_body(call), ResendUpdate)
    moment = parse_schedule(update.scheduled_at)
    await service.reschedule(call.room.pool, delivery.id, send_at=moment, actor=caller.actor)
    return Answer(Named(str(delivery.id)))


async def cancel_email(authenticate: Authenticate, call: Call) -> Answer:
    caller = await authenticate(call.headers.get("authorization"), OPERATE)
    delivery = await _find(call)
    await service.cancel(call.room.pool, delivery.id, actor=caller.actor)
    return Answer(Named(str(delivery.id)))


def refuse_call(path: str) -> Answer | None:
    """The answer to a call of Resend's API that Postroom does not have; None for a path of something else."""
    return other_call_refused() if path.split("/")[1] in OTHER_CALLS else None


def _in_its_words(name: str, handler: Handler) -> Handler:
    """The handler with its refusals in Resend's form; the name is that of the operation in OpenAPI."""

    async def answered(call: Call) -> Answer:
        try:
            return await handler(call)
        except Exception as error:
            answer = refusal(error, without_key="authorization" not in call.headers)
            if answer is None:
                raise
            return answer

    answered.__name__ = name
    return answered


def _requests(
    emails: Sequence[msgspec.Raw], call: Call, caller: Caller, key: str | None
) -> tuple[list[CheckedRequest], list[BatchError]]:
    """The request of each mail that is right, and what is wrong with the others."""
    requests: list[CheckedRequest] = []
    errors: list[BatchError] = []
    for index, raw in enumerate(emails):
        try:
            email = decode(bytes(raw), ResendEmail)
            requests.append(_request(email, call, caller, None if key is None else f"{key}/{index}"))
        except BadInput as bad:
            errors.append(BatchError(index, bad.message))
    return requests, errors


def _request(email: ResendEmail, call: Call, caller: Caller, key: str | None) -> CheckedRequest:
    body = delivery_body(email)
    return request_from(body, source=caller.name, idempotency_key=key, traceparent=traceparent_of(call))


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
    """The mail that the path names; a webhook has an id too, and is none."""
    written: str = call.path["email_id"]
    if not (written.isascii() and _ID.fullmatch(written)):
        raise DeliveryNotFound
    delivery = await service.get_delivery(call.room.pool, int(written))
    if delivery.channel is not Channel.EMAIL:
        raise DeliveryNotFound
    return delivery
