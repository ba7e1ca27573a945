"""Register, change and delete endpoints; rotate their secrets; replay deliveries."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from postroom.db.faults import INTERRUPTIONS
from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.delivery import service as deliveries
from postroom.delivery.check import check_request, check_url
from postroom.delivery.errors import DeliveryNotFound
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.mass import service as mass
from postroom.delivery.mass.model import MassAction, MassKind, MassPreview
from postroom.delivery.model import DeliveryId, DeliverySummary
from postroom.delivery.store import list_last_attempts
from postroom.errors import BadInput
from postroom.events.audit import audited
from postroom.outbox.errors import EndpointDisabled, EndpointNotFound
from postroom.outbox.model import Subscription
from postroom.outbox.publisher import SOURCE
from postroom.outbox.topics import ensure_pair
from postroom.outbox.webhooks import store
from postroom.outbox.webhooks.model import (
    EndpointFormat,
    EndpointStatus,
    WebhookAnswer,
    WebhookEndpoint,
    new_secret,
    purpose_of,
    sample_request,
)
from postroom.outbox.webhooks.publisher import PUBLISHER
from postroom.runtime.page import OLDEST_FIRST, Found, read_page
from postroom.runtime.secrets import Sealed, SecretBox

_log = structlog.get_logger()

OVERLAP = timedelta(hours=24)  # a working day to install the new secret
LONGEST_OVERLAP = timedelta(days=30)
"""An old secret must expire: after a leak it can forge signatures as long as it is valid."""


async def register(  # noqa: PLR0913 - one parameter per property of an endpoint
    pool: Pool,
    box: SecretBox,
    *,
    url: str,
    topics: Sequence[str],
    description: str = "",
    format: str = EndpointFormat.STANDARD,  # noqa: A002 - the column's name
    actor: str,
) -> tuple[WebhookEndpoint, str]:
    """Send the events of these topics to an endpoint from now on; returns it and its secret, which is shown once.

    Raises `BadInput` and `TopicNotFound`.
    """
    _check(url, topics, format)
    secret = new_secret()
    async with audited(pool, actor, "webhook.register") as (connection, note):
        await _follow(connection, topics)
        reserved = await store.reserve_id(connection)
        sealed = box.seal(secret.encode(), purpose=purpose_of(reserved))
        endpoint = await store.insert_endpoint(
            connection,
            id=reserved,
            url=url,
            topics=list(dict.fromkeys(topics)),
            description=description,
            format=format,
            secret_key_id=sealed.key_id,
            secret=sealed.data,
        )
        note.subject, note.after = f"webhook:{endpoint.id}", _told(endpoint)
    return endpoint, secret


async def change(  # noqa: PLR0913 - one parameter per property of an endpoint
    pool: Pool,
    endpoint_id: int,
    *,
    url: str | None = None,
    topics: Sequence[str] | None = None,
    description: str | None = None,
    format: str | None = None,  # noqa: A002 - the column's name
    actor: str,
) -> WebhookEndpoint:
    """Change the given values. Queued deliveries keep their format and go to the new URL."""
    _check(url, topics, format)
    asked = None if topics is None else list(dict.fromkeys(topics))
    async with audited(pool, actor, "webhook.change", f"webhook:{endpoint_id}") as (connection, note):
        await _follow(connection, asked or ())
        endpoint = EndpointNotFound.unless(
            await store.change_endpoint(
                connection, id=endpoint_id, url=url, topics=asked, description=description, format=format
            )
        )
        note.after = _told(endpoint)
    return endpoint


async def delete(pool: Pool, endpoint_id: int, *, actor: str) -> None:
    """Delete an endpoint; its queued deliveries will be refused."""
    async with audited(pool, actor, "webhook.delete", f"webhook:{endpoint_id}") as (connection, note):
        url = EndpointNotFound.unless(await store.delete_endpoint(connection, id=endpoint_id))
        note.after = {"url": url}


async def get_endpoint(pool: Pool, endpoint_id: int) -> WebhookEndpoint:
    return EndpointNotFound.unless(await store.find_endpoint(pool, id=endpoint_id))


async def list_endpoints(pool: Pool, *, cursor: str | None = None, limit: int = 50) -> Found[WebhookEndpoint]:
    """A page of endpoints, oldest first, and the cursor of the next page."""
    return await read_page(store.list_endpoints, pool, cursor, limit, order=OLDEST_FIRST)


async def list_deliveries(
    pool: Pool, endpoint_id: int, *, cursor: str | None = None, limit: int = 50
) -> Found[DeliverySummary]:
    """The deliveries of an endpoint, newest first."""
    await get_endpoint(pool, endpoint_id)
    chosen = DeliveryFilter(endpoint_id=endpoint_id)
    return await deliveries.list_deliveries(pool, chosen, cursor=cursor, limit=limit)


async def list_answers(
    pool: Pool, endpoint_id: int, *, cursor: str | None = None, limit: int = 50
) -> Found[WebhookAnswer]:
    """The deliveries of an endpoint with the last answer to each, newest first."""
    found, more = await list_deliveries(pool, endpoint_id, cursor=cursor, limit=limit)
    async with pool.acquire() as connection:
        attempts = await list_last_attempts(connection, delivery_ids=[delivery.id for delivery in found])
    return [WebhookAnswer(delivery, attempts.get(delivery.id)) for delivery in found], more


async def send_test(pool: Pool, endpoint_id: int, *, actor: str) -> DeliveryId:
    """Post an event of the type `postroom.test` to an enabled endpoint, through the queue; returns its delivery."""
    endpoint = await get_endpoint(pool, endpoint_id)
    if endpoint.status is EndpointStatus.DISABLED:
        raise EndpointDisabled
    async with audited(pool, actor, "webhook.test", f"webhook:{endpoint_id}") as (connection, note):
        accepted = await deliveries.accept(connection, check_request(sample_request(endpoint, now=datetime.now(UTC))))
        note.after = {"delivery_id": accepted.id}
    return accepted.id


async def preview_recovery(pool: Pool, endpoint_id: int, *, since: datetime) -> dict[MassKind, MassPreview]:
    """Count the webhooks that `recover` would post again."""
    await get_endpoint(pool, endpoint_id)
    return {kind: await mass.preview(pool, kind, chosen) for kind, chosen in _lost(endpoint_id, since)}


async def recover(
    pool: Pool, endpoint_id: int, *, since: datetime, actor: str, idempotency_key: str
) -> list[MassAction]:
    """Post again all webhooks accepted since a time that the endpoint did not get, each with its own `webhook-id`.

    Dead letters return to the queue; failed ones are posted as new deliveries. The same key starts nothing again.
    """
    await get_endpoint(pool, endpoint_id)
    return [
        await mass.start(pool, kind, chosen, actor=actor, idempotency_key=f"{idempotency_key}:{kind}")
        for kind, chosen in _lost(endpoint_id, since)
    ]


def _lost(endpoint_id: int, since: datetime) -> list[tuple[MassKind, DeliveryFilter]]:
    """The actions that post again, and their deliveries: those that ended without a successful answer."""
    states = {MassKind.RETRY: StateFilter.DEAD_LETTER, MassKind.RESEND: StateFilter.FAILED}
    return [
        (kind, DeliveryFilter(endpoint_id=endpoint_id, state=state, created_from=since))
        for kind, state in states.items()
    ]


async def replay(pool: Pool, endpoint_id: int, delivery_id: int, *, actor: str) -> DeliveryId:
    """Post a delivery again, as a new one with the same `webhook-id`, to the URL that the endpoint has now."""
    endpoint = await get_endpoint(pool, endpoint_id)
    delivery = await deliveries.get_delivery(pool, delivery_id)
    if (delivery.custom_data or {}).get("endpoint") != endpoint_id or delivery.source != SOURCE:
        raise DeliveryNotFound("This endpoint has no such delivery.")
    return await deliveries.resend(pool, delivery_id, url=endpoint.url, actor=actor)


async def rotate(
    pool: Pool, box: SecretBox, endpoint_id: int, *, overlap: timedelta = OVERLAP, actor: str
) -> tuple[WebhookEndpoint, str]:
    """Create a new secret, shown once; the old one also signs for a time, so that the receiver can switch.

    Two sign at most: a secret of an earlier rotation stops at once. Raises `BadInput` and `EndpointNotFound`.
    """
    if not timedelta() <= overlap <= LONGEST_OVERLAP:
        raise BadInput.of("overlap", f"must be at most {LONGEST_OVERLAP.days} days")
    secret = new_secret()
    sealed = box.seal(secret.encode(), purpose=purpose_of(endpoint_id))
    after = {"overlap_s": overlap.total_seconds()}
    async with audited(pool, actor, "webhook.rotate", f"webhook:{endpoint_id}", after=after) as (connection, _note):
        endpoint = EndpointNotFound.unless(
            await store.rotate_secret(
                connection, id=endpoint_id, secret=sealed.data, secret_key_id=sealed.key_id, overlap=overlap
            )
        )
    return endpoint, secret


async def rotate_keys(pool: Pool, box: SecretBox, *, actor: str) -> int:
    """Seal every secret again with the current key; returns the number of endpoints.

    Each endpoint has its own transaction, so the rotation can be interrupted and run again.
    """
    waiting = await store.list_sealed(pool)
    for endpoint_id in waiting:
        async with audited(pool, actor, "webhook.rotate_key", f"webhook:{endpoint_id}") as (connection, note):
            old = await store.lock_secrets(connection, id=endpoint_id)
            note.is_dropped = old is None  # it was deleted meanwhile
            if old is not None:
                await _seal_again(connection, box, endpoint_id, old)
    return len(waiting)


async def _seal_again(connection: Connection, box: SecretBox, endpoint_id: int, old: Mapping[str, Sealed]) -> None:
    purpose = purpose_of(endpoint_id)
    new = {name: box.seal(box.open(each, purpose=purpose), purpose=purpose) for name, each in old.items()}
    previous = new.get("previous")
    await store.replace_secrets(
        connection,
        id=endpoint_id,
        secret_key_id=new["secret"].key_id,
        secret=new["secret"].data,
        previous_key_id=None if previous is None else previous.key_id,
        previous_secret=None if previous is None else previous.data,
    )


async def set_status(
    pool: Pool, endpoint_id: int, status: EndpointStatus, *, reason: str | None = None, actor: str
) -> WebhookEndpoint:
    """Enable or disable an endpoint. Idempotent."""
    action, after = f"webhook.{status}", {"reason": reason}
    async with audited(pool, actor, action, f"webhook:{endpoint_id}", after=after) as (connection, note):
        changed = await store.set_endpoint_status(connection, id=endpoint_id, status=status, reason=reason)
        note.is_dropped = not changed
    return await get_endpoint(pool, endpoint_id)


async def disable_gone(pool: Pool, endpoint_id: int) -> None:
    """Disable an endpoint that replied 410; if the database is unavailable, the next 410 disables it."""
    try:
        await set_status(pool, endpoint_id, EndpointStatus.DISABLED, reason="gone", actor="webhook:410")
    except (*INTERRUPTIONS, EndpointNotFound) as error:
        _log.warning("webhook_endpoint_not_disabled", endpoint=endpoint_id, error=type(error).__name__)
    else:
        _log.warning("webhook_endpoint_gone", endpoint=endpoint_id)


def _check(url: str | None, topics: Sequence[str] | None, format_: str | None) -> None:
    problem = check_url(url) if url is not None else None
    if problem is not None:
        raise BadInput.of("url", problem)
    if topics is not None and not topics:
        raise BadInput.of("topics", "must name at least one topic")
    if format_ is not None and format_ not in list(EndpointFormat):
        raise BadInput.of("format", f"must be one of {', '.join(EndpointFormat)}")


async def _follow(connection: Connection, topics: Sequence[str]) -> None:
    for topic in topics:
        await ensure_pair(connection, Subscription(topic, PUBLISHER), from_now=True)


def _told(endpoint: WebhookEndpoint) -> dict[str, Any]:
    """The values of an endpoint that the audit log keeps."""
    return {"url": endpoint.url, "topics": list(endpoint.topics), "format": endpoint.format}
