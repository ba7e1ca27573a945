"""The endpoints of webhooks, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from postroom.client.api.shared import DeliveryState
from postroom.client.calls import Kind, Resource, ResultPage, call, listing

if TYPE_CHECKING:
    EndpointStatus = Literal["disabled", "enabled"]
    EndpointFormat = Literal["cloudevents", "standard"]
else:  # a newer server may have more values
    EndpointStatus = str
    EndpointFormat = str


class Webhook(Struct, frozen=True, kw_only=True):
    """A URL that gets the webhooks of some topics.

    Until `previous_until` the previous secret signs too. Postroom posts nothing of its `silent_topics`: the topic does
    not exist, or its publisher `webhook` is missing, paused or failed.
    """

    id: int
    status: EndpointStatus
    created_at: datetime
    updated_at: datetime
    disabled_at: datetime | None
    disabled_reason: str | None
    url: str
    topics: list[str]
    description: str
    format: EndpointFormat
    previous_until: datetime | None
    silent_topics: list[str]


class WebhookWithSecret(Struct, frozen=True, kw_only=True):
    """A URL that gets the webhooks of some topics.

    Until `previous_until` the previous secret signs too. Postroom posts nothing of its `silent_topics`: the topic does
    not exist, or its publisher `webhook` is missing, paused or failed.
    """

    id: int
    status: EndpointStatus
    created_at: datetime
    updated_at: datetime
    disabled_at: datetime | None
    disabled_reason: str | None
    url: str
    topics: list[str]
    description: str
    format: EndpointFormat
    previous_until: datetime | None
    silent_topics: list[str]
    secret: str


class Forgotten(Struct, frozen=True, kw_only=True):
    """The id of the deleted endpoint."""

    id: int


class WebhookDelivery(Struct, frozen=True, kw_only=True):
    """One line of a listing."""

    attempt_count: int
    created_at: datetime
    reason: str | None
    id: int
    status: DeliveryState
    next_attempt_at: datetime | None
    finished_at: datetime | None


class Replayed(Struct, frozen=True, kw_only=True):
    """The new delivery."""

    delivery_id: int


class WebhooksApi(Resource[Kind]):
    """The endpoints of webhooks."""

    @listing("/v1/webhooks")
    def list(self, *, cursor: str | None = None, limit: int = 50) -> ResultPage[Webhook]:
        """List endpoints."""

    @call("POST", "/v1/webhooks", body=True)
    def register(
        self, *, url: str, topics: Sequence[str], description: str = "", format: EndpointFormat = "standard"
    ) -> WebhookWithSecret:
        """Register an endpoint and show its secret once."""

    @call("GET", "/v1/webhooks/{endpoint_id}")
    def get(self, endpoint_id: int) -> Webhook:
        """Show an endpoint."""

    @call("PATCH", "/v1/webhooks/{endpoint_id}", body=True)
    def change(
        self,
        endpoint_id: int,
        *,
        url: str | None = None,
        topics: Sequence[str] | None = None,
        description: str | None = None,
        format: EndpointFormat | None = None,
        enabled: bool | None = None,
    ) -> Webhook:
        """Change an endpoint, enable or disable it."""

    @call("DELETE", "/v1/webhooks/{endpoint_id}")
    def delete(self, endpoint_id: int) -> Forgotten:
        """Delete an endpoint."""

    @call("POST", "/v1/webhooks/{endpoint_id}/rotate", body=True)
    def rotate(self, endpoint_id: int, *, overlap_s: int = 86400) -> WebhookWithSecret:
        """Create a new secret, shown once; the old one also signs for a time."""

    @listing("/v1/webhooks/{endpoint_id}/deliveries")
    def list_deliveries(
        self, endpoint_id: int, *, cursor: str | None = None, limit: int = 50
    ) -> ResultPage[WebhookDelivery]:
        """List the deliveries of an endpoint."""

    @call("POST", "/v1/webhooks/{endpoint_id}/replay", body=True)
    def replay(self, endpoint_id: int, *, delivery_id: int) -> Replayed:
        """Post a delivery again."""
