"""Every endpoint of the table has a method that reaches it, in both clients."""

import inspect
from functools import partial
from typing import Any
from uuid import UUID

from tests.docs.client_source import client_endpoints, method_of, module_of
from tests.support.clients import EitherClient, open_either
from tests.support.served import served

from postroom.client.api.deliveries import DeliveryBody
from postroom.db.room import Room
from postroom.errors import ApiUnreachable, PostroomError
from postroom.http.asgi import build_app
from postroom.http.request import Routes
from postroom.runtime.endpoint import ASGIApp, Endpoint

VALUES: dict[str, Any] = {
    "account_id": 1,
    "deliveries": [DeliveryBody(to="ada@example.org", subject="Hello", text="Hello.")],
    "date_of_birth": "1990-12-10",
    "timeout": 0,
}
"""Arguments that need more than a word."""


def recording(app: ASGIApp, endpoints: list[Endpoint], seen: set[tuple[str, str]]) -> ASGIApp:
    """The application; `seen` gets the method and path of each endpoint that is called."""
    routes = Routes(endpoints)

    async def record(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            route, _values = routes.find(scope["path"], scope["method"])
            seen.add((scope["method"], route.path))
        await app(scope, receive, send)

    return record


def arguments(method: Any, file: Any) -> dict[str, Any]:
    """A value for each required argument; paths name records that do not exist."""
    found = {}
    for parameter in inspect.signature(method).parameters.values():
        if parameter.default is inspect.Parameter.empty or parameter.name in VALUES:
            kind = str(parameter.annotation)
            plain = 4711 if kind.startswith("int") else UUID(int=7) if kind.startswith("UUID") else "x"
            found[parameter.name] = file if parameter.name == "file" else VALUES.get(parameter.name, plain)
    return found


def perform(method: Any, given: dict[str, Any], _client: Any) -> Any:
    return method(**given)


async def call_all(client: EitherClient, endpoints: list[Endpoint], file: Any) -> dict[str, PostroomError]:
    """Call every method; the errors by name. Most calls are about nothing, and their endpoints say so."""
    errors = {}
    for endpoint in endpoints:
        method = getattr(getattr(client.client, module_of(endpoint.tag)), method_of(endpoint))
        given = arguments(method, file)
        try:
            await client(partial(perform, method, given))
        except PostroomError as error:
            errors[f"{endpoint.method} {endpoint.path}"] = error
    return errors


async def test_every_endpoint_is_reached(room: Room, key: str, kind: str, tmp_path: Any) -> None:
    """Each method of the client reaches its own endpoint, and each endpoint has a method."""
    file = tmp_path / "addresses.csv"
    file.write_text("email\nada@example.org\n")
    endpoints, seen = client_endpoints(), set[tuple[str, str]]()
    async with (
        served(recording(build_app(room), endpoints, seen)) as url,
        open_either(kind, url, key) as client,
    ):
        errors = await call_all(client, endpoints, file)
    assert {(endpoint.method, endpoint.path) for endpoint in endpoints} == seen
    unknown = (PostroomError, ApiUnreachable)
    assert {name: error for name, error in errors.items() if type(error) in unknown} == {}
