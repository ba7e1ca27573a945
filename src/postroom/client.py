"""`postroom.Client`: the HTTP API from Python, for programs that do not share the database.

    async with postroom.Client("http://127.0.0.1:8025", key) as client:
        sent = await client.send(to="ada@example.org", subject="Hello", text="Hello, Ada.", idempotency_key="hello-1")

Responses are plain dictionaries as documented for the API. An error response raises the same error as the service:
`BadInput` with its fields, `IdempotencyConflict`, `DeliveryNotFound`, `Unauthenticated`, …
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from postroom.errors import BadInput, FieldError, PostroomError, ScopeMissing, list_errors

_decode = msgspec.json.Decoder().decode


class Client:
    """One API server and one key. Use it as an async context manager; it keeps connections alive between calls."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 30) -> None:
        self._url = url.rstrip("/")
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {key}"}, timeout=aiohttp.ClientTimeout(total=timeout_s)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def send(self, *, idempotency_key: str | None = None, **delivery: Any) -> dict[str, Any]:
        """Accept one delivery; the fields are those of `POST /v1/deliveries`."""
        answer: dict[str, Any] = await self._call(
            "POST", "/v1/deliveries", body=delivery, headers=_key_header(idempotency_key)
        )
        return answer

    async def send_batch(
        self, deliveries: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[dict[str, Any]]:
        """Accept up to a thousand deliveries at once; one result each, in the same order.

        With an idempotency key, repeating a batch stores nothing new: its results have `replayed`.
        """
        body = {"deliveries": deliveries}
        answer = await self._call("POST", "/v1/deliveries/batch", body=body, headers=_key_header(idempotency_key))
        items: list[dict[str, Any]] = answer["items"]
        return items

    async def get_delivery(self, delivery_id: int) -> dict[str, Any]:
        answer: dict[str, Any] = await self._call("GET", f"/v1/deliveries/{delivery_id}")
        return answer

    async def list_attempts(self, delivery_id: int) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await self._call("GET", f"/v1/deliveries/{delivery_id}/attempts"))["items"]
        return items

    async def list_deliveries(self, **filters: Any) -> AsyncIterator[dict[str, Any]]:
        """Iterate over all deliveries that match the filters, newest first, fetching page after page."""
        cursor: str | None = None
        while True:
            query = {name: str(value) for name, value in (filters | {"cursor": cursor}).items() if value is not None}
            page = await self._call("GET", "/v1/deliveries", query=query)
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def cancel(self, delivery_id: int) -> None:
        await self._call("POST", f"/v1/deliveries/{delivery_id}/cancel")

    async def retry(self, delivery_id: int) -> None:
        await self._call("POST", f"/v1/deliveries/{delivery_id}/retry")

    async def resend(self, delivery_id: int) -> int:
        """Send a delivery again as a new one; return the new id."""
        return int((await self._call("POST", f"/v1/deliveries/{delivery_id}/resend"))["id"])

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        sent = dict(headers or {})
        data = None
        if body is not None:
            data = msgspec.json.encode(body)
            sent["Content-Type"] = "application/json"
        async with self._session.request(method, self._url + path, data=data, params=query, headers=sent) as response:
            content = await response.read()
        if response.status >= 400:  # noqa: PLR2004 - the first HTTP error status
            raise _refusal(response.status, content)
        return _decode(content) if content else None


def _key_header(idempotency_key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": idempotency_key} if idempotency_key else {}


def _refusal(status: int, content: bytes) -> PostroomError:
    """The error described by a problem document."""
    try:
        problem: dict[str, Any] = _decode(content)
    except msgspec.DecodeError:
        return PostroomError(f"The server answered {status} without a problem document.")
    fields = [FieldError(error["field"], error["message"]) for error in problem.get("errors") or []]
    if fields:
        return BadInput(fields)
    detail = problem.get("detail") or problem.get("title") or f"The server answered {status}."
    kind = next((kind for kind in list_errors() if kind.code == problem.get("code")), PostroomError)
    refusal = kind.__new__(kind)
    PostroomError.__init__(refusal, detail)
    if isinstance(refusal, ScopeMissing):
        refusal.scope = problem.get("scope", "")
    return refusal
