"""HTTP endpoints of deliveries: accept, list, operate."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any

import msgspec

from postroom.delivery import service
from postroom.delivery.check import CheckedRequest
from postroom.delivery.contents import Contents
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.model import Acceptance, Accepted, Attempt, DeliveryState, Lane
from postroom.delivery.selection import DeliverySelection, filter_of
from postroom.delivery.service import AcceptCombiner
from postroom.delivery.shapes import (
    AcceptedShape,
    DeliveryBody,
    DeliveryShape,
    SummaryShape,
    Written,
    delivery_shape,
    request_from,
    summary_shape,
)
from postroom.errors import BadInput, FieldError
from postroom.runtime.endpoint import LARGE, Answer, Call, Endpoint
from postroom.runtime.page import Cursor, Limit, Page
from postroom.runtime.record import Shape
from postroom.runtime.service_endpoint import serve
from postroom.runtime.tracing import current_traceparent

WRITE = "deliveries:write"
READ = "deliveries:read"
OPERATE = "deliveries:operate"

MAX_BATCH = 1000  # accepted in one transaction, which holds its locks and its snapshot that long
LOGIN_TEMPLATE = "login-code"
LONGEST_BATCH_KEY = 250
"""Longest key of a batch: each item's key is the header's with its position appended, which must fit as well."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class BatchBody(Shape, frozen=True, kw_only=True):
    """Many deliveries, accepted or rejected together; each has its own answer."""

    deliveries: Annotated[list[DeliveryBody], msgspec.Meta(max_length=MAX_BATCH)]


Batch = Annotated[list[DeliveryBody], msgspec.Meta(max_length=MAX_BATCH)] | BatchBody


class BatchItem(msgspec.Struct, frozen=True):
    """The answer to one delivery of a batch; a conflict has the status `conflict` and no id."""

    id: int | None
    status: str
    replayed: bool


class BatchAnswer(msgspec.Struct, frozen=True):
    """One answer per delivery, in the order of the request."""

    items: list[BatchItem]


class LoginCodeBody(Shape, frozen=True, kw_only=True):
    """A one-time code for one person. It is sent at once, and cancelled after `expires_in` seconds."""

    email: Written
    code: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    locale: str | None = None
    expires_in: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 600
    variables: dict[str, Any] = msgspec.field(default_factory=dict)


class DeliveryQuery(DeliverySelection, frozen=True, kw_only=True):
    """Filter and page of deliveries."""

    cursor: Cursor | None = None
    limit: Limit = 50


class DeliveryStatus(msgspec.Struct, frozen=True):
    """The delivery and its state after the operation."""

    id: int
    status: str


class Resent(msgspec.Struct, frozen=True):
    """The new delivery, and the one it repeats."""

    id: int
    status: str
    resend_of: int


def accepted_answer(accepted: Accepted) -> Answer:
    shape = AcceptedShape(accepted.id, accepted.state.value, accepted.replayed)
    return Answer(shape, 200 if accepted.replayed else 202)


def traceparent_of(call: Call) -> str | None:
    """Our own span, or the caller's trace if it is valid; an invalid one starts a new trace (W3C Trace Context)."""
    if (own := current_traceparent()) is not None:
        return own
    given = call.headers.get("traceparent")
    return given if given is not None and _TRACEPARENT.fullmatch(given) else None


# --- accepting -----------------------------------------------------------------------


async def _need_future(call: Call, requests: Mapping[str, CheckedRequest]) -> None:
    """Refuse requests that have expired, each by its field. The repetition of an accepted one gets its answer."""
    now = datetime.now(UTC)
    past = {field: each for field, each in requests.items() if each.expires_at is not None and each.expires_at <= now}
    errors = [FieldError(field, "is in the past") for field, each in past.items() if not await _is_repeated(call, each)]
    if errors:
        raise BadInput(errors)


async def _is_repeated(call: Call, request: CheckedRequest) -> bool:
    key = request.idempotency_key
    chosen = DeliveryFilter(source=request.source, idempotency_key=key)
    return key is not None and (await service.list_deliveries(call.room.pool, chosen, limit=1))[0] != []


def _batch_requests(call: Call, prefix: str) -> list[CheckedRequest]:
    """Read and check every item; an error names the invalid fields of all items."""
    bodies: list[DeliveryBody] = call.body.deliveries if isinstance(call.body, BatchBody) else call.body
    key = call.headers.get("idempotency-key")
    if key is not None and len(key) > LONGEST_BATCH_KEY:
        raise BadInput.of("Idempotency-Key", f"must be at most {LONGEST_BATCH_KEY} characters for a batch")
    requests: list[CheckedRequest] = []
    errors: list[FieldError] = []
    for index, body in enumerate(bodies):
        try:
            request = request_from(
                body,
                source=call.source,
                idempotency_key=None if key is None else f"{key}/{index}",
                traceparent=traceparent_of(call),
                where=f"{prefix}[{index}].",
            )
            requests.append(request)
        except BadInput as bad:
            errors += bad.errors
    if errors:
        raise BadInput(errors)
    return requests


def _batch_item(accepted: Accepted) -> BatchItem:
    if accepted.acceptance is Acceptance.CONFLICT:
        return BatchItem(None, "conflict", replayed=False)
    return BatchItem(accepted.id, accepted.state.value, accepted.replayed)


