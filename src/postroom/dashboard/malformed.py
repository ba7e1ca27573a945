"""Malformed commands: by reason, one with its content, corrected and resubmitted, dismissed, or redriven in bulk."""

from dataclasses import replace
from typing import Any
from urllib.parse import quote

import msgspec

from postroom.dashboard.events import json_block
from postroom.dashboard.listing import DELIVERY, Filter, FormField, ListColumn, PageAction, columns
from postroom.dashboard.page import OPERATE, READ, PageRequest, form, page
from postroom.dashboard.views import words
from postroom.errors import BadInput
from postroom.intake import service
from postroom.intake.command import read_fields
from postroom.intake.model import CommandRedrive, MalformedFilter, MalformedGroup, MalformedSummary
from postroom.mail.template_check import TemplateCheck
from postroom.runtime.endpoint import Answer

WRITE = "deliveries:write"
STATES = ("waiting", "resubmitted", "dismissed")
LARGEST_SHOWN = 40_000
"""Bytes of a command that its page shows and lets a person edit; larger ones are for the command line."""


def command_page(command_id: int) -> str:
    return f"/malformed/{command_id}"


def state_of(command: MalformedSummary) -> str:
    if command.resubmitted_at is not None:
        return "resubmitted"
    return "dismissed" if command.dismissed_at is not None else "waiting"


_COMMAND = (
    ListColumn("id", "Command", "code", link=lambda command: command_page(command.id)),
    ListColumn("state", "Status", "state", value=state_of),
    *columns(MalformedSummary, "reason", "detail", "source", "recorded_at", "size",
        reason={"value": lambda command: words(command.reason)}, detail={"form": "clip"},
        size={"form": "size", "is_minor": True}),
    DELIVERY,
)  # fmt: skip

_FACTS = columns(
    MalformedSummary, "reason", "source", "entry", "size", "recorded_at", "resubmitted_at", "dismissed_at",
    reason={"form": "words"}, entry={"form": "code", "label": "Place in its stream"}, size={"form": "size"},
)  # fmt: skip

_GROUP = (
    ListColumn("reason", "Reason", value=lambda group: words(group.reason),
        link=lambda group: f"/malformed?reason={quote(group.reason, safe='')}"),
    *columns(MalformedGroup, "commands", "newest_at", "oldest_at", oldest_at={"is_minor": True}),
)  # fmt: skip


_ONE = "/malformed/{command_id:int}"
_FILTERS = (
    Filter("state", "Status", options=STATES),
    Filter("reason", "Reason", placeholder="bad_payload"),
    Filter("source", "Source", placeholder="shop"),
)
_REDRIVE = PageAction("Redrive…", "/malformed/redrive?reason={reason}", OPERATE, is_link=True)
_DISMISS = PageAction(
    "Dismiss", f"{_ONE}/dismiss", OPERATE,
    question="It is kept, but no longer waits or counts as a problem. It can still be resubmitted.",
)  # fmt: skip


async def list_page(request: PageRequest) -> Answer:
    chosen = request.chosen(_FILTERS)
    chosen |= _state(chosen.pop("state"))
    wanted = MalformedFilter(**chosen)
    found = await service.list_malformed_commands(request.pool, wanted, cursor=request.asked("cursor"))
    empty = "No command is malformed. Commands from Redis, NATS and other streams that cannot be accepted come here."
    return request.page(
        "malformed.html",
        reasons=await service.group_malformed_commands(request.pool),
        group_columns=_GROUP,
        group_actions=lambda group: [_REDRIVE.at(group.reason)],
        filters=request.filters(_FILTERS),
        rows=request.rows(_COMMAND, found, path="/malformed", filters=_FILTERS, empty=empty),
    )


def _state(written: str | None) -> dict[str, bool]:
    if written is None:
        return {}
    if written not in STATES:
        raise BadInput.of("state", f"must be one of {', '.join(STATES)}")
    return {"resubmitted": written == "resubmitted", "dismissed": written == "dismissed"}


# ── one command ────────────────────────────────────────────────────────────────────────────────────────────────────


async def show_page(request: PageRequest) -> Answer:
    command = await service.get_malformed_command(request.pool, request.id("command_id"))
    summary = command.summary
    is_open, path = summary.resubmitted_at is None, command_page(summary.id)
    content = request.form.get("content") or shown_content(command.raw)
    return request.page(
        "malformed_command.html",
        command=summary,
        state=state_of(summary),
        facts=_FACTS,
        actions=[_DISMISS.at(summary.id)] if is_open and summary.dismissed_at is None else [],
        path=path,
        is_cut=len(command.raw) > LARGEST_SHOWN,
        content=content[:LARGEST_SHOWN],
        field=FormField("content", "The command as JSON", "area", content)
        if is_open and request.may(WRITE) and len(command.raw) <= LARGEST_SHOWN
        else None,
        can_resubmit=is_open and request.may(OPERATE),
    )


