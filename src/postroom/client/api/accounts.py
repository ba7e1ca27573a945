"""The endpoints of accounts, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from postroom.client.calls import Kind, Resource, ResultPage, call, listing

if TYPE_CHECKING:
    AccountStatus = Literal["active", "provisioned", "suspended"]
    Action = Literal["activation", "password_recovery"]
else:  # a newer server may have more values
    AccountStatus = str
    Action = str


class SignedUp(Struct, frozen=True, kw_only=True):
    """A sign-up that waits for its activation. For a taken address the response is the same, with an unused id."""

    id: int
    email: str
    login: str
    status: Literal["provisioned"]


class Account(Struct, frozen=True, kw_only=True):
    """One person's account."""

    id: int
    email: str
    status: AccountStatus
    login: str
    locale: str | None
    created_at: datetime
    status_changed_at: datetime | None
    activated_at: datetime | None
    suspended_at: datetime | None
    unsuspended_at: datetime | None


class Requested(Struct, frozen=True, kw_only=True):
    """The request was accepted; a mail is sent only if the address has an account."""

    status: Literal["accepted"]


class Consumed(Struct, frozen=True, kw_only=True):
    """A token that was just consumed, and its account."""

    action: Action
    account: Account


class AccountsApi(Resource[Kind]):
    """The endpoints of accounts."""

    @call("POST", "/v1/accounts", body=True)
    def sign_up(self, *, email: str, login: str, locale: str | None = None) -> SignedUp:
        """Sign up and queue the activation mail. The response is the same for a registered address."""

    @listing("/v1/accounts")
    def list(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        status: AccountStatus | None = None,
        email: str | None = None,
    ) -> ResultPage[Account]:
        """List accounts, newest first."""

    @call("GET", "/v1/accounts/{account_id}")
    def get(self, account_id: int) -> Account:
        """Read an account."""

    @call("POST", "/v1/accounts/{account_id}/suspend")
    def suspend(self, account_id: int) -> Account:
        """Suspend an account."""

    @call("POST", "/v1/accounts/{account_id}/unsuspend")
    def unsuspend(self, account_id: int) -> Account:
        """Unsuspend an account: active if it was ever activated, otherwise provisioned."""

    @call("POST", "/v1/accounts/{account_id}/activation")
    def reissue_activation(self, account_id: int) -> Account:
        """Send a new activation mail to a provisioned account."""

    @call("POST", "/v1/activations", body=True)
    def request_activation(self, *, email: str) -> Requested:
        """Request a new activation mail. The response is the same whether or not the address has an account."""

    @call("POST", "/v1/password-recoveries", body=True)
    def request_recovery(self, *, email: str) -> Requested:
        """Request a recovery mail. The response is the same whether or not the address has an account."""

    @call("POST", "/v1/tokens/consume", body=True)
    def consume_token(
        self,
        *,
        secret: str | None = None,
        email: str | None = None,
        code: str | None = None,
        action: Literal["activation", "password_recovery"] | None = None,
    ) -> Consumed:
        """Consume a token, by the secret from its link or by address, code and action."""