def _login_request(call: Call) -> CheckedRequest:
    body: LoginCodeBody = call.body
    minutes = max(1, round(body.expires_in / 60))
    delivery = DeliveryBody(
        to=[body.email],
        template=LOGIN_TEMPLATE,
        variables={"minutes": minutes, **body.variables, "code": body.code},
        locale=body.locale,
        lane=Lane.AUTH,
        expires_at=datetime.now(UTC) + timedelta(seconds=body.expires_in),
    )
    try:
        return request_from(
            delivery,
            source=call.source,
            idempotency_key=call.headers.get("idempotency-key"),
            traceparent=traceparent_of(call),
        )
    except BadInput as bad:
        own = {"to[0]": "email"}
        raise BadInput([FieldError(own.get(e.field, e.field), e.message) for e in bad.errors]) from None


# --- following and operating ---------------------------------------------------------


async def list_deliveries(call: Call) -> Answer:
    query: DeliveryQuery = call.query
    found, more = await service.list_deliveries(
        call.room.pool, filter_of(query), cursor=query.cursor, limit=query.limit
    )
    found = await call.tool(Contents).fill_subjects(found)
    return Answer(Page([summary_shape(delivery) for delivery in found], more))


async def get_delivery(call: Call) -> Answer:
    delivery = await service.get_delivery(call.room.pool, call.path["delivery_id"])
    return Answer(delivery_shape(await call.tool(Contents).fill(delivery)))


async def cancel_delivery(call: Call) -> Answer:
    await service.cancel(call.room.pool, call.path["delivery_id"], actor=call.actor)
    return Answer(DeliveryStatus(call.path["delivery_id"], DeliveryState.CANCELLED.value))


async def retry_delivery(call: Call) -> Answer:
    await service.retry(call.room.pool, call.path["delivery_id"], actor=call.actor)
    delivery = await service.get_delivery(call.room.pool, call.path["delivery_id"])
    return Answer(DeliveryStatus(delivery.id, delivery.state.value))


async def resend_delivery(call: Call) -> Answer:
    original: int = call.path["delivery_id"]
    clone = await service.resend(call.room.pool, original, actor=call.actor)
    return Answer(Resent(clone, DeliveryState.QUEUED.value, original), 202)


async def send_delivery(call: Call) -> Answer:
    request = request_from(
        call.body,
        source=call.source,
        idempotency_key=call.headers.get("idempotency-key"),
        traceparent=traceparent_of(call),
    )
    await _need_future(call, {"expires_at": request})
    return accepted_answer(await call.tool(AcceptCombiner).accept(request, key_id=call.key_id))


async def send_batch(call: Call) -> Answer:
    prefix = "deliveries" if isinstance(call.body, BatchBody) else ""
    requests = _batch_requests(call, prefix)
    await _need_future(call, {f"{prefix}[{index}].expires_at": each for index, each in enumerate(requests)})
    answers = await call.tool(AcceptCombiner).accept_all(requests, key_id=call.key_id)
    return Answer(BatchAnswer([_batch_item(accepted) for accepted in answers]), 202)


async def send_login_code(call: Call) -> Answer:
    return accepted_answer(await call.tool(AcceptCombiner).accept(_login_request(call), key_id=call.key_id))


_endpoint = partial(Endpoint, tag="deliveries")
_serve = partial(serve, tag="deliveries")
_accept = partial(_endpoint, scope=WRITE, idempotent=True)
_operate = partial(_endpoint, scope=OPERATE, problems=(409,))
_ONE = "/v1/deliveries/{delivery_id:int}"
_ACCEPTED = {202: AcceptedShape, 200: AcceptedShape}

ENDPOINTS = [
    _accept(
        "POST", "/v1/deliveries", send_delivery,
        "Accept a delivery. 202: accepted. 200: an earlier request with this key was.", body=DeliveryBody,
        most_body=LARGE, answers=_ACCEPTED, problems=(409,),
    ),
    _accept(
        "POST", "/v1/deliveries/batch", send_batch,
        f"Accept up to {MAX_BATCH} deliveries in one transaction. One invalid delivery rejects them all.", body=Batch,
        most_body=LARGE, answers={202: BatchAnswer},
    ),
    _accept(
        "POST", "/v1/login-codes", send_login_code,
        "Send a one-time code in the auth lane. It is cancelled when the code expires.", body=LoginCodeBody,
        answers=_ACCEPTED, problems=(409,),
    ),
    _endpoint(
        "GET", "/v1/deliveries", list_deliveries, "List deliveries, newest first.", scope=READ, query=DeliveryQuery,
        from_replica=True, answers={200: Page[SummaryShape]},
    ),
    _endpoint(
        "GET", _ONE, get_delivery, "Show a delivery: its state, the outcome of each recipient, and its content.",
        scope=READ, answers={200: DeliveryShape},
    ),
    _serve(
        "GET", f"{_ONE}/attempts", service.list_attempts, "List the attempts of a delivery and the reply to each.",
        scope=READ, answers={200: Page[Attempt]},
    ),
    _operate("POST", f"{_ONE}/cancel", cancel_delivery, "Cancel a waiting delivery.", answers={200: DeliveryStatus}),
    _operate(
        "POST", f"{_ONE}/retry", retry_delivery, "Retry now; a dead letter returns to the queue first.",
        answers={200: DeliveryStatus},
    ),
    _operate(
        "POST", f"{_ONE}/resend", resend_delivery, "Send the same content again as a new delivery.",
        answers={202: Resent},
    ),
]  # fmt: skip
