"""Webhook endpoints: their last answers, test, recovery, rotation of the secret, and changes."""

import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from postroom.dashboard.deliveries import MASS
from postroom.dashboard.listing import Filter, FormField, ListColumn, PageAction, columns, options_of
from postroom.dashboard.page import PageRequest, actions, form, form_pages, listing, page
from postroom.db.pool import Pool
from postroom.delivery.mass.model import MassKind, MassPreview
from postroom.errors import BadInput
from postroom.outbox import topics
from postroom.outbox.webhooks import service
from postroom.outbox.webhooks.model import EndpointFormat, EndpointStatus, WebhookEndpoint
from postroom.runtime.endpoint import Answer
from postroom.runtime.secrets import SecretBox

MANAGE = "webhooks:manage"


def endpoint_page(endpoint_id: int) -> str:
    return f"/webhooks/{endpoint_id}"


_ENDPOINT = (
    ListColumn("url", "URL", link=lambda endpoint: endpoint_page(endpoint.id)),
    *columns(WebhookEndpoint, "status", "topics", "silent_topics", "description", "format", "created_at",
        status={"form": "state"}, silent_topics={"label": "Silent topics"}, format={"form": "words"},
        created_at={"is_minor": True}),
)  # fmt: skip

_FACTS = columns(
    WebhookEndpoint, "topics", "format", "description", "disabled_reason", "disabled_at", "previous_until",
    "created_at", "updated_at",
    format={"form": "words"}, disabled_reason={"form": "words"},
    previous_until={"label": "The previous secret signs until", "form": "exact"},
)  # fmt: skip

_ANSWER = (
    ListColumn(
        "id",
        "Delivery",
        "code",
        value=lambda each: each.delivery.id,
        link=lambda each: f"/deliveries/{each.delivery.id}",
    ),
    ListColumn("state", "Status", "state", value=lambda each: each.delivery.state.value),
    ListColumn("text", "Reply", "clip", value=lambda each: each.attempt and each.attempt.reply_text),
    ListColumn("duration_s", "Duration", "latency"),
    ListColumn("attempts", "Attempts", "number", value=lambda each: each.delivery.attempt_count, is_minor=True),
    ListColumn("at", "Last attempt", "when", value=lambda each: each.attempt and each.attempt.finished_at),
)


async def _set_status(status: EndpointStatus, pool: Pool, endpoint_id: int, *, actor: str) -> WebhookEndpoint:
    reason = None if status is EndpointStatus.ENABLED else "operator"
    return await service.set_status(pool, endpoint_id, status, reason=reason, actor=actor)


_ONE = "/webhooks/{endpoint_id:int}"
_TEST = PageAction(
    "Send a test event", f"{_ONE}/test", MANAGE, service.send_test,
    "The test event is delivery {0}. Its answer follows below.", is_main=True,
)  # fmt: skip
_DISABLE = PageAction(
    "Disable", f"{_ONE}/disable", MANAGE, partial(_set_status, EndpointStatus.DISABLED), "The endpoint is disabled.",
    question="Nothing is posted to it. Events of that time are not stored for it, and queued ones fail: recover later.",
)  # fmt: skip
_ENABLE = PageAction(
    "Enable", f"{_ONE}/enable", MANAGE, partial(_set_status, EndpointStatus.ENABLED), "The endpoint is enabled.",
    is_main=True,
)  # fmt: skip
_ROTATE = PageAction(
    "Rotate the secret", f"{_ONE}/rotate", MANAGE,
    question="A new secret is made and shown once. The old one signs too for a day, so that the receiver can switch.",
)  # fmt: skip
_DELETE = PageAction(
    "Delete", f"{_ONE}/delete", MANAGE, service.delete, "The endpoint is deleted.", to="/webhooks",
    question="The endpoint and its secrets are deleted, and its queued webhooks fail.",
)  # fmt: skip
_RECOVER = PageAction("Recover…", f"{_ONE}/recover", MANAGE, is_link=True)
_CHANGE = PageAction("Change", f"{_ONE}/change", MANAGE, is_link=True)


async def show_page(request: PageRequest) -> Answer:
    endpoint = await service.get_endpoint(request.pool, request.id("endpoint_id"))
    answers = await service.list_answers(request.pool, endpoint.id, cursor=request.asked("cursor"), limit=20)
    return request.page(
        "webhook.html",
        endpoint=endpoint,
        facts=_FACTS,
        actions=_actions(endpoint),
        answers=request.rows(_ANSWER, answers, path=endpoint_page(endpoint.id), empty="Nothing was posted yet."),
    )


def _actions(endpoint: WebhookEndpoint) -> list[PageAction]:
    switch = (_TEST, _DISABLE) if endpoint.status is EndpointStatus.ENABLED else (_ENABLE,)
    return [each.at(endpoint.id) for each in (*switch, _RECOVER, _ROTATE, _CHANGE, _DELETE)]


async def rotate_page(request: PageRequest) -> Answer:
    endpoint, secret = await service.rotate(request.pool, _box(request), request.id("endpoint_id"), actor=request.actor)
    return _show_secret(request, endpoint, secret)


def _show_secret(request: PageRequest, endpoint: WebhookEndpoint, secret: str) -> Answer:
    """The secret, in this answer only."""
    return request.secret_page(
        f"The secret of {endpoint.url}",
        secret,
        about="The receiver verifies the header webhook-signature with it, as in Standard Webhooks.",
        back=endpoint_page(endpoint.id),
        until=endpoint.previous_until,
    )


def _box(request: PageRequest) -> SecretBox:
    return SecretBox(request.call.room.settings.sealing_keys)


