"""Sender accounts and limits of destinations over HTTP. A secret goes in and never comes out."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import msgspec

from postroom.db.room import Room
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Cursor, Limit
from postroom.runtime.record import Shape, Text
from postroom.senders import service
from postroom.senders.check import LONGEST_DELAY_MS, MOST_PER_BATCH, MOST_PER_DAY, SenderRequest
from postroom.senders.model import (
    BATCH_SIZE,
    DAILY_LIMIT,
    LANES,
    WARMUP_DAYS,
    WARMUP_LIMITS,
    AuthType,
    DomainShape,
    SenderAccount,
)
from postroom.senders.service import Tools
from postroom.senders.tools import tools_of
from postroom.senders.trial import Trial

READ, MANAGE = "senders:read", "senders:manage"

_Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
_Daily = Annotated[int, msgspec.Meta(ge=1, le=MOST_PER_DAY)]
_Batch = Annotated[int, msgspec.Meta(ge=1, le=MOST_PER_BATCH)]
_Delay = Annotated[int, msgspec.Meta(ge=0, le=LONGEST_DELAY_MS)]
_Days = Annotated[int, msgspec.Meta(ge=1, le=365)]
_Stages = Annotated[list[_Daily], msgspec.Meta(min_length=1, max_length=50)]
_Lane = Annotated[str, msgspec.Meta(pattern="^(auth|transactional|bulk)$")]
_Lanes = Annotated[list[_Lane], msgspec.Meta(min_length=1, max_length=3)]
_KeyFile = Annotated[str, msgspec.Meta(max_length=20_000)]


class SenderQuery(Shape, frozen=True, kw_only=True):
    """Which page."""

    cursor: Cursor | None = None
    limit: Limit = 50


class NewSender(Shape, frozen=True, kw_only=True):
    """A mailbox to send through. What belongs to another type is refused."""

    email: Text
    auth_type: AuthType
    display_name: Text | None = None
    smtp_host: Text | None = None
    smtp_port: _Port | None = None
    smtp_username: Text | None = None
    smtp_password: Text | None = None
    smtp_use_tls: bool = True
    gmail_subject_email: Text | None = None
    gmail_credentials: _KeyFile | None = None
    ses_region: Text | None = None
    ses_access_key_id: Text | None = None
    ses_secret_access_key: Text | None = None
    daily_limit: _Daily = DAILY_LIMIT
    batch_size: _Batch = BATCH_SIZE
    send_delay_ms: _Delay | None = None
    lanes: _Lanes = msgspec.field(default_factory=lambda: list(LANES))
    warmup: bool = False
    warmup_limits: _Stages = msgspec.field(default_factory=lambda: list(WARMUP_LIMITS))
    warmup_days_per_stage: _Days = WARMUP_DAYS
    notes: Text | None = None


class SenderChange(Shape, frozen=True, kw_only=True):
    """What to change; what is left out stays, null takes away."""

    email: Text | msgspec.UnsetType = msgspec.UNSET
    display_name: Text | msgspec.UnsetType | None = msgspec.UNSET
    smtp_host: Text | msgspec.UnsetType = msgspec.UNSET
    smtp_port: _Port | msgspec.UnsetType = msgspec.UNSET
    smtp_username: Text | msgspec.UnsetType | None = msgspec.UNSET
    smtp_password: Text | msgspec.UnsetType = msgspec.UNSET
    smtp_use_tls: bool | msgspec.UnsetType = msgspec.UNSET
    gmail_subject_email: Text | msgspec.UnsetType = msgspec.UNSET
    gmail_credentials: _KeyFile | msgspec.UnsetType = msgspec.UNSET
    ses_region: Text | msgspec.UnsetType = msgspec.UNSET
    ses_access_key_id: Text | msgspec.UnsetType = msgspec.UNSET
    ses_secret_access_key: Text | msgspec.UnsetType = msgspec.UNSET
    daily_limit: _Daily | msgspec.UnsetType = msgspec.UNSET
    batch_size: _Batch | msgspec.UnsetType = msgspec.UNSET
    send_delay_ms: _Delay | msgspec.UnsetType = msgspec.UNSET
    lanes: _Lanes | msgspec.UnsetType = msgspec.UNSET
    warmup: bool | msgspec.UnsetType = msgspec.UNSET
    warmup_limits: _Stages | msgspec.UnsetType = msgspec.UNSET
    warmup_days_per_stage: _Days | msgspec.UnsetType = msgspec.UNSET
    notes: Text | msgspec.UnsetType | None = msgspec.UNSET


class PauseQuery(Shape, frozen=True, kw_only=True):
    """Why, for whoever finds it paused."""

    reason: Text | None = None


class SenderShape(msgspec.Struct, frozen=True, kw_only=True):
    """An account without its secret."""

    id: int
    email: str
    display_name: str | None
    auth_type: str
    status: str
    status_reason: str | None
    paused_by: str | None
    resume_status: str | None
    gmail_subject_email: str | None
    smtp_host: str | None
    smtp_port: int | None
    smtp_username: str | None
    smtp_use_tls: bool
    ses_region: str | None
    daily_limit: int
    batch_size: int
    send_delay_ms: int
    lanes: list[str]
    daily_sent: int
    daily_bounces: int
    daily_errors: int
    consecutive_errors: int
    warmup_stage: int
    warmup_current_limit: int | None
    warmup_days: int
    warmup_limits: list[int]
    warmup_days_per_stage: int
    paused_until: datetime | None
    last_used_at: datetime | None
    last_reset_at: datetime
    created_at: datetime
    updated_at: datetime
    notes: str | None


class SenderPage(msgspec.Struct, frozen=True):
    """Accounts, oldest first."""

    items: list[SenderShape]
    next_cursor: str | None


class StepShape(msgspec.Struct, frozen=True):
    """One step of a trial, and what was said."""

    name: str
    ok: bool
    detail: str | None


class TrialShape(msgspec.Struct, frozen=True):
    """How far a mail from the account to itself got."""

    ok: bool
    steps: list[StepShape]


class Removed(msgspec.Struct, frozen=True):
    """The account is gone."""

    id: int


class DomainBody(Shape, frozen=True, kw_only=True):
    """How fast a destination may be sent to; null: no limit of that kind."""

    max_connections: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    messages_per_second: Annotated[float, msgspec.Meta(gt=0, le=100_000)] | None = None


class DomainView(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a destination, and the rest it asked for."""

    domain: str
    max_connections: int | None
    messages_per_second: float | None
    paused_until: datetime | None
    backoff_level: int
    updated_at: datetime


