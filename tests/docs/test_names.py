"""One word per thing: a class name means one class, and a word of a name is plain or in the glossary."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "postroom"
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text("utf-8")
PLAIN = Path(__file__).with_name("plain_words.txt")

_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_TERMS = frozenset(
    word for term in re.findall(r"^\| ([a-z -]+) \|", GLOSSARY, re.MULTILINE) for word in re.split("[ -]", term)
)


GENERATED = SOURCE / "client" / "api"
"""Declarations of types that other modules define, for programs that do not import those."""


def classes() -> Iterator[tuple[Path, str]]:
    for path in (path for path in SOURCE.rglob("*.py") if GENERATED not in path.parents):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                yield path.relative_to(SOURCE), node.name


def words() -> set[str]:
    """The words of module and class names, in lower case."""
    names = {part for path in SOURCE.rglob("*.py") for part in path.relative_to(SOURCE).with_suffix("").parts}
    names |= {name for _path, name in classes()}
    return {word.lower() for name in names for word in _PART.findall(name)}


def is_glossary_word(word: str) -> bool:
    """True for a term of the glossary, its plural, and its simple verb forms."""
    forms = (word, word.removesuffix("s"), re.sub("ies$", "y", word), word.removesuffix("ed"), word.removesuffix("d"))
    return any(form in _TERMS for form in forms)


def test_no_class_name_is_defined_in_two_modules() -> None:
    """A reader who searches for a class finds one definition."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path, name in classes():
        modules[name].append(str(path))
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}


def test_words_of_names_are_plain_or_in_the_glossary() -> None:
    """A word with a meaning of Postroom's own is defined in the glossary; a plain word is listed once, here."""
    plain = set(PLAIN.read_text("utf-8").split())
    assert {word for word in words() if not is_glossary_word(word)} == plain, "edit plain_words.txt or the glossary"
