"""The errors of API keys and operators."""

from postroom.errors import AccessError


class IdentityMismatch(AccessError):
    """Another account of the provider had this address at the first sign-in: remove the operator and add it again."""