class DomainPage(msgspec.Struct, frozen=True):
    """Destinations by name."""

    items: list[DomainView]
    next_cursor: str | None


class Unlimited(msgspec.Struct, frozen=True):
    """The destination has no limits any more."""

    domain: str


# ── handlers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def list_senders(call: Call) -> Answer:
    found, cursor = await service.list_senders(call.room.pool, cursor=call.query.cursor, limit=call.query.limit)
    return Answer(SenderPage([_shape(account) for account in found], cursor))


async def get_sender(call: Call) -> Answer:
    return Answer(_shape(await service.get_sender(call.room.pool, _id(call))))


async def delete_sender(call: Call) -> Answer:
    await service.delete_sender(call.room.pool, _id(call), actor=call.actor)
    return Answer(Removed(_id(call)))


async def pause_sender(call: Call) -> Answer:
    account = await service.pause_sender(call.room.pool, _id(call), reason=call.query.reason, actor=call.actor)
    return Answer(_shape(account))


async def resume_sender(call: Call) -> Answer:
    return Answer(_shape(await service.resume_sender(call.room.pool, _id(call), actor=call.actor)))


async def list_domains(call: Call) -> Answer:
    found, cursor = await service.list_domains(call.room.pool, cursor=call.query.cursor, limit=call.query.limit)
    return Answer(DomainPage([_domain(shape) for shape in found], cursor))


async def put_domain(call: Call) -> Answer:
    shape = await service.put_domain(
        call.room.pool,
        call.path["domain"],
        max_connections=call.body.max_connections,
        messages_per_second=call.body.messages_per_second,
        actor=call.actor,
    )
    return Answer(_domain(shape))


