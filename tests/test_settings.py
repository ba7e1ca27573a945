"""Settings: read once, refused by name."""

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from postroom.errors import SettingInvalid
from postroom.runtime.setting import parse_duration, variable_of, write_duration
from postroom.settings import Settings, read_settings

REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"


def test_an_empty_environment_gives_the_defaults() -> None:
    """Nothing has to be set."""
    assert read_settings({}) == Settings()


def test_other_variables_and_empty_values_are_ignored() -> None:
    """Only POSTROOM_* is read, and an empty value is the same as none."""
    assert read_settings({"PATH": "/bin", "POSTROOM_PUBLIC_URL": ""}) == Settings()


@pytest.mark.parametrize(
    "variable, value, field, expected",
    [
        ("POSTROOM_HTTP_ADDR", "0.0.0.0:80", "http_addr", ("0.0.0.0", 80)),
        ("POSTROOM_HTTP_ADDR", "[::1]:8025", "http_addr", ("::1", 8025)),
        ("POSTROOM_LEASE", "1m30s", "lease", timedelta(seconds=90)),
        ("POSTROOM_IDEMPOTENCY_TTL", "3600", "idempotency_ttl", timedelta(hours=1)),
        ("POSTROOM_SECRET_KEY", "ab" * 32, "secret_key", b"\xab" * 32),
        ("POSTROOM_PUBLIC_URL", "https://mail.example.org/", "public_url", "https://mail.example.org"),
        ("POSTROOM_TRACING", "yes", "tracing", True),
        ("POSTROOM_WORKER_BATCH", "50", "worker_batch", 50),
    ],
)
def test_a_good_value_is_parsed(variable: str, value: str, field: str, expected: object) -> None:
    """Each kind of value has one form."""
    assert getattr(read_settings({variable: value}), field) == expected


@pytest.mark.parametrize(
    "variable, value",
    [
        ("POSTROOM_DATABASE_URL", "mysql://localhost/x"),
        ("POSTROOM_HTTP_ADDR", "localhost"),
        ("POSTROOM_HTTP_ADDR", "localhost:99999"),
        ("POSTROOM_LEASE", "soon"),
        ("POSTROOM_LEASE", "5 parsecs"),
        ("POSTROOM_SECRET_KEY", "short"),
        ("POSTROOM_SCHEMA", 'x"; DROP SCHEMA public; --'),
        ("POSTROOM_TRANSPORT", "pigeon"),
        ("POSTROOM_WORKER_BATCH", "0"),
        ("POSTROOM_WORKER_BATCH", "-1"),
        ("POSTROOM_PUBLIC_URL", "javascript:alert(1)"),
        ("POSTROOM_TRACING", "perhaps"),
        ("POSTROOM_AMBIGUOUS_BULK", "guess"),
        ("POSTROOM_TYPO", "1"),
    ],
)
def test_a_bad_value_names_its_variable(variable: str, value: str) -> None:
    """The start stops with the variable's name, and does not repeat the value, which may be a secret."""
    with pytest.raises(SettingInvalid) as caught:
        read_settings({variable: value})
    assert caught.value.variable == variable
    assert str(caught.value).startswith(variable)
    assert value not in str(caught.value).removeprefix(variable)


def test_smtp_needs_a_relay() -> None:
    """A transport without the thing it needs is refused at the start, not at the first mail."""
    with pytest.raises(SettingInvalid, match="POSTROOM_SMTP_RELAY"):
        read_settings({"POSTROOM_TRANSPORT": "smtp"})


def test_secrets_are_not_in_the_representation() -> None:
    """A settings value that ends in a log line or a traceback gives nothing away."""
    settings = read_settings(
        {
            "POSTROOM_DATABASE_URL": "postgresql://u:hidden-word@h/d",
            "POSTROOM_SECRET_KEY": "cd" * 32,
            "POSTROOM_SMTP_RELAY": "smtp://u:hidden-word@h",
        }
    )
    assert "hidden-word" not in repr(settings)
    assert repr(b"\xcd" * 32) not in repr(settings)


def test_lanes_that_hold_follow_the_policies() -> None:
    """By default only bulk mail that may have arrived waits for a person."""
    assert Settings().held_lanes == ("bulk",)
    assert read_settings({"POSTROOM_AMBIGUOUS_BULK": "resend", "POSTROOM_AMBIGUOUS_AUTH": "hold"}).held_lanes == (
        "auth",
    )


@pytest.mark.parametrize("text, seconds", [("1", 1), ("250ms", 0.25), ("2h", 7200), ("1d 12h", 129600), ("0.5s", 0.5)])
def test_durations(text: str, seconds: float) -> None:
    """Units are ms, s, m, h and d; a plain number is seconds."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["0s", "250ms", "1500ms", "90s", "5m", "12h", "90d"])
def test_durations_are_written_as_they_are_read(text: str) -> None:
    """In the largest unit that has a whole number."""
    assert write_duration(parse_duration(text)) == text


@pytest.mark.parametrize(
    "variable", [variable_of(e) for e in fields(Settings) if isinstance(getattr(Settings(), e.name), timedelta)]
)
@pytest.mark.parametrize("value", ["9999999d", "999999999999d", "9" * 400])
def test_no_duration_is_longer_than_a_hundred_years(variable: str, value: str) -> None:
    """Neither the database nor Python can write down a moment so long ago; the start says which variable it was."""
    with pytest.raises(SettingInvalid, match=f"{variable}.*(hundred years|unit)"):
        read_settings({variable: value})


@pytest.mark.parametrize("name", ["ARCHIVE_RETENTION", "ARCHIVE_AFTER", "DELIVERY_RETENTION", "TOKEN_RETENTION"])
def test_how_long_things_are_kept_has_a_unit(name: str) -> None:
    """365 would be seconds, and everything would be deleted at once."""
    with pytest.raises(SettingInvalid, match=f"POSTROOM_{name}.*365d"):
        read_settings({f"POSTROOM_{name}": "365"})


@pytest.mark.parametrize(
    "after, retention", [("90d", "0"), ("90d", "30d"), ("attempts=400d", "365d"), ("", "open_events=1d")]
)
def test_the_archive_keeps_at_least_what_it_gets(after: str, retention: str) -> None:
    """Otherwise every month would be deleted by the run that archived it."""
    with pytest.raises(SettingInvalid, match=r"POSTROOM_ARCHIVE_RETENTION.*POSTROOM_ARCHIVE_AFTER"):
        read_settings({"POSTROOM_ARCHIVE_AFTER": after, "POSTROOM_ARCHIVE_RETENTION": retention})


def test_every_setting_is_in_the_reference() -> None:
    """The documented table and the code name the same variables."""
    documented = {line.split("`")[1] for line in REFERENCE.read_text().splitlines() if line.startswith("| `POSTROOM_")}
    assert documented == {variable_of(entry) for entry in fields(Settings)}
