"""Webhook endpoints at the command line."""

from datetime import timedelta
from typing import Annotated

import typer

from postroom.db.room import Room
from postroom.errors import ConfigurationError
from postroom.outbox.webhooks import service
from postroom.outbox.webhooks.api import WebhookDeliveryShape, WebhookShape, WebhookWithSecret
from postroom.outbox.webhooks.model import EndpointStatus, WebhookEndpoint
from postroom.runtime.record import answer
from postroom.runtime.secret_key import with_secret_key
from postroom.runtime.secrets import SecretBox
from postroom.runtime.setting import parse_duration
from postroom.runtime.terminal import LARGEST_ID, AsJson, Cursor, Limit, actor, in_room, print_page, say, say_or_json
from postroom.settings import read_settings
from postroom.transports.webhook.signing import webhook_secrets

webhooks = typer.Typer()

_LISTED = (
    "id", "status", "url", "topics", "silent_topics", "format", "description", "disabled_reason", "previous_until",
    "created_at",
)  # fmt: skip
_POSTED = ("id", "status", "attempt_count", "created_at", "next_attempt_at", "finished_at", "reason")

Id = Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="Id of an endpoint.")]
_FORMAT = typer.Option("--format", help="Envelope of the events: standard or cloudevents.")


@webhooks.command()
def register(
    url: Annotated[str, typer.Argument(help="URL to post to.")],
    *,
    topic: Annotated[list[str], typer.Option(help="Topic to post; repeatable.")],
    description: Annotated[str, typer.Option(help="Description of the endpoint.")] = "",
    format_: Annotated[str, _FORMAT] = "standard",
    as_json: AsJson = False,
) -> None:
    """Register an endpoint and print its secret, which is shown only once."""

    async def made(room: Room) -> tuple[WebhookEndpoint, str]:
        about = {"url": url, "description": description, "format": format_}
        return await service.register(room.pool, _box(room), topics=topic, **about, actor=actor())

    _print_secret(*in_room(made), as_json=as_json)


@webhooks.command()
def change(
    endpoint_id: Id,
    *,
    url: Annotated[str | None, typer.Option(help="New URL to post to.")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="New topic, replacing all current ones; repeatable.")] = None,
    description: Annotated[str | None, typer.Option(help="New description.")] = None,
    format_: Annotated[str | None, _FORMAT] = None,
) -> None:
    """Change the given values of an endpoint."""
    about = {"url": url, "description": description, "format": format_}
    in_room(lambda room: service.change(room.pool, endpoint_id, topics=topic or None, **about, actor=actor()))
    say("changed")


@webhooks.command()
def rotate(
    endpoint_id: Id,
    *,
    overlap: Annotated[str, typer.Option(help="Time for which the old secret signs too; at most 30d.")] = "24h",
    as_json: AsJson = False,
) -> None:
    """Create a new secret and print it once; the old one also signs for a time, a still older one stops at once."""

    async def rotated(room: Room) -> tuple[WebhookEndpoint, str]:
        return await service.rotate(room.pool, _box(room), endpoint_id, overlap=_duration(overlap), actor=actor())

    _print_secret(*in_room(rotated), as_json=as_json)


@webhooks.command("list")
def list_(*, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List endpoints. Nothing is posted for a silent topic; `outbox list` shows the reason."""
    found, more = in_room(lambda room: service.list_endpoints(room.pool, cursor=cursor, limit=limit))
    print_page([answer(WebhookShape, endpoint) for endpoint in found], more, columns=_LISTED, as_json=as_json)


@webhooks.command()
def deliveries(endpoint_id: Id, *, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List the deliveries of an endpoint, newest first."""
    found, more = in_room(lambda room: service.list_deliveries(room.pool, endpoint_id, cursor=cursor, limit=limit))
    print_page([answer(WebhookDeliveryShape, one) for one in found], more, columns=_POSTED, as_json=as_json)


@webhooks.command()
def replay(
    endpoint_id: Id,
    delivery_id: Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="Id of one of its deliveries.")],
) -> None:
    """Post a delivery again and print the id of the new one."""
    say(str(in_room(lambda room: service.replay(room.pool, endpoint_id, delivery_id, actor=actor()))))


@webhooks.command()
def enable(endpoint_id: Id) -> None:
    """Enable an endpoint."""
    _set_status(endpoint_id, EndpointStatus.ENABLED, None)


@webhooks.command()
def disable(endpoint_id: Id) -> None:
    """Disable an endpoint; its queued deliveries are refused."""
    _set_status(endpoint_id, EndpointStatus.DISABLED, "operator")


@webhooks.command()
def delete(endpoint_id: Id) -> None:
    """Delete an endpoint."""
    in_room(lambda room: service.delete(room.pool, endpoint_id, actor=actor()))
    say("deleted")


@webhooks.command()
def secret() -> None:
    """Print the secret of webhooks without an endpoint, such as greetings; two lines while one replaces the other.

    It is POSTROOM_WEBHOOK_SECRET, or derived from POSTROOM_SECRET_KEY. Endpoints have their own secrets.
    """
    found = webhook_secrets(with_secret_key(read_settings(), making=False))
    if not found:
        raise ConfigurationError("No secret signs webhooks: set POSTROOM_WEBHOOK_SECRET or POSTROOM_SECRET_KEY.")
    for each in found:
        say(each)


def _set_status(endpoint_id: int, status: EndpointStatus, reason: str | None) -> None:
    in_room(lambda room: service.set_status(room.pool, endpoint_id, status, reason=reason, actor=actor()))
    say(status.value)


def _box(room: Room) -> SecretBox:
    """The installation's key, from the environment or the file that the first `postroom up` created."""
    return SecretBox(room.settings.sealing_keys)


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _print_secret(endpoint: WebhookEndpoint, secret: str, *, as_json: bool) -> None:
    shape = answer(WebhookWithSecret, endpoint, secret=secret)
    say_or_json(f"{endpoint.id}  {secret}", shape, as_json=as_json)
