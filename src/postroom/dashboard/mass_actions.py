"""Mass actions: cancel, retry or resend all deliveries of a filter, after a dry run."""

import itertools
import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from postroom.dashboard.deliveries import FILTERS, chosen_of
from postroom.dashboard.deliveries import MASS as PATH
from postroom.dashboard.listing import ListColumn, columns, query_with
from postroom.dashboard.page import OPERATE, PageRequest, form, listing, page
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.mass import service
from postroom.delivery.mass.model import MassAction, MassKind, MassPreview, read_filter, write_filter
from postroom.delivery.model import ENDED
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer

_REFRESH_S = 2
"""A browser loads the page of an unfinished action again after this time."""

_DONE = {MassKind.CANCEL: "cancelled", MassKind.RETRY: "made due now", MassKind.RESEND: "sent again"}
_QUESTIONS = {
    MassKind.CANCEL: "Cancelled deliveries are not sent. They cannot be reactivated, but they can be resent.",
    MassKind.RETRY: "They are due at once; dead letters return to the queue with all their attempts.",
    MassKind.RESEND: "Each is sent once more to all its recipients, as a new delivery.",
}
_REASONS = {
    "waiting": "still waiting",
    "sending": "being sent",
    "ended": "ended already",
    "content_deleted": "content deleted",
    "expired": "expired",
    "campaign_cancelled": "campaign cancelled",
    "resent": "resent before",
}
_AMBIGUOUS = "Ambiguous dead letters among them may have arrived already: their recipients would get them twice."


def state_of(action: MassAction) -> str:
    return "running" if action.finished_at is None else "done"


def selected(chosen: DeliveryFilter) -> str:
    """The filter in words: `source is shop, recipient contains ada`."""
    fields = write_filter(chosen)
    return ", ".join(itertools.starmap(_phrase, fields.items())) or "all deliveries"


def _phrase(name: str, value: Any) -> str:
    words = name.replace("_", " ")
    if name == "ids":
        return f"{len(value):,} ids"
    if name.endswith(("_from", "_before")):
        return f"{words} {datetime.fromisoformat(value).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if name in ("state", "reason"):
        value = value.replace("_", " ")
    return f"{words} {value}" if name == "recipient_contains" else f"{words} is {value}"


def reasons(skipped: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {_REASONS.get(reason, reason)}" for reason, count in skipped.items())


_ACTION = (
    ListColumn("id", "Id", "code", link=lambda action: f"{PATH}/{action.id}"),
    ListColumn("kind", "Change", "words"),
    ListColumn("state", "Status", "state", value=state_of),
    ListColumn("filter", "Deliveries", "clip", value=lambda action: selected(action.filter)),
    *columns(MassAction, "changed"),
    ListColumn("skipped", "Skipped", value=lambda action: reasons(action.skipped)),
    *columns(MassAction, "created_at"),
)
_FACTS = (
    ListColumn("filter", "Deliveries", value=lambda action: selected(action.filter)),
    *_ACTION[4:6],
    *columns(
        MassAction, "actor", "created_at", "finished_at", created_at={"form": "exact"}, finished_at={"form": "exact"}
    ),
)


async def ask_page(request: PageRequest) -> Answer:
    """The dry run: how many would be changed, and why others would not."""
    kind, chosen = _kind(request), chosen_of(request)
    if chosen.state is not None and chosen.state.states <= ENDED:  # those that end after the count are not changed
        chosen = replace(chosen, finished_before=datetime.now(UTC))
    counted = await service.preview(request.pool, kind, chosen)
    fields = {
        "kind": kind.value,
        "filter": msgspec.json.encode(write_filter(chosen)).decode(),
        "before_id": str(counted.before_id),
        "key": secrets.token_urlsafe(12),
    }
    query = query_with(request.filters(FILTERS))
    return request.confirm(
        f"{kind.value.capitalize()} deliveries",
        f"{_counted(kind, counted)} Filter: {selected(chosen)}.",
        to=PATH,
        button=f"{kind.value.capitalize()} {'it' if counted.changed == 1 else 'them'}",
        fields=fields,
        back=f"/deliveries?{query}" if query else "/deliveries",
        warning=_AMBIGUOUS if kind is MassKind.RETRY and counted.changed else None,
        is_possible=bool(counted.changed) or not counted.is_complete,
    )


def _counted(kind: MassKind, counted: MassPreview) -> str:
    least = "" if counted.is_complete else "At least "
    would = f"{least}{counted.changed:,} {'delivery' if counted.changed == 1 else 'deliveries'} would be {_DONE[kind]}."
    skipped = f" Skipped: {reasons(counted.skipped)}." if counted.skipped else ""
    rest = "" if counted.is_complete else " The filter selects more than were counted; all of them are examined."
    return f"{would}{skipped}{rest} {_QUESTIONS[kind]}"


def _kind(request: PageRequest) -> MassKind:
    with BadInput.naming("kind", f"must be one of {', '.join(MassKind)}"):
        return MassKind(request.asked("kind") or "")


async def start_page(request: PageRequest) -> Answer:
    """Start the action that was counted. A form sent twice starts it once."""
    with BadInput.naming("filter", "is not a filter of deliveries"):
        chosen = read_filter(request.form.get("filter", ""))
    before_id, key = request.number("before_id"), request.form.get("key")
    if before_id is None or not key:
        raise BadInput.of("before_id", "is not from the page that counts the deliveries")
    started = await service.start(
        request.pool, _kind(request), chosen, actor=request.actor, idempotency_key=key, before_id=before_id
    )
    return request.done(f"{PATH}/{started.id}", "The mass action is started.")


async def show_page(request: PageRequest) -> Answer:
    action = await service.get_mass_action(request.pool, request.id("action_id"))
    answer = request.page("mass_action.html", action=action, state=state_of(action), facts=_FACTS)
    if action.finished_at is not None:
        return answer
    return replace(answer, headers={**answer.headers, "refresh": str(_REFRESH_S)})


PAGES = (
    listing(
        PATH,
        "Mass actions",
        _ACTION,
        service.list_mass_actions,
        lead="Changes of all deliveries of a filter. They start below the list of deliveries.",
        empty="No mass action was started.",
    ),
    page(f"{PATH}/new", ask_page, scope=OPERATE),
    form(PATH, start_page, scope=OPERATE),
    page(f"{PATH}/{{action_id:int}}", show_page),
)
