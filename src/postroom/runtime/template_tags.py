"""Find the tags of the template language in a source: `{{ … }}`, `{% … %}` and `{# … #}`. Pure.

One pass from left to right, so the time is proportional to the length whatever the source holds: regular expressions
that look for an opening and its end took 20 s for 80 kB of `{#`. The rules are the engine's: a string inside a tag may
hold anything, `{% raw %}` hides tags up to `{% endraw %}`, and a source with a tag that does not end is invalid, so
everything from there on is plain text.
"""

import re
from collections.abc import Callable, Iterator

_OPENING = re.compile(r"\{[{%#]")
_RAW = re.compile(r"\{%[-+]?\s*raw\s*[-+]?%\}")
_END_RAW = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")
_IN_TAG = {"{{": re.compile(r"[\"']|\}\}"), "{%": re.compile(r"[\"']|%\}")}
_STRING_END = {quote: re.compile(rf"[^{quote}\\]*(?:\\.[^{quote}\\]*)*{quote}", re.DOTALL) for quote in "\"'"}


def find_tags(source: str) -> list[str]:
    """The tags of a source, in order."""
    return [source[start:end] for start, end in tag_spans(source)]


def replace_tags(source: str, replace: Callable[[str], str]) -> str:
    """The source with each tag replaced by `replace` of it."""
    parts, at = [], 0
    for start, end in tag_spans(source):
        parts += [source[at:start], replace(source[start:end])]
        at = end
    return "".join([*parts, source[at:]])


def tag_spans(source: str) -> Iterator[tuple[int, int]]:
    """The start and end of each tag, in order, without overlaps."""
    at = 0
    while (opening := _OPENING.search(source, at)) is not None:
        start = opening.start()
        end = _end_of_tag(source, start)
        if end is None:
            return
        yield start, end
        at = end
        if _RAW.fullmatch(source, start, end):
            closing = _END_RAW.search(source, end)
            if closing is None:
                return
            at = closing.start()


def _end_of_tag(source: str, start: int) -> int | None:
    kind = source[start : start + 2]
    if kind == "{#":
        end = source.find("#}", start + 2)
        return end + 2 if end >= 0 else None
    at = start + 2
    while (found := _IN_TAG[kind].search(source, at)) is not None:
        at = found.end()
        if found[0] not in _STRING_END:
            return at
        string = _STRING_END[found[0]].match(source, at)
        if string is None:
            return None
        at = string.end()
    return None
