"""Keep the markers of odd English out of everything a person reads (CONTRIBUTING.md, "Plain English")."""

from pathlib import Path

from tests.support.language import odd_sentences

ROOT = Path(__file__).parents[2]
SCOPES = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "bench", "docs", "fuzz", "src", "tests")
LISTS = frozenset({"tests/support/language.py"})  # the words themselves

SUFFIXES = frozenset({".md", ".py", ".sql", ".html", ".sh"})


def files() -> list[Path]:
    """Every text of the scopes but the dumped schema, whose comments stand in the migrations."""
    roots = [ROOT / scope for scope in SCOPES]
    found = (path for root in roots for path in (root.rglob("*") if root.is_dir() else (root,)))
    kept = (path for path in found if path.suffix in SUFFIXES and path.name != "schema.sql")
    return sorted(path for path in kept if str(path.relative_to(ROOT)) not in LISTS)


def test_sentences_are_plain_english() -> None:
    """No sentence begins with a free relative or has a word of the list."""
    assert {str(path.relative_to(ROOT)): found for path in files() if (found := odd_sentences(path))} == {}
