"""Webhook endpoints: their last answers, test, recovery, rotation of the secret, and changes."""

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from postroom.dashboard.deliveries import MASS
from postroom.dashboard.listing import Filter, FormField, ListColumn, PageAction, columns, options_of
from postroom.dashboard.page import PageRequest, form, page
from postroom.delivery.mass.model import MassKind, MassPreview
from postroom.errors import BadInput, PostroomError
from postroom.outbox import topics
from postroom.outbox.webhooks import service
from postroom.outbox.webhooks.model import EndpointFormat, EndpointStatus, WebhookAnswer, WebhookEndpoint
from postroom.runtime.endpoint import Answer
from postroom.runtime.secrets import SecretBox

MANAGE = "webhooks:manage"


def endpoint_page(endpoint_id: int) -> str:
    return f"/webhooks/{endpoint_id}"


def _duration(answer: WebhookAnswer) -> str | None:
    return None if answer.duration_s is None else f"{answer.duration_s * 1000:,.0f} ms"


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
    ListColumn("state", "State", "state", value=lambda each: each.delivery.state.value),
    ListColumn("status", "Answer", "code"),
    ListColumn("took", "Duration", value=_duration),
    ListColumn("attempts", "Attempts", "number", value=lambda each: each.delivery.attempt_count, is_minor=True),
    ListColumn("at", "Last attempt", "when", value=lambda each: each.attempt and each.attempt.finished_at),
    ListColumn("text", "Reply", "clip", value=lambda each: each.attempt and each.attempt.reply_text),
)


async def list_page(request: PageRequest) -> Answer:
    return request.listing(
        "Webhooks",
        _ENDPOINT,
        await service.list_endpoints(request.pool, cursor=request.asked("cursor")),
        lead="URLs that get the events of topics. A silent topic does not exist, or its publisher webhook is missing, "
        "paused or failed: nothing of it is posted.",
        empty="No endpoint is registered.",
        actions=[PageAction(label="Add an endpoint", path="/webhooks/new", scope=MANAGE, is_link=True, is_main=True)],
    )


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
    path, is_enabled = endpoint_page(endpoint.id), endpoint.status is EndpointStatus.ENABLED
    test = PageAction(label="Send a test event", path=f"{path}/test", scope=MANAGE, is_main=True)
    question = (
        "Nothing is posted to it. Events of that time are not stored for it, and queued ones fail: recover later."
    )
    switch = PageAction(label="Disable", path=f"{path}/disable", scope=MANAGE, question=question)
    if not is_enabled:
        switch = PageAction(label="Enable", path=f"{path}/enable", scope=MANAGE, is_main=True)
    question = "A new secret is made and shown once. The old one signs too for a day, so that the receiver can switch."
    rotate = PageAction(label="Rotate the secret", path=f"{path}/rotate", scope=MANAGE, question=question)
    question = "The endpoint and its secrets are deleted, and its queued webhooks fail."
    return [
        *([test] if is_enabled else []),
        switch,
        PageAction(label="Recover…", path=f"{path}/recover", scope=MANAGE, is_link=True),
        rotate,
        PageAction(label="Change", path=f"{path}/change", scope=MANAGE, is_link=True),
        PageAction(label="Delete", path=f"{path}/delete", scope=MANAGE, question=question),
    ]


async def test_page(request: PageRequest) -> Answer:
    delivery_id = await service.send_test(request.pool, request.id("endpoint_id"), actor=request.actor)
    return request.done(
        endpoint_page(request.id("endpoint_id")), f"The test event is delivery {delivery_id}. Its answer follows below."
    )


async def enable_page(request: PageRequest) -> Answer:
    return await _set_status(request, EndpointStatus.ENABLED, "The endpoint is enabled.")


async def disable_page(request: PageRequest) -> Answer:
    return await _set_status(request, EndpointStatus.DISABLED, "The endpoint is disabled.")


async def _set_status(request: PageRequest, status: EndpointStatus, done: str) -> Answer:
    reason = None if status is EndpointStatus.ENABLED else "operator"
    found = await service.set_status(
        request.pool, request.id("endpoint_id"), status, reason=reason, actor=request.actor
    )
    return request.done(endpoint_page(found.id), done)


async def delete_page(request: PageRequest) -> Answer:
    await service.delete(request.pool, request.id("endpoint_id"), actor=request.actor)
    return request.done("/webhooks", "The endpoint is deleted.")


