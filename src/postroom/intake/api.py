"""The HTTP API of malformed commands: list, inspect, correct and resubmit, dismiss."""

import base64
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import msgspec

from postroom.intake import service
from postroom.intake.model import MalformedFilter, MalformedSummary
from postroom.runtime.endpoint import LARGE, Answer, Call, Endpoint
from postroom.runtime.page import PageQuery
from postroom.runtime.record import Shape, Text, part

READ = "deliveries:read"
OPERATE = "deliveries:operate"
WRITE = "deliveries:write"


class MalformedQuery(PageQuery, frozen=True, kw_only=True):
    """The filter and page of a list of malformed commands."""

    reason: Text | None = None
    source: Text | None = None
    resubmitted: bool | None = None
    dismissed: bool | None = None


class ResubmitBody(Shape, frozen=True, kw_only=True):
    """Changes to the command before it is accepted: its payload, other fields, or none. Null removes a field."""

    payload: dict[str, Any] | None = None
    fields: Annotated[dict[str, str | None], msgspec.Meta(max_length=50)] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedDetail(MalformedSummary):
    """One malformed command with its bytes in base64."""

    raw: str


class MalformedPage(msgspec.Struct, frozen=True):
    """Malformed commands, newest first; `waiting` counts those neither resubmitted nor dismissed, up to 10,000."""

    items: list[MalformedSummary]
    next_cursor: str | None
    waiting: int


class Resubmitted(msgspec.Struct, frozen=True):
    """The malformed command and its delivery."""

    id: int
    delivery_id: int
    status: str
    replayed: bool


async def list_malformed_commands(call: Call) -> Answer:
    query: MalformedQuery = call.query
    found, cursor = await service.list_malformed_commands(
        call.room.pool, part(MalformedFilter, query), cursor=query.cursor, limit=query.limit
    )
    waiting_now = await service.count_malformed_commands(call.room.pool)
    return Answer(MalformedPage(found, cursor, waiting_now))


async def get_malformed_command(call: Call) -> Answer:
    command = await service.get_malformed_command(call.room.pool, call.path["command_id"])
    raw = base64.b64encode(command.raw).decode()
    return Answer(MalformedDetail(**asdict(command.summary), raw=raw))


async def resubmit_malformed_command(call: Call) -> Answer:
    body: ResubmitBody = call.body
    command_id: int = call.path["command_id"]
    if body.payload is not None or body.fields:
        call.need(WRITE)  # a changed command is new mail written by the caller
    changes: dict[str, Any] = dict(body.fields)
    if body.payload is not None:
        changes["payload_json"] = body.payload
    accepted = await service.resubmit(
        call.room.pool,
        command_id,
        actor=call.actor,
        changes=changes,
        idempotency_ttl=call.room.settings.idempotency_ttl,
    )
    return Answer(Resubmitted(command_id, accepted.id, accepted.state.value, accepted.replayed), 202)


async def dismiss_malformed_command(call: Call) -> Answer:
    command_id: int = call.path["command_id"]
    await service.dismiss(call.room.pool, [command_id], actor=call.actor)
    return Answer((await service.get_malformed_command(call.room.pool, command_id)).summary)


_endpoint = partial(Endpoint, tag="malformed commands")

ENDPOINTS = [
    _endpoint(
        "GET", "/v1/malformed-commands", list_malformed_commands,
        "List commands from streams that could not be accepted, newest first.", scope=READ, query=MalformedQuery,
        answers={200: MalformedPage},
    ),
    _endpoint(
        "GET", "/v1/malformed-commands/{command_id:int}", get_malformed_command,
        "Show a malformed command with its bytes, which may contain personal data or secrets.", scope=OPERATE,
        answers={200: MalformedDetail},
    ),
    _endpoint(
        "POST", "/v1/malformed-commands/{command_id:int}/resubmit", resubmit_malformed_command,
        "Accept a malformed command; to change it first, the key also needs deliveries:write.", scope=OPERATE,
        body=ResubmitBody, most_body=LARGE, answers={202: Resubmitted}, problems=(409,),
    ),
    _endpoint(
        "POST", "/v1/malformed-commands/{command_id:int}/dismiss", dismiss_malformed_command,
        "Dismiss a malformed command: it is kept, but no longer counted as waiting.", scope=OPERATE,
        answers={200: MalformedSummary}, problems=(409,),
    ),
]  # fmt: skip
