"""A lane requests notifications while mail is scarce and polls under load; bulk mail gives way to notified mail."""

import asyncio

import pytest
from tests.support.builders import Recording, Steps, a_mail, a_worker, accepted
from tests.support.silence import let_pass, settle
from tests.support.smtp_server import Hold, Script, smtp_server, transport_to

from postroom.db.pool import Pool
from postroom.delivery import lane as module
from postroom.delivery.decision import NO_TIME
from postroom.delivery.lane import CALM, LONGEST_PRECEDENCE_S, LaneLoad, LaneWakeups, Precedence, WokenWorker
from postroom.delivery.model import Lane
from postroom.delivery.worker import WorkerOptions


def test_a_lane_without_work_may_sleep_at_once() -> None:
    """The first empty look of a new lane is enough."""
    lane = LaneLoad()
    lane.found_nothing()
    assert lane.may_sleep


def test_scarce_mail_keeps_a_lane_notified() -> None:
    """Every find is followed by an empty look, however often."""
    lane = LaneLoad(asleep=True)
    for _ in range(100):
        lane.found(is_much=False)
        assert not lane.must_wake
        lane.found_nothing()


def test_finds_without_empty_looks_end_notifications() -> None:
    """Ten finds in a row are load."""
    lane = LaneLoad(asleep=True)
    for _ in range(CALM):
        assert not lane.must_wake
        lane.found(is_much=False)
    assert lane.must_wake


def test_a_whole_chunk_ends_notifications_at_once() -> None:
    """One claim of a chunk is load."""
    lane = LaneLoad(asleep=True)
    lane.found(is_much=True)
    assert lane.must_wake


def test_a_lane_sleeps_again_after_five_empty_looks() -> None:
    """After a burst a lane polls for a while, because work comes in bursts."""
    lane = LaneLoad(calm=0)
    for _ in range(4):
        lane.found_nothing()
        assert not lane.may_sleep
    lane.found_nothing()
    assert lane.may_sleep


async def test_bulk_mail_waits_for_the_end_of_a_turn() -> None:
    """Other lanes do not wait."""
    precedence = Precedence()
    async with precedence.turn(Lane.AUTH, is_notified=True):
        assert [precedence.holds_back(lane) for lane in Lane] == [lane is Lane.BULK for lane in Lane]
        waiting = asyncio.create_task(precedence.give_way(Lane.BULK))
        await settle()
        assert not waiting.done()
    await waiting


@pytest.mark.parametrize("lane, is_notified", [(Lane.BULK, True), (Lane.TRANSACTIONAL, False)])
async def test_only_a_notified_mail_of_another_lane_takes_precedence(
    lane: Lane,
    is_notified: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    """Polls of many quiet rooms must not stop the bulk mail of one."""
    precedence = Precedence()
    async with precedence.turn(lane, is_notified=is_notified):
        assert not precedence.holds_back(Lane.BULK)


async def test_a_turn_without_an_end_holds_bulk_mail_back_for_a_moment() -> None:
    """The server of one room may not answer; the bulk mail of the others goes on."""
    precedence = Precedence()
    async with precedence.turn(Lane.AUTH, is_notified=True):
        waiting = asyncio.create_task(precedence.give_way(Lane.BULK))
        await settle()
        let_pass(LONGEST_PRECEDENCE_S)
        await waiting
        assert not precedence.holds_back(Lane.BULK)


async def test_bulk_mail_is_held_back_for_half_of_the_time_at_most() -> None:
    """After a wait it goes on for as long as it has waited, although more mail takes precedence."""
    precedence = Precedence()
    async with precedence.turn(Lane.AUTH, is_notified=True):
        waiting = asyncio.create_task(precedence.give_way(Lane.BULK))
        await settle()
        let_pass(LONGEST_PRECEDENCE_S)
        await waiting
        async with precedence.turn(Lane.AUTH, is_notified=True):
            assert not precedence.holds_back(Lane.BULK)
        let_pass(3 * LONGEST_PRECEDENCE_S)
        async with precedence.turn(Lane.AUTH, is_notified=True):
            assert precedence.holds_back(Lane.BULK)


async def test_the_bulk_mail_of_one_worker_waits_for_another_worker(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is claimed and not started; mail of other lanes leaves meanwhile."""
    monkeypatch.setattr(module, "LONGEST_PRECEDENCE_S", 3_600.0)
    precedence, steps = Precedence(), Steps()
    bulk, other = Recording(), Recording()
    await accepted(pool, a_mail(lane=Lane.BULK), a_mail())
    async with precedence.turn(Lane.TRANSACTIONAL, is_notified=True):
        running = asyncio.create_task(
            a_worker(pool, bulk, precedence=precedence, signal=steps).run_once(Lane.BULK),
        )
        await steps.reached("claimed")
        await a_worker(pool, other, precedence=precedence).run_once(Lane.TRANSACTIONAL)
        assert (len(other.envelopes), steps.heard) == (1, ["claimed"])
    assert await running == 1
    assert len(bulk.envelopes) == 1


async def test_bulk_mail_gives_way_between_two_messages(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection with waiting mail sends no more of it until the turn has ended."""
    monkeypatch.setattr(module, "LONGEST_PRECEDENCE_S", 3_600.0)
    precedence, steps, hold = Precedence(), Steps(), Hold("250 ready")
    await accepted(pool, *(a_mail(f"p{n}@example.org", lane=Lane.BULK) for n in range(3)))
    async with (
        smtp_server(Script(says={"EHLO": [hold]})) as server,
        transport_to(server, max_connections=1) as transport,
    ):
        running = asyncio.create_task(
            a_worker(pool, transport, precedence=precedence, signal=steps).run_once(Lane.BULK)
        )
        await hold.reached.wait()
        async with precedence.turn(Lane.AUTH, is_notified=True):
            hold.go.set()
            await steps.reached("completed")
            await settle()
            assert len(server.messages) == 1
        assert await running == 3
        assert len(server.messages) == 3


@pytest.mark.parametrize("is_woken", [False, True])
async def test_a_notified_lane_takes_precedence_for_one_look(pool: Pool, *, is_woken: bool) -> None:
    """From the claim to the transport; the next mail, which a poll finds, does not."""
    precedence, waker = Precedence(), LaneWakeups()
    held: list[bool] = []

    def signal(step: str) -> None:
        if step == "started":
            held.append(precedence.holds_back(Lane.BULK))

    woken = WokenWorker(0, frozenset({Lane.TRANSACTIONAL}), NO_TIME) if is_woken else None
    if not is_woken:
        waker.notified("transactional")
    await accepted(pool, a_mail(), a_mail())
    options = WorkerOptions(batch=1, lanes=(Lane.TRANSACTIONAL,), until_empty=True)
    seams = {"precedence": precedence, "waker": waker, "signal": signal, "options": options, "woken": woken}
    await a_worker(pool, Recording(), **seams).run()
    assert held == [True, False]
