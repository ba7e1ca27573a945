"""Keep the markers of odd English out of everything a person reads (CONTRIBUTING.md, "Plain English")."""

from pathlib import Path

import pytest
from tests.support.language import odd_sentences

ROOT = Path(__file__).parents[2]
SCOPES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "docs/adr",
    "docs/architecture.md",
    "docs/examples",
    "docs/glossary.md",
    "docs/how-to",
    "docs/index.md",
    "docs/performance.md",
    "docs/quickstart.md",
    "docs/reference/capture.md",
    "docs/reference/errors.md",
    "docs/reference/settings.md",
    "docs/reference/sql.md",
    "docs/security.md",
    "docs/troubleshooting.md",
    "src/postroom/__init__.py",
    "src/postroom/accounts",
    "src/postroom/app.py",
    "src/postroom/archive",
    "src/postroom/background.py",
    "src/postroom/backup",
    "src/postroom/campaigns",
    "src/postroom/cli",
    "src/postroom/client.py",
    "src/postroom/dashboard",
    "src/postroom/db",
    "src/postroom/delivery",
    "src/postroom/dropins",
    "src/postroom/embedded",
    "src/postroom/erasure",
    "src/postroom/errors.py",
    "src/postroom/events",
    "src/postroom/feedback",
    "src/postroom/http",
    "src/postroom/inbox",
    "src/postroom/intake",
    "src/postroom/mail",
    "src/postroom/outbox",
    "src/postroom/post",
    "src/postroom/runtime",
    "src/postroom/schedule",
    "src/postroom/senders",
    "src/postroom/settings.py",
    "src/postroom/stats",
    "src/postroom/tracking",
    "src/postroom/transports",
    "tests/accounts",
    "tests/archive",
    "tests/backup",
    "tests/campaigns",
    "tests/cli",
    "tests/dashboard",
    "tests/db",
    "tests/delivery",
    "tests/dropins",
    "tests/embedded",
    "tests/erasure",
    "tests/events",
    "tests/feedback",
    "tests/http",
    "tests/inbox",
    "tests/intake",
    "tests/mail",
    "tests/outbox",
    "tests/post",
    "tests/runtime",
    "tests/schedule",
    "tests/schema",
    "tests/senders",
    "tests/stats",
    "tests/support/accounts.py",
    "tests/support/accounts_process.py",
    "tests/support/builders.py",
    "tests/support/campaigns.py",
    "tests/support/campaigns_worker.py",
    "tests/support/cloudevents.py",
    "tests/support/events.py",
    "tests/support/feedback.py",
    "tests/support/feedback_imap.py",
    "tests/support/gmail_server.py",
    "tests/support/outbox.py",
    "tests/support/outbox_process.py",
    "tests/support/requests.py",
    "tests/support/schedule.py",
    "tests/support/senders.py",
    "tests/support/senders_process.py",
    "tests/support/silence.py",
    "tests/support/smtp_server.py",
    "tests/support/tracking.py",
    "tests/support/tracking_places.py",
    "tests/support/webhook_server.py",
    "tests/test_background.py",
    "tests/tracking",
    "tests/transports",
)
"""Files and folders without a flagged sentence. Add a folder when its texts are rewritten; remove none."""

SUFFIXES = frozenset({".md", ".py", ".sql", ".html", ".sh"})


def files() -> list[Path]:
    """Every text of the scopes but the dumped schema, whose comments stand in the migrations."""
    roots = [ROOT / scope for scope in SCOPES]
    found = (path for root in roots for path in (root.rglob("*") if root.is_dir() else (root,)))
    return sorted(path for path in found if path.suffix in SUFFIXES and path.name != "schema.sql")


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_are_plain_english(path: Path) -> None:
    """No sentence begins with a free relative (What, Who, Whoever) or has a word of the list."""
    assert odd_sentences(path) == []
