"""Write `postroom/client/api` from the table of endpoints: `./dev docs`.

A module per tag: the types that its endpoints use, and a class with one declaration per endpoint. Types that several
tags use are in `shared`. `tests/docs/test_client_source.py` fails when a module differs from what this one writes.
"""

import keyword
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.json import schema_components

from postroom.http.asgi import FOREIGN, api_endpoints
from postroom.http.schemas import REF, mark_times, readable_names
from postroom.runtime.endpoint import PARAMETER, Endpoint
from postroom.settings import Settings

FOLDER = Path(__file__).parents[2] / "src" / "postroom" / "client" / "api"
SHARED = "shared"
PROVIDERS = "feedback"
"""The tag of endpoints that mail providers call, with signatures of their own."""

_HEAD = '''"""{title}

Generated from the table of endpoints by `./dev docs`: do not edit.
"""
'''
_FORMATS = {"date-time": "datetime", "date-time-local": "datetime", "date": "date", "uuid": "UUID"}
_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_PATHS = {"": "str", "int": "int", "uuid": "UUID | str"}
_IMPORTS = {
    "Any": "typing",
    "Literal": "typing",
    "TYPE_CHECKING": "typing",
    "Mapping": "collections.abc",
    "Sequence": "collections.abc",
    "date": "datetime",
    "datetime": "datetime",
    "UUID": "uuid",
    "Struct": "msgspec",
    "field": "msgspec",
    "File": "postroom.client.upload",
    "OnProgress": "postroom.client.upload",
    "Kind": "postroom.client.calls",
    "ResultPage": "postroom.client.calls",
    "Resource": "postroom.client.calls",
    "call": "postroom.client.calls",
    "download": "postroom.client.calls",
    "listing": "postroom.client.calls",
}


def client_endpoints() -> list[Endpoint]:
    """The endpoints that a program calls with a key: no pages for people, no protocols of others."""
    left_out = {*FOREIGN, PROVIDERS}
    return [each for each in api_endpoints(Settings()) if each.tag not in left_out and not each.is_page]


def module_of(tag: str) -> str:
    return tag.replace(" ", "_")


def class_of(tag: str) -> str:
    return tag.title().replace(" ", "")


def method_of(endpoint: Endpoint) -> str:
    """The name of the handler without the noun of its tag: `list` of `list_deliveries`."""
    handler: Any = endpoint.handler.func if isinstance(endpoint.handler, partial) else endpoint.handler
    module = module_of(endpoint.tag)
    noun = f"{re.sub('ies$', 'y', module).removesuffix('s')}|{module}"
    name = re.sub(rf"_({noun})(?=_|$)", "", handler.__name__)
    return f"{name}_" if keyword.iskeyword(name) else name


def source() -> dict[str, str]:
    """The text of each module by its name, formatted."""
    table = Table(client_endpoints())
    modules = {name: _module(table, name) for name in [*table.tags, SHARED]}
    modules["__init__"] = _package(table)
    return {name: _formatted(text) for name, text in modules.items()}


