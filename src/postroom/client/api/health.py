"""The endpoints of health, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from typing import Any

from msgspec import Struct

from postroom.client.calls import Kind, Resource, call


class Alive(Struct, frozen=True, kw_only=True):
    """The process answers."""

    status: str


class Ready(Struct, frozen=True, kw_only=True):
    """The checks that passed."""

    status: str
    database: str
    migrations: str
    templates: int
    tokens_stalled_seconds: float
    replica: ReplicaHealth | None = None


class ReplicaHealth(Struct, frozen=True, kw_only=True):
    """Whether the replica is read, and why not; without it the primary answers everything."""

    is_read: bool
    lag_seconds: float | None
    problem: str | None


class HealthApi(Resource[Kind]):
    """The endpoints of health."""

    @call("GET", "/healthz")
    def healthz(self) -> Alive:
        """The process is alive."""

    @call("GET", "/readyz")
    def readyz(self) -> Ready:
        """The database answers, it has the migrations of this version, and there are templates."""

    @call("GET", "/metrics")
    def metrics(self) -> bytes:
        """Metrics in Prometheus' text format."""

    @call("GET", "/openapi.json")
    def get_openapi(self) -> dict[str, Any]:
        """Read the OpenAPI document."""
