"""Two servers under Patroni behind one address that moves to the new primary, as an address of a cloud provider does.

From the failure until the move the address is silent: connections stay open without any response, also those that are
made meanwhile. The old ones never get one.
"""

import time
from types import TracebackType
from typing import Self

from tests.support.freezing_proxy import FreezingProxy
from tests.support.patroni import Failure, Member, PatroniCluster


class MovingAddress(PatroniCluster):
    """The same servers with a URL of one host."""

    @property
    def url(self) -> str:
        return self._proxy.url

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._proxy = await FreezingProxy(self.all_hosts).__aenter__()
        self._move(await self.replicated())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._proxy.__aexit__(kind, error, trace)
        await super().__aexit__(kind, error, trace)

    def fail(self, primary: Member, failure: Failure) -> float:
        self._proxy.hold()
        return super().fail(primary, failure)

    async def promoted(self, failed: Member) -> float:
        await super().promoted(failed)
        [other] = [member for member in self.servers if member is not failed]
        self._move(other)
        return time.time()

    def _move(self, primary: Member) -> None:
        self._proxy.move("127.0.0.1", primary.postgres)