class Table:
    """The endpoints with their types, and the module of each type."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self.endpoints = endpoints
        self.tags = {module_of(endpoint.tag): endpoint.tag for endpoint in endpoints}
        kinds = list(dict.fromkeys(kind for each in endpoints for kind in _kinds(each)))
        schemas, found = schema_components(kinds, ref_template=REF + "{name}")
        mark_times(kinds, schemas, found)
        self.schema_of = dict(zip(kinds, schemas, strict=True))
        self.components: dict[str, Any] = found
        self.names = readable_names(found)
        asked = [self.schema_of[kind] for each in endpoints for kind in (each.query, each.body) if kind is not None]
        self.inputs = set(self.reach(asked))
        self.modules = self._owners()

    def _owners(self) -> dict[str, str]:
        """The module of each type that a declaration mentions."""
        used: dict[str, list[str]] = {}
        for endpoint in self.endpoints:
            asked = [argument.schema for argument in self.arguments(endpoint)]
            for component in self.reach([*asked, *self.result(endpoint)]):
                used.setdefault(component, []).append(module_of(endpoint.tag))
        return {name: tags[0] if len(set(tags)) == 1 else SHARED for name, tags in used.items()}

    def result(self, endpoint: Endpoint) -> list[Any]:
        """The schema of the response, in a list; empty without one."""
        kind = next(iter(endpoint.answers.values()), None)
        return [] if kind is None else [self.schema_of[kind]]

    def reach(self, schemas: Any) -> Iterator[str]:
        """The components that schemas refer to, directly or not, each once."""
        seen: dict[str, None] = {}
        waiting = list(_references(schemas))
        while waiting:
            name = waiting.pop(0)
            if name not in seen:
                seen[name] = None
                waiting += _references(self.components[name])
        return iter(seen)

    def fields(self, kind: Any) -> "list[Argument]":
        """The fields of a query or a body as arguments; of an alternative, those of the object."""
        schema = self.schema_of[kind]
        options = [schema, *schema.get("anyOf", ())]
        reference = next(option["$ref"] for option in options if "$ref" in option)
        return _arguments(self.components[reference.removeprefix(REF)])

    def arguments(self, endpoint: Endpoint) -> "list[Argument]":
        """The keyword arguments of an endpoint, required ones first."""
        found = [field for kind in (endpoint.query, endpoint.body) if kind is not None for field in self.fields(kind)]
        taken = {"idempotency_key"} if endpoint.idempotent else set()
        found = [Argument(_safe(each.name, taken), each.schema, each.default) for each in found]
        return sorted(found, key=lambda each: each.default is not None)


@dataclass(frozen=True)
class Argument:
    """An argument or field: its name, its schema, and the text of its default; None if it is required."""

    name: str
    schema: Mapping[str, Any]
    default: str | None


def _kinds(endpoint: Endpoint) -> Iterator[Any]:
    yield from (kind for kind in (endpoint.query, endpoint.body, *endpoint.answers.values()) if kind is not None)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(reference := value.get("$ref"), str):
            yield reference.removeprefix(REF)
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _arguments(component: Mapping[str, Any]) -> list[Argument]:
    required = set(component.get("required", ()))
    return [
        Argument(name, schema, None if name in required else _default(schema))
        for name, schema in component.get("properties", {}).items()
    ]


def _default(schema: Mapping[str, Any]) -> str:
    """The server's default as text; `...` for a field that is left out."""
    default = schema.get("default", ...)
    if default is ... or default == {}:
        return "..."
    return "()" if default == [] else repr(default)


def _safe(name: str, taken: set[str] | frozenset[str] = frozenset()) -> str:
    return f"{name}_" if keyword.iskeyword(name) or name in taken else name


# --- types -----------------------------------------------------------------------------


def annotation(table: Table, schema: Mapping[str, Any], *, is_input: bool) -> str:
    """The Python type of a JSON schema."""
    inner = partial(annotation, table, is_input=is_input)
    if (reference := schema.get("$ref")) is not None:
        return _named(table, reference.removeprefix(REF))
    if (options := schema.get("anyOf")) is not None:
        found = dict.fromkeys(inner(option) for option in options)
        return " | ".join(sorted(found, key="None".__eq__))
    if schema.get("type") == "array":
        return f"{'Sequence' if is_input else 'list'}[{inner(schema.get('items', {}))}]"
    if schema.get("type") == "object":
        more = schema.get("additionalProperties", {})
        return f"{'Mapping' if is_input else 'dict'}[str, {inner(more if isinstance(more, dict) else {})}]"
    return _plain(schema)


def _plain(schema: Mapping[str, Any]) -> str:
    if (values := schema.get("enum")) is not None:
        return f"Literal[{', '.join(map(repr, values))}]"
    kind = schema.get("type")
    return "Any" if kind is None else _FORMATS.get(schema.get("format", ""), _SIMPLE[kind])


