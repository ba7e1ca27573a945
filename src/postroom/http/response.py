"""Sends an answer: JSON, bytes or a stream, with the headers of its endpoint."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus

import msgspec

from postroom.runtime.endpoint import Answer, Receive, Send

RawHeaders = tuple[tuple[bytes, bytes], ...]

_encode = msgspec.json.Encoder().encode


def body_of(answer: Answer) -> bytes | AsyncIterator[bytes]:
    """The bytes of an answer, or its stream; 204 has none, and a client would read them as the next response."""
    if answer.status == HTTPStatus.NO_CONTENT:
        return b""
    value = answer.value
    return value if isinstance(value, bytes | AsyncIterator) else _encode(value)


def encode_headers(headers: Mapping[str, str]) -> RawHeaders:
    return tuple((name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items())


async def send_head(send: Send, answer: Answer, body: bytes | AsyncIterator[bytes], always: RawHeaders) -> None:
    """The status line and the headers; those of the answer win over `always`."""
    headers = list(always)
    if answer.status != HTTPStatus.NO_CONTENT:
        headers.append((b"content-type", answer.media_type.encode()))
        if isinstance(body, bytes):
            headers.append((b"content-length", b"%d" % len(body)))
    if answer.headers:
        own = encode_headers(answer.headers)
        names = {name for name, _value in own}
        headers = [*(header for header in headers if header[0] not in names), *own]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})


async def send_body(send: Send, receive: Receive, body: bytes | AsyncIterator[bytes]) -> None:
    if isinstance(body, bytes):
        await send({"type": "http.response.body", "body": body})
    else:
        await _send_stream(send, receive, body)


async def _send_stream(send: Send, receive: Receive, chunks: AsyncIterator[bytes]) -> None:
    """Send until the stream ends or the client has left: uvicorn ignores what is sent after that, without an error."""
    leaving = asyncio.create_task(_wait_for_disconnect(receive), name="http-disconnect")
    sending = asyncio.create_task(_send_chunks(send, chunks), name="http-stream")
    try:
        await asyncio.wait((leaving, sending), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ends_itself = sending.done()
        for task in (leaving, sending):
            task.cancel()
        await asyncio.gather(leaving, sending, return_exceptions=True)
    if ends_itself:
        sending.result()  # an error of the stream


async def _send_chunks(send: Send, chunks: AsyncIterator[bytes]) -> None:
    async for chunk in chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
