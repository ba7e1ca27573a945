"""The errors of the dashboard."""

from postroom.errors import LimitError


class CodesTooOften(LimitError):
    """Too many sign-in codes were requested from this address. Try again in an hour."""