# ── recovery ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def ask_recover_page(request: PageRequest) -> Answer:
    """The form; with a time, the number of webhooks that would be posted again."""
    endpoint = await service.get_endpoint(request.pool, request.id("endpoint_id"))
    since = request.moment("since")
    counted = {} if since is None else await service.preview_recovery(request.pool, endpoint.id, since=since)
    return request.page(
        "effect.html",
        title="Recover",
        above=(endpoint.url, endpoint_page(endpoint.id)),
        path=f"{endpoint_page(endpoint.id)}/recover",
        lead="Post again the webhooks that this endpoint did not get since a time, after its receiver was down. "
        "Webhooks whose content was deleted by retention cannot be recovered.",
        filters=request.filters([Filter("since", "Since", kind="datetime-local")]),
        show="Count them",
        effect=_effect(counted) if counted else None,
        is_possible=any(each.changed or not each.is_complete for each in counted.values()),
        fields={"since": None if since is None else since.isoformat(), "key": secrets.token_urlsafe(12)},
        button="Post them again",
    )


def _effect(counted: Mapping[MassKind, MassPreview]) -> str:
    dead, failed = counted[MassKind.RETRY], counted[MassKind.RESEND]
    least = "" if dead.is_complete and failed.is_complete else "At least "
    letters = "dead letter returns" if dead.changed == 1 else "dead letters return"
    hooks = "webhook is" if failed.changed == 1 else "webhooks are"
    return (
        f"{least}{dead.changed:,} {letters} to the queue, and {failed.changed:,} failed {hooks} posted again, with the "
        "same webhook-id. Webhooks that were answered with success are not repeated."
    )


async def recover_page(request: PageRequest) -> Answer:
    since, key = request.moment("since", has_zone=True), request.asked("key")
    if since is None or key is None or len(key) > 100:  # noqa: PLR2004 - more than any key of ours
        raise BadInput.of("since", "is not from the page that counts the webhooks")
    started = await service.recover(
        request.pool, request.id("endpoint_id"), since=since, actor=request.actor, idempotency_key=key
    )
    changed = sum(action.changed for action in started)
    are = "webhook is" if changed == 1 else "webhooks are"
    return request.done(MASS, f"The recovery is started; {changed} {are} in the queue so far.")


# ── add and change ─────────────────────────────────────────────────────────────────────────────────────────────────


async def _form(request: PageRequest, endpoint: WebhookEndpoint | None = None) -> Answer:
    known = ", ".join(topic.name for topic in await topics.list_topics(request.pool)) or "none; create one first"
    fields = (
        FormField("url", "URL", "url", endpoint.url if endpoint else "", is_required=True),
        FormField(
            "topics", "Topics", value=" ".join(endpoint.topics) if endpoint else "", is_required=True,
            hint=f"With spaces between. There are: {known}",
        ),
        FormField("description", "Description", value=endpoint.description if endpoint else ""),
        FormField(
            "format", "Envelope", options=options_of(EndpointFormat), value=endpoint.format.value if endpoint else ""
        ),
    )  # fmt: skip
    return request.form_page(
        "Change the endpoint" if endpoint else "Add an endpoint",
        fields,
        button="Save" if endpoint else "Add the endpoint",
        lead="It gets the events of its topics from now on. Queued webhooks go to the new URL."
        if endpoint
        else "It gets the events of its topics from now on, signed with a secret that is shown once.",
        back=endpoint_page(endpoint.id) if endpoint else "/webhooks",
    )


def _given(request: PageRequest) -> dict[str, Any]:
    """The properties of an endpoint in a form; a missing description or envelope is the default."""
    description = request.form.get("description", "").strip()
    if len(description) > 500:  # noqa: PLR2004 - as in the API
        raise BadInput.of("description", "must have at most 500 characters")
    return {
        "url": request.form.get("url", "").strip(),
        "topics": request.form.get("topics", "").replace(",", " ").split(),
        "description": description.replace("\0", ""),
        "format": request.form.get("format") or EndpointFormat.STANDARD,
    }


async def create_page(request: PageRequest) -> Answer:
    return _show_secret(
        request, *await service.register(request.pool, _box(request), **_given(request), actor=request.actor)
    )


async def ask_change_page(request: PageRequest) -> Answer:
    return await _form(request, await service.get_endpoint(request.pool, request.id("endpoint_id")))


async def change_page(request: PageRequest) -> Answer:
    changed = await service.change(request.pool, request.id("endpoint_id"), **_given(request), actor=request.actor)
    return request.done(endpoint_page(changed.id), "The endpoint is changed.")


PAGES = (
    listing(
        "/webhooks",
        "Webhooks",
        _ENDPOINT,
        service.list_endpoints,
        scope=MANAGE,
        lead="URLs that get the events of topics. A silent topic does not exist, or its publisher webhook is missing, "
        "paused or failed: nothing of it is posted.",
        empty="No endpoint is registered.",
        actions=[PageAction("Add an endpoint", "/webhooks/new", MANAGE, is_link=True, is_main=True)],
    ),
    *form_pages("/webhooks/new", _form, create_page, scope=MANAGE),
    page(_ONE, show_page, scope=MANAGE),
    *actions(_TEST, _ENABLE, _DISABLE, _DELETE),
    form(f"{_ONE}/rotate", rotate_page, scope=MANAGE),
    *form_pages(f"{_ONE}/change", ask_change_page, change_page, scope=MANAGE),
    page(f"{_ONE}/recover", ask_recover_page, scope=MANAGE),
    form(f"{_ONE}/recover", recover_page, scope=MANAGE),
)
