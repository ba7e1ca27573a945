"""HTTP endpoints of sender accounts and destination limits. Secrets are write-only."""

from functools import partial
from typing import Annotated

import msgspec

from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery
from postroom.runtime.record import Shape, Text, change, given
from postroom.runtime.service_endpoint import serve
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


async def delete_sender(call: Call) -> Answer:
    await service.delete_sender(call.room.pool, call.path["sender_id"], actor=call.actor)
    return Answer(Removed(call.path["sender_id"]))


async def delete_domain(call: Call) -> Answer:
    await service.delete_domain(call.room.pool, call.path["domain"], actor=call.actor)
    return Answer(Unlimited(call.path["domain"].lower()))


def _tools(call: Call) -> Tools:
    """The tools of the process, or those of the settings: a wrong setting of KMS fails this call, not the start."""
    return call.tools.get(Tools) or tools_of(call.room)


_endpoint = partial(Endpoint, scope=MANAGE, tag="senders")
_read = partial(serve, scope=READ, tag="senders")
_manage = partial(serve, scope=MANAGE, tag="senders")
_ALL, _ONE, _DOMAIN = "/v1/senders", "/v1/senders/{sender_id:int}", "/v1/domains/{domain}"
_SHOWN = {200: SenderAccount}

ENDPOINTS = [
    _read(
        "GET", _ALL, service.list_senders, "List accounts, oldest first.", query=PageQuery,
        answers={200: Page[SenderAccount]},
    ),
    _manage(
        "POST", _ALL, service.create_sender, "Add an account. Its secret is stored sealed and never shown.",
        body=SenderRequest, answers={201: SenderAccount}, problems=(409,), given={"tools": _tools},
    ),
    _read("GET", _ONE, service.get_sender, "Show an account.", answers=_SHOWN),
    _manage(
        "PATCH", _ONE, service.change_sender, "Change an account; its type cannot be changed.", body=SenderChange,
        answers=_SHOWN, problems=(409,), given={"tools": _tools, "changes": lambda call: given(call.body)},
    ),
    _endpoint("DELETE", _ONE, delete_sender, "Remove an account and its secret.", answers={200: Removed}),
    _manage(
        "POST", f"{_ONE}/pause", service.pause_sender, "Stop sending through the account until it is resumed.",
        query=PauseQuery, answers=_SHOWN,
    ),
    _manage("POST", f"{_ONE}/resume", service.resume_sender, "Resume an account and clear its record.", answers=_SHOWN),
    _manage(
        "POST", f"{_ONE}/test", service.try_sender, "Send a mail from the account to itself and return each step.",
        answers={200: Trial}, problems=(409,), name="test_sender", given={"tools": _tools},
    ),
    _read(
        "GET", "/v1/domains", service.list_domains, "List destinations with limits or an active pause.",
        query=PageQuery, answers={200: Page[DestinationLimits]},
    ),
    _manage(
        "PUT", _DOMAIN, service.put_domain, "Set the limits of a destination.", body=DomainBody,
        answers={200: DestinationLimits},
    ),
    _endpoint("DELETE", _DOMAIN, delete_domain, "Remove the limits of a destination.", answers={200: Unlimited}),
]  # fmt: skip
