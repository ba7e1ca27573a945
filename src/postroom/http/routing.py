"""Which endpoint a request means: exact paths by look-up, the others by pattern, in the order they were listed."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from prometheus_client import Counter
from starlette.routing import compile_path

from postroom.runtime.endpoint import Endpoint, Refused
from postroom.runtime.metrics import HTTP_REQUESTS, HTTP_SECONDS

LARGEST_ID = 2**63 - 1
LONGEST_SEGMENT = 200
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass(slots=True)
class Route:
    """One path and what its methods do. Metrics are looked up once per status, not once per request."""

    path: str
    pattern: re.Pattern[str]
    convertors: Mapping[str, Any]
    methods: dict[str, Endpoint] = field(default_factory=dict)
    _counters: dict[tuple[str, int], Counter] = field(default_factory=dict)

    def endpoint_for(self, method: str) -> Endpoint:
        """Raises 405 with what is allowed."""
        found = self.methods.get("GET" if method == "HEAD" else method)
        if found is None:
            allowed = sorted({*self.methods, *(["HEAD"] if "GET" in self.methods else [])})
            raise Refused(
                HTTPStatus.METHOD_NOT_ALLOWED, "This path does not know this method.", allow=", ".join(allowed)
            )
        return found

    def measure(self, method: str, status: int, seconds: float) -> None:
        counter = self._counters.get((method, status))
        if counter is None:
            shown = method if method in METHODS else "other"
            counter = HTTP_REQUESTS.labels(self.path, shown, str(status))
            if len(self._counters) < len(METHODS) * 20:  # a client may invent methods without end
                self._counters[method, status] = counter
        counter.inc()
        HTTP_SECONDS.labels(self.path).observe(seconds)


UNMATCHED = Route("unmatched", re.compile("$^"), {})


class Routes:
    """All endpoints of a process, ready for look-up."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        by_path: dict[str, Route] = {}
        for endpoint in endpoints:
            pattern, _format, convertors = compile_path(endpoint.path)
            route = by_path.setdefault(endpoint.path, Route(endpoint.path, pattern, convertors))
            if endpoint.method in route.methods:
                raise ValueError(f"{endpoint.method} {endpoint.path} is listed twice")
            route.methods[endpoint.method] = endpoint
        self._exact = {path: route for path, route in by_path.items() if not route.convertors}
        self._patterns = [route for route in by_path.values() if route.convertors]

    def find(self, path: str) -> tuple[Route, dict[str, Any]] | None:
        """The route of a path and the values in it."""
        exact = self._exact.get(path)
        if exact is not None:
            return exact, {}
        for route in self._patterns:
            match = route.pattern.match(path)
            if match is not None:
                values = _values(route, match)
                return None if values is None else (route, values)
        return None


def _values(route: Route, match: re.Match[str]) -> dict[str, Any] | None:
    if any(len(text) > LONGEST_SEGMENT for text in match.groupdict().values()):
        return None
    values = {name: route.convertors[name].convert(text) for name, text in match.groupdict().items()}
    # No row has such an id, and the database could not even be asked.
    is_possible = all(value <= LARGEST_ID for value in values.values() if isinstance(value, int))
    return values if is_possible else None
