"""The errors of the dashboard."""

from http import HTTPStatus

from postroom.errors import LimitError
from postroom.runtime.endpoint import ProtocolError


class CodesTooOften(LimitError):
    """Too many sign-in codes were requested from this address. Try again in an hour."""


class SignInAgainError(ProtocolError):
    """The sign-in is too long ago for this action; `to` is the page that offers it."""

    def __init__(self, to: str) -> None:
        super().__init__(HTTPStatus.FORBIDDEN, "Sign in again.")
        self.to = to


class SecondFactorError(ProtocolError):
    """The operator may do this only with a second factor."""

    def __init__(self) -> None:
        super().__init__(
            HTTPStatus.FORBIDDEN, "Managing keys and operators needs a second factor. Set it up under Preferences."
        )