async def rotate_page(request: PageRequest) -> Answer:
    endpoint, secret = await service.rotate(request.pool, _box(request), request.id("endpoint_id"), actor=request.actor)
    return _show_secret(request, endpoint, secret)


def _show_secret(request: PageRequest, endpoint: WebhookEndpoint, secret: str) -> Answer:
    """The secret, in this answer only."""
    return request.page("webhook_secret.html", endpoint=endpoint, secret=secret)


def _box(request: PageRequest) -> SecretBox:
    return SecretBox.from_key(request.call.room.settings.secret_key)


# ── recovery ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def ask_recover_page(request: PageRequest) -> Answer:
    """The form; with a time, the number of webhooks that would be posted again."""
    endpoint = await service.get_endpoint(request.pool, request.id("endpoint_id"))
    since = request.moment("since")
    counted = {} if since is None else await service.preview_recovery(request.pool, endpoint.id, since=since)
    return request.page(
        "recover.html",
        endpoint=endpoint,
        path=endpoint_page(endpoint.id),
        since=since,
        filter=Filter("since", "Since", request.asked("since"), kind="datetime-local"),
        effect=_effect(counted) if counted else None,
        is_possible=any(each.changed or not each.is_complete for each in counted.values()),
        key=secrets.token_urlsafe(12),
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
    key = request.form.get("key", "")
    try:
        since = datetime.fromisoformat(request.form.get("since", ""))
    except ValueError:
        raise BadInput.of("since", "must be a time") from None
    if since.tzinfo is None or not 1 <= len(key) <= 100:  # noqa: PLR2004 - more than any key of ours
        raise BadInput.of("since", "is not from the page that counts the webhooks")
    started = await service.recover(
        request.pool, request.id("endpoint_id"), since=since, actor=request.actor, idempotency_key=key
    )
    changed = sum(action.changed for action in started)
    return request.done(MASS, f"The recovery is started; {changed} webhooks are in the queue so far.")


# ── add and change ─────────────────────────────────────────────────────────────────────────────────────────────────


async def new_page(request: PageRequest) -> Answer:
    return await _form(request)


async def _form(request: PageRequest, endpoint: WebhookEndpoint | None = None, problem: str | None = None) -> Answer:
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
    path = f"{endpoint_page(endpoint.id)}/change" if endpoint else "/webhooks/new"
    return request.form_page(
        "Change the endpoint" if endpoint else "Add an endpoint",
        fields,
        to=path,
        button="Save" if endpoint else "Add the endpoint",
        lead="It gets the events of its topics from now on. Queued webhooks go to the new URL."
        if endpoint
        else "It gets the events of its topics from now on, signed with a secret that is shown once.",
        back=endpoint_page(endpoint.id) if endpoint else "/webhooks",
        problem=problem,
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
    try:
        endpoint, secret = await service.register(request.pool, _box(request), **_given(request), actor=request.actor)
    except PostroomError as error:
        return await _form(request, problem=error.message)
    return _show_secret(request, endpoint, secret)


async def ask_change_page(request: PageRequest) -> Answer:
    return await _form(request, await service.get_endpoint(request.pool, request.id("endpoint_id")))


async def change_page(request: PageRequest) -> Answer:
    endpoint = await service.get_endpoint(request.pool, request.id("endpoint_id"))
    try:
        await service.change(request.pool, endpoint.id, **_given(request), actor=request.actor)
    except PostroomError as error:
        return await _form(request, endpoint, error.message)
    return request.done(endpoint_page(endpoint.id), "The endpoint is changed.")


_ONE = "/webhooks/{endpoint_id:int}"
PAGES = (
    page("/webhooks", list_page, scope=MANAGE),
    page("/webhooks/new", new_page, scope=MANAGE),
    form("/webhooks/new", create_page, scope=MANAGE),
    page(_ONE, show_page, scope=MANAGE),
    form(f"{_ONE}/test", test_page, scope=MANAGE),
    form(f"{_ONE}/enable", enable_page, scope=MANAGE),
    form(f"{_ONE}/disable", disable_page, scope=MANAGE),
    form(f"{_ONE}/rotate", rotate_page, scope=MANAGE),
    form(f"{_ONE}/delete", delete_page, scope=MANAGE),
    page(f"{_ONE}/change", ask_change_page, scope=MANAGE),
    form(f"{_ONE}/change", change_page, scope=MANAGE),
    page(f"{_ONE}/recover", ask_recover_page, scope=MANAGE),
    form(f"{_ONE}/recover", recover_page, scope=MANAGE),
)
