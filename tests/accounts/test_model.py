"""Properties of tokens and stalls, without a database."""

from datetime import UTC, datetime, timedelta

import pytest

from postroom.accounts.model import AccountId, Action, CollectorStall, DueToken, TokenId

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("lives, minutes", [(900, 15), (60, 1), (10, 1), (3600, 60)])
def test_minutes_are_those_of_the_token(lives: int, minutes: int) -> None:
    """The minutes in the mail are the lifetime of the token, at least one."""
    token = DueToken(
        id=TokenId(1),
        action=Action.ACTIVATION,
        account=AccountId(1),
        email="ada@example.org",
        login="ada",
        secret=bytes(32),
        code="00000",
        expires_at=NOW + timedelta(seconds=lives),
        created_at=NOW,
    )
    assert token.minutes == minutes


def test_actions_have_the_numbers_of_the_contract() -> None:
    """Activation is 1 and recovery is 2."""
    assert [action.number for action in (Action.ACTIVATION, Action.PASSWORD_RECOVERY)] == [1, 2]


@pytest.mark.parametrize("tokens, seconds, alarming", [(0, 100, False), (1, 59, False), (1, 61, True)])
def test_a_stall_is_alarming_when_people_wait(tokens: int, seconds: float, *, alarming: bool) -> None:
    """A stall is alarming if tokens have been delayed for more than a minute."""
    assert CollectorStall(tokens, seconds, None, None).is_alarming() is alarming
