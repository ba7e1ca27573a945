"""HTTP endpoints of mass actions: preview, start, follow."""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import msgspec

from postroom.delivery.mass import service
from postroom.delivery.mass.model import MassAction, MassKind, MassPreview, write_filter
from postroom.delivery.model import DeliveryFilter
from postroom.delivery.selection import DeliverySelection, Id, filter_of
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery, page_of
from postroom.runtime.record import answer, response

READ = "deliveries:read"
OPERATE = "deliveries:operate"


class MassActionBody(DeliverySelection, frozen=True, kw_only=True):
    """The change, and the filter of the deliveries to change; `before_id` of a preview excludes later ones."""

    kind: MassKind
    ids: Annotated[list[Id], msgspec.Meta(max_length=10_000, description="Only these deliveries.")] | None = None
    before_id: Id | None = None


MassActionShape = response(MassAction, "MassActionShape", extra={"filter": dict[str, Any]})


def _chosen(body: MassActionBody) -> DeliveryFilter:
    return replace(filter_of(body), ids=None if body.ids is None else tuple(body.ids))


def action_shape(action: MassAction) -> Any:
    return answer(MassActionShape, action, filter=write_filter(action.filter))


async def preview_mass_action(call: Call) -> Answer:
    body: MassActionBody = call.body
    return Answer(await service.preview(call.room.pool, body.kind, _chosen(body)))


async def start_mass_action(call: Call) -> Answer:
    body: MassActionBody = call.body
    started = await service.start(
        call.room.pool,
        body.kind,
        _chosen(body),
        actor=call.actor,
        idempotency_key=call.headers.get("idempotency-key"),
        before_id=body.before_id,
    )
    return Answer(action_shape(started), 202)


async def get_mass_action(call: Call) -> Answer:
    return Answer(action_shape(await service.get_mass_action(call.room.pool, call.path["action_id"])))


async def list_mass_actions(call: Call) -> Answer:
    query: PageQuery = call.query
    found, more = await service.list_mass_actions(call.room.pool, cursor=query.cursor, limit=query.limit)
    return Answer(Page([action_shape(each) for each in found], more))


_endpoint = partial(Endpoint, tag="mass actions")

ENDPOINTS = [
    _endpoint(
        "GET", "/v1/mass-actions", list_mass_actions, "List mass actions, newest first.", scope=READ, query=PageQuery,
        answers={200: page_of(MassActionShape)},
    ),
    _endpoint(
        "POST", "/v1/mass-actions", start_mass_action,
        "Cancel, retry or resend all deliveries that a filter selects. Workers continue what the request leaves.",
        scope=OPERATE, body=MassActionBody, answers={202: MassActionShape}, idempotent=True, problems=(404, 409),
    ),
    _endpoint(
        "POST", "/v1/mass-actions/preview", preview_mass_action,
        "Count the deliveries that a mass action would change, and those it would skip by reason.", scope=OPERATE,
        body=MassActionBody, answers={200: MassPreview}, problems=(404, 409),
    ),
    _endpoint(
        "GET", "/v1/mass-actions/{action_id:int}", get_mass_action, "Show a mass action and its progress.", scope=READ,
        answers={200: MassActionShape},
    ),
]  # fmt: skip
