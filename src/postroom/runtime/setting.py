"""Declaration of settings, and the parsers that the capabilities' settings share.

Each capability declares its settings in its `settings.py`; `postroom.settings` is their sum. A parser raises
`ValueError` with the rule that the value breaks.
"""

import re
from collections.abc import Callable
from dataclasses import Field, field
from datetime import timedelta
from typing import Any

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_LONGEST_DAYS = 36_525  # a longer duration cannot be subtracted from every date
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PORTS = range(65536)  # of TCP
_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def parse_duration(value: str) -> timedelta:
    """`90s`, `5m`, `1h30m`, `7d`; a plain number is seconds."""
    text = value.strip()
    if _NUMBER.fullmatch(text):
        text += "s"
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        raise ValueError("must be a duration such as 30s, 5m, 12h or 7d")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > _LONGEST_DAYS * _UNITS["d"]:  # no earlier time can be computed
        raise ValueError(f"must be at most {_LONGEST_DAYS}d, a hundred years")
    return timedelta(seconds=seconds)


def write_duration(value: timedelta) -> str:
    """A duration as `parse_duration` reads it, in its largest whole unit: `90d`, `12h`, `1500ms`."""
    milliseconds = round(value.total_seconds() * 1000)
    units = ((unit, round(seconds * 1000)) for unit, seconds in sorted(_UNITS.items(), key=lambda each: -each[1]))
    unit, size = next((unit, size) for unit, size in units if milliseconds % size == 0)
    return f"{milliseconds // size}{unit}" if milliseconds else "0s"


def kept_for(value: str) -> timedelta:
    """A retention, which needs a unit: `30` meaning seconds would delete nearly everything."""
    if _NUMBER.fullmatch(value.strip()) and float(value) != 0:
        raise ValueError(f"must have a unit, such as {value.strip()}d")
    return parse_duration(value)


def duration_from(least: timedelta) -> Callable[[str], timedelta]:
    def parse(value: str) -> timedelta:
        duration = parse_duration(value)
        if duration < least:
            days, seconds = least.days, least.total_seconds()
            raise ValueError(f"must be at least {f'{days}d' if days else f'{seconds:g}s'}")
        return duration

    return parse


def parse_address(value: str) -> tuple[str, int]:
    """`127.0.0.1:8025` or `[::1]:8025`."""
    host, separator, port = value.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) not in _PORTS:
        raise ValueError("must be host:port")
    return host.strip("[]"), int(port)


def positive(value: str) -> int:
    if not value.strip().isdigit() or int(value) < 1:
        raise ValueError("must be a whole number above zero")
    return int(value)


def up_to(most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = positive(value)
        if number > most:
            raise ValueError(f"must be at most {most}")
        return number

    return parse


def switch(value: str) -> bool:
    word = value.strip().lower()
    if word not in (*_ON, *_OFF):
        raise ValueError("must be 1 or 0")
    return word in _ON


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return parse


def http_url(value: str) -> str:
    if not re.match(r"https?://[^/\s]+", value):
        raise ValueError("must be an http or https URL")
    return value.rstrip("/")


def mailbox(value: str) -> str:
    """An address, with or without a name."""
    from postroom.post.address import parse_address  # a tenth of a second, which commands without it need not wait

    parse_address(value)
    return value


def postgres_url(value: str) -> str:
    if not value.startswith(("postgresql://", "postgres://")):
        raise ValueError("must be a postgresql:// URL")
    return value


def address_or_off(value: str) -> tuple[str, int] | None:
    return None if value.strip().lower() == "off" else parse_address(value)


def per_kind(parse: Callable[[str], Any], *kinds: str) -> Callable[[str], tuple[tuple[str, Any], ...]]:
    """`birthday=08:30,recurring=07:00`: a value for each kind of scheduled event, restricted to `kinds` if given."""

    def parse_all(value: str) -> tuple[tuple[str, Any], ...]:
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if any(not kind.strip() or not separator for kind, separator, _ in pairs):
            raise ValueError("must be kind=value, separated by commas")
        if kinds and any(kind.strip().lower() not in kinds for kind, _, _ in pairs):
            raise ValueError(f"must be for some of {', '.join(kinds)}, such as {kinds[0]}={pairs[0][2].strip()}")
        return tuple((kind.strip().upper(), parse(text.strip())) for kind, _, text in pairs)

    return parse_all


def setting(
    parse: Callable[[str], Any], default: Any, about: str, *, secret: bool = False, variable: str | None = None
) -> Any:
    """One setting. Its variable is `POSTROOM_` and the field's name in capitals, unless `variable` names another."""
    metadata = {"parse": parse, "about": about, "variable": variable}
    return field(default=default, metadata=metadata, repr=not secret)


def variable_of(declared: "Field[Any]") -> str:
    """The environment variable of a setting."""
    return declared.metadata["variable"] or f"POSTROOM_{declared.name.upper()}"
