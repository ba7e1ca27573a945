"""Rejects at acceptance mail that a worker could not render: an unknown template, a missing variable.

A request is rendered once, as a trial, with the current version of its template, and the shape of its variables is
cached: their names, their types, empty or not. Requests of a known shape are not rendered again, so frequent senders
only pay for the look-up. Templates can depend on values too; such a request passes here and fails as `render_failed`,
as does mail from SQL and `postroom.send`, where only the name of the template is checked.
"""

import asyncio
import math
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from copy import deepcopy
from time import monotonic
from typing import Any

from postroom.db.pool import Pool
from postroom.delivery.model import DeliveryRequest
from postroom.errors import FieldError
from postroom.mail import store
from postroom.mail.render import RenderError
from postroom.mail.versions import TemplateVersions

MOST_SHAPES = 10_000  # bounds the memory of requests whose variables differ every time
FRESH_S = 1.0
"""Within a second of publishing, a request may be checked with the version before; it is accepted with the new one."""
_NAMED = 20  # variables that an error names
_MISSING = re.compile(r"unknown variable: ([A-Za-z_]\w*(?:\.\w+)*)")


class TemplateCheck:
    """One per process. Call it with requests before they are accepted."""

    def __init__(self, pool: Pool, *, fresh_s: float = FRESH_S) -> None:
        self._pool, self._fresh_s = pool, fresh_s
        self._versions = TemplateVersions(pool)
        self._current: Mapping[str, int] = {}
        self._read_at = -math.inf
        self._reading = asyncio.Lock()  # requests that arrive together make one query
        self._good: set[Hashable] = set()

    async def __call__(self, requests: Sequence[DeliveryRequest]) -> list[list[FieldError]]:
        """The errors of each request: they name `template`, `locale` or `variables.<name>`."""
        await self._refresh({request.template for request in requests if request.template is not None})
        return [self._errors(request) for request in requests]

    async def _refresh(self, templates: Collection[str]) -> None:
        """Read the current versions again if they are old, or do not have one of these templates."""
        async with self._reading:
            if monotonic() - self._read_at >= self._fresh_s or not self._current.keys() >= set(templates):
                self._current = await store.list_current_versions(self._pool)
                self._read_at = monotonic()
        await self._versions.load(self._current.get(template) for template in templates)

    def _errors(self, request: DeliveryRequest) -> list[FieldError]:
        if request.template is None:
            return []
        version_id = self._current.get(request.template)
        if version_id is None:
            known = ", ".join(list(self._current)[:_NAMED])
            return [FieldError("template", f"there is no template {request.template!r}; there are {known}")]
        key = (version_id, request.locale, _shape(request.variables))
        if key in self._good:
            return []
        rendered = self._versions.render(
            request.template, version_id, locale=request.locale, variables=request.variables
        )
        if isinstance(rendered, RenderError):
            return self._all_errors(request.template, version_id, request, rendered)
        if len(self._good) >= MOST_SHAPES:
            self._good.clear()
        self._good.add(key)
        return []

    def _all_errors(
        self, template: str, version_id: int, request: DeliveryRequest, first: RenderError
    ) -> list[FieldError]:
        """The error, and every further missing variable: each rendering finds one, and gets a text for it."""
        errors, variables = [_named(first)], deepcopy(dict(request.variables))
        error: object = first
        while isinstance(error, RenderError) and (missing := _MISSING.search(error.message)) and len(errors) < _NAMED:
            _put(variables, missing[1].split("."))
            error = self._versions.render(template, version_id, locale=request.locale, variables=variables)
            if isinstance(error, RenderError) and _MISSING.search(error.message):
                errors.append(_named(error))
        return list(dict.fromkeys(errors))


def _put(variables: dict[str, Any], path: Sequence[str]) -> None:
    """Set a variable; the last part of its path is a text."""
    *parents, name = path
    for parent in parents:
        inner = variables.get(parent)
        variables[parent] = variables = inner if isinstance(inner, dict) else {}
    variables[name] = "x"


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