def _named(table: Table, component: str) -> str:
    page = re.fullmatch(r"Page_(\w+)_", component)
    if page is None:
        return table.names[component]
    item = table.components[component]["properties"]["items"]["items"]
    return f"ResultPage[{annotation(table, item, is_input=False)}]"


def _type(table: Table, component: str) -> str:
    """The declaration of a component."""
    schema, name = table.components[component], table.names[component]
    doc = _docstring(schema.get("description") or f"The type {name}.", "    ")
    if "enum" in schema:
        return f"    {name} = {annotation(table, schema, is_input=False)}"
    is_input = component in table.inputs
    lines = [_field(table, each, is_input=is_input) for each in _arguments(schema)]
    options = "frozen=True, kw_only=True" + (", omit_defaults=True" if is_input else "")
    return "\n".join([f"class {name}(Struct, {options}):", f"    {doc}", "", *lines])


def _field(table: Table, argument: Argument, *, is_input: bool) -> str:
    """A field. The server writes every field of a response that has a value, so that only input has other defaults."""
    name = _safe(argument.name)
    kind = annotation(table, argument.schema, is_input=is_input)
    default = argument.default if is_input else None
    if not is_input and argument.default == "..." and "default" not in argument.schema:
        kind, default = f"{kind.removesuffix(' | None')} | None", "None"
    if argument.schema.get("default") == {} and default:
        default = "field(default_factory=dict)"
    if name != argument.name:
        default = f'field(name="{argument.name}"' + (f", default={default})" if default else ")")
    return f"    {name}: {kind}" + (f" = {default}" if default else "")


# --- modules ---------------------------------------------------------------------------


def _module(table: Table, module: str) -> str:
    own = [name for name, home in table.modules.items() if home == module and not name.startswith("Page_")]
    enums = [_type(table, name) for name in own if "enum" in table.components[name]]
    structs = [_type(table, name) for name in own if "enum" not in table.components[name]]
    parts = []
    if enums:
        names = [table.names[name] for name in own if "enum" in table.components[name]]
        texts = [f"    {name} = str" for name in names]
        parts.append("\n".join(["if TYPE_CHECKING:", *enums, "else:  # a newer server may have more values", *texts]))
    parts += structs
    tag = table.tags.get(module)
    title = "Types that several tags use."
    if tag is not None:
        parts.append(_resource(table, tag))
        title = f"The endpoints of {tag}, and their types."
    body = "\n\n\n".join(parts)
    elsewhere = sorted(table.names[name] for name, home in table.modules.items() if home == SHARED and home != module)
    shared = [name for name in elsewhere if re.search(rf"\b{name}\b", body)]
    imports = [f"from {home} import {name}" for name, home in _IMPORTS.items() if re.search(rf"\b{name}\b", body)]
    imports += [f"from postroom.client.api.{SHARED} import {', '.join(shared)}"] if shared else []
    future = "from __future__ import annotations  # evaluated when an endpoint is first called"
    return "\n".join([_HEAD.format(title=title), future, "", *imports, "", "", body, ""])


def _resource(table: Table, tag: str) -> str:
    methods = [_method(table, endpoint) for endpoint in table.endpoints if endpoint.tag == tag]
    name = class_of(tag) + "Api"
    return "\n\n".join([f"class {name}(Resource[Kind]):\n    " + f'"""The endpoints of {tag}."""', *methods])


def _method(table: Table, endpoint: Endpoint) -> str:
    parameters = ["self"] + [f"{name}: {_PATHS[kind]}" for name, kind in PARAMETER.findall(endpoint.path)]
    parameters += ["file: File"] if endpoint.accepts else []
    keywords = [
        f"{each.name}: {annotation(table, each.schema, is_input=True)}" + (f" = {each.default}" if each.default else "")
        for each in table.arguments(endpoint)
    ]
    keywords += ["media_type: str | None = None", "progress: OnProgress | None = None"] if endpoint.accepts else []
    keywords += ["idempotency_key: str | None = None"] if endpoint.idempotent else []
    parameters += ["*", *keywords] if keywords else []
    decorator, result = _kind_of(table, endpoint)
    signature = f"    def {method_of(endpoint)}({', '.join(parameters)}) -> {result}:"
    return "\n".join([f"    @{decorator}", signature, "        " + _docstring(endpoint.summary, "        ")])


