"""Finds the endpoint of a request: exact paths by look-up, the others by pattern, in the order they were listed.

A pattern holds parameters: `{name}` is one segment, `{id:int}` a number, `{id:uuid}` a UUID, `{rest:path}` the rest.
Patterns are grouped by their first two segments, so that a request is compared with a few of them and not with all.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from uuid import UUID

from prometheus_client import Counter, Histogram

from postroom.runtime.endpoint import PARAMETER, Endpoint, ProtocolError, Refuse
from postroom.runtime.metrics import HTTP_REQUESTS, HTTP_SECONDS

LARGEST_ID = 2**63 - 1  # bigint
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_HEX = "[0-9a-fA-F]"
_KINDS = {
    "": "[^/]{1,200}",
    "int": "[0-9]{1,19}",
    "uuid": f"{_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}",
    "path": ".*",
}
_CONVERTERS: dict[str, Callable[[str], Any]] = {"int": int, "uuid": UUID}
Group = tuple[str, str | None]


@dataclass(slots=True)
class Route:
    """One path and what its methods do. Metrics are looked up once per status, not once per request."""

    path: str
    pattern: re.Pattern[str]
    converters: tuple[tuple[str, Callable[[str], Any]], ...] = ()
    methods: dict[str, Endpoint] = field(default_factory=dict)
    _counters: dict[tuple[str, int], Counter] = field(default_factory=dict)
    _seconds: Histogram | None = None

    def endpoint_for(self, method: str) -> Endpoint:
        """Raises 404 if the path has no endpoint at all, and 405 with the methods that it has."""
        if not self.methods:
            raise ProtocolError(HTTPStatus.NOT_FOUND, "There is nothing at this path.")
        found = self.methods.get("GET" if method == "HEAD" else method)
        if found is None:
            allowed = sorted({*self.methods, *(["HEAD"] if "GET" in self.methods else [])})
            raise ProtocolError(
                HTTPStatus.METHOD_NOT_ALLOWED, "This path does not support this method.", allow=", ".join(allowed)
            )
        return found

    def refuse_of(self, method: str) -> list[Refuse]:
        refuse = self._nearest(method).refuse
        return [] if refuse is None else [refuse]

    def _nearest(self, method: str) -> Endpoint:
        """The endpoint of a method; for a method that the path does not have, its first one."""
        found = self.methods.get("GET" if method == "HEAD" else method)
        return found or next(iter(self.methods.values()))

    def measure(self, method: str, status: int, seconds: float) -> None:
        counter = self._counters.get((method, status))
        if counter is None:
            shown = method if method in METHODS else "other"
            counter = HTTP_REQUESTS.labels(self.path, shown, str(status))
            if len(self._counters) < len(METHODS) * 20:  # a client may invent methods without end
                self._counters[method, status] = counter
        counter.inc()
        if self._seconds is None:
            self._seconds = HTTP_SECONDS.labels(self.path)
        self._seconds.observe(seconds)

    def values(self, path: str) -> dict[str, Any] | None:
        """The values in a path; None if the path is not of this route."""
        match = self.pattern.fullmatch(path)
        if match is None:
            return None
        values: dict[str, Any] = match.groupdict()
        for name, convert in self.converters:
            values[name] = convert(values[name])
            if convert is int and values[name] > LARGEST_ID:  # no row has such an id: PostgreSQL's bigint ends here
                return None
        return values


UNMATCHED = Route("unmatched", re.compile("$^"))


class Routes:
    """All endpoints of a process, ready for look-up."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._exact: dict[str, Route] = {}
        self._groups: dict[Group, list[Route]] = {}
        by_path: dict[str, Route] = {}
        for endpoint in endpoints:
            route = by_path.get(endpoint.path)
            if route is None:
                route = by_path[endpoint.path] = _compile(endpoint.path)
                self._add(route)
            if endpoint.method in route.methods:
                raise ValueError(f"{endpoint.method} {endpoint.path} is listed twice")
            route.methods[endpoint.method] = endpoint

    def find(self, path: str, method: str) -> tuple[Route, dict[str, Any]]:
        """The route of a path and the values in it; `UNMATCHED` if no route matches."""
        exact = self._exact.get(path)
        if exact is not None:
            # Clients of SES post to `/`; without the dashboard there is nothing else at this path.
            is_known = path != "/" or ("GET" if method == "HEAD" else method) in exact.methods
            return exact if is_known else UNMATCHED, {}
        first, second = (*path.split("/", 3), "", "")[1:3]
        for group in ((first, second), (first, None)):
            for route in self._groups.get(group, ()):
                values = route.values(path)
                if values is not None:
                    return route, values
        return UNMATCHED, {}

    def _add(self, route: Route) -> None:
        if not PARAMETER.search(route.path):
            self._exact[route.path] = route
            return
        first, second = route.path.split("/", 3)[1:3]
        self._groups.setdefault((first, None if "{" in second else second), []).append(route)


def _compile(path: str) -> Route:
    pattern, end, converters = "", 0, []
    for found in PARAMETER.finditer(path):
        name, kind = found[1], found[2] or ""
        pattern += f"{re.escape(path[end : found.start()])}(?P<{name}>{_KINDS[kind]})"
        end = found.end()
        if kind in _CONVERTERS:
            converters.append((name, _CONVERTERS[kind]))
    return Route(path, re.compile(pattern + re.escape(path[end:]), re.DOTALL), tuple(converters))
