"""The delivery model, without a database."""

from postroom.delivery.model import Acceptance, Accepted, DeliveryId, DeliveryRequest, DeliveryState, Lane
from postroom.delivery.retry import LADDERS


def test_lanes_are_named_in_the_order_in_which_they_wait() -> None:
    """Lanes are ordered by priority: auth, transactional, bulk."""
    assert [lane.value for lane in Lane] == ["auth", "transactional", "bulk"]


def test_only_a_recognised_request_is_a_replay() -> None:
    """Neither a first acceptance nor a conflict is a replay."""
    answers = [Accepted(DeliveryId(1), DeliveryState.QUEUED, acceptance) for acceptance in Acceptance]
    assert [answer.replayed for answer in answers] == [False, True, False]


def test_requests_do_not_share_their_defaults() -> None:
    """Two requests without headers have two empty mappings."""
    assert DeliveryRequest().headers is not DeliveryRequest().headers


def test_every_ladder_fits_into_its_own_patience() -> None:
    """A ladder whose waits outlast its maximal age would promise steps that never come."""
    for name, ladder in LADDERS.items():
        assert sum(wait.total_seconds() for wait in ladder.waits) <= ladder.max_age.total_seconds(), name