def _kind_of(table: Table, endpoint: Endpoint) -> tuple[str, str]:
    """The decorator of an endpoint, and the type of its result."""
    path = PARAMETER.sub(r"{\1}", endpoint.path)
    if endpoint.media_type.startswith("text/csv"):
        return f'download("{path}")', "bytes"
    found = table.result(endpoint)
    result = annotation(table, found[0], is_input=False) if found else "None"
    if method_of(endpoint).startswith("list"):
        return f'listing("{path}")', result
    if endpoint.media_type != "application/json":
        result = "bytes"
    options = (", body=True" if endpoint.body is not None else "") + (", keyed=True" if endpoint.idempotent else "")
    if endpoint.accepts:
        options += f", accepts={tuple(str(each) for each in endpoint.accepts)!r}"
    return f'call("{endpoint.method}", "{path}"{options})', result


def _package(table: Table) -> str:
    imports = [f"from postroom.client.api.{module} import {class_of(tag)}Api" for module, tag in table.tags.items()]
    lines = [
        f"        self.{module}: {class_of(tag)}Api[Kind] = {class_of(tag)}Api(session)"
        for module, tag in table.tags.items()
    ]
    return "\n".join(
        [
            _HEAD.format(title="All endpoints of the API, by tag."),
            "from postroom.client.calls import Kind, Resource",
            "from postroom.client.session import Session",
            *imports,
            "",
            "",
            "class Api(Resource[Kind]):",
            '    """The whole API: an attribute per tag."""',
            "",
            "    def __init__(self, session: Session) -> None:",
            "        super().__init__(session)",
            *lines,
            "",
        ]
    )


def reference_rows() -> list[str]:
    """The rows of docs/reference/client.md."""
    table = Table(client_endpoints())
    rows = []
    for endpoint in sorted(table.endpoints, key=lambda each: list(table.tags.values()).index(each.tag)):
        decorator, result = _kind_of(table, endpoint)
        words = {"listing": f"pages of `{_item(table, endpoint)}`", "download": "pieces of `bytes`"}
        shown = words.get(decorator.partition("(")[0], f"`{result}`")
        names = [name for name, _kind in PARAMETER.findall(endpoint.path)] + (["file"] if endpoint.accepts else [])
        more = ["…"] if table.arguments(endpoint) or endpoint.accepts or endpoint.idempotent else []
        method = f"{module_of(endpoint.tag)}.{method_of(endpoint)}({', '.join(names + more)})"
        path = PARAMETER.sub(r"{\1}", endpoint.path)
        rows.append(f"| `{method}` | `{endpoint.method} {path}` | {shown} |")
    return rows


def _item(table: Table, endpoint: Endpoint) -> str:
    """The type of the items of a page."""
    for component in _references(table.result(endpoint)[:1]):
        items = table.components[component].get("properties", {}).get("items", {})
        return annotation(table, items.get("items", {}), is_input=False)
    return ""


def _docstring(text: str, indent: str) -> str:
    """A docstring whose first line is its first sentence."""
    whole = " ".join(text.split())
    if len(indent) + len(whole) + 6 <= 120:
        return f'"""{whole}"""'
    first, _, rest = whole.partition(". ")
    lines = textwrap.fill(rest, 120, initial_indent=indent, subsequent_indent=indent)
    return f'"""{first}.\n\n{lines}\n{indent}"""'


def _formatted(text: str) -> str:
    """The text with sorted imports and the layout of the project."""
    own = ["--config", 'lint.isort.known-first-party=["postroom"]']  # also a module that is not written yet
    for arguments in (["check", "--select", "I", "--fix", "--quiet", *own], ["format"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(FOLDER / "generated.py"), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text
