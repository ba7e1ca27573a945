"""Forms with a file, as browsers send them (RFC 7578). The file is read in chunks and never held in memory.

The fields of the form come before its file, in the order of the page: the session's token is checked before the first
byte of the file is read.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus

from postroom.dashboard.page import PageRequest, admit, public, with_form
from postroom.dashboard.request import need_own
from postroom.runtime.endpoint import Answer, Call, Endpoint, ProtocolError

MULTIPART = "multipart/form-data"

_LONGEST_HEAD = 4096  # bytes of the header of a part, or of the value of a field
_MOST_FIELDS = 20  # more than any form has; bounds the work for a hostile body
_BOUNDARY = re.compile(r"""boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_NAME = re.compile(r'\bname="([^"]*)"')
_FILE_NAME = re.compile(r'\bfilename="([^"]*)"')


@dataclass(frozen=True, slots=True)
class FormFile:
    """The file of a form: its name, which the browser chose, and its content."""

    name: str
    chunks: AsyncIterator[bytes]


TakeFile = Callable[[PageRequest, FormFile], Awaitable[Answer]]


def file_form(path: str, take: TakeFile, *, scope: str) -> Endpoint:
    """A page that a form with one file posts to; the file may have any size."""
    endpoint = public("POST", path, partial(_take, take))
    return replace(endpoint, admit=partial(admit, scope=scope), accepts=(MULTIPART,), stream=True)


async def _take(take: TakeFile, call: Call) -> Answer:
    need_own(call)
    assert call.chunks is not None
    reader = MultipartReader(call.chunks, call.headers.get("content-type", ""))
    fields, name = await reader.read_fields()
    return await take(with_form(call.admitted, fields), FormFile(name, reader.read_file()))


class MultipartReader:
    """Reads the fields of a form, then its file."""

    def __init__(self, chunks: AsyncIterator[bytes], content_type: str) -> None:
        found = _BOUNDARY.search(content_type)
        if found is None:
            raise _broken("it has no boundary")
        self._chunks = chunks
        self._delimiter = b"\r\n--" + (found[1] or found[2]).encode("latin-1")
        self._buffer = b"\r\n"  # the first delimiter has no line before it

    async def read_fields(self) -> tuple[dict[str, str], str]:
        """The fields before the file, and the name of the file; empty if none was chosen."""
        fields: dict[str, str] = {}
        await self._until(self._delimiter)
        for _number in range(_MOST_FIELDS):
            head = await self._until(b"\r\n\r\n")
            if head.startswith(b"--"):
                raise _broken("it has no file")
            written = head.decode("utf-8", "replace")
            name, file_name = _NAME.search(written), _FILE_NAME.search(written)
            if name is None:
                raise _broken("a field has no name")
            if file_name is not None:
                return fields, file_name[1]
            fields[name[1]] = (await self._until(self._delimiter)).decode("utf-8", "replace")
        raise _broken("it has too many fields")

    async def read_file(self) -> AsyncIterator[bytes]:
        """The content of the file; the rest of the body is read too, so that the browser sees the answer."""
        kept = len(self._delimiter) - 1  # the end of a chunk may be the beginning of the delimiter
        while (end := self._buffer.find(self._delimiter)) < 0:
            if len(self._buffer) > kept:
                piece, self._buffer = self._buffer[:-kept], self._buffer[-kept:]
                yield piece
            await self._fill()
        if end:
            yield self._buffer[:end]
        async for _rest in self._chunks:
            continue

    async def _until(self, mark: bytes) -> bytes:
        while (at := self._buffer.find(mark)) < 0:
            if len(self._buffer) > _LONGEST_HEAD:
                raise _broken("a field is too long")
            await self._fill()
        found, self._buffer = self._buffer[:at], self._buffer[at + len(mark) :]
        return found

    async def _fill(self) -> None:
        chunk = await anext(self._chunks, None)
        if chunk is None:
            raise _broken("it ended too early")
        self._buffer += chunk


def _broken(reason: str) -> ProtocolError:
    return ProtocolError(HTTPStatus.BAD_REQUEST, f"The form cannot be read: {reason}.")
