"""What a JSON decoder says about a value it refuses, as the field it is about and what is wrong with it."""

import re

_AT = re.compile(r"^(?P<message>.*?)(?: - at (?:the key in )?`\$(?P<path>[^`]*)`)?$", re.DOTALL)
_NAMED = re.compile(r"Object (?P<what>missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)


def find_wrong_field(description: str) -> tuple[str, str]:
    """The path as the caller wrote it, empty for the whole value, and the message."""
    found = _AT.match(description)
    assert found is not None
    path = (found["path"] or "").replace("[...]", "").removeprefix(".")
    message = found["message"]
    if (named := _NAMED.fullmatch(message)) is not None:
        path = f"{path}.{named['name']}" if path else named["name"]
        message = "is required" if named["what"] == "missing required" else "is not a known field"
    return path, message