async def delete_domain(call: Call) -> Answer:
    await service.delete_domain(call.room.pool, call.path["domain"], actor=call.actor)
    return Answer(Unlimited(call.path["domain"].lower()))


class _WithTools:
    """The handlers that touch secrets or the outside."""

    def __init__(self, tools: Callable[[Room], Tools]) -> None:
        self._tools = tools

    async def create_sender(self, call: Call) -> Answer:
        request = SenderRequest(**_fields(call.body))
        account = await service.create_sender(call.room.pool, self._tools(call.room), request, actor=call.actor)
        return Answer(_shape(account), 201)

    async def change_sender(self, call: Call) -> Answer:
        tools, changes = self._tools(call.room), _fields(call.body)
        account = await service.change_sender(call.room.pool, tools, _id(call), changes, actor=call.actor)
        return Answer(_shape(account))

    async def test_sender(self, call: Call) -> Answer:
        trial = await service.try_sender(call.room.pool, self._tools(call.room), _id(call), actor=call.actor)
        return Answer(_trial(trial))


def _fields(body: Any) -> dict[str, Any]:
    """What was given, lists as tuples."""
    given = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not msgspec.UNSET}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def _id(call: Call) -> int:
    return int(call.path["sender_id"])


def _shape(account: SenderAccount) -> SenderShape:
    return msgspec.convert(account, SenderShape, from_attributes=True)


def _domain(shape: DomainShape) -> DomainView:
    return msgspec.convert(shape, DomainView, from_attributes=True)


def _trial(trial: Trial) -> TrialShape:
    return msgspec.convert(trial, TrialShape, from_attributes=True)


def _endpoint(method: str, path: str, handler: object, summary: str, **more: Any) -> Endpoint:
    scope = READ if method == "GET" else MANAGE
    return Endpoint(method=method, path=path, handler=handler, summary=summary, scope=scope, tag="senders", **more)  # type: ignore[arg-type]


_ALL, _ONE, _DOMAIN = "/v1/senders", "/v1/senders/{sender_id:int}", "/v1/domains/{domain}"


def endpoints(tools: Callable[[Room], Tools] = tools_of) -> list[Endpoint]:
    """Everything about accounts and destinations; `tools` seal secrets and make ways out."""
    tooled = _WithTools(tools)
    shown = {200: SenderShape}
    return [
        _endpoint("GET", _ALL, list_senders, "List accounts.", query=SenderQuery, answers={200: SenderPage}),
        _endpoint(
            "POST", _ALL, tooled.create_sender, "Add an account. Its secret is stored sealed and never shown.",
            body=NewSender, answers={201: SenderShape}, problems=(409,),
        ),
        _endpoint("GET", _ONE, get_sender, "Show an account.", answers=shown),
        _endpoint(
            "PATCH", _ONE, tooled.change_sender, "Change an account; its type cannot be changed.", body=SenderChange,
            answers=shown, problems=(409,),
        ),
        _endpoint("DELETE", _ONE, delete_sender, "Remove an account and its secret.", answers={200: Removed}),
        _endpoint(
            "POST", f"{_ONE}/pause", pause_sender, "Send nothing through it until it is resumed.", query=PauseQuery,
            answers=shown,
        ),
        _endpoint("POST", f"{_ONE}/resume", resume_sender, "Send through it again, its record cleared.", answers=shown),
        _endpoint(
            "POST", f"{_ONE}/test", tooled.test_sender, "Send a mail from it to itself and say how far it got.",
            answers={200: TrialShape}, problems=(409,),
        ),
        _endpoint(
            "GET", "/v1/domains", list_domains, "List destinations with limits or rests.", query=SenderQuery,
            answers={200: DomainPage},
        ),
        _endpoint("PUT", _DOMAIN, put_domain, "Limit a destination.", body=DomainBody, answers={200: DomainView}),
        _endpoint("DELETE", _DOMAIN, delete_domain, "Lift its limits.", answers={200: Unlimited}),
    ]  # fmt: skip


ENDPOINTS = endpoints()
