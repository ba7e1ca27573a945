"""The errors of API keys and operators."""

from postroom.errors import AccessError, LimitError


class IdentityMismatch(AccessError):
    """Another account of the provider had this address at the first sign-in: remove the operator and add it again."""


class SecondFactorTooOften(LimitError):
    """Too many wrong codes: no code of this operator is accepted for up to an hour."""
