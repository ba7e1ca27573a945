"""The endpoints of operators, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from postroom.client.calls import Kind, Resource, ResultPage, call, listing

if TYPE_CHECKING:
    Role = Literal["admin", "operator", "read-only", "support"]
    OperatorOrigin = Literal["added", "oidc"]
else:  # a newer server may have more values
    Role = str
    OperatorOrigin = str


class Operator(Struct, frozen=True, kw_only=True):
    """A person who signs in to the dashboard."""

    id: int
    email: str
    role: Role
    origin: OperatorOrigin
    created_at: datetime
    last_sign_in_at: datetime | None
    disabled_at: datetime | None
    second_factor_since: datetime | None


class Session(Struct, frozen=True, kw_only=True):
    """A session of the dashboard, as its owner sees it."""

    began_at: datetime
    seen_at: datetime
    expires_at: datetime
    method: str
    client: str
    browser: str


class OperatorsApi(Resource[Kind]):
    """The endpoints of operators."""

    @listing("/v1/operators")
    def list(self, *, cursor: str | None = None, limit: int = 50) -> ResultPage[Operator]:
        """List operators, newest first."""

    @call("POST", "/v1/operators", body=True)
    def add(self, *, email: str, role: Role) -> Operator:
        """Add a person who signs in to the dashboard, with a role."""

    @call("GET", "/v1/operators/{operator_id}")
    def get(self, operator_id: int) -> Operator:
        """Show an operator."""

    @call("PATCH", "/v1/operators/{operator_id}", body=True)
    def change_role(self, operator_id: int, *, role: Role) -> Operator:
        """Give an operator another role; your key must have all scopes of both."""

    @call("POST", "/v1/operators/{operator_id}/disable")
    def disable(self, operator_id: int) -> Operator:
        """Refuse the sign-ins of an operator and end all sessions."""

    @call("POST", "/v1/operators/{operator_id}/enable")
    def enable(self, operator_id: int) -> Operator:
        """Let a disabled operator sign in again."""

    @listing("/v1/operators/{operator_id}/sessions")
    def list_sessions(self, operator_id: int) -> ResultPage[Session]:
        """List the open sessions of an operator, newest first."""

    @call("POST", "/v1/operators/{operator_id}/end-sessions")
    def end_sessions(self, operator_id: int) -> Operator:
        """End all sessions of an operator."""

    @call("POST", "/v1/operators/{operator_id}/remove-second-factor")
    def remove_second_factor(self, operator_id: int) -> Operator:
        """Remove the second factor of an operator, for example after the loss of the phone."""

    @call("DELETE", "/v1/operators/{operator_id}")
    def remove(self, operator_id: int) -> Operator:
        """Remove an operator and end all sessions; the audit log keeps the entries."""
