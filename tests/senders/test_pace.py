"""PacedStarts: delays by the monotonic clock, release after the last start, leases."""

import asyncio
import itertools
import time
from datetime import timedelta

import pytest
from tests.support.builders import NOON, a_mail, accepted
from tests.support.senders import Stamps, an_account, claimed

from postroom.db.pool import Pool
from postroom.delivery.model import Lane
from postroom.senders import store
from postroom.senders.model import StartSlot
from postroom.senders.pace import PacedStarts, Release


def slots(count: int, *, delay_s: float = 0.02, start_in_s: float = 0.0, account_id: int = 7) -> list[StartSlot]:
    return [StartSlot(claim_id=1, account_id=account_id, delay_s=delay_s, start_in_s=start_in_s) for _ in range(count)]


async def test_starts_are_a_delay_apart() -> None:
    """Five mails that ask at once start one delay after the other, and never earlier."""
    stamps, starts = Stamps(), []
    turns = PacedStarts(lambda _release: None, now=stamps)

    async def start(slot: StartSlot) -> None:
        assert await turns.wait(slot)
        starts.append(stamps.last)

    turns.open(five := slots(5))
    await asyncio.gather(*(start(slot) for slot in five))
    assert len(starts) == 5
    assert all(later - earlier >= 0.0199 for earlier, later in itertools.pairwise(starts))


async def test_the_first_waits_for_what_the_last_holder_left() -> None:
    """A new claim waits for the rest of the delay."""
    turns = PacedStarts(lambda _release: None)
    began = time.monotonic()
    turns.open(one := slots(1, start_in_s=0.03))
    assert await turns.wait(one[0])
    assert time.monotonic() - began >= 0.03


async def test_a_hold_is_given_back_once_after_its_last_turn() -> None:
    """Taken and skipped turns both count; the release has the last start."""
    heard: list[Release] = []
    turns = PacedStarts(heard.append)
    turns.open(three := slots(3))
    await turns.wait(three[0])
    turns.skip(three[1])
    assert heard == []
    before = time.monotonic()
    await turns.wait(three[2])
    [release] = heard
    assert (release.claim_id, release.account_id) == (1, 7)
    assert before <= release.last_start <= time.monotonic()


async def test_an_account_without_a_pace_is_not_held() -> None:
    """An account without a delay is neither waited for nor released."""
    heard: list[Release] = []
    turns = PacedStarts(heard.append)
    turns.open(many := slots(100, delay_s=0))
    assert all(await asyncio.gather(*(turns.wait(slot) for slot in many)))
    assert heard == []


async def test_after_closing_nothing_starts() -> None:
    """After `close`, waiting mails must not start."""
    turns = PacedStarts(lambda _release: None)
    turns.open(three := slots(3))
    assert await turns.wait(three[0])
    turns.close(three[0])
    assert [await turns.wait(slot) for slot in three[1:]] == [False, False]


async def test_a_claim_whose_lease_ran_out_starts_nothing() -> None:
    """A process with an expired lease must not use an account that another claim may hold."""
    turns = PacedStarts(lambda _release: None)
    turns.open(two := slots(2))
    turns.renew([1], time.monotonic() + 3600)
    assert await turns.wait(two[0])
    turns.renew([1], time.monotonic() - 1)
    assert not await turns.wait(two[1])


async def test_a_cancelled_wait_counts_as_settled() -> None:
    """A cancelled waiter gives up its turn."""
    heard: list[Release] = []
    turns = PacedStarts(heard.append)
    turns.open(two := slots(2, delay_s=3600))
    assert await turns.wait(two[0])
    waiting = asyncio.create_task(turns.wait(two[1]))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert len(heard) == 1


# ── in the database ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "delay_ms, granted",
    [(0, 20), (10, 20), (100, 10), (400, 3), (999, 2), (1000, 1), (60_000, 1)],
)
async def test_a_claim_is_granted_a_second_s_worth(pool: Pool, delay_ms: int, granted: int) -> None:
    """A claim gets the mails that start within a second, and at least one."""
    await an_account(pool, send_delay_ms=delay_ms, batch_size=20, counted_on=NOON.date())
    await accepted(pool, *(a_mail(lane=Lane.BULK) for _ in range(30)), now=NOON)
    assert len(await claimed(pool, Lane.BULK, now=NOON)) == granted


async def test_a_held_account_is_left_alone(pool: Pool) -> None:
    """Another claim gets a held account only after its release, and keeps the delay."""
    account = await an_account(pool, send_delay_ms=400, counted_on=NOON.date())
    await accepted(pool, *(a_mail() for _ in range(10)), now=NOON)
    first = await claimed(pool, now=NOON)
    assert [each.slot.start_in_s for each in first if each.slot] == [0.0, 0.4, 0.8]
    assert await claimed(pool, now=NOON + timedelta(seconds=5)) == []
    async with pool.acquire() as connection:
        await store.release_senders(
            connection,
            account_id=[account],
            claim_id=[first[0].claim_id],
            since_start=[timedelta(milliseconds=100)],
            now=NOON + timedelta(seconds=5),
        )
    second = await claimed(pool, now=NOON + timedelta(seconds=5))
    assert [each.slot.start_in_s for each in second if each.slot] == [0.3, 0.7]


async def test_another_claims_release_frees_nothing(pool: Pool) -> None:
    """Only the claim that holds an account can release it."""
    account = await an_account(pool, send_delay_ms=400, counted_on=NOON.date())
    await accepted(pool, *(a_mail() for _ in range(10)), now=NOON)
    await claimed(pool, now=NOON)
    async with pool.acquire() as connection:
        freed = await store.release_senders(
            connection, account_id=[account], claim_id=[0], since_start=[timedelta()], now=NOON
        )
    assert freed == 0
    assert await claimed(pool, now=NOON) == []


async def test_a_dead_holder_is_waited_out_and_the_pace_kept(pool: Pool) -> None:
    """A dead holder's account is free after the lease, with one delay before the first start."""
    await an_account(pool, send_delay_ms=700, counted_on=NOON.date())
    await accepted(pool, *(a_mail() for _ in range(10)), now=NOON)
    await claimed(pool, now=NOON)
    assert await claimed(pool, now=NOON + timedelta(seconds=59)) == []
    taken = await claimed(pool, now=NOON + timedelta(seconds=60))
    assert [each.slot.start_in_s for each in taken if each.slot] == [0.7]


async def test_a_slow_pace_is_not_claimed_ahead(pool: Pool) -> None:
    """An account is claimable only within one second before its next start."""
    await an_account(pool, send_delay_ms=60_000, counted_on=NOON.date(), next_start_at=NOON + timedelta(seconds=3))
    await accepted(pool, a_mail(), now=NOON)
    assert await claimed(pool, now=NOON + timedelta(seconds=1)) == []
    assert len(await claimed(pool, now=NOON + timedelta(seconds=2, milliseconds=500))) == 1
