"""Errors of mail; `postroom.errors` shows the whole tree."""

from postroom.errors import ConfigurationError, NotFoundError


class TemplateInvalid(ConfigurationError):
    """A template in the catalog does not parse."""


class TemplateNotFound(NotFoundError):
    """There is no such template, or no such version of it."""

    @classmethod
    def of(cls, template: str, version_id: int | None = None) -> "TemplateNotFound":
        version = "" if version_id is None else f" with the version {version_id}"
        return cls(f"There is no template {template!r}{version}; `postroom templates list` lists them.")
