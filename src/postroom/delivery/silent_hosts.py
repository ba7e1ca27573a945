"""Receivers that do not answer: their webhooks wait a while, so that those of others need not.

A post that nobody answers keeps its place in flight for the whole time-out, and places are few. After some in a row a
host rests; then one is sent to see whether anybody answers now, and if nobody does the next rest is longer. Any answer,
whatever it says, ends this. What waits has lost no attempt. Each process learns for itself and forgets when it ends.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from postroom.delivery.model import Channel, DeliveryId, Outgoing
from postroom.post.reply import Reply, Stage

SILENCES = 5
"""So many posts in a row without an answer, and the host rests."""

FIRST_REST_S, LONGEST_REST_S = 30.0, 300.0

_log = structlog.get_logger()


@dataclass(slots=True)
class _Silence:
    count: int = 0
    rest_s: float = FIRST_REST_S
    until: float = 0.0

    @property
    def is_long(self) -> bool:
        return self.count >= SILENCES


class SilentHosts:
    """Asked before webhooks start, and told when one has ended."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._hosts: dict[str, _Silence] = {}
        self._monotonic = monotonic

    def sift(self, chunk: list[Outgoing]) -> tuple[list[Outgoing], dict[timedelta, list[DeliveryId]]]:
        """Who may start now, and who should wait for how long."""
        if not self._hosts:
            return chunk, {}
        ready: list[Outgoing] = []
        waiting: defaultdict[timedelta, list[DeliveryId]] = defaultdict(list)
        for outgoing in chunk:
            wait = self._wait(outgoing)
            if wait is None:
                ready.append(outgoing)
            else:
                waiting[wait].append(outgoing.id)
        return ready, waiting

    def _wait(self, outgoing: Outgoing) -> timedelta | None:
        silence = self._hosts.get(_host(outgoing)) if outgoing.channel is Channel.WEBHOOK else None
        if silence is None or not silence.is_long:
            return None
        now = self._monotonic()
        if now < silence.until:
            return timedelta(seconds=math.ceil(silence.until - now))  # whole seconds: many wait alike
        silence.rest_s = min(silence.rest_s * 2, LONGEST_REST_S)
        silence.until = now + silence.rest_s  # for all but this one
        return None

    def ended(self, outgoing: Outgoing, reply: Reply | None) -> None:
        """Learn from an attempt. A connection that was refused took nobody's place, and teaches nothing."""
        if outgoing.channel is not Channel.WEBHOOK or reply is None:
            return
        if reply.code is not None:
            self._heard(_host(outgoing))
        elif reply.stage is Stage.CONTENT:
            self._heard_nothing(_host(outgoing))

    def _heard(self, host: str) -> None:
        silence = self._hosts.pop(host, None)
        if silence is not None and silence.is_long:
            _log.info("webhook_host_answers", host=host)

    def _heard_nothing(self, host: str) -> None:
        silence = self._hosts.setdefault(host, _Silence())
        silence.count += 1
        if silence.is_long:
            silence.until = max(silence.until, self._monotonic() + silence.rest_s)
        if silence.count == SILENCES:
            _log.warning("webhook_host_rests", host=host, seconds=silence.rest_s)


def _host(outgoing: Outgoing) -> str:
    address = outgoing.recipients[0].address if outgoing.recipients else ""
    return address.partition("//")[2].partition("/")[0].lower()
