"""HTTP endpoints of sender accounts and destination limits. Secrets are write-only."""

from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict

from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery
from postroom.runtime.record import Shape, Text, change, given
from postroom.senders import service
from postroom.senders.check import SenderRequest
from postroom.senders.model import DestinationLimits, SenderAccount
from postroom.senders.service import Tools
from postroom.senders.tools import tools_of
from postroom.senders.trial import Trial

READ, MANAGE = "senders:read", "senders:manage"

SenderChange = change(
    SenderRequest,
    "SenderChange",
    read_only=("auth_type",),
    never_null=(
        "smtp_host", "smtp_port", "smtp_password", "gmail_subject_email", "gmail_credentials", "ses_region",
        "ses_access_key_id", "ses_secret_access_key", "send_delay_ms",
    ),
)  # fmt: skip


class PauseQuery(Shape, frozen=True, kw_only=True):
    """Query parameters of a pause: its reason, shown with the account."""

    reason: Text | None = None


class Removed(msgspec.Struct, frozen=True):
    """Response after an account was removed."""

    id: int


class DomainBody(Shape, frozen=True, kw_only=True):
    """Limits of a destination; null means no limit."""

    max_connections: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    messages_per_second: Annotated[float, msgspec.Meta(gt=0, le=100_000)] | None = None


class Unlimited(msgspec.Struct, frozen=True):
    """Response after the limits of a destination were removed."""

    domain: str


# ── handlers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def list_senders(call: Call) -> Answer:
    return Answer(Page(*await service.list_senders(call.room.pool, **asdict(call.query))))


async def get_sender(call: Call) -> Answer:
    return Answer(await service.get_sender(call.room.pool, _id(call)))


async def delete_sender(call: Call) -> Answer:
    await service.delete_sender(call.room.pool, _id(call), actor=call.actor)
    return Answer(Removed(_id(call)))


async def pause_sender(call: Call) -> Answer:
    return Answer(await service.pause_sender(call.room.pool, _id(call), reason=call.query.reason, actor=call.actor))


async def resume_sender(call: Call) -> Answer:
    return Answer(await service.resume_sender(call.room.pool, _id(call), actor=call.actor))


async def list_domains(call: Call) -> Answer:
    return Answer(Page(*await service.list_domains(call.room.pool, **asdict(call.query))))


async def put_domain(call: Call) -> Answer:
    limits = asdict(call.body)
    return Answer(await service.put_domain(call.room.pool, call.path["domain"], **limits, actor=call.actor))


async def delete_domain(call: Call) -> Answer:
    await service.delete_domain(call.room.pool, call.path["domain"], actor=call.actor)
    return Answer(Unlimited(call.path["domain"].lower()))


async def create_sender(call: Call) -> Answer:
    return Answer(await service.create_sender(call.room.pool, _tools(call), call.body, actor=call.actor), 201)


async def change_sender(call: Call) -> Answer:
    changes = given(call.body)
    return Answer(await service.change_sender(call.room.pool, _tools(call), _id(call), changes, actor=call.actor))


async def test_sender(call: Call) -> Answer:
    return Answer(await service.try_sender(call.room.pool, _tools(call), _id(call), actor=call.actor))


def _tools(call: Call) -> Tools:
    """The tools of the process, or those of the settings: a wrong setting of KMS fails this call, not the start."""
    return call.tools.get(Tools) or tools_of(call.room)


def _id(call: Call) -> int:
    return int(call.path["sender_id"])


def _endpoint(method: str, path: str, handler: object, summary: str, **more: Any) -> Endpoint:
    scope = READ if method == "GET" else MANAGE
    return Endpoint(method=method, path=path, handler=handler, summary=summary, scope=scope, tag="senders", **more)  # type: ignore[arg-type]


_ALL, _ONE, _DOMAIN = "/v1/senders", "/v1/senders/{sender_id:int}", "/v1/domains/{domain}"


_SHOWN = {200: SenderAccount}

ENDPOINTS = [
    _endpoint(
        "GET", _ALL, list_senders, "List accounts, oldest first.", query=PageQuery, answers={200: Page[SenderAccount]},
    ),
    _endpoint(
        "POST", _ALL, create_sender, "Add an account. Its secret is stored sealed and never shown.", body=SenderRequest,
        answers={201: SenderAccount}, problems=(409,),
    ),
    _endpoint("GET", _ONE, get_sender, "Show an account.", answers=_SHOWN),
    _endpoint(
        "PATCH", _ONE, change_sender, "Change an account; its type cannot be changed.", body=SenderChange,
        answers=_SHOWN, problems=(409,),
    ),
    _endpoint("DELETE", _ONE, delete_sender, "Remove an account and its secret.", answers={200: Removed}),
    _endpoint(
        "POST", f"{_ONE}/pause", pause_sender, "Stop sending through the account until it is resumed.",
        query=PauseQuery, answers=_SHOWN,
    ),
    _endpoint("POST", f"{_ONE}/resume", resume_sender, "Resume an account and clear its record.", answers=_SHOWN),
    _endpoint(
        "POST", f"{_ONE}/test", test_sender, "Send a mail from the account to itself and return each step.",
        answers={200: Trial}, problems=(409,),
    ),
    _endpoint(
        "GET", "/v1/domains", list_domains, "List destinations with limits or an active pause.", query=PageQuery,
        answers={200: Page[DestinationLimits]},
    ),
    _endpoint(
        "PUT", _DOMAIN, put_domain, "Set the limits of a destination.", body=DomainBody,
        answers={200: DestinationLimits},
    ),
    _endpoint("DELETE", _DOMAIN, delete_domain, "Remove the limits of a destination.", answers={200: Unlimited}),
]  # fmt: skip