def shown_content(raw: bytes) -> str:
    """The fields as JSON, with the payload as an object if it can be read; otherwise the bytes as text."""
    fields = read_fields(raw)
    if not fields:
        return raw.decode("utf-8", "backslashreplace")
    return json_block({**fields, **_payload(fields)}, longest=LARGEST_SHOWN)


def _payload(fields: dict[str, Any]) -> dict[str, Any]:
    """The payload as an object; producers of flat entries send it as a string of JSON."""
    written = fields.get("payload_json")
    return {"payload_json": read_fields(written.encode()) or written} if isinstance(written, str) else {}


async def resubmit_page(request: PageRequest) -> Answer:
    """Accept the command, with the changes that the form holds; a changed command is new mail of this person."""
    command = await service.get_malformed_command(request.pool, request.id("command_id"))
    try:
        changes = changed_fields(command.raw, request.form.get("content"))
        if changes:
            request.need(WRITE)
        accepted = await service.resubmit(
            request.pool,
            command.summary.id,
            actor=request.actor,
            changes=changes,
            idempotency_ttl=request.call.room.settings.idempotency_ttl,
        )
    except BadInput as error:
        return await show_page(replace(request, problem=str(error)))
    done = "The command was accepted before: this is its delivery." if accepted.replayed else "The command is accepted."
    return request.done(f"/deliveries/{accepted.id}", done)


def changed_fields(raw: bytes, content: str | None) -> dict[str, Any]:
    """The fields in which an edited command differs; None for a removed field."""
    if content is None or content.replace("\r\n", "\n").strip() == shown_content(raw).strip():
        return {}
    try:
        given: dict[str, Any] = msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise BadInput.of("content", f"must be a JSON object: {error}") from None
    before = read_fields(raw)
    known = {**before, **_payload(before)}
    changes = {name: value for name, value in given.items() if name not in known or known[name] != value}
    return {**changes, **dict.fromkeys(before.keys() - given.keys())}


async def dismiss_page(request: PageRequest) -> Answer:
    command_id = request.id("command_id")
    await service.dismiss(request.pool, [command_id], actor=request.actor)
    return request.done(command_page(command_id), "The command is dismissed.")


# ── all of a reason ────────────────────────────────────────────────────────────────────────────────────────────────


async def ask_redrive_page(request: PageRequest) -> Answer:
    """The dry run: how many of the waiting commands would be accepted as they are."""
    reason, source = request.asked("reason"), request.asked("source")
    newest, _more = await service.list_malformed_commands(request.pool, MalformedFilter(), limit=1)
    before = newest[0].id + 1 if newest else 1
    counted = await _redrive(request, reason, source, before, dry_run=True)
    rest = (
        f" Only the newest {service.MOST_REDRIVEN:,} were tried: repeat it for the others." if counted.is_more else ""
    )
    return request.confirm(
        "Redrive malformed commands",
        f"{_counted(counted)}{rest} A command becomes valid when its cause is removed, such as a missing template.",
        to="/malformed/redrive",
        button="Resubmit the valid ones",
        fields={"reason": reason, "source": source, "before": str(before)},
        back="/malformed",
        is_possible=bool(counted.accepted),
    )


def _counted(counted: CommandRedrive) -> str:
    are = "command is" if counted.accepted == 1 else "commands are"
    return f"{counted.accepted:,} {are} valid now and would be accepted; {counted.malformed:,} would stay malformed."


async def _redrive(
    request: PageRequest, reason: str | None, source: str | None, before_id: int, *, dry_run: bool
) -> CommandRedrive:
    return await service.redrive(
        request.pool,
        MalformedFilter(reason=reason, source=source),
        before_id=before_id,
        actor=request.actor,
        dry_run=dry_run,
        check=TemplateCheck(request.pool),
        idempotency_ttl=request.call.room.settings.idempotency_ttl,
    )


async def redrive_page(request: PageRequest) -> Answer:
    before = request.number("before")
    if before is None:
        raise BadInput.of("before", "is not from the page that counts the commands")
    done = await _redrive(request, request.asked("reason"), request.asked("source"), before, dry_run=False)
    return request.done("/malformed", f"{done.accepted} accepted, {done.malformed} still malformed.")


PAGES = (
    page("/malformed", list_page, scope=READ),
    page("/malformed/redrive", ask_redrive_page, scope=OPERATE),
    form("/malformed/redrive", redrive_page, scope=OPERATE),
    page(_ONE, show_page, scope=OPERATE),
    form(f"{_ONE}/resubmit", resubmit_page, scope=OPERATE),
    form(f"{_ONE}/dismiss", dismiss_page, scope=OPERATE),
)
