"""Templates of a test: written as files, and published into its room."""

from collections.abc import Mapping
from pathlib import Path

from postroom.db.pool import Pool
from postroom.mail.catalog import Catalog
from postroom.mail.publishing import publish


def write_templates(root: Path, files: Mapping[str, str]) -> Path:
    """Write template files by their paths below a folder."""
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


async def published(pool: Pool, root: Path, files: Mapping[str, str]) -> Catalog:
    """Write template files and make them the current versions of the room."""
    catalog = Catalog.load(write_templates(root, files))
    await publish(pool, catalog, actor="cli:tests")
    return catalog
