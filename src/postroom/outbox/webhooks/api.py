"""Webhook endpoints over HTTP. A secret is only in the response that creates it."""

from datetime import timedelta
from typing import Annotated

import msgspec

from postroom.delivery.model import DeliverySummary
from postroom.outbox.model import NAME
from postroom.outbox.webhooks import service
from postroom.outbox.webhooks.model import EndpointFormat, EndpointStatus, WebhookEndpoint
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery, page_of
from postroom.runtime.record import Shape, answer, response
from postroom.runtime.secrets import SecretBox

MANAGE = "webhooks:manage"

_URL = Annotated[str, msgspec.Meta(max_length=2048, pattern=r"^https?://")]
_TOPICS = Annotated[list[Annotated[str, msgspec.Meta(pattern=NAME)]], msgspec.Meta(min_length=1, max_length=50)]
_DESCRIPTION = Annotated[str, msgspec.Meta(max_length=500, pattern=r"^[^\x00]*$")]
_LONGEST_S = int(service.LONGEST_OVERLAP.total_seconds())
_ID = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class NewWebhook(Shape, frozen=True, kw_only=True):
    """An endpoint to register: the URL that gets the events of some topics from now on."""

    url: _URL
    topics: _TOPICS
    description: _DESCRIPTION = ""
    format: EndpointFormat = EndpointFormat.STANDARD


class WebhookChange(Shape, frozen=True, kw_only=True):
    """The fields to change; omitted fields stay the same."""

    url: _URL | None = None
    topics: _TOPICS | None = None
    description: _DESCRIPTION | None = None
    format: EndpointFormat | None = None
    enabled: bool | None = None


class RotateBody(Shape, frozen=True, kw_only=True):
    """Time for which the old secret signs too. A secret of an earlier rotation stops at once."""

    overlap_s: Annotated[int, msgspec.Meta(ge=0, le=_LONGEST_S)] = int(service.OVERLAP.total_seconds())


class ReplayBody(Shape, frozen=True, kw_only=True):
    """The delivery to post again."""

    delivery_id: _ID


WebhookShape = response(WebhookEndpoint, "WebhookShape", hide=("secret", "previous"))
WebhookWithSecret = response(WebhookEndpoint, "WebhookWithSecret", hide=("previous",), extra={"secret": str})
WebhookDeliveryShape = response(
    DeliverySummary,
    "WebhookDeliveryShape",
    only=("id", "state", "attempt_count", "next_attempt_at", "created_at", "finished_at", "reason"),
    rename={"state": "status"},
)


class ReplayedShape(msgspec.Struct, frozen=True):
    """The new delivery."""

    delivery_id: int


class Forgotten(msgspec.Struct, frozen=True):
    """The id of the deleted endpoint."""

    id: int


async def register_webhook(call: Call) -> Answer:
    endpoint, secret = await service.register(
        call.room.pool,
        _box(call),
        url=call.body.url,
        topics=call.body.topics,
        description=call.body.description,
        format=call.body.format,
        actor=call.actor,
    )
    return _with_secret(endpoint, secret, 201)


async def rotate_webhook(call: Call) -> Answer:
    overlap = timedelta(seconds=call.body.overlap_s)
    endpoint, secret = await service.rotate(call.room.pool, _box(call), _id(call), overlap=overlap, actor=call.actor)
    return _with_secret(endpoint, secret, 200)


async def list_webhooks(call: Call) -> Answer:
    found, more = await service.list_endpoints(call.room.pool, cursor=call.query.cursor, limit=call.query.limit)
    return Answer(Page([answer(WebhookShape, endpoint) for endpoint in found], more))


async def get_webhook(call: Call) -> Answer:
    return Answer(answer(WebhookShape, await service.get_endpoint(call.room.pool, _id(call))))


async def change_webhook(call: Call) -> Answer:
    body: WebhookChange = call.body
    endpoint = await service.change(
        call.room.pool,
        _id(call),
        url=body.url,
        topics=body.topics,
        description=body.description,
        format=body.format,
        actor=call.actor,
    )
    if body.enabled is not None:
        status = EndpointStatus.ENABLED if body.enabled else EndpointStatus.DISABLED
        reason = None if body.enabled else "operator"
        endpoint = await service.set_status(call.room.pool, endpoint.id, status, reason=reason, actor=call.actor)
    return Answer(answer(WebhookShape, endpoint))


async def delete_webhook(call: Call) -> Answer:
    await service.delete(call.room.pool, _id(call), actor=call.actor)
    return Answer(Forgotten(_id(call)))


async def list_webhook_deliveries(call: Call) -> Answer:
    found, more = await service.list_deliveries(
        call.room.pool, _id(call), cursor=call.query.cursor, limit=call.query.limit
    )
    return Answer(Page([answer(WebhookDeliveryShape, one) for one in found], more))


async def replay_webhook(call: Call) -> Answer:
    made = await service.replay(call.room.pool, _id(call), call.body.delivery_id, actor=call.actor)
    return Answer(ReplayedShape(made), 202)


def _id(call: Call) -> int:
    return int(call.path["endpoint_id"])


def _box(call: Call) -> SecretBox:
    return SecretBox.from_key(call.room.settings.secret_key)


def _with_secret(endpoint: WebhookEndpoint, secret: str, status: int) -> Answer:
    return Answer(answer(WebhookWithSecret, endpoint, secret=secret), status, headers={"cache-control": "no-store"})


def _endpoint(method: str, path: str, handler: object, summary: str, **more: object) -> Endpoint:
    return Endpoint(method=method, path=path, handler=handler, summary=summary, scope=MANAGE, tag="webhooks", **more)  # type: ignore[arg-type]


_ONE = "/v1/webhooks/{endpoint_id:int}"
ENDPOINTS = [
    _endpoint(
        "GET", "/v1/webhooks", list_webhooks, "List endpoints.", query=PageQuery, answers={200: page_of(WebhookShape)},
    ),
    _endpoint(
        "POST", "/v1/webhooks", register_webhook, "Register an endpoint and show its secret once.", body=NewWebhook,
        answers={201: WebhookWithSecret}, problems=(404, 409),
    ),
    _endpoint("GET", _ONE, get_webhook, "Show an endpoint.", answers={200: WebhookShape}),
    _endpoint(
        "PATCH", _ONE, change_webhook, "Change an endpoint, enable or disable it.", body=WebhookChange,
        answers={200: WebhookShape},
    ),
    _endpoint("DELETE", _ONE, delete_webhook, "Delete an endpoint.", answers={200: Forgotten}),
    _endpoint(
        "POST", f"{_ONE}/rotate", rotate_webhook, "Create a new secret, shown once; the old one also signs for a time.",
        body=RotateBody, answers={200: WebhookWithSecret}, problems=(409,),
    ),
    _endpoint(
        "GET", f"{_ONE}/deliveries", list_webhook_deliveries, "List the deliveries of an endpoint.", query=PageQuery,
        from_replica=True, answers={200: page_of(WebhookDeliveryShape)},
    ),
    _endpoint(
        "POST", f"{_ONE}/replay", replay_webhook, "Post a delivery again.", body=ReplayBody,
        answers={202: ReplayedShape}, problems=(409,),
    ),
]  # fmt: skip
