"""Find sentences that break the rules of plain English in CONTRIBUTING.md."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

OPENINGS = re.compile(r"^\W*(What|Who|Whose|Whom|Whoever|Whosoever|Whatever|Of|By whom|Told)\b(?!.*\?$)")
"""A sentence names its subject first; questions may begin with their question word."""

WORDS = re.compile(
    r"(?<!`)\b(told|mend(?:s|ed|ing)?|anew|in vain|for ever|is none|are none|nobody|somebody|whoever|whosoever|whomever"
    r"|is no more|as it were|of its own accord|once more than|naught|thereof|hereby|ere)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(])")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def odd_sentences(path: Path) -> list[str]:
    """The sentences of a file that begin with a free relative or use a word of the list."""
    return [sentence for sentence in sentences(path) if OPENINGS.match(sentence) or WORDS.search(sentence)]


def sentences(path: Path) -> Iterator[str]:
    """The sentences that a person reads: docstrings, comments and texts of code, prose of pages."""
    source = path.read_text("utf-8")
    readers = {".py": _python, ".sql": _sql, ".md": _markdown}
    for text in readers.get(path.suffix, _plain)(source):
        yield from _split(text)


def _split(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|[A-Z]{4,} ))", text):
        for sentence in _SENTENCE.split(" ".join(block.split())):
            if sentence:
                yield sentence


def _python(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value
    comment: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comment.append(token.string.lstrip("# "))
        elif comment and token.type not in (tokenize.NL, tokenize.NEWLINE):
            yield " ".join(comment)
            comment = []


def _sql(source: str) -> Iterator[str]:
    for block in re.findall(r"(?:^[ \t]*--.*\n?)+|--.*", source, re.MULTILINE):
        yield re.sub(r"^[ \t]*--[ :]?", "", block, flags=re.MULTILINE)
    yield from re.findall(r"'((?:[^']|'')* (?:[^']|'')*)'", re.sub(r"--.*", "", source))


def _markdown(source: str) -> Iterator[str]:
    yield from re.split(r"\s\|\s|^\||\|$", _FENCE.sub("", source), flags=re.MULTILINE)


def _plain(source: str) -> Iterator[str]:
    yield re.sub(r"<[^>]+>|\{[{%].*?[%}]\}", " ", source)
