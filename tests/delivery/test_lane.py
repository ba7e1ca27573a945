"""A lane requests notifications while mail is scarce and polls under load."""

from postroom.delivery.lane import CALM, LaneLoad


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
