"""The OpenAPI 3.1 document, made from the same endpoints that are served: it cannot say anything else."""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from msgspec.inspect import StructType, type_info
from msgspec.json import schema_components

from postroom.http.examples import EXAMPLES
from postroom.http.request import LARGEST_ID
from postroom.http.rules import EVERYWHERE, describe_rules, rules_of
from postroom.http.schemas import REF, mark_times, readable_names, tidy
from postroom.runtime.endpoint import PARAMETER, PROBLEM, Answer, Call, Endpoint, Problem

_REQUEST_ID = {
    "X-Request-Id": {"description": "Names this request in logs.", "schema": {"type": "string"}},
}
_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same body gives the first answer again; with another body, 409.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
}


def openapi_endpoint(endpoints: Sequence[Endpoint], *, public_url: str | None) -> Endpoint:
    """`GET /openapi.json`: the document of these endpoints and of itself, made for the first request: 80 ms."""

    @cache
    def document() -> bytes:
        return msgspec.json.encode(describe([*endpoints, itself], public_url=public_url))

    async def get_openapi(_call: Call) -> Answer:
        return Answer(document())

    itself = Endpoint(
        method="GET",
        path="/openapi.json",
        handler=get_openapi,
        summary="Read the OpenAPI document.",
        scope=None,
        tag="health",
        answers={200: dict[str, Any]},
    )
    return itself


def describe(endpoints: Sequence[Endpoint], *, public_url: str | None = None) -> dict[str, Any]:
    """The whole document as plain values."""
    types = list(dict.fromkeys(_types(endpoints)))
    schemas, found = schema_components(types, ref_template=REF + "{name}")
    mark_times(types, schemas, found)
    asked_types = set(_asked(endpoints))
    asked = [schema for kind, schema in zip(types, schemas, strict=True) if kind in asked_types]
    found = {**{name: _with_every_field(each) for name, each in found.items()}, **_used(found, asked)}
    names = readable_names(found)
    components = {names[name]: {**tidy(schema, names), "title": names[name]} for name, schema in found.items()}
    schema_of = dict(zip(types, tidy(list(schemas), names), strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Postroom",
            "version": _version(),
            "description": "Accept, follow and operate deliveries. Times are ISO 8601 in UTC; ids are whole numbers."
            f"\n\n{EVERYWHERE}",
        },
        "servers": [{"url": public_url or "/"}],
        "paths": paths,
        "components": {
            "schemas": _used(components, paths),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key: `pr_…`."},
            },
        },
    }


def _with_every_field(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an answer, which has every field: a default of the model says what a constructor may leave out."""
    if not (properties := schema.get("properties")):
        return schema
    always = {*schema.get("required", ()), *(name for name, each in properties.items() if "default" in each)}
    kept = {name: {k: v for k, v in each.items() if k != "default"} for name, each in properties.items()}
    return {**schema, "properties": kept, "required": [name for name in kept if name in always]}


def _used(components: dict[str, Any], document: Any) -> dict[str, Any]:
    """The schemas that a part of the document refers to, directly or not."""
    used: set[str] = set()
    waiting = list(_references(document))
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting.extend(_references(components[name]))
    return {name: schema for name, schema in components.items() if name in used}


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(ref := value.get("$ref"), str):
            yield ref.removeprefix(REF)
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _version() -> str:
    try:
        return version("postroom")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0"


def _types(endpoints: Sequence[Endpoint]) -> Iterator[Any]:
    yield Problem
    yield from _asked(endpoints)
    for endpoint in endpoints:
        yield from (kind for kind in endpoint.answers.values() if kind is not None)


def _asked(endpoints: Sequence[Endpoint]) -> Iterator[Any]:
    """The types that arrive."""
    for endpoint in endpoints:
        yield from (kind for kind in (endpoint.query, endpoint.body) if kind is not None)


def _name(handler: Any) -> str:
    """The handler's own, also if it was given its tools beforehand."""
    name: str = handler.func.__name__ if isinstance(handler, partial) else handler.__name__
    return name


def _operation(endpoint: Endpoint, schema_of: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _name(endpoint.handler),
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "parameters": list(_parameters(endpoint, schema_of, components)),
        "responses": {
            **{str(status): _answer(endpoint, status, schema_of) for status in endpoint.answers},
            **{str(status): _problem(status, schema_of) for status in _problem_statuses(endpoint)},
        },
        "security": [],
    }
    if endpoint.scope is not None:
        operation["security"] = [{"key": [endpoint.scope]}]
        operation["description"] = f"Needs the scope `{endpoint.scope}`."
    if endpoint.body is not None:
        content: dict[str, Any] = {"schema": schema_of[endpoint.body]}
        if (example := EXAMPLES.get((endpoint.method, endpoint.path))) is not None:
            content["example"] = example
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    elif endpoint.accepts:
        files = {media_type: {"schema": {"type": "string", "format": "binary"}} for media_type in endpoint.accepts}
        operation["requestBody"] = {"required": True, "content": files}
    body = [] if endpoint.body is None else [schema_of[endpoint.body]]
    if rules := rules_of(body, operation["parameters"], components):
        operation["x-rules"] = rules
        operation["description"] = "\n\n".join((operation.get("description", ""), describe_rules(rules))).strip()
    return operation


def _parameters(endpoint: Endpoint, schema_of: dict[Any, Any], components: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, kind in PARAMETER.findall(endpoint.path):
        yield {"name": name, "in": "path", "required": True, "schema": _PATHS[kind]}
    if endpoint.query is not None:
        info = type_info(endpoint.query)
        assert isinstance(info, StructType)
        properties = components[schema_of[endpoint.query]["$ref"].removeprefix(REF)].get("properties", {})
        for field in info.fields:
            schema = _without_null(properties[field.encode_name])
            yield {"name": field.encode_name, "in": "query", "required": field.required, "schema": schema}
    if endpoint.idempotent:
        yield _KEY_PARAMETER


_PATHS = {
    "": {"type": "string", "pattern": "^[^/]{1,200}$"},
    "int": {"type": "integer", "minimum": 0, "maximum": LARGEST_ID},
    "uuid": {"type": "string", "format": "uuid"},
}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is absent is absent: in a query string there is no null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) != 1:
        return schema
    return {**kinds[0], **{key: value for key, value in schema.items() if key != "anyOf"}}


def _problem_statuses(endpoint: Endpoint) -> list[int]:
    statuses = {400, 406, 413, 503, *endpoint.problems}
    if endpoint.scope is not None:
        statuses |= {401, 403}
    if endpoint.body is not None or endpoint.accepts:
        statuses.add(415)
    if PARAMETER.search(endpoint.path):
        statuses.add(404)
    return sorted(statuses)


def _answer(endpoint: Endpoint, status: int, schema_of: dict[Any, Any]) -> dict[str, Any]:
    kind = endpoint.answers[status]
    schema = {} if kind is None else {"schema": schema_of[kind]}
    content = {} if status == HTTPStatus.NO_CONTENT else {"content": {endpoint.media_type: schema}}
    return {"description": "Done.", "headers": _REQUEST_ID, **content}


def _problem(status: int, schema_of: dict[Any, Any]) -> dict[str, Any]:
    return {
        "description": HTTPStatus(status).phrase,
        "headers": _REQUEST_ID,
        "content": {PROBLEM: {"schema": schema_of[Problem]}},
    }
