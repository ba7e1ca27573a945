"""HTTP endpoints of mass actions: preview, start, follow."""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import msgspec

from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.mass import service
from postroom.delivery.mass.model import MassAction, MassKind, MassPreview, write_filter
from postroom.delivery.selection import DeliverySelection, Id, filter_of
from postroom.runtime.endpoint import Call, Endpoint
from postroom.runtime.page import PageQuery, page_of
from postroom.runtime.record import answer, response
from postroom.runtime.service_endpoint import serve

READ = "deliveries:read"
OPERATE = "deliveries:operate"


class MassActionBody(DeliverySelection, frozen=True, kw_only=True):
    """The change, and the filter of the deliveries to change; `before_id` of a preview excludes later ones."""

    kind: MassKind
    ids: Annotated[list[Id], msgspec.Meta(max_length=10_000, description="Only these deliveries.")] | None = None
    before_id: Id | None = None


MassActionShape = response(MassAction, "MassActionShape", extra={"filter": dict[str, Any]})


def _chosen(call: Call) -> DeliveryFilter:
    body: MassActionBody = call.body
    return replace(filter_of(body), ids=None if body.ids is None else tuple(body.ids))


def action_shape(action: MassAction) -> Any:
    return answer(MassActionShape, action, filter=write_filter(action.filter))


_endpoint = partial(Endpoint, tag="mass actions")
_serve = partial(serve, tag="mass actions")

ENDPOINTS = [
    _serve(
        "GET", "/v1/mass-actions", service.list_mass_actions, "List mass actions, newest first.", scope=READ,
        query=PageQuery, answers={200: page_of(MassActionShape)}, shape=action_shape,
    ),
    _serve(
        "POST", "/v1/mass-actions", service.start,
        "Cancel, retry or resend all deliveries that a filter selects. Workers continue what the request leaves.",
        scope=OPERATE, body=MassActionBody, answers={202: MassActionShape}, idempotent=True, problems=(404, 409),
        name="start_mass_action", shape=action_shape,
        given={"chosen": _chosen, "idempotency_key": lambda call: call.headers.get("idempotency-key")},
    ),
    _serve(
        "POST", "/v1/mass-actions/preview", service.preview,
        "Count the deliveries that a mass action would change, and those it would skip by reason.", scope=OPERATE,
        body=MassActionBody, answers={200: MassPreview}, problems=(404, 409), name="preview_mass_action",
        given={"chosen": _chosen},
    ),
    _serve(
        "GET", "/v1/mass-actions/{action_id:int}", service.get_mass_action, "Show a mass action and its progress.",
        scope=READ, answers={200: MassActionShape}, shape=action_shape,
    ),
]  # fmt: skip
