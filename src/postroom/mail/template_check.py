"""Rejects at acceptance mail that a worker could not render: an unknown template, a missing variable.

A process with the catalog renders a request once, as a trial, and caches the shape of its variables: their names,
their types, empty or not. Requests of a known shape are not rendered again, so frequent senders only pay for the
look-up. Templates can depend on values too; such a request passes here and fails as `render_failed`, as does mail
from SQL and `postroom.send`, which have no catalog. API, command line and workers need the same
POSTROOM_TEMPLATE_DIR.
"""

import re
from collections.abc import Hashable, Mapping
from typing import Any

from postroom.delivery.model import DeliveryRequest
from postroom.errors import BadInput, FieldError
from postroom.mail.catalog import BUILTIN_TEMPLATES, Catalog
from postroom.mail.render import RenderError
from postroom.settings import Settings

MOST_SHAPES = 10_000
_NAMED = 20
_MISSING = re.compile(r"unknown variable: ([A-Za-z_]\w*(?:\.\w+)*)")


class TemplateCheck:
    """One per process and catalog. Call it with a request before it is accepted."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._good: set[Hashable] = set()

    @classmethod
    def of(cls, settings: Settings) -> "TemplateCheck":
        """A check with the templates of the settings."""
        own = settings.template_dir
        return cls(Catalog.load(BUILTIN_TEMPLATES, *([own] if own else [])))

    def __call__(self, request: DeliveryRequest) -> None:
        """Raise `BadInput` naming `template`, `locale` or `variables.<name>` if this request cannot be rendered."""
        if request.template is None:
            return
        key = (request.template, request.locale, _shape(request.variables))
        if key in self._good:
            return
        if request.template not in self._catalog:
            known = ", ".join(self._catalog.names()[:_NAMED])
            raise BadInput.of("template", f"there is no template {request.template!r}; the catalog has {known}")
        rendered = self._catalog.render(request.template, locale=request.locale, variables=request.variables)
        if isinstance(rendered, RenderError):
            raise BadInput([_named(rendered)])
        if len(self._good) >= MOST_SHAPES:
            self._good.clear()
        self._good.add(key)


def _named(error: RenderError) -> FieldError:
    if error.part == "catalog":
        return FieldError("locale", error.message)
    missing = _MISSING.search(error.message)
    if missing is None:
        return FieldError("variables", f"the template {error.template!r} cannot be rendered: {error.message}")
    return FieldError(f"variables.{missing[1]}", f"is required by the template {error.template!r} ({error.part})")


def _shape(value: Any) -> Hashable:
    """Names, types and emptiness of a JSON value, on which templates usually depend."""
    if isinstance(value, Mapping):
        return frozenset((name, _shape(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return ("list", frozenset(_shape(item) for item in value))
    return (type(value).__name__, bool(value))
