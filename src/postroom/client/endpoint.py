"""One endpoint of the API: its arguments become a request, and the response becomes the result."""

import inspect
import re
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import date
from functools import cached_property
from typing import Any, get_type_hints
from urllib.parse import quote, urlencode

import msgspec

from postroom.client.session import ClientRequest, ClientResponse, Session
from postroom.client.upload import FileUpload, media_type_of, open_file
from postroom.errors import PostroomError


class ClientEndpoint:
    """A method and a path of the API, with the signature of its arguments."""

    def __init__(
        self,
        declaration: Callable[..., Any],
        method: str,
        path: str,
        *,
        has_body: bool = False,
        is_keyed: bool = False,
        accepts: tuple[str, ...] = (),
    ) -> None:
        self.name, self.method, self.path = declaration.__name__, method, path
        self._declaration = declaration
        self._has_body, self._is_keyed, self._accepts = has_body, is_keyed, accepts
        self._path_names = re.findall(r"{(\w+)}", path)

    @cached_property
    def signature(self) -> inspect.Signature:
        own, *others = (signature := inspect.signature(self._declaration)).parameters.values()
        assert own.name == "self"
        return signature.replace(parameters=others)

    @cached_property
    def _decoder(self) -> "msgspec.json.Decoder[Any] | None":
        """Reads the response; None for bytes."""
        kind = get_type_hints(self._declaration)["return"]
        return None if kind is bytes else msgspec.json.Decoder(kind)

    async def call(self, session: Session, arguments: Mapping[str, Any]) -> Any:
        """The result of a request with these arguments."""
        if not self._accepts:
            return await session.exchange(self.request(session, arguments), self._read)
        given = dict(arguments)
        file, progress = given.pop("file"), given.pop("progress", None)
        media_type = given.pop("media_type", None) or media_type_of(file, self._accepts)
        with open_file(file) as opened:
            request = self.request(session, given, FileUpload(opened, progress), media_type)
            return await session.exchange(request, self._read)

    async def download(self, session: Session, arguments: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        """The bytes of all pages of a file."""
        cursor: str | None = ""
        while cursor is not None:
            more = {"cursor": cursor} if cursor else {}
            response = await session.exchange(self.request(session, {**arguments, **more}), _unread)
            async for chunk in response.chunks():
                yield chunk
            cursor = response.header("X-Next-Cursor")

    def request(
        self,
        session: Session,
        arguments: Mapping[str, Any],
        body: bytes | FileUpload | None = None,
        media_type: str = "application/json",
    ) -> ClientRequest:
        given = dict(arguments)
        headers = {"Authorization": f"Bearer {session.key}"}
        if self._is_keyed and (key := given.pop("idempotency_key", None) or _new_key(session)):
            headers["Idempotency-Key"] = key
        fields = {name.removesuffix("_"): value for name, value in given.items()}
        path = self.path.format_map({name: quote(str(fields.pop(name)), safe="") for name in self._path_names})
        if self._has_body:
            body = msgspec.json.encode(fields)
        elif query := urlencode({name: _text(each) for name, each in fields.items() if each is not None}, doseq=True):
            path += f"?{query}"
        if body is not None:
            headers["Content-Type"] = media_type
        return ClientRequest(self.method, path, headers, body)

    async def _read(self, response: ClientResponse) -> Any:
        content = await response.read()
        if self._decoder is None:
            return content
        try:
            return self._decoder.decode(content) if content else None
        except msgspec.MsgspecError as error:
            unlike = f"The response to {self.method} {self.path} is not one that this version of the client knows"
            raise PostroomError(f"{unlike}: {error}.") from error


def _new_key(session: Session) -> str | None:
    """A key for a request that may be repeated."""
    return str(uuid.uuid4()) if session.retries else None


async def _unread(response: ClientResponse) -> ClientResponse:
    return response


def _text(value: Any) -> str | list[str]:
    """A value as it is written in a query."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, str) or not isinstance(value, Sequence) else [str(each) for each in value]
