"""Group commit for acceptance: one statement accepts all requests that arrive while the previous one runs.

Requests come checked, so a batch holds only data that can be stored. If PostgreSQL still rejects a batch, each of its
requests is accepted alone, and only the rejected one fails. A conflict is the answer to one request. The caller gets
the answer after the commit.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

from postroom.db.pool import Pool
from postroom.delivery import service
from postroom.delivery.check import CheckedRequest
from postroom.delivery.model import Acceptance, Accepted, DeliveryRequest
from postroom.errors import BadInput, FieldError, IdempotencyConflict
from postroom.runtime.combiner import Combiner
from postroom.runtime.metrics import ACCEPTED

Check = Callable[[DeliveryRequest], None]
"""Raises `BadInput` for a request that could be stored and not be sent, such as one with an unknown template."""


def count_accepted(request: DeliveryRequest, accepted: Accepted) -> None:
    """Count the acceptance in the metrics."""
    ACCEPTED.labels(request.lane.value, accepted.acceptance.value).inc()


def _weigh(request: DeliveryRequest) -> int:
    attached = sum(len(attachment.content) for attachment in request.attachments)
    return len(request.text or "") + len(request.html or "") + attached


class AcceptCombiner:
    """One per process: every accepting endpoint goes through it."""

    def __init__(
        self, pool: Pool, *, idempotency_ttl: timedelta = service.IDEMPOTENCY_TTL, check: Check | None = None
    ) -> None:
        self._pool, self._ttl, self._check = pool, idempotency_ttl, check
        self._combiner: Combiner[CheckedRequest, Accepted] = Combiner(self._flush, weigh=_weigh)

    async def accept(self, request: CheckedRequest) -> Accepted:
        """Accept one request; committed on return. Raises `BadInput` and `IdempotencyConflict`."""
        self._check_all([request])
        accepted = await self._combiner.submit(request)
        count_accepted(request, accepted)
        if accepted.acceptance is Acceptance.CONFLICT:
            raise IdempotencyConflict
        return accepted

    async def accept_all(self, requests: Sequence[CheckedRequest]) -> list[Accepted]:
        """Accept a batch that came as one request, in a statement of its own; a conflict is one of the answers."""
        self._check_all(requests)
        answers = await self._flush(requests)
        for request, accepted in zip(requests, answers, strict=True):
            count_accepted(request, accepted)
        return answers

    async def accept_together(self, requests: Sequence[CheckedRequest], *, share_key: bool = False) -> list[Accepted]:
        """Accept all of them or none; committed on return. Raises `BadInput` and `IdempotencyConflict`.

        If they `share_key`, each with its place, one that is new beside one that is known is a conflict: it is not the
        batch that was taken with that key.
        """
        self._check_all(requests)
        async with self._pool.acquire() as connection, connection.transaction():
            answers = await service.accept_batch(connection, requests, idempotency_ttl=self._ttl)
            found = {answer.acceptance for answer in answers}
            if Acceptance.CONFLICT in found or (share_key and len(found) > 1):
                raise IdempotencyConflict
        for request, answer in zip(requests, answers, strict=True):
            count_accepted(request, answer)
        return answers

    async def drain(self) -> None:
        """Wait until everything that joined is committed."""
        await self._combiner.drain()

    def _check_all(self, requests: Sequence[CheckedRequest]) -> None:
        """Name what is wrong with each; in a batch of several, fields begin with `[3].`, as in `check_batch`."""
        errors: list[FieldError] = []
        if self._check is None:
            return
        for index, request in enumerate(requests):
            try:
                self._check(request)
            except BadInput as bad:
                where = f"[{index}]." if len(requests) > 1 else ""
                errors += [FieldError(f"{where}{error.field}", error.message) for error in bad.errors]
        if errors:
            raise BadInput(errors)

    async def _flush(self, requests: Sequence[CheckedRequest]) -> list[Accepted]:
        # One statement outside a transaction block is its own transaction: it has committed when the answer is here.
        async with self._pool.acquire() as connection:
            return await service.accept_batch(connection, requests, idempotency_ttl=self._ttl)
