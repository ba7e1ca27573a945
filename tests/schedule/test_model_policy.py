"""The schedule policy of an installation, from its settings."""

from datetime import time, timedelta

import pytest

from postroom.errors import SettingInvalid
from postroom.schedule.civil import LeapDay
from postroom.schedule.service import policy_of
from postroom.settings import Settings, read_settings

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_settings_become_a_policy() -> None:
    """The policy has times and lateness by kind, the leap day and the default webhook."""
    policy = policy_of(
        read_settings(
            {
                "POSTROOM_SCHEDULE_TIMES": "birthday=08:30, recurring=07:00",
                "POSTROOM_SCHEDULE_MAX_LATENESS": "birthday=12h,reminder=2d",
                "POSTROOM_LEAP_DAY": "feb28",
                "POSTROOM_SCHEDULE_WEBHOOK_URL": "https://hooks.example.org/greet/",
                "POSTROOM_TRANSPORT": "stub",
            }
        )
    )
    assert policy.times == {"BIRTHDAY": time(8, 30), "RECURRING": time(7)}
    assert policy.time_of("ANNIVERSARY") == time(9)
    assert policy.max_lateness == {"BIRTHDAY": timedelta(hours=12), "REMINDER": timedelta(days=2)}
    assert policy.leap_day is LeapDay.FEBRUARY_28
    assert policy.webhook_url == "https://hooks.example.org/greet/"
    assert not policy.captures


def test_default_policy_is_nine_and_the_first_of_march() -> None:
    """By default the time is 09:00 and the leap day 1 March; the capture transport captures greetings."""
    policy = policy_of(Settings())
    assert (policy.time_of("BIRTHDAY"), policy.leap_day, policy.captures) == (time(9), LeapDay.MARCH_1, True)


@pytest.mark.parametrize(
    "variable, value",
    [
        ("POSTROOM_SCHEDULE_TIMES", "birthday"),
        ("POSTROOM_SCHEDULE_TIMES", "birthday=9"),
        ("POSTROOM_SCHEDULE_TIMES", "birthday=25:00"),
        ("POSTROOM_SCHEDULE_TIMES", "brithday=08:30"),
        ("POSTROOM_SCHEDULE_TIMES", "reminder=08:30"),  # a reminder has its own time
        ("POSTROOM_SCHEDULE_MAX_LATENESS", "birthday=soon"),
        ("POSTROOM_SCHEDULE_MAX_LATENESS", "birthday=1h,party=1h"),
        ("POSTROOM_SCHEDULE_RETENTION", "399d"),
        ("POSTROOM_WEBHOOK_TIMEOUT", "0s"),
        ("POSTROOM_LEAP_DAY", "feb29"),
        ("POSTROOM_SCHEDULE_WEBHOOK_URL", "ftp://example.org"),
        ("POSTROOM_SCHEDULE_WEBHOOK_URL", "https://user:word@example.org/"),
        ("POSTROOM_WEBHOOK_SECRET", "hunter2"),
        ("POSTROOM_WEBHOOK_SECRET", "whsec_" + "A" * 33),
        ("POSTROOM_WEBHOOK_SECRET", SECRET.removeprefix("whsec_")),
        ("POSTROOM_WEBHOOK_SECRET", f"{SECRET},"),
        ("POSTROOM_WEBHOOK_ALLOW_PRIVATE", "perhaps"),
    ],
)
def test_invalid_setting_stops_the_start(variable: str, value: str) -> None:
    """The error names the setting."""
    with pytest.raises(SettingInvalid, match=variable):
        read_settings({variable: value})


def test_two_secrets_while_rotating() -> None:
    """Two secrets are separated by a comma and never shown."""
    settings = read_settings({"POSTROOM_WEBHOOK_SECRET": f"{SECRET},{SECRET}"})
    assert settings.webhook_secrets == (SECRET, SECRET)
    assert SECRET not in repr(settings)
