"""Errors of mail; `postroom.errors` shows the whole tree."""

from postroom.errors import ConfigurationError, NotFoundError


class TemplateInvalid(ConfigurationError):
    """A template in the catalog does not parse."""


class TemplateNotFound(NotFoundError):
    """There is no such template in the catalog."""
