"""Sends requests to one server with one key, and repeats those that failed where that is safe."""

import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from postroom.client.upload import FileUpload
from postroom.errors import ApiUnreachable, FieldError, PostroomError, list_errors

LONGEST_WAIT_S = 30.0
"""A server that asks for a longer pause gets no repetition: the caller has to decide."""

_OWN_MEMBERS = frozenset({"type", "title", "status", "detail", "code", "errors"})
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request that can be sent several times; an upload only if it was not read yet."""

    method: str
    target: str  # path and query
    headers: Mapping[str, str]
    body: bytes | FileUpload | None = None

    @property
    def is_safe(self) -> bool:
        """True if the server does the same once, however often it receives the request."""
        return self.method in {"GET", "PUT", "DELETE"} or "Idempotency-Key" in self.headers


class ClientResponse(Protocol):
    """A response whose body was not read yet. Reading raises `ConnectionLost`."""

    @property
    def status(self) -> int: ...
    def header(self, name: str) -> str | None: ...
    async def read(self) -> bytes: ...
    def chunks(self) -> AsyncGenerator[bytes, None]: ...


class ClientTransport(Protocol):
    """Sends one request. The synchronous transport never suspends."""

    @property
    def is_blocking(self) -> bool: ...

    async def send(self, request: ClientRequest) -> ClientResponse:
        """Raises `ConnectionLost`."""

    async def sleep(self, seconds: float) -> None: ...
    async def close(self) -> None: ...


class ConnectionLost(Exception):  # noqa: N818 - a condition, as in errors.py
    """There is no connection, or it was lost before the response was complete."""

    def __init__(self, reason: object, *, is_sent: bool = True) -> None:
        """`is_sent`: the server may have received the request."""
        super().__init__(str(reason) or type(reason).__name__)
        self.is_sent = is_sent


@dataclass(frozen=True, slots=True)
class ExchangeFailure:
    """A request without success: the error, and whether a repetition makes sense."""

    error: PostroomError
    is_passing: bool = False  # it may succeed later
    is_processed: bool = True  # the server may have changed something
    retry_after_s: float | None = None


Read = Callable[[ClientResponse], Coroutine[Any, Any, Any]]


@dataclass(slots=True)
class Session:
    """One server and one key."""

    url: str
    key: str = field(repr=False)
    transport: ClientTransport
    retries: int = 4
    backoff_s: float = 0.5

    async def exchange(self, request: ClientRequest, read: Read) -> Any:
        """Send a request until it succeeds or cannot be repeated; `read` reads the response."""
        attempt = 0
        while True:
            done = await self._attempt(request, read)
            if not isinstance(done, ExchangeFailure):
                return done
            pause = self._pause(request, done, attempt)
            if pause is None:
                raise done.error
            attempt += 1
            await self.transport.sleep(pause)

    async def _attempt(self, request: ClientRequest, read: Read) -> Any:
        try:
            response = await self.transport.send(request)
            if response.status < HTTPStatus.MULTIPLE_CHOICES:
                return await read(response)
            return _failure(response.status, response.header("Retry-After"), await response.read())
        except ConnectionLost as lost:
            error = ApiUnreachable(self.url, str(lost))
            error.__cause__ = lost.__cause__
            return ExchangeFailure(error, is_passing=True, is_processed=lost.is_sent)

    def _pause(self, request: ClientRequest, failure: ExchangeFailure, attempt: int) -> float | None:
        """Seconds until the next attempt; None to give up."""
        is_safe = request.is_safe or not failure.is_processed
        if not failure.is_passing or not is_safe or attempt >= self.retries:
            return None
        if failure.retry_after_s is not None:
            return failure.retry_after_s if failure.retry_after_s <= LONGEST_WAIT_S else None
        longest: float = min(self.backoff_s * 2**attempt, LONGEST_WAIT_S)
        return random.uniform(longest / 2, longest)  # noqa: S311 - spreads the clients of one failure; not a secret


def _failure(status: int, retry_after: str | None, content: bytes) -> ExchangeFailure:
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else None
    is_limited = status == HTTPStatus.TOO_MANY_REQUESTS and seconds is not None
    error = read_problem(status, content)
    error.retry_after_s = None if seconds is None else int(seconds)
    return ExchangeFailure(
        error,
        is_passing=is_limited or status >= HTTPStatus.INTERNAL_SERVER_ERROR,
        is_processed=not is_limited,
        retry_after_s=seconds,
    )


def read_problem(status: int, content: bytes) -> PostroomError:
    """The error that a problem document describes, with the facts of the service's own error."""
    try:
        problem = msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.MsgspecError:
        return PostroomError(f"The server responded with status {status} and no problem document.")
    kind = _kinds().get(problem.get("code", ""), PostroomError)
    error = kind.__new__(kind)
    PostroomError.__init__(error, problem.get("detail") or f"The server responded with status {status}.")
    error.errors = [FieldError(each["field"], each["message"]) for each in problem.get("errors") or ()]
    facts = {name: value for name, value in problem.items() if name not in _OWN_MEMBERS}
    error.__dict__.update(facts.pop("matched", {}), **facts)
    return error


@cache
def _kinds() -> dict[str, type[PostroomError]]:
    return {kind.code: kind for kind in list_errors()}
