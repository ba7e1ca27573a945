"""The actions that a page of the dashboard offers, and whether a role may use each."""

import html
import re
from collections.abc import Iterator

from postroom.dashboard.endpoints import ENDPOINTS
from postroom.http.model import Role
from postroom.http.request import Routes
from postroom.runtime.endpoint import Endpoint, ProtocolError

ROUTES = Routes(ENDPOINTS)

_OFFERED = re.compile(
    r'<form[^>]*method="(post|get)"[^>]*action="([^"]+)"|<a[^>]*href="(/[^"]*)"|<button[^>]*formaction="([^"]+)"'
)


def endpoint_at(path: str, method: str) -> Endpoint:
    """The endpoint of the dashboard that answers this path."""
    try:
        route, _values = ROUTES.find(path.partition("?")[0], "GET")
        return route.endpoint_for(method)
    except ProtocolError as error:
        raise AssertionError(f"{method} {path} is no page") from error


def scope_of(endpoint: Endpoint) -> str | None:
    """The scope of a page; None for a public one. A form checks it before its body is read."""
    if endpoint.admit is not None:
        scope: str = getattr(endpoint.admit, "keywords", {})["scope"]
        return scope
    bound = getattr(endpoint.handler, "args", None)
    return bound[1] if bound else None


def is_outside(role: Role, endpoint: Endpoint) -> bool:
    scope = scope_of(endpoint)
    return scope is not None and not role.allows(scope)


def offered(page: str) -> Iterator[Endpoint]:
    """The endpoints that the links, forms and buttons of a page lead to."""
    for method, action, link, of_button in _OFFERED.findall(page):
        is_post = method == "post" or bool(of_button)
        yield endpoint_at(html.unescape(action or link or of_button), "POST" if is_post else "GET")
