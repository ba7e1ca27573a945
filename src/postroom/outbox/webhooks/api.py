"""Webhook endpoints over HTTP. A secret is only in the response that creates it."""

from datetime import timedelta
from functools import partial
from typing import Annotated

import msgspec
from msgspec.structs import asdict

from postroom.delivery.model import DeliverySummary
from postroom.outbox.model import NAME
from postroom.outbox.webhooks import service
from postroom.outbox.webhooks.model import EndpointFormat, EndpointStatus, WebhookEndpoint
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import PageQuery, page_of
from postroom.runtime.record import Shape, answer, response
from postroom.runtime.secrets import SecretBox
from postroom.runtime.service_endpoint import serve

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
    endpoint, secret = await service.register(call.room.pool, _box(call), **asdict(call.body), actor=call.actor)
    return _with_secret(endpoint, secret, 201)


async def rotate_webhook(call: Call) -> Answer:
    overlap = timedelta(seconds=call.body.overlap_s)
    endpoint, secret = await service.rotate(call.room.pool, _box(call), _id(call), overlap=overlap, actor=call.actor)
    return _with_secret(endpoint, secret, 200)


async def change_webhook(call: Call) -> Answer:
    changes = asdict(call.body)
    enabled: bool | None = changes.pop("enabled")
    endpoint = await service.change(call.room.pool, _id(call), **changes, actor=call.actor)
    if enabled is not None:
        status = EndpointStatus.ENABLED if enabled else EndpointStatus.DISABLED
        reason = None if enabled else "operator"
        endpoint = await service.set_status(call.room.pool, endpoint.id, status, reason=reason, actor=call.actor)
    return Answer(answer(WebhookShape, endpoint))


async def delete_webhook(call: Call) -> Answer:
    await service.delete(call.room.pool, _id(call), actor=call.actor)
    return Answer(Forgotten(_id(call)))


def _id(call: Call) -> int:
    return int(call.path["endpoint_id"])


def _box(call: Call) -> SecretBox:
    return SecretBox(call.room.settings.sealing_keys)


def _with_secret(endpoint: WebhookEndpoint, secret: str, status: int) -> Answer:
    return Answer(answer(WebhookWithSecret, endpoint, secret=secret), status, headers={"cache-control": "no-store"})


_endpoint = partial(Endpoint, scope=MANAGE, tag="webhooks")
_serve = partial(serve, scope=MANAGE, tag="webhooks")
_ONE = "/v1/webhooks/{endpoint_id:int}"
ENDPOINTS = [
    _serve(
        "GET", "/v1/webhooks", service.list_endpoints, "List endpoints.", query=PageQuery,
        answers={200: page_of(WebhookShape)}, name="list_webhooks",
    ),
    _endpoint(
        "POST", "/v1/webhooks", register_webhook, "Register an endpoint and show its secret once.", body=NewWebhook,
        answers={201: WebhookWithSecret}, problems=(404, 409),
    ),
    _serve("GET", _ONE, service.get_endpoint, "Show an endpoint.", answers={200: WebhookShape}, name="get_webhook"),
    _endpoint(
        "PATCH", _ONE, change_webhook, "Change an endpoint, enable or disable it.", body=WebhookChange,
        answers={200: WebhookShape},
    ),
    _endpoint("DELETE", _ONE, delete_webhook, "Delete an endpoint.", answers={200: Forgotten}),
    _endpoint(
        "POST", f"{_ONE}/rotate", rotate_webhook, "Create a new secret, shown once; the old one also signs for a time.",
        body=RotateBody, answers={200: WebhookWithSecret}, problems=(409,),
    ),
    _serve(
        "GET", f"{_ONE}/deliveries", service.list_deliveries, "List the deliveries of an endpoint.", query=PageQuery,
        from_replica=True, answers={200: page_of(WebhookDeliveryShape)}, name="list_webhook_deliveries",
    ),
    _serve(
        "POST", f"{_ONE}/replay", service.replay, "Post a delivery again.", body=ReplayBody,
        answers={202: ReplayedShape}, problems=(409,), name="replay_webhook", shape=ReplayedShape,
    ),
]  # fmt: skip
