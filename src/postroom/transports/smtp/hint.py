"""Parser of retry hints in the text of a reply.

Only a duration after words about waiting or retrying counts, so that a rate limit ("100 messages in 60 seconds") is
not taken for a hint. The retry policy bounds the hint.
"""

import re

MAX_HINT_S = 7 * 86_400.0  # a longer hint is an error of the server or hostile

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_UNIT = r"(?:seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)"
_SPAN = rf"(?:\d{{1,6}}\s*|\b(?:an?|one)\s+){_UNIT}\b"
_CLOCK = r"\d{1,2}:\d{2}:\d{2}\b"
_WAITING = (
    r"(?:try(?:ing)?(?:\s+it)?\s+again|re-?try(?:ing)?|resend|re-?submit|reconnect|come\s+back|wait"
    r"|gr[ae]y-?list(?:ed|ing))"
)
_FILLER = r"(?:[\s,:]+(?:later|please|again|in|after|for|at\s+least|about|approximately|another))*"
_HINT = re.compile(
    rf"\b{_WAITING}{_FILLER}[\s:=(]+(?P<clock>{_CLOCK})"
    rf"|\b{_WAITING}{_FILLER}[\s:=(]+(?P<spans>{_SPAN}(?:(?:\s*,\s*|\s+and\s+|\s*){_SPAN})*)"
    r"|\bretry-after\s*[:=]\s*(?P<bare>\d{1,6})\b",
    re.IGNORECASE,
)
_ONE_SPAN = re.compile(rf"(?:(\d{{1,6}})\s*|\b(?:an?|one)\s+)({_UNIT})\b", re.IGNORECASE)
# "4m59s" has no word boundary between its parts.
_COMPACT = re.compile(r"(\d)([hms])(?=\d)", re.IGNORECASE)


def parse_retry_hint(text: str) -> float | None:
    """Return the seconds that a reply asks to wait, or None without a hint."""
    found = _HINT.search(_COMPACT.sub(r"\1\2 ", text))
    if found is None:
        return None
    seconds = _seconds(found)
    return seconds if 0 < seconds <= MAX_HINT_S else None


def _seconds(found: re.Match[str]) -> float:
    if found["clock"]:
        hours, minutes, seconds = (int(part) for part in found["clock"].split(":"))
        return float(hours * 3_600 + minutes * 60 + seconds)
    if found["bare"]:
        return float(found["bare"])
    spans = _ONE_SPAN.findall(found["spans"])
    return float(sum(int(n or 1) * _UNITS[unit[0].lower()] for n, unit in spans))
