"""Sender accounts: quota, warm-up and health, and the actions on them. Secrets are written, never shown."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from postroom.dashboard.listing import FormField, ListColumn, PageAction, columns
from postroom.dashboard.page import PageRequest, actions, form, form_pages, listing, page
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer
from postroom.runtime.record import given as changed_fields
from postroom.senders import service
from postroom.senders.api import SenderChange
from postroom.senders.check import SenderRequest
from postroom.senders.model import DAILY_LIMIT, LANES, AuthType, SenderAccount, SenderStatus
from postroom.senders.tools import tools_of

READ, MANAGE = "senders:read", "senders:manage"


def warmup_of(account: SenderAccount) -> str | None:
    if not account.warmup_stage:
        return None
    stages = len(account.warmup_limits)
    return f"stage {account.warmup_stage} of {stages}, day {account.warmup_days} of {account.warmup_days_per_stage}"


def pace_of(account: SenderAccount) -> str:
    if not account.send_delay_ms:
        return "as fast as it answers"
    return f"{1000 / account.send_delay_ms:.3g} per second"


def health_of(account: SenderAccount) -> str:
    """Why the account does not send, or its results of today."""
    return account.status_reason or f"{account.daily_bounces} bounced, {account.daily_errors} failed today"


_SENDER = (
    *columns(SenderAccount, "email", "status", email={"link": lambda account: f"/senders/{account.id}"}),
    ListColumn("today", "Sent today", "meter", value=lambda account: (account.daily_sent, account.limit)),
    ListColumn("warmup", "Warm-up", value=warmup_of),
    ListColumn("health", "Health", value=health_of),
    *columns(SenderAccount, "last_used_at", last_used_at={"is_minor": True}),
)

_FACTS = columns(
    SenderAccount, "auth_type", "display_name", "smtp_host", "smtp_port", "smtp_username", "smtp_use_tls",
    "gmail_subject_email", "ses_region", "lanes", "daily_limit", "batch_size", "send_delay_ms", "paused_by",
    "paused_until", "last_used_at", "last_reset_at", "created_at", "updated_at", "notes",
    auth_type={"form": "words", "label": "Type"}, smtp_port={"form": "text"}, paused_by={"form": "words"},
    smtp_username={"label": "SMTP user"}, smtp_use_tls={"label": "TLS"}, daily_limit={"label": "Mails per day"},
    batch_size={"label": "Mails per batch"}, send_delay_ms={"label": "Pause between mails, in ms"},
    last_reset_at={"label": "Day began"},
)  # fmt: skip

_OF_TYPE = {
    AuthType.SMTP: (
        FormField("smtp_host", "Host", is_required=True),
        FormField("smtp_port", "Port", "number", "587", is_required=True),
        FormField("smtp_username", "User"),
        FormField("smtp_password", "Password", "password"),
        FormField("smtp_use_tls", "Encrypt the connection with TLS", "check", "on"),
    ),
    AuthType.GMAIL: (
        FormField("gmail_subject_email", "Mailbox to send as", "email", is_required=True),
        FormField("gmail_credentials", "Key file of the service account (JSON)", "area", is_required=True),
    ),
    AuthType.SES: (
        FormField("ses_region", "Region", is_required=True),
        FormField("ses_access_key_id", "Access key id", hint="Empty: the AWS credentials of the worker"),
        FormField("ses_secret_access_key", "Secret access key", "password"),
    ),
}
"""The fields of each type, besides those of all."""


def form_fields(kind: AuthType) -> tuple[FormField, ...]:
    return (
        FormField("auth_type", "Type", "hidden", kind.value),
        FormField("email", "Address", "email", is_required=True),
        FormField("display_name", "Name"),
        *_OF_TYPE[kind],
        FormField("daily_limit", "Mails per day", "number", str(DAILY_LIMIT)),
        FormField("send_delay_ms", "Pause between mails, in ms", "number", hint="Empty: the default of the type"),
        FormField(
            "lanes",
            "Lanes",
            hint="auth, transactional or bulk, with spaces between. Empty: all, or bulk alone while it warms up",
        ),
        FormField("warmup", "Warm up: begin with few mails a day", "check"),
    )


_ONE = "/senders/{sender_id:int}"
_PAUSE = PageAction(
    "Pause", f"{_ONE}/pause", MANAGE,
    question="It sends nothing until a person resumes it; its mail goes by other accounts or waits.",
)  # fmt: skip
_RESUME = PageAction(
    "Resume", f"{_ONE}/resume", MANAGE, service.resume_sender, "{0.email} sends again.",
    question="Its error record is cleared.",
)  # fmt: skip
_TEST = PageAction(
    "Test", f"{_ONE}/test", MANAGE, question="Connects, signs in and sends a mail from this account to itself.",
)  # fmt: skip
_DELETE = PageAction(
    "Delete", f"{_ONE}/delete", MANAGE, service.delete_sender, "The sender account is deleted.", to="/senders",
    question="The account and its secret are deleted. Mail that it has claimed goes back to the queue.",
)  # fmt: skip
_CHANGE = PageAction("Change", f"{_ONE}/edit", MANAGE, is_link=True)


def _actions(account: SenderAccount) -> list[PageAction]:
    is_stopped = account.status in (SenderStatus.PAUSED, SenderStatus.SUSPENDED)
    return [_RESUME.at(account.id) if is_stopped else _PAUSE.at(account.id)]


async def show_page(request: PageRequest, trial: Any = None) -> Answer:
    account = await service.get_sender(request.pool, request.id("sender_id"))
    stages = [
        {"limit": limit, "state": _stage(account, index)} for index, limit in enumerate(account.warmup_limits, start=1)
    ]
    return request.page(
        "sender.html",
        account=account,
        facts=_FACTS,
        actions=[_CHANGE.at(account.id), *_actions(account), _TEST.at(account.id), _DELETE.at(account.id)],
        warmup=warmup_of(account),
        stages=stages if account.warmup_stage else [],
        pace=pace_of(account),
        trial=trial,
    )


async def edit_page(request: PageRequest) -> Answer:
    account = await service.get_sender(request.pool, request.id("sender_id"))
    return request.form_page(
        f"Change {account.email}",
        [replace(each, value=_current(account, each)) for each in _changeable(account.auth_type)],
        button="Save",
        lead="An empty password or key keeps the stored one.",
        back=f"/senders/{account.id}",
    )


def _changeable(kind: AuthType) -> list[FormField]:
    """The fields of the form to add a sender, without the type; a secret is not required."""
    more = (
        FormField("batch_size", "Mails per batch", "number"),
        FormField("notes", "Notes", "area"),
    )
    fields = [*form_fields(kind), *more]
    return [
        replace(each, is_required=each.is_required and not is_secret(each)) for each in fields if each.kind != "hidden"
    ]


def is_secret(each: FormField) -> bool:
    return each.kind == "password" or each.name in ("gmail_credentials", "ses_access_key_id")


def _current(account: SenderAccount, each: FormField) -> str:
    if each.kind == "check":
        return "on" if _is_checked(account, each.name) else ""
    return "" if is_secret(each) else _written(account, each.name) or ""


def _is_checked(account: SenderAccount, name: str) -> bool:
    return account.warmup_stage > 0 if name == "warmup" else bool(getattr(account, name))


async def change_page(request: PageRequest) -> Answer:
    sender_id = request.id("sender_id")
    account = await service.get_sender(request.pool, sender_id)
    changes, tools = read_changes(request.form, account), tools_of(request.call.room)
    changed = await service.change_sender(request.pool, tools, sender_id, changes, actor=request.actor)
    return request.done(f"/senders/{changed.id}", f"{changed.email} is changed.")


def read_changes(given: Mapping[str, str], account: SenderAccount) -> dict[str, Any]:
    """The fields of the form that differ from the account.

    An empty field is removed, an empty secret kept, and without lanes it serves all.
    """
    fields: dict[str, Any] = {}
    for each in _changeable(account.auth_type):
        written = given.get(each.name, "").strip()
        if each.kind == "check":
            fields[each.name] = bool(written)
        elif written or not is_secret(each):
            fields[each.name] = written or None
    fields["lanes"] = " ".join((fields["lanes"] or " ".join(LANES)).split())
    same = {
        name for name, value in fields.items() if _written(account, name) == (value if value is None else str(value))
    }
    changed = {name: _value(name, value) for name, value in fields.items() if name not in same}
    with BadInput.naming("form"):
        return changed_fields(msgspec.convert(changed, SenderChange, strict=False))


def _written(account: SenderAccount, name: str) -> str | None:
    value = _is_checked(account, name) if name == "warmup" else getattr(account, name, None)
    if isinstance(value, tuple):
        return " ".join(value)
    return None if value is None or value == "" else str(value)


def _stage(account: SenderAccount, number: int) -> str:
    if number == account.warmup_stage:
        return "current"
    return "done" if number < account.warmup_stage else "coming"


async def pause_page(request: PageRequest) -> Answer:
    reason = request.asked("reason") or "paused in the dashboard"
    account = await service.pause_sender(request.pool, request.id("sender_id"), reason=reason, actor=request.actor)
    return request.done(f"/senders/{account.id}", f"{account.email} is paused.")


async def try_page(request: PageRequest) -> Answer:
    """Run the trial and show its steps; a failed step has the words of the server."""
    tools = tools_of(request.call.room)
    trial = await service.try_sender(request.pool, tools, request.id("sender_id"), actor=request.actor)
    return await show_page(request, trial)


def _kind(request: PageRequest) -> AuthType:
    with BadInput.naming("type", f"must be one of {', '.join(AuthType)}"):
        return AuthType(request.asked("auth_type") or request.asked("type") or AuthType.SMTP)


async def new_page(request: PageRequest) -> Answer:
    kind = _kind(request)
    return request.form_page(
        "Add a sender",
        form_fields(kind),
        button="Add the sender",
        lead="A mailbox that mail leaves by.",
        tabs=[(each.value, f"/senders/new?type={each.value}", each is kind) for each in AuthType],
        back="/senders",
    )


async def create_page(request: PageRequest) -> Answer:
    wanted, tools = read_sender(request, _kind(request)), tools_of(request.call.room)
    made = await service.create_sender(request.pool, tools, wanted, actor=request.actor)
    return request.done(f"/senders/{made.id}", f"{made.email} is added. Test it before you rely on it.")


def _value(name: str, written: Any) -> Any:
    """A field of the form as the account has it: lanes are a list."""
    if not isinstance(written, str):
        return written
    return written.split() if name == "lanes" else written.strip()


def read_sender(request: PageRequest, kind: AuthType) -> SenderRequest:
    """The account of a form; an empty field counts as absent."""
    offered = form_fields(kind)
    given = {each.name: _value(each.name, request.form.get(each.name, "")) for each in offered}
    checks = {each.name: bool(given[each.name]) for each in offered if each.kind == "check"}
    return request.read(SenderRequest, {**given, **checks})


PAGES = (
    listing(
        "/senders",
        "Senders",
        _SENDER,
        service.list_senders,
        scope=READ,
        lead="Mailboxes that mail leaves by, with their quota of today.",
        empty="No mailbox is added: all mail leaves by the one server in the settings of this installation, or stays "
        "in the inbox. Add a sender for each mailbox that mail should leave by, such as one at Google, Microsoft, "
        "Amazon SES or your own mail server. Each has its own daily quota and warm-up, and mail is shared among them.",
        actions=[PageAction("Add a sender", "/senders/new", MANAGE, is_link=True, is_main=True)],
        row_actions=_actions,
    ),
    *form_pages("/senders/new", new_page, create_page, scope=MANAGE),
    page(_ONE, show_page, scope=READ),
    *form_pages(f"{_ONE}/edit", edit_page, change_page, scope=MANAGE),
    form(f"{_ONE}/pause", pause_page, scope=MANAGE),
    form(f"{_ONE}/test", try_page, scope=MANAGE),
    *actions(_RESUME, _DELETE),
)
