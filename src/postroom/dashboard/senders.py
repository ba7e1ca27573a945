"""Sender accounts: quota, warm-up and health, and the actions on them. Secrets are written, never shown."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from postroom.dashboard.listing import FormField, ListColumn, PageAction, columns
from postroom.dashboard.page import PageRequest
from postroom.errors import BadInput, PostroomError
from postroom.runtime.endpoint import Answer
from postroom.runtime.record import given as changed_fields
from postroom.senders import service
from postroom.senders.api import SenderChange
from postroom.senders.check import SenderRequest
from postroom.senders.model import DAILY_LIMIT, AuthType, SenderAccount, SenderStatus
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
    auth_type={"form": "words"}, smtp_port={"form": "text"}, paused_by={"form": "words"},
)  # fmt: skip

_OF_TYPE = {
    AuthType.SMTP: (
        FormField("smtp_host", "Host", is_required=True),
        FormField("smtp_port", "Port", "number", "587", is_required=True),
        FormField("smtp_username", "User"),
        FormField("smtp_password", "Password", "password"),
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
        FormField("warmup", "Warm up: begin with few mails a day", "check"),
    )


async def list_page(request: PageRequest) -> Answer:
    found = await service.list_senders(request.pool, cursor=request.asked("cursor"))
    return request.listing(
        "Senders",
        _SENDER,
        found,
        lead="Mailboxes that mail leaves by, with their quota of today.",
        empty="There is no sender account: mail leaves by POSTROOM_TRANSPORT.",
        actions=[PageAction(label="Add a sender", path="/senders/new", scope=MANAGE, is_link=True, is_main=True)],
        row_actions=_actions,
    )


def _actions(account: SenderAccount) -> list[PageAction]:
    path = f"/senders/{account.id}"
    if account.status in (SenderStatus.PAUSED, SenderStatus.SUSPENDED):
        return [
            PageAction(label="Resume", path=f"{path}/resume", scope=MANAGE, question="Its error record is cleared.")
        ]
    question = "It sends nothing until a person resumes it; its mail goes by other accounts or waits."
    return [PageAction(label="Pause", path=f"{path}/pause", scope=MANAGE, question=question)]


async def show_page(request: PageRequest) -> Answer:
    return await _show(request)


async def _show(request: PageRequest, trial: Any = None) -> Answer:
    account = await service.get_sender(request.pool, request.id("sender_id"))
    path = f"/senders/{account.id}"
    test = PageAction(
        label="Test",
        path=f"{path}/test",
        scope=MANAGE,
        question="Connects, signs in and sends a mail from this account to itself.",
    )
    question = "The account and its secret are deleted. Mail that it has claimed goes back to the queue."
    delete = PageAction(label="Delete", path=f"{path}/delete", scope=MANAGE, question=question)
    change = PageAction(label="Change", path=f"{path}/edit", scope=MANAGE, is_link=True)
    stages = [
        {"limit": limit, "state": _stage(account, index)} for index, limit in enumerate(account.warmup_limits, start=1)
    ]
    return request.page(
        "sender.html",
        account=account,
        facts=_FACTS,
        actions=[change, *_actions(account), test, delete],
        warmup=warmup_of(account),
        stages=stages if account.warmup_stage else [],
        pace=pace_of(account),
        trial=trial,
    )


async def edit_page(request: PageRequest) -> Answer:
    return await _edit(request)


async def _edit(request: PageRequest, problem: str | None = None) -> Answer:
    account = await service.get_sender(request.pool, request.id("sender_id"))
    return request.form_page(
        f"Change {account.email}",
        [replace(each, value=_current(account, each)) for each in _changeable(account.auth_type)],
        to=f"/senders/{account.id}/edit",
        button="Save",
        lead="An empty password or key keeps the stored one.",
        back=f"/senders/{account.id}",
        problem=problem,
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
    if each.name == "warmup":
        return "on" if account.warmup_stage else ""
    value = None if is_secret(each) else getattr(account, each.name, None)
    return "" if value is None else str(value)


async def change_page(request: PageRequest) -> Answer:
    sender_id = request.id("sender_id")
    account = await service.get_sender(request.pool, sender_id)
    try:
        changes = read_changes(request.form, account)
        changed = await service.change_sender(
            request.pool, tools_of(request.call.room), sender_id, changes, actor=request.actor
        )
    except PostroomError as error:
        return await _edit(request, error.message)
    return request.done(f"/senders/{changed.id}", f"{changed.email} is changed.")


def read_changes(given: Mapping[str, str], account: SenderAccount) -> dict[str, Any]:
    """The fields of the form that differ from the account. An empty field is removed, an empty secret kept."""
    fields: dict[str, Any] = {}
    for each in _changeable(account.auth_type):
        written = given.get(each.name, "").strip()
        if each.kind == "check":
            fields[each.name] = bool(written)
        elif written or not is_secret(each):
            fields[each.name] = written or None
    same = {
        name for name, value in fields.items() if _written(account, name) == (value if value is None else str(value))
    }
    try:
        asked = msgspec.convert(
            {name: value for name, value in fields.items() if name not in same}, SenderChange, strict=False
        )
    except msgspec.ValidationError as error:
        raise BadInput.of("form", str(error)) from None
    return changed_fields(asked)


def _written(account: SenderAccount, name: str) -> str | None:
    value = account.warmup_stage > 0 if name == "warmup" else getattr(account, name, None)
    return None if value is None or value == "" else str(value)


def _stage(account: SenderAccount, number: int) -> str:
    if number == account.warmup_stage:
        return "current"
    return "done" if number < account.warmup_stage else "coming"


async def pause_page(request: PageRequest) -> Answer:
    reason = request.form.get("reason") or "paused in the dashboard"
    account = await service.pause_sender(request.pool, request.id("sender_id"), reason=reason, actor=request.actor)
    return request.done(f"/senders/{account.id}", f"{account.email} is paused.")


async def resume_page(request: PageRequest) -> Answer:
    account = await service.resume_sender(request.pool, request.id("sender_id"), actor=request.actor)
    return request.done(f"/senders/{account.id}", f"{account.email} sends again.")


async def try_page(request: PageRequest) -> Answer:
    """Run the trial and show its steps; a failed step has the words of the server."""
    tools = tools_of(request.call.room)
    trial = await service.try_sender(request.pool, tools, request.id("sender_id"), actor=request.actor)
    return await _show(request, trial)


async def delete_page(request: PageRequest) -> Answer:
    await service.delete_sender(request.pool, request.id("sender_id"), actor=request.actor)
    return request.done("/senders", "The sender account is deleted.")


async def new_page(request: PageRequest) -> Answer:
    return _form(request, _kind(request.asked("type")))


def _kind(written: str | None) -> AuthType:
    try:
        return AuthType(written or AuthType.SMTP)
    except ValueError:
        raise BadInput.of("type", f"must be one of {', '.join(AuthType)}") from None


def _form(request: PageRequest, kind: AuthType, problem: str | None = None) -> Answer:
    return request.form_page(
        "Add a sender",
        form_fields(kind),
        to="/senders/new",
        button="Add the sender",
        lead="A mailbox that mail leaves by.",
        tabs=[(each.value, f"/senders/new?type={each.value}", each is kind) for each in AuthType],
        back="/senders",
        problem=problem,
    )


async def create_page(request: PageRequest) -> Answer:
    kind = _kind(request.form.get("auth_type"))
    try:
        wanted = read_sender(request.form, kind)
        tools = tools_of(request.call.room)
        made = await service.create_sender(request.pool, tools, wanted, actor=request.actor)
    except PostroomError as error:
        return _form(request, kind, error.message)
    return request.done(f"/senders/{made.id}", f"{made.email} is added. Test it before you rely on it.")


def read_sender(form: Mapping[str, str], kind: AuthType) -> SenderRequest:
    """The account of a form; an empty field counts as absent."""
    names = [each.name for each in form_fields(kind)]
    given = {name: form[name].strip() for name in names if form.get(name, "").strip()}
    fields: dict[str, Any] = {**given, "warmup": "warmup" in given}
    try:
        return msgspec.convert(fields, SenderRequest, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput.of("form", str(error)) from None
